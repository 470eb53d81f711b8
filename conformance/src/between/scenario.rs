//! What is done to the packets between two rxe, and what must be true after it: the data is right, and both rxe counted what the wire
//! did.

use std::time::Duration;

use serde_json::json;
use softnic_fault_injector::{Script, Spec};
use softnic_runtime::bump::{Bump, Counters, Summary};

use super::pair::{End, MEMORY, Pair};
use crate::guest::{Error, HwCounters, since};

/// Bytes of a message, and where messages are sent from and received into.
const LEN: usize = 60_001;
const FROM: usize = 0;
const TO: usize = MEMORY / 2;

pub(super) struct Scenario {
    pub(super) name: &'static str,
    pub(super) faults: &'static str,
    script: &'static str,
    mtu: u32,
    /// The local ACK timeout.
    timeout: u8,
    /// What of it must show in the counters of wire and guests.
    check: fn(&Seen) -> Result<(), String>,
}

/// What a scenario left behind: of each direction what the wire counted, what its sender and its receiver did.
struct Seen {
    summary: Summary,
    ways: [(Counters, HwCounters, HwCounters); 2],
}

impl Seen {
    /// A counter of either guest.
    fn either(&self, name: &str) -> u64 {
        self.ways.iter().map(|(_, sender, _)| sender.get(name).copied().unwrap_or(0)).sum()
    }

    fn wire(&self, of: fn(&Counters) -> u64) -> u64 {
        self.ways.iter().map(|(c, ..)| of(c)).sum()
    }

    /// An error unless it is true, with all counters.
    fn must(&self, what: &str, is: bool) -> Result<(), String> {
        match is {
            true => Ok(()),
            false => Err(format!("{what}: {:?}", self.ways)),
        }
    }
}

/// 2 s: where nothing is lost, no guest is so slow that it would send again.
const PATIENT: u8 = 19;
/// 0.27 s: where the last packet of a message may be lost, nothing else finds out.
const LOSSY: u8 = 16;

const fn scenario(
    name: &'static str,
    mtu: u32,
    timeout: u8,
    faults: &'static str,
    check: fn(&Seen) -> Result<(), String>,
) -> Scenario {
    Scenario { name, faults, script: "", mtu, timeout, check }
}

pub(super) const SCENARIOS: &[Scenario] = &[
    scenario("clean", 1024, PATIENT, "", |s| {
        s.must("nothing is sent again", s.either("duplicate_request") + s.either("out_of_seq_request") == 0)?;
        s.must("nobody retries", s.either("completer_retry_err") + s.either("rcvd_seq_err") == 0)
    }),
    scenario("clean4096", 4096, PATIENT, "", |s| {
        s.must("long frames pass", s.ways.iter().all(|(c, ..)| c.too_long + c.unsegmented + c.rx_missed == 0))
    }),
    scenario("loss", 1024, LOSSY, "loss=0.02", |s| {
        s.must("packets are lost", s.wire(|c| c.fault_lost) > 0)?;
        s.must("and sent again", s.either("completer_retry_err") + s.either("rcvd_seq_err") > 0)
    }),
    scenario("dup", 1024, PATIENT, "dup=0.05", |s| {
        s.must("requests come twice", s.wire(|c| c.duplicated) > 0 && s.either("duplicate_request") > 0)?;
        s.must("nothing is missing", s.either("out_of_seq_request") == 0)
    }),
    scenario("corrupt", 1024, LOSSY, "corrupt=0.02", |s| {
        s.must("packets are damaged", s.wire(|c| c.corrupted) > 0)?;
        s.must("and sent again", s.either("completer_retry_err") + s.either("rcvd_seq_err") > 0)
    }),
    scenario("reorder", 1024, LOSSY, "reorder=0.02:3", |s| {
        s.must("packets are late", s.wire(|c| c.reordered) > 0)?;
        s.must("and missed", s.either("out_of_seq_request") + s.either("completer_retry_err") > 0)
    }),
    scenario("delay", 1024, PATIENT, "delay=3ms,ba.delay=7ms", |s| {
        s.must("nothing is lost", s.wire(|c| c.fault_lost + c.overflowed) == 0)?;
        s.must("nor sent again", s.either("duplicate_request") + s.either("completer_retry_err") == 0)
    }),
    scenario("mixed", 4096, LOSSY, "loss=0.01,dup=0.01,corrupt=0.01,reorder=0.01:2", |_| Ok(())),
    Scenario {
        name: "script",
        faults: "@ the third request of a, once",
        script: "[[event]]\naction = \"drop\"\ndirection = \"ab\"\npsn = \"+2\"\niteration = 1\n",
        mtu: 1024,
        timeout: PATIENT,
        check: |s| {
            s.must("the event was for one packet", s.summary.applied == [1])?;
            s.must("that alone was lost", s.ways[0].0.fault_lost == 1 && s.ways[1].0.fault_lost == 0)?;
            let (_, a, b) = &s.ways[0];
            s.must("b saw a gap", b["out_of_seq_request"] > 0)?;
            s.must("a was told once, and sent again", a["rcvd_seq_err"] == 1 && a["completer_retry_err"] == 1)
        },
    },
];

fn pattern(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| ((i * 31 + seed * 7) >> 2) as u8).collect()
}

impl Scenario {
    pub(super) fn spec(&self) -> Result<Spec, Error> {
        let wrong = |e: String| Error::Failed(format!("scenario {}: {e}", self.name));
        if self.script.is_empty() {
            return self.faults.parse().map_err(|e: softnic_fault_injector::SpecError| wrong(e.to_string()));
        }
        let script = Script::parse(self.script).map_err(|e| wrong(e.to_string()))?;
        Ok(Spec { script, ..Spec::default() })
    }

    /// Exchanges data over the wire; what is worth telling of it.
    pub(super) fn run(&self, pair: &mut Pair, wire: Bump, seed: u64) -> Result<String, Error> {
        let before = pair.hw_counters()?;
        let ends = pair.connect(self.mtu, self.timeout)?;
        for requester in 0..2 {
            exchange(pair, &ends, requester, seed as usize + requester)?;
        }
        // Answers to what came twice may still be on the way.
        let mut counters = wire.counters();
        loop {
            std::thread::sleep(Duration::from_millis(300));
            let now = wire.counters();
            if now == counters {
                break;
            }
            counters = now;
        }
        let after = pair.hw_counters()?;
        let summary = wire.stop().map_err(|e| Error::Failed(e.to_string()))?;
        let [a, b] = [0, 1].map(|side| since(&before[side], &after[side]));
        let [ab, ba] = summary.counters;
        let seen = Seen { summary, ways: [(ab, a.clone(), b.clone()), (ba, b, a)] };
        agree(&seen).and_then(|()| (self.check)(&seen)).map_err(Error::Failed)?;
        Ok(format!(
            "{} packets, lost {}, twice {}, damaged {}, late {}; rxe: {} gaps, {} duplicates, {} retries",
            seen.wire(|c| c.roce_frames),
            seen.wire(|c| c.fault_lost),
            seen.wire(|c| c.duplicated),
            seen.wire(|c| c.corrupted),
            seen.wire(|c| c.reordered),
            seen.either("out_of_seq_request"),
            seen.either("duplicate_request"),
            seen.either("completer_retry_err"),
        ))
    }
}

/// Whatever the faults: the wire saw what one rxe sent, and the other saw what the wire let through.
fn agree(seen: &Seen) -> Result<(), String> {
    for (c, sender, receiver) in &seen.ways {
        let dropped = c.rx_missed + c.tx_refused;
        seen.must("the kernel dropped frames", dropped == 0)?;
        seen.must("the wire saw what was sent", c.roce_frames == sender["sent_pkts"])?;
        let arrived = c.roce_frames + c.duplicated - c.fault_lost - c.queue_full - c.overflowed - c.under_way;
        // rxe counts a packet when its ICRC is right, which some flipped bits do not change.
        let counted = receiver["rcvd_pkts"];
        seen.must("what was let through arrived", (arrived - c.corrupted..=arrived).contains(&counted))?;
        seen.must("no more than that", c.corrupted > 0 || counted == arrived)?;
    }
    Ok(())
}

/// WRITE, SEND, READ and FETCH_ADD, one after the other.
fn exchange(pair: &mut Pair, ends: &[End; 2], requester: usize, seed: usize) -> Result<(), Error> {
    let responder = 1 - requester;
    let End { addr, rkey, .. } = ends[responder];
    let wrong = |what: &str| Err(Error::Failed(format!("after {what} by guest {requester} the data is another")));
    let send = |wr_id: u64, opcode: &str, offset: usize, len: usize, at: u64| {
        json!({
            "do": "send", "opcode": opcode, "wr_id": wr_id, "offset": offset, "len": len, "qp": 0,
            "remote_addr": at, "rkey": rkey, "add": 5,
        })
    };
    let data = pattern(seed, LEN);
    pair.fill(requester, FROM, &data)?;
    pair.fill(responder, TO, &vec![0; LEN])?;
    pair.call(requester, send(1, "write", FROM, LEN, addr + TO as u64))?;
    pair.success(requester, 0, 1)?;
    if !pair.holds(responder, TO, &data)? {
        return wrong("a WRITE");
    }
    pair.fill(responder, TO, &vec![0; LEN])?;
    pair.call(responder, json!({"do": "recv", "wr_id": 9, "offset": TO, "len": LEN, "qp": 0}))?;
    pair.call(requester, send(2, "send", FROM, LEN, 0))?;
    pair.success(requester, 0, 2)?;
    pair.success(responder, 1, 9)?;
    if !pair.holds(responder, TO, &data)? {
        return wrong("a SEND");
    }
    let data = pattern(seed + 2, LEN);
    pair.fill(responder, FROM, &data)?;
    pair.fill(requester, TO, &vec![0; LEN])?;
    pair.call(requester, send(3, "read", TO, LEN, addr + FROM as u64))?;
    pair.success(requester, 0, 3)?;
    if !pair.holds(requester, TO, &data)? {
        return wrong("a READ");
    }
    pair.fill(responder, TO, &[0; 8])?;
    for n in 0..10 {
        pair.call(requester, send(10 + n, "fetch_add", TO, 8, addr + TO as u64))?;
        pair.success(requester, 0, 10 + n)?;
    }
    match pair.holds(responder, TO, &50u64.to_le_bytes())? {
        true => Ok(()),
        false => wrong("ten FETCH_ADDs"),
    }
}
