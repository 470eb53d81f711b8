//! Two guests, each on a tap, with nothing between them but what the wire forwards; and a connection of their queue pairs.

use std::net::Ipv6Addr;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use crate::guest::{Error, Guest, HwCounters, Image, Link, Machine, Space, create_folder};

/// The wire's interfaces: towards the first guest, towards the second.
pub(super) const TAPS: [&str; 2] = ["sntap0", "sntap1"];
/// Of the taps themselves, which nobody talks to.
const TAP_MACS: [&str; 2] = ["02:00:00:34:01:01", "02:00:00:34:01:02"];
const MACS: [&str; 2] = ["02:00:00:34:00:01", "02:00:00:34:00:02"];
const ADDRESSES: [&str; 2] = ["10.34.0.1", "10.34.0.2"];
const WITH_PREFIX: [&[&str]; 2] = [&["10.34.0.1/24"], &["10.34.0.2/24"]];
/// Path MTU 4096 with every header.
const LINK_MTU: u32 = 4200;
/// Bytes of each end's memory.
pub(super) const MEMORY: usize = 256 << 10;
/// The first PSN of both directions: it wraps in every scenario.
const PSN: u32 = 0xff_fff0;
const RIGHTS: [&str; 4] = ["local_write", "remote_write", "remote_read", "remote_atomic"];
/// How long a work request may take: a guest is slow, and faults cost timeouts.
const LIMIT: Duration = Duration::from_secs(60);

/// Where an end's memory is.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    qpn: u64,
    pub(super) addr: u64,
    pub(super) rkey: u64,
}

pub(super) struct Pair {
    guests: [Guest; 2],
    ends: Option<[End; 2]>,
}

fn idle() -> Result<(), Error> {
    std::thread::sleep(Duration::from_millis(1));
    Ok(())
}

impl Pair {
    /// Makes the taps and boots both guests, at the same time.
    pub(super) fn boot(image: &Image, folder: &Path, space: &Space) -> Result<Pair, Error> {
        let boot = |n: usize| {
            space.add_tap(TAPS[n], TAP_MACS[n], LINK_MTU, &[])?;
            let folder = folder.join(TAPS[n]);
            create_folder(&folder)?;
            let link = Link::Tap { namespace: space.name().into(), tap: TAPS[n].into() };
            Guest::boot(image, &folder, &Machine::new(link, MACS[n], WITH_PREFIX[n], LINK_MTU), &mut idle)
        };
        let (a, b) = std::thread::scope(|scope| {
            let other = scope.spawn(|| boot(1));
            (boot(0), other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        });
        Ok(Pair { guests: [a?, b?], ends: None })
    }

    /// What there is to know of the guests.
    pub(super) fn describe(&mut self) -> Result<String, Error> {
        let kernel = self.call(0, json!({"do": "kernel"}))?;
        let [a, b] = self.guests.each_ref().map(|g| g.boot.as_secs_f64());
        Ok(format!("Linux {} twice, up in {a:.1} s and {b:.1} s", kernel.as_str().unwrap_or("?")))
    }

    pub(super) fn call(&mut self, side: usize, command: Value) -> Result<Value, Error> {
        self.guests[side].call(&command, &mut idle)
    }

    /// A queue pair at each end, connected to the other.
    pub(super) fn connect(&mut self, mtu: u32, timeout: u8) -> Result<[End; 2], Error> {
        let mut ends = Vec::new();
        for (side, address) in ADDRESSES.into_iter().enumerate() {
            let answer = self.call(side, json!({
                "do": "open", "service": "RC", "memory": MEMORY, "ip": address, "mtu": mtu, "psn": PSN, "qps": 1, "srq": false,
                "qp_access": RIGHTS, "mr_access": RIGHTS, "max_rd_atomic": 4, "min_rnr_timer": 1,
                // As many retries as rxe counts: its 7 are without end.
                "timeout": timeout, "retry_cnt": 6, "rnr_retry": 6,
            }))?;
            let number = |v: &Value, what: &str| {
                v.as_u64().ok_or_else(|| Error::Failed(format!("the agent's answer has no {what}: {answer}")))
            };
            ends.push(End {
                qpn: number(&answer["qpns"][0], "qpn")?,
                addr: number(&answer["addr"], "addr")?,
                rkey: number(&answer["rkey"], "rkey")?,
            });
        }
        let ends = [ends[0], ends[1]];
        self.ends = Some(ends);
        for side in 0..2 {
            let peer: std::net::Ipv4Addr = ADDRESSES[1 - side].parse().expect("a constant that is an address");
            let gid: Ipv6Addr = peer.to_ipv6_mapped();
            // pyverbs reads a GID only with all its digits.
            let gid = gid.segments().map(|s| format!("{s:04x}")).join(":");
            let peer = ends[1 - side].qpn;
            self.call(side, json!({"do": "connect", "gid": gid, "qpns": [peer], "psns": [PSN], "qkey": 0}))?;
        }
        Ok(ends)
    }

    /// Destroys both ends.
    pub(super) fn close(&mut self) -> Result<(), Error> {
        if self.ends.take().is_some() {
            (0..2).try_for_each(|side| self.call(side, json!({"do": "close"})).map(drop))?;
        }
        Ok(())
    }

    pub(super) fn fill(&mut self, side: usize, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        self.call(side, json!({"do": "fill", "offset": offset, "hex": hex})).map(drop)
    }

    /// Whether an end's memory holds these bytes.
    pub(super) fn holds(&mut self, side: usize, offset: usize, bytes: &[u8]) -> Result<bool, Error> {
        let answer = self.call(side, json!({"do": "read", "offset": offset, "len": bytes.len()}))?;
        let hex: String = bytes.iter().map(|b| format!("{b:02x}")).collect();
        Ok(answer.as_str() == Some(&hex))
    }

    /// Waits for the next completion of a queue, which must be a success.
    pub(super) fn success(&mut self, side: usize, queue: u8, wr_id: u64) -> Result<(), Error> {
        let ms = LIMIT.as_millis() as u64;
        let answer = self.call(side, json!({"do": "poll", "queue": queue, "count": 1, "ms": ms}))?;
        let done = &answer[0];
        match done["wr_id"] == wr_id && done["status"] == 0 {
            true => Ok(()),
            false => Err(Error::Failed(format!("work request {wr_id} of guest {side} ended so: {answer}"))),
        }
    }

    /// What both guests' rxe counted since they booted.
    pub(super) fn hw_counters(&mut self) -> Result<[HwCounters; 2], Error> {
        let [a, b] = &mut self.guests;
        Ok([a.hw_counters(&mut idle)?, b.hw_counters(&mut idle)?])
    }
}
