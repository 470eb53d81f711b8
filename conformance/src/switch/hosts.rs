//! Two guests and a softnic, each at a port of the switch; and their queue pairs, one each.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use softnic_wire::MacAddr;

use super::ours::Ours;
use crate::guest::{Error, Guest, HwCounters, Image, Link, Machine, Space, create_folder, from_hex, to_hex};

/// The softnic among the hosts; the others are guests.
pub(super) const SOFTNIC: usize = 0;
/// The guest that is behind a wire with faults.
pub(super) const FAULTY: usize = 1;
/// Hosts.
pub(super) const HOSTS: usize = 3;

/// The wire with faults: towards the first guest, towards the switch.
pub(super) const BRANCH: [&str; 2] = ["sntap1", "snbranch0"];
/// The switch's ports, by host.
pub(super) const PORTS: [&str; HOSTS] = ["snours1", "snbranch1", "sntap2"];
/// Our NIC's interface.
const OURS: &str = "snours0";
const TAPS: [&str; 2] = ["sntap1", "sntap2"];
/// By host.
pub(super) const MACS: [MacAddr; HOSTS] =
    [MacAddr([2, 0, 0, 0x35, 0, 1]), MacAddr([2, 0, 0, 0x35, 0, 2]), MacAddr([2, 0, 0, 0x35, 0, 3])];
/// The same of guests, in words.
const GUEST_MACS: [&str; 2] = ["02:00:00:35:00:02", "02:00:00:35:00:03"];
const WITH_PREFIX: [&[&str]; HOSTS] =
    [&["10.35.0.1/24", "fd35::1/64"], &["10.35.0.2/24", "fd35::2/64"], &["10.35.0.3/24", "fd35::3/64"]];
/// Path MTU 4096 with every header.
const LINK_MTU: u32 = 4200;
/// Bytes of each host's memory: the first half is sent from, the second half is received into.
pub(super) const MEMORY: usize = 2 << 20;
/// The first PSN of everybody: it wraps in every scenario.
pub(super) const PSN: u32 = 0xff_fff0;
const RIGHTS: [&str; 2] = ["local_write", "remote_write"];
/// How long a work request may take: a guest is slow, and faults cost timeouts.
pub(super) const LIMIT: Duration = Duration::from_secs(60);

/// What is common to the queue pairs of a scenario.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    pub(super) mtu: u32,
    pub(super) ipv6: bool,
    /// The local ACK timeout.
    pub(super) timeout: u8,
}

/// A host's queue pair and memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub(super) qpn: u32,
    pub(super) addr: u64,
    pub(super) rkey: u32,
}

/// A completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) wr_id: u64,
    /// As `enum ibv_wc_status` has it.
    pub(super) status: u64,
    pub(super) imm: Option<u32>,
}

/// What a sender does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Write,
    WriteImm,
    Send,
    SendImm,
}

impl Op {
    pub(super) const ALL: [Op; 4] = [Op::Write, Op::WriteImm, Op::Send, Op::SendImm];

    pub(super) fn name(self) -> &'static str {
        match self {
            Op::Write => "write",
            Op::WriteImm => "write_imm",
            Op::Send => "send",
            Op::SendImm => "send_imm",
        }
    }

    /// Whether receivers need a receive for it.
    pub(super) fn takes_receive(self) -> bool {
        self != Op::Write
    }

    pub(super) fn has_imm(self) -> bool {
        matches!(self, Op::WriteImm | Op::SendImm)
    }
}

/// A work request of a sender; all of them are signaled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Work {
    pub(super) wr_id: u64,
    pub(super) op: Op,
    pub(super) len: usize,
    pub(super) imm: u32,
    /// Of WRITEs.
    pub(super) remote_addr: u64,
    pub(super) rkey: u32,
}

pub(super) fn address(host: usize, ipv6: bool) -> IpAddr {
    let n = host as u8 + 1;
    match ipv6 {
        false => [10, 35, 0, n].into(),
        true => [0xfd35, 0, 0, 0, 0, 0, 0, u16::from(n)].into(),
    }
}

fn idle() -> Result<(), Error> {
    std::thread::sleep(Duration::from_millis(1));
    Ok(())
}

pub(super) struct Hosts {
    ours: Ours,
    guests: [Guest; 2],
    open: bool,
}

impl Hosts {
    /// Makes all links, opens our NIC and boots both guests, at the same time.
    pub(super) fn boot(image: &Image, folder: &Path, space: &Space) -> Result<Hosts, Error> {
        for [a, b] in [[OURS, PORTS[SOFTNIC]], [BRANCH[1], PORTS[FAULTY]]] {
            space.ip(&format!("link add {a} type veth peer name {b}"))?;
            for end in [a, b] {
                space.ip(&format!("link set {end} mtu {LINK_MTU}"))?;
            }
        }
        space.ip(&format!("link set {OURS} address {}", MACS[SOFTNIC]))?;
        for address in WITH_PREFIX[SOFTNIC] {
            let nodad = if address.contains(':') { "nodad" } else { "" };
            space.ip(&format!("address add {address} dev {OURS} {nodad}"))?;
        }
        for end in [OURS, PORTS[SOFTNIC], BRANCH[1], PORTS[FAULTY]] {
            space.ip(&format!("link set {end} up"))?;
        }
        let boot = |host: usize| {
            let tap = TAPS[host - 1];
            // Of the tap itself, which nobody talks to.
            space.add_tap(tap, &format!("02:00:00:35:01:0{host}"), LINK_MTU, &[])?;
            let folder = folder.join(tap);
            create_folder(&folder)?;
            let link = Link::Tap { namespace: space.name().into(), tap: tap.into() };
            let machine = Machine::new(link, GUEST_MACS[host - 1], WITH_PREFIX[host], LINK_MTU);
            Guest::boot(image, &folder, &machine, &mut idle)
        };
        let (a, b) = std::thread::scope(|scope| {
            let other = scope.spawn(|| boot(2));
            (boot(1), other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        let ours = space.inside(|| Ours::open(OURS))?;
        Ok(Hosts { ours, guests: [a?, b?], open: false })
    }

    /// What there is to know of the guests.
    pub(super) fn describe(&mut self) -> Result<String, Error> {
        let kernel = self.call(1, &json!({"do": "kernel"}))?;
        let [a, b] = self.guests.each_ref().map(|g| g.boot.as_secs_f64());
        Ok(format!("Linux {} twice, up in {a:.1} s and {b:.1} s", kernel.as_str().unwrap_or("?")))
    }

    fn call(&mut self, guest: usize, command: &Value) -> Result<Value, Error> {
        self.guests[guest - 1].call(command, &mut idle)
    }

    /// A queue pair at each host, connected to nobody.
    pub(super) fn open(&mut self, setup: &Setup) -> Result<[End; HOSTS], Error> {
        self.open = true;
        let mut ends = [self.ours.open_end()?; HOSTS];
        for (host, end) in ends.iter_mut().enumerate().skip(1) {
            let answer = self.call(
                host,
                &json!({
                    "do": "open", "service": "RC", "memory": MEMORY, "ip": address(host, setup.ipv6).to_string(),
                    "mtu": setup.mtu, "psn": PSN, "qps": 1, "srq": false, "qp_access": RIGHTS, "mr_access": RIGHTS,
                    "max_rd_atomic": 1, "min_rnr_timer": 12, "timeout": setup.timeout,
                    // As many retries as rxe counts: its 7 are without end, which suits those who wait for a receive.
                    "retry_cnt": 6, "rnr_retry": 7,
                }),
            )?;
            let number = |v: &Value, what: &str| {
                v.as_u64().ok_or_else(|| Error::Failed(format!("the agent's answer has no {what}: {answer}")))
            };
            *end = End {
                qpn: number(&answer["qpns"][0], "qpn")? as u32,
                addr: number(&answer["addr"], "addr")?,
                rkey: number(&answer["rkey"], "rkey")? as u32,
            };
        }
        Ok(ends)
    }

    /// Connects a host's queue pair to that of an address.
    pub(super) fn connect(&mut self, host: usize, setup: &Setup, peer: usize, qpn: u32) -> Result<(), Error> {
        let peer = address(peer, setup.ipv6);
        if host == SOFTNIC {
            return self.ours.connect(setup, peer, qpn);
        }
        let gid = match peer {
            IpAddr::V4(a) => a.to_ipv6_mapped(),
            IpAddr::V6(a) => a,
        };
        // pyverbs reads a GID only with all its digits.
        let gid = gid.segments().map(|s| format!("{s:04x}")).join(":");
        self.call(host, &json!({"do": "connect", "gid": gid, "qpns": [qpn], "psns": [PSN], "qkey": 0})).map(drop)
    }

    /// Destroys all ends.
    pub(super) fn close(&mut self) -> Result<(), Error> {
        if std::mem::take(&mut self.open) {
            self.ours.close_end();
            (1..HOSTS).try_for_each(|host| self.call(host, &json!({"do": "close"})).map(drop))?;
        }
        Ok(())
    }

    pub(super) fn fill(&mut self, host: usize, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        if host == SOFTNIC {
            self.ours.fill(offset, bytes);
        }
        if host == SOFTNIC || bytes.is_empty() {
            return Ok(());
        }
        self.call(host, &json!({"do": "fill", "offset": offset, "hex": to_hex(bytes)})).map(drop)
    }

    /// Whether a host's memory holds these bytes.
    pub(super) fn holds(&mut self, host: usize, offset: usize, bytes: &[u8]) -> Result<bool, Error> {
        if host == SOFTNIC {
            return Ok(self.ours.read(offset, bytes.len()) == bytes);
        }
        let answer = self.call(host, &json!({"do": "read", "offset": offset, "len": bytes.len()}))?;
        Ok(answer.as_str().and_then(from_hex).is_some_and(|read| read == bytes))
    }

    /// A receive.
    pub(super) fn recv(&mut self, host: usize, wr_id: u64, offset: usize, len: usize) -> Result<(), Error> {
        if host == SOFTNIC {
            return self.ours.recv(wr_id, offset, len);
        }
        self.call(host, &json!({"do": "recv", "wr_id": wr_id, "offset": offset, "len": len, "qp": 0})).map(drop)
    }

    /// A send from the beginning of a host's memory.
    pub(super) fn send(&mut self, host: usize, work: &Work) -> Result<(), Error> {
        if host == SOFTNIC {
            return self.ours.send(work);
        }
        let mut command = json!({
            "do": "send", "opcode": work.op.name(), "wr_id": work.wr_id, "offset": 0, "len": work.len, "qp": 0,
            "remote_addr": work.remote_addr, "rkey": work.rkey,
        });
        if work.op.has_imm() {
            command["imm"] = work.imm.into();
        }
        self.call(host, &command).map(drop)
    }

    /// The next completion of a queue: 0 of sends, 1 of receives.
    pub(super) fn done(&mut self, host: usize, queue: usize) -> Result<Done, Error> {
        if host == SOFTNIC {
            return self.ours.done(queue);
        }
        let ms = LIMIT.as_millis() as u64;
        let answer = self.call(host, &json!({"do": "poll", "queue": queue, "count": 1, "ms": ms}))?;
        let done = &answer[0];
        match (done["wr_id"].as_u64(), done["status"].as_u64()) {
            (Some(wr_id), Some(status)) => Ok(Done { wr_id, status, imm: done["imm"].as_u64().map(|imm| imm as u32) }),
            _ => Err(Error::Failed(format!("no completion at host {host}: {answer}"))),
        }
    }

    /// What both guests' rxe counted since they booted.
    pub(super) fn hw_counters(&mut self) -> Result<[HwCounters; 2], Error> {
        let [a, b] = &mut self.guests;
        Ok([a.hw_counters(&mut idle)?, b.hw_counters(&mut idle)?])
    }
}
