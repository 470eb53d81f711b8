//! A packet as a report has it: one row of its table.

use softnic_pcaps::analysis::Cause;
use softnic_wire::aeth::Syndrome;
use softnic_wire::lowar::RepairHeader;
use softnic_wire::opcode::Kind;
use softnic_wire::{Opcode, Psn};

/// What is known of a packet besides its numbers, as bits. The page has the same bits (`data.js`).
pub(super) mod flag {
    /// Sent before.
    pub(crate) const AGAIN: u16 = 1;
    /// Did not arrive.
    pub(crate) const LOST: u16 = 1 << 1;
    /// Did not arrive, and was recovered by forward error correction.
    pub(crate) const REPAIRED: u16 = 1 << 2;
    /// Not in the capture: known by the gap that it left.
    pub(crate) const MISSING: u16 = 1 << 3;
    /// Its ICRC is wrong.
    pub(crate) const DAMAGED: u16 = 1 << 4;
    /// Marked: congestion experienced.
    pub(crate) const MARKED: u16 = 1 << 5;
    /// Asks for an acknowledgement.
    pub(crate) const ACK_REQ: u16 = 1 << 6;
    /// The time is that of the arrival: nothing is known of when it was sent.
    pub(crate) const ARRIVAL_ONLY: u16 = 1 << 7;
    /// An acknowledgement of Selective Repeat that is about answers.
    pub(crate) const OF_RESPONSES: u16 = 1 << 8;
    /// PSNs before it are missing; for [`super::super::follow`] alone.
    pub(crate) const EARLY: u16 = 1 << 9;
}

/// What a packet is for; the numbers are the page's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// A request, or the data that answers one.
    Data = 0,
    /// A positive acknowledgement.
    Ack = 1,
    /// A negative one.
    Nak = 2,
    /// Receiver not ready.
    NotReady = 3,
    /// A congestion notification.
    Cnp = 4,
    /// A repair packet.
    Repair = 5,
    /// Anything else.
    Other = 6,
}

/// One packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Packet {
    /// Its number in its file; of one that is missing, of the packet behind the gap.
    pub(super) number: u64,
    /// Nanoseconds after the first packet of its file.
    pub(super) time: i64,
    /// How many nanoseconds later it arrived, where both ends are known.
    pub(super) transit: Option<u32>,
    /// Place of its connection among those of its file, at first; among all of them in the page.
    pub(super) connection: u32,
    /// The end that sent it.
    pub(super) end: u8,
    pub(super) opcode: u8,
    pub(super) psn: u32,
    /// Bytes of payload.
    pub(super) length: u32,
    /// The byte of the AETH.
    pub(super) syndrome: Option<u8>,
    pub(super) msn: u32,
    /// What a RETH or an AtomicETH points to.
    pub(super) target: Option<Target>,
    /// The request that an answer of Selective Repeat is to.
    pub(super) answers: Option<u32>,
    /// Place of its path among those of the report.
    pub(super) path: u32,
    pub(super) flags: u16,
    /// Why it was sent again.
    pub(super) cause: u8,
    /// It ends a round trip of this many nanoseconds; 0 where it ends none.
    pub(super) round_trip: u32,
    /// Which numbering its PSN belongs to: 0 and 1 requests of that end, 2 and 3 answers to that end.
    pub(super) space: u8,
    /// Its PSN as a number that does not wrap, 0 for the first that was seen.
    pub(super) sequence: i64,
    /// Bytes of requests that have no answer, after this packet.
    pub(super) in_flight: u32,
    /// Messages that this packet completes.
    pub(super) completes: u32,
}

/// Where in the responder's memory a request points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) va: u64,
    pub(super) rkey: u32,
    pub(super) length: u32,
}

impl Packet {
    pub(super) fn class(&self) -> Class {
        match (Opcode(self.opcode).kind(), self.syndrome.map(Syndrome::from_byte)) {
            (Kind::CongestionNotification, _) => Class::Cnp,
            (Kind::Repair, _) if self.length as usize > RepairHeader::LEN => Class::Repair,
            // What ends tell each other about repair packets.
            (Kind::Repair, _) => Class::Other,
            (Kind::Unknown, _) => Class::Other,
            (Kind::Acknowledge, Some(Syndrome::Nak(_))) => Class::Nak,
            (Kind::Acknowledge, Some(Syndrome::RnrNak(_))) => Class::NotReady,
            (Kind::Acknowledge, _) => Class::Ack,
            _ => Class::Data,
        }
    }

    pub(super) fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn psn(&self) -> Psn {
        Psn::new(self.psn)
    }

    /// When the end that it goes to has it, as far as that is known.
    pub(super) fn arrival(&self) -> i64 {
        self.time + i64::from(self.transit.unwrap_or(0))
    }
}

/// Why a packet was sent again, as the page has it: 0 where that is not known.
pub(super) fn cause_code(cause: Option<Cause>) -> u8 {
    match cause {
        None => 0,
        Some(Cause::Nak) => cause::NAK,
        Some(Cause::NotReady) => cause::NOT_READY,
        Some(Cause::SelectiveAck) => cause::SELECTIVE_ACK,
        Some(Cause::ImpliedNak) => cause::IMPLIED_NAK,
        Some(Cause::Timeout) => cause::TIMEOUT,
        Some(Cause::Copy) => cause::COPY,
        Some(Cause::Late) => cause::LATE,
    }
}

/// Codes of causes; the page has words for them.
pub(super) mod cause {
    pub(crate) const NAK: u8 = 1;
    pub(crate) const NOT_READY: u8 = 2;
    pub(crate) const SELECTIVE_ACK: u8 = 3;
    pub(crate) const IMPLIED_NAK: u8 = 4;
    pub(crate) const TIMEOUT: u8 = 5;
    pub(crate) const COPY: u8 = 6;
    pub(crate) const LATE: u8 = 7;
}
