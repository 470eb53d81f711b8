//! What is kept of each packet of a capture until all have been seen, and what is found of one.

use softnic_wire::{Opcode, Psn};

use super::Action;
use crate::analysis::{Answer, ConnectionId};
use crate::decode::Dissection;

/// A packet.
#[derive(Debug, Clone, Copy)]
pub(super) struct Record {
    /// In the capture.
    pub(super) number: u64,
    /// Nanoseconds after the capture's first packet.
    pub(super) time: i64,
    pub(super) psn: Psn,
    pub(super) opcode: Opcode,
    /// Sender, receiver and destination, by their place in the list of all.
    pub(super) flow: u32,
    /// As far as it was known when the packet came; a damaged packet has none.
    pub(super) connection: Option<ConnectionId>,
    /// Bytes that a READ asks for.
    pub(super) len: u32,
    pub(super) asks: bool,
    pub(super) answer: Option<Answer>,
    pub(super) marked: bool,
    /// The ICRC is wrong, and the bit that makes it right.
    pub(super) damage: Option<Option<u32>>,
}

impl Record {
    /// `None` where the packet was cut off before its PSN.
    pub(super) fn of(
        number: u64,
        time: i64,
        d: &Dissection<'_>,
        flow: u32,
        damage: Option<Option<u32>>,
    ) -> Option<Record> {
        let (opcode, psn) = (d.opcode?, d.psn?);
        Some(Record {
            number,
            time,
            psn,
            opcode,
            flow,
            connection: None,
            len: d.ext.reth.map_or(0, |r| r.len),
            asks: d.ack_req == Some(true) || opcode.kind().is_answered_by_data(),
            answer: Answer::of(d, opcode),
            marked: d.traffic_class & 3 == 3,
            damage,
        })
    }
}

/// A fault that was found, and what shows it.
#[derive(Debug, Clone)]
pub(super) struct Found {
    pub(super) what: What,
    pub(super) why: String,
}

/// Which packet it befell; packets go by their place among the records.
#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    /// One that is in the capture.
    Seen(usize, Action),
    /// One that was lost before the capture point: it would stand before this one.
    Missing { before: usize, flow: u32, psn: Psn, opcode: Option<Opcode> },
    /// One that came late: it should stand before that one, and so many came between.
    Late { at: usize, before: usize, behind: u32 },
    /// A second copy of a packet, which passed once.
    Copy { at: usize, of: usize },
}

impl What {
    /// Which packet is missing, and where.
    pub(super) fn missing(&self) -> Option<(usize, u32, u32)> {
        match *self {
            What::Missing { before, flow, psn, .. } => Some((before, flow, psn.value())),
            _ => None,
        }
    }
}
