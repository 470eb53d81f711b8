//! Scripts: targeted events, "drop the second READ response", as data. Reading them is in `parse`, carrying them out in
//! `matcher`.

pub(crate) mod matcher;
mod parse;

use std::time::Duration;

use softnic_wire::{Opcode, Psn, Qpn};

use crate::calls::CallFaults;
pub(crate) use parse::ScriptError;

/// Which way a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From a to b. In the simulator a is the requester.
    Ab,
    /// From b to a.
    Ba,
}

/// What happens to a packet that an event is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// It is lost.
    Drop,
    /// It comes twice.
    Duplicate,
    /// A bit of it is flipped.
    Corrupt {
        /// Counted from the frame's beginning: bit 8·n + k has the value 2^k in byte n. Drawn from the seed when `None`.
        bit: Option<u32>,
    },
    /// It is held until later ones have passed.
    Reorder {
        /// How many.
        behind: u32,
    },
    /// It is marked: congestion experienced.
    Mark,
    /// It takes so much longer.
    Delay(Duration),
}

/// Which destination queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QpnMatch {
    /// The one with this number.
    Exactly(Qpn),
    /// The how-manieth that was seen in this direction, from 1.
    Seen(u32),
}

/// Which PSN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PsnMatch {
    /// This one.
    Exactly(Psn),
    /// So many behind the first one that was seen for the packet's destination queue pair in this direction; wraps.
    AfterFirst(u32),
}

/// One event. What is `None` matches every RoCE packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event {
    /// What happens.
    pub action: Action,
    /// Which way the packet goes.
    pub direction: Option<Direction>,
    /// Its opcode.
    pub opcode: Option<Opcode>,
    /// Its destination.
    pub qpn: Option<QpnMatch>,
    /// Its PSN.
    pub psn: Option<PsnMatch>,
    /// The how-manieth time that a packet with its destination, PSN and opcode passes, from 1.
    pub iteration: Option<u32>,
    /// The how-manieth packet that all of the above is true of, from 1.
    pub nth: Option<u32>,
}

/// A list of events. For each packet the first one that is for it decides.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Script {
    /// In the order given.
    pub events: Vec<Event>,
    /// What is for the calls of a program; a SPEC has it in [`crate::Spec::calls`].
    pub calls: CallFaults,
}
