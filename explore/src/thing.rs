//! Things that happen in a process, with the names by which scripts find them again in every run.

use std::collections::HashMap;
use std::fmt;

use softnic_fault_injector::calls::{CmEvent, Side, Verb};
use softnic_wire::Opcode;

use crate::record::{File, Seen};

/// Something that a fault can be for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Thing {
    /// A call.
    Call {
        /// Of what.
        verb: Verb,
        /// About which queue pair, by order of making; 0 where the verb is about none.
        qp: u32,
        /// The how-manieth that the above is true of, from 1.
        nth: u32,
    },
    /// A completion that succeeded.
    Completion {
        /// Of the send queue, or of receives.
        is_send: bool,
        /// Of which queue pair, by order of making.
        qp: u32,
        /// The how-manieth that the above is true of, from 1.
        nth: u32,
    },
    /// An event of the connection manager.
    CmEvent {
        /// Its number in the C header.
        event: i32,
        /// The how-manieth of its kind, from 1.
        nth: u32,
    },
    /// A packet that a device sends.
    Packet {
        /// Which device, from 0.
        device: u8,
        /// Its destination in the order seen, from 1; 0 for QP1.
        destination: u32,
        /// Its opcode.
        opcode: u8,
        /// Counted from the first one for this destination.
        psn: u32,
        /// The how-manieth time that it is sent.
        iteration: u16,
    },
}

/// A thing, and what else candidates need to know of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Learned {
    /// The thing.
    pub thing: Thing,
    /// Of a call: the how-manieth of its verb in the process, whatever its queue pair.
    pub overall: u32,
    /// Of a packet: the bytes of its frame.
    pub len: u16,
}

/// Calls that wait or ask whether there is something: how many of them come to nothing is a matter of time.
pub fn is_poll(verb: Verb) -> bool {
    matches!(verb, Verb::PollCq)
}

/// What happened in a process, in its order, each thing once.
pub fn things(file: &File) -> Vec<Learned> {
    let mut counts: HashMap<Thing, u32> = HashMap::new();
    let mut overall: HashMap<Verb, u32> = HashMap::new();
    let mut out: Vec<Learned> = Vec::new();
    let mut count = |thing: Thing| {
        let count = counts.entry(thing).or_default();
        *count += 1;
        *count
    };
    for record in &file.records {
        match record.seen {
            Seen::Call { verb, qp, .. } => {
                let qp = if verb.has_queue_pair() { qp } else { 0 };
                let calls = overall.entry(verb).or_default();
                *calls += 1;
                if is_poll(verb) && *calls > 1 {
                    continue;
                }
                let nth = count(Thing::Call { verb, qp, nth: 0 });
                out.push(Learned { thing: Thing::Call { verb, qp, nth }, overall: *calls, len: 0 });
            }
            // What failed keeps its status, so rules do not count it.
            Seen::Completion { status, .. } if status != 0 => {}
            Seen::Completion { side, qp, .. } => {
                let is_send = side == Side::Send;
                let nth = count(Thing::Completion { is_send, qp, nth: 0 });
                out.push(Learned { thing: Thing::Completion { is_send, qp, nth }, overall: 0, len: 0 });
            }
            Seen::CmEvent(event) => {
                let event = event as i32;
                let nth = count(Thing::CmEvent { event, nth: 0 });
                out.push(Learned { thing: Thing::CmEvent { event, nth }, overall: 0, len: 0 });
            }
            Seen::Packet { device, destination, opcode, psn, iteration, len } => {
                let thing = Thing::Packet { device, destination, opcode, psn, iteration };
                if count(thing) == 1 {
                    out.push(Learned { thing, overall: 0, len });
                }
            }
            Seen::AsyncEvent(_) | Seen::Connected { .. } | Seen::Applied(_) => {}
        }
    }
    out
}

/// The how-manieth queue pair there is the last of.
pub fn queue_pairs(file: &File) -> u32 {
    let of = |seen: &Seen| match *seen {
        Seen::Call { qp, .. } | Seen::Completion { qp, .. } | Seen::Connected { qp, .. } => qp,
        _ => 0,
    };
    file.records.iter().map(|record| of(&record.seen)).max().unwrap_or(0)
}

impl Thing {
    /// Its kind, whatever its number.
    pub fn kind(self) -> Kind {
        match self {
            Thing::Call { verb, .. } => Kind::Call(verb),
            Thing::Completion { is_send, .. } => Kind::Completion { is_send },
            Thing::CmEvent { event, .. } => Kind::CmEvent(event),
            Thing::Packet { opcode, .. } => Kind::Packet(opcode),
        }
    }

    /// The queue pair, or the destination, that it is about.
    pub fn queue_pair(self) -> u32 {
        match self {
            Thing::Call { qp, .. } | Thing::Completion { qp, .. } => qp,
            Thing::CmEvent { .. } => 0,
            Thing::Packet { destination, .. } => destination,
        }
    }
}

/// Of what kind a thing is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A call of this verb.
    Call(Verb),
    /// A completion of a queue.
    Completion {
        /// Of sends.
        is_send: bool,
    },
    /// An event of the connection manager.
    CmEvent(i32),
    /// A packet with this opcode.
    Packet(u8),
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Thing::Call { verb, qp: 0, nth } => write!(f, "{} {nth}", verb.name()),
            Thing::Call { verb, qp, nth } => write!(f, "{} {nth} of queue pair #{qp}", verb.name()),
            Thing::Completion { is_send, qp, nth } => {
                write!(f, "completion {nth} of {} of queue pair #{qp}", if is_send { "sends" } else { "receives" })
            }
            Thing::CmEvent { event, nth } => match cm_event(event) {
                Some(known) => write!(f, "{} {nth}", known.name()),
                None => write!(f, "event {event} of the connection manager {nth}"),
            },
            Thing::Packet { device, destination, opcode, psn, iteration } => {
                write!(f, "{} psn +{psn}", Opcode(opcode))?;
                match destination {
                    0 => f.write_str(" to QP1")?,
                    n => write!(f, " to queue pair #{n}")?,
                }
                if device > 0 {
                    write!(f, " from softnic{device}")?;
                }
                if iteration > 1 {
                    write!(f, ", sent for time {iteration}")?;
                }
                Ok(())
            }
        }
    }
}

/// An event of the connection manager, by its number.
pub fn cm_event(code: i32) -> Option<CmEvent> {
    CmEvent::ALL.iter().copied().find(|event| event.code() == code)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::record::{Process, Record};

    /// A file of a process.
    pub(crate) fn file(label: &str, ordinal: u32, seen: &[Seen]) -> File {
        let records = seen.iter().zip(0..).map(|(&seen, at)| Record { at, seen }).collect();
        File { process: Process { pid: 7, label: label.into(), ordinal }, records, lost: 0 }
    }

    pub(crate) fn call(verb: Verb, qp: u32) -> Seen {
        Seen::Call { verb, qp, wr_id: 0, work_requests: 1 }
    }

    pub(crate) fn done(side: Side, qp: u32, status: u8) -> Seen {
        Seen::Completion { side, qp, wr_id: 0, status }
    }

    pub(crate) fn packet(opcode: u8, psn: u32, iteration: u16) -> Seen {
        Seen::Packet { device: 0, destination: 1, opcode, psn, iteration, len: 100 }
    }

    #[test]
    fn things_are_counted_as_rules_of_scripts_count_them() {
        let file = file(
            "./x",
            1,
            &[
                call(Verb::CreateQp, 0),
                call(Verb::PostSend, 1),
                call(Verb::PostSend, 2),
                call(Verb::PostSend, 1),
                call(Verb::PollCq, 0),
                call(Verb::PollCq, 0),
                done(Side::Send, 1, 0),
                done(Side::Send, 1, 12),
                done(Side::Send, 1, 0),
                packet(0x0a, 5, 1),
                packet(0x0a, 5, 1),
                packet(0x0a, 5, 2),
                Seen::CmEvent(9),
            ],
        );
        let found = things(&file);
        let names: Vec<String> = found.iter().map(|learned| learned.thing.to_string()).collect();
        let expected = [
            "create_qp 1",
            "post_send 1 of queue pair #1",
            "post_send 1 of queue pair #2",
            "post_send 2 of queue pair #1",
            "poll_cq 1",
            "completion 1 of sends of queue pair #1",
            "completion 2 of sends of queue pair #1",
            "RC_RDMA_WRITE_ONLY psn +5 to queue pair #1",
            "RC_RDMA_WRITE_ONLY psn +5 to queue pair #1, sent for time 2",
            "ESTABLISHED 1",
        ];
        assert_eq!(names, expected);
        assert_eq!(found[3].overall, 3, "[[async]] counts the calls of all queue pairs");
        assert_eq!((found[7].len, queue_pairs(&file)), (100, 2));
    }
}
