//! The two ends of a scenario: queue pairs of our NIC in this process, as many of rxe in the guest, and a wire between them.

mod ours;
mod sdr;

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use softnic_collectives::on_nic::NicPlace;
use softnic_fault_injector::Spec;
use softnic_nic::transports::memory::{Access, PdId};
use softnic_nic::transports::qp::PayloadMode;
use softnic_nic::transports::{AhId, CqId, SendOp, SrqId};
use softnic_nic::{Buffer, Nic, NicConfig};
use softnic_runtime::{Driver, DriverError, Faulty, Neighbours, OsRandom};
use softnic_sdr::QpId;
use softnic_wire::{Instant, MacAddr, PathMtu};

use super::setup::{Done, MEMORY, Queue, RD_ATOMIC, Setup, Side};
use super::verbs;
use super::wire::{Io, Network, Wire, address};
use crate::guest::{Error, Guest, Image, failed, from_hex, to_hex};

/// Of all queue pairs.
const QKEY: u32 = 0x1122_3344;

/// Where an end's memory is, and the numbers of its queue pairs, each with the first PSN that it sends.
#[derive(Debug, Clone)]
struct End {
    qpns: Vec<u32>,
    psns: Vec<u32>,
    addr: u64,
    key: u32,
}

/// A send work request and the queue pair for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct SendAt {
    pub(super) qp: usize,
    pub(super) wr_id: u64,
    pub(super) op: SendOp,
    pub(super) offset: usize,
    pub(super) len: usize,
}

/// A receive work request and the queue pair for it; a shared queue does not ask for which.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecvAt {
    pub(super) qp: usize,
    pub(super) wr_id: u64,
    pub(super) offset: usize,
    pub(super) len: usize,
}

/// A memory window of type 2 over a part of an end's memory, and the queue pair for it.
#[derive(Debug, Clone, Copy)]
pub(super) struct BindAt {
    pub(super) qp: usize,
    pub(super) wr_id: u64,
    pub(super) offset: usize,
    pub(super) len: usize,
    pub(super) access: Access,
    /// Whether its addresses begin with 0.
    pub(super) zero_based: bool,
}

/// Our NIC, the guest, and the connection of the current scenario.
pub(super) struct Session {
    driver: Driver<Nic, Faulty<Io>>,
    /// The kernel's view of our interface, where it has one.
    network: Option<Network>,
    guest: Guest,
    pd: PdId,
    cqs: [CqId; 2],
    buffer: Arc<Buffer>,
    ours: Option<End>,
    theirs: Option<End>,
    /// The way to the guest, for datagrams.
    ah: Option<AhId>,
    srq: Option<SrqId>,
    window: Option<u32>,
    /// Our end, where it is one of SDR.
    sdr: Option<QpId>,
    /// The same faults with the same seed, as far as the guest does the same.
    seed: u64,
    /// Of the current connection.
    pub(super) setup: Setup,
    /// Whether scenarios do as little as shows what they are about, so that their captures are short.
    pub(super) small: bool,
}

fn io(e: DriverError) -> Error {
    Error::Failed(e.to_string())
}

fn refused(e: impl std::fmt::Display) -> Error {
    Error::Failed(format!("softnic: {e}"))
}

/// Runs our NIC for a moment.
fn pump(driver: &mut Driver<Nic, Faulty<Io>>) -> Result<(), Error> {
    driver.run_until(Duration::from_millis(1), |_| false).map(|_| ()).map_err(io)
}

impl Session {
    /// Makes our NIC and boots the guest; its sockets and logs are in `folder`.
    pub(super) fn start(image: &Image, folder: &Path, wire: Wire, seed: u64, small: bool) -> Result<Session, Error> {
        let Wire { io, port, network, machine, .. } = wire;
        let neighbours = Neighbours::new(&port);
        let random = OsRandom::new().map_err(failed(folder))?;
        let mut nic = Nic::new(NicConfig { port, payload: PayloadMode::Real }, Box::new(random));
        let pd = nic.alloc_pd();
        let cqs = [nic.create_cq(1024), nic.create_cq(1024)];
        let mut driver = Driver::new(nic, Faulty::new(io, &Spec::default(), 0), neighbours);
        let guest = Guest::boot(image, folder, &machine, &mut || pump(&mut driver))?;
        let buffer = Buffer::new(0x7000_0000_0000, MEMORY);
        let setup = Setup::new(Side::Softnic, false, PathMtu::B1024);
        let (ours, theirs, ah, srq, window, sdr) = (None, None, None, None, None, None);
        Ok(Session { driver, network, guest, pd, cqs, buffer, ours, theirs, ah, srq, window, sdr, seed, setup, small })
    }

    /// The guest's kernel.
    pub(super) fn kernel(&mut self) -> Result<String, Error> {
        let kernel = self.call(&json!({"do": "kernel"}))?;
        Ok(kernel.as_str().unwrap_or("?").to_owned())
    }

    /// How long the guest took to boot.
    pub(super) fn boot_time(&self) -> Duration {
        self.guest.boot
    }

    /// The file that holds what the guest's kernel and init print.
    pub(super) fn console(&self) -> &Path {
        &self.guest.console
    }

    /// Records all frames into a file until [`Session::close`].
    pub(super) fn record(&mut self, file: &Path) -> Result<(), Error> {
        let out = std::fs::File::create(file).map_err(failed(file))?;
        self.driver.record(Box::new(std::io::BufWriter::new(out))).map_err(io)
    }

    fn call(&mut self, command: &Value) -> Result<Value, Error> {
        let driver = &mut self.driver;
        self.guest.call(command, &mut || pump(driver))
    }

    /// Makes queue pairs at each end and connects them.
    pub(super) fn open(&mut self, setup: Setup) -> Result<(), Error> {
        self.setup = setup;
        let ours = self.open_ours()?;
        let (qp_access, mr_access) = setup.access(Side::Rxe);
        let peer = address(Side::Rxe, setup.ipv6);
        let answer = self.call(&json!({
            "do": "open", "service": verbs::service(setup.service), "memory": MEMORY, "ip": peer.to_string(),
            "mtu": setup.mtu.bytes(), "psn": setup.psn, "qps": setup.qps, "srq": setup.has_srq(Side::Rxe),
            "qp_access": verbs::access(qp_access), "mr_access": verbs::access(mr_access),
            "max_rd_atomic": RD_ATOMIC, "min_rnr_timer": setup.min_rnr_timer, "timeout": setup.timeout,
            "retry_cnt": setup.retry_cnt, "rnr_retry": setup.rnr_retry,
        }))?;
        let unknown = || Error::Failed(format!("the agent's answer is not an end: {answer}"));
        let field = |name: &str| answer[name].as_u64().ok_or_else(unknown);
        let qpns = answer["qpns"].as_array().ok_or_else(unknown)?;
        let qpns = qpns.iter().filter_map(Value::as_u64).map(|q| q as u32).collect();
        let psns = vec![setup.psn; setup.qps];
        let theirs = End { qpns, psns, addr: field("addr")?, key: field("rkey")? as u32 };
        (self.ours, self.theirs) = (Some(ours.clone()), Some(theirs.clone()));
        let gid = match address(Side::Softnic, setup.ipv6) {
            IpAddr::V4(a) => a.to_ipv6_mapped(),
            IpAddr::V6(a) => a,
        };
        // pyverbs reads a GID only with all its digits.
        let gid = gid.segments().map(|s| format!("{s:04x}")).join(":");
        self.call(&json!({"do": "connect", "gid": gid, "qpns": ours.qpns, "psns": ours.psns, "qkey": QKEY}))?;
        let mac = self.resolve(peer)?;
        if setup.sdr.is_none() {
            self.connect_ours(&ours, &theirs, peer, mac)?;
        }
        let faults: Spec = setup.faults.parse().map_err(refused)?;
        self.driver.io_mut().set_faults(&faults, self.seed);
        Ok(())
    }

    /// The guest's MAC address: the kernel asks for it where it has the interface, and our NIC where not.
    fn resolve(&mut self, peer: IpAddr) -> Result<MacAddr, Error> {
        let Some(network) = &mut self.network else { return self.driver.resolve(peer).map_err(io) };
        loop {
            if let Some(mac) = network.mac_of(peer)? {
                return Ok(mac);
            }
            pump(&mut self.driver)?;
        }
    }

    /// Destroys one end; that it is gone already is just as well.
    pub(super) fn close_end(&mut self, side: Side) -> Result<(), Error> {
        match side {
            Side::Rxe if self.theirs.take().is_some() => self.call(&json!({"do": "close"})).map(|_| ()),
            Side::Rxe => Ok(()),
            Side::Softnic => self.close_ours(),
        }
    }

    /// Destroys both ends and ends the capture.
    pub(super) fn close(&mut self) -> Result<(), Error> {
        self.driver.io_mut().set_faults(&Spec::default(), 0);
        // Answers that are still under way belong to this capture.
        self.pause(Duration::from_millis(5))?;
        self.close_end(Side::Rxe)?;
        self.close_end(Side::Softnic)?;
        self.driver.stop_recording().map_err(io)
    }

    /// Lets time pass.
    pub(super) fn pause(&mut self, time: Duration) -> Result<(), Error> {
        self.driver.run_until(time, |_| false).map(|_| ()).map_err(io)
    }

    fn end(&self, side: Side) -> Result<&End, Error> {
        let end = if side == Side::Softnic { &self.ours } else { &self.theirs };
        end.as_ref().ok_or_else(|| Error::Failed(format!("{} has no queue pair", side.name())))
    }

    /// Address and key of an end's memory at `offset`, as its peer names it.
    pub(super) fn remote(&self, side: Side, offset: usize) -> Result<(u64, u32), Error> {
        let end = self.end(side)?;
        Ok((end.addr + offset as u64, end.key))
    }

    /// The numbers of an end's queue pairs.
    pub(super) fn qpns(&self, side: Side) -> Result<&[u32], Error> {
        self.end(side).map(|e| &e.qpns[..])
    }

    pub(super) fn fill(&mut self, side: Side, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        match side {
            Side::Softnic => self.buffer.write_at(offset, bytes),
            Side::Rxe if bytes.is_empty() => {}
            Side::Rxe => {
                self.call(&json!({"do": "fill", "offset": offset, "hex": to_hex(bytes)}))?;
            }
        }
        Ok(())
    }

    pub(super) fn read(&mut self, side: Side, offset: usize, len: usize) -> Result<Vec<u8>, Error> {
        if side == Side::Softnic {
            let mut bytes = vec![0; len];
            self.buffer.read_at(offset, &mut bytes);
            return Ok(bytes);
        }
        let answer = self.call(&json!({"do": "read", "offset": offset, "len": len}))?;
        let bytes = answer.as_str().and_then(from_hex).filter(|b| b.len() == len);
        bytes.ok_or_else(|| Error::Failed("the agent's memory is not as many bytes as were asked for".into()))
    }

    /// A receive at the first queue pair.
    pub(super) fn recv(&mut self, side: Side, wr_id: u64, offset: usize, len: usize) -> Result<(), Error> {
        self.recv_all(side, &[RecvAt { qp: 0, wr_id, offset, len }])
    }

    /// Receives at any queue pairs.
    pub(super) fn recv_all(&mut self, side: Side, all: &[RecvAt]) -> Result<(), Error> {
        if side == Side::Softnic {
            return all.iter().try_for_each(|recv| self.recv_ours(recv));
        }
        let one = |r: &RecvAt| json!({"do": "recv", "qp": r.qp, "wr_id": r.wr_id, "offset": r.offset, "len": r.len});
        let commands: Vec<_> = all.iter().map(one).collect();
        self.call(&json!({"do": "batch", "commands": commands})).map(|_| ())
    }

    /// A send at the first queue pair.
    pub(super) fn send(&mut self, side: Side, wr_id: u64, op: SendOp, offset: usize, len: usize) -> Result<(), Error> {
        self.send_all(side, &[SendAt { qp: 0, wr_id, op, offset, len }])
    }

    /// Sends at any queue pairs, at once.
    pub(super) fn send_all(&mut self, side: Side, all: &[SendAt]) -> Result<(), Error> {
        if side == Side::Softnic {
            return all.iter().try_for_each(|send| self.send_ours(send));
        }
        let one = |s: &SendAt| {
            let mut command =
                verbs::send(s.op).ok_or_else(|| Error::Failed(format!("the agent has no command for {:?}", s.op)))?;
            (command["do"], command["qp"]) = ("send".into(), s.qp.into());
            (command["wr_id"], command["offset"], command["len"]) = (s.wr_id.into(), s.offset.into(), s.len.into());
            Ok(command)
        };
        let commands = all.iter().map(one).collect::<Result<Vec<_>, Error>>()?;
        self.call(&json!({"do": "batch", "commands": commands})).map(|_| ())
    }

    /// Lays a memory window over a part of an end's memory; the key that it gets.
    pub(super) fn bind(&mut self, side: Side, bind: &BindAt) -> Result<u32, Error> {
        if side == Side::Softnic {
            return self.bind_ours(bind);
        }
        let &BindAt { qp, wr_id, offset, len, zero_based, .. } = bind;
        let access = verbs::access(bind.access);
        let key = self.call(&json!({
            "do": "bind", "qp": qp, "wr_id": wr_id, "offset": offset, "len": len, "access": access,
            "zero_based": zero_based,
        }))?;
        key.as_u64().map(|k| k as u32).ok_or_else(|| Error::Failed(format!("the agent's window has no key: {key}")))
    }

    /// Destroys a memory window of rxe.
    pub(super) fn unbind_theirs(&mut self, rkey: u32) -> Result<(), Error> {
        self.call(&json!({"do": "unbind", "rkey": rkey})).map(|_| ())
    }

    /// Our NIC with the places of its two completion queues, for a rank of a collective that has a queue pair of the scenario.
    pub(super) fn places(&mut self) -> (&mut Nic, [NicPlace; 2], Instant) {
        let now = self.driver.now();
        (&mut self.driver.node, self.cqs.map(|cq| NicPlace::of(self.pd, cq)), now)
    }

    /// The next completions, at most `count`, waiting for them at most `limit`.
    pub(super) fn poll(&mut self, side: Side, queue: Queue, count: usize, limit: Duration) -> Result<Vec<Done>, Error> {
        if side == Side::Softnic {
            return self.poll_ours(queue, count, limit);
        }
        let queue = u8::from(queue == Queue::Recv);
        let ms = limit.as_millis() as u64;
        let answer = self.call(&json!({"do": "poll", "queue": queue, "count": count, "ms": ms}))?;
        verbs::completions(&answer).ok_or_else(|| Error::Failed(format!("no completions: {answer}")))
    }
}
