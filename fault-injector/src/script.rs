//! Scripts: targeted events, "drop the second READ response", as data. Reading them is in `parse`, carrying them out in
//! `matcher`, and how packets are named in `names`.

pub(crate) mod matcher;
mod names;
mod parse;

use std::time::Duration;

use softnic_wire::{Opcode, Psn, Qpn};

use crate::calls::CallFaults;
use crate::process::{ProcessName, ProcessPattern};
pub use names::{PacketName, PacketNames};
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
    /// So many behind the first one that was seen for the packet's destination queue pair in this direction, of requests or of answers as the
    /// packet is; wraps.
    AfterFirst(u32),
}

/// One event. What is `None` matches every RoCE packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// What happens.
    pub action: Action,
    /// In which processes, where a program has several.
    pub process: Option<ProcessPattern>,
    /// At which of its devices, from 0, the same.
    pub device: Option<u32>,
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

impl Script {
    /// What of it is for one process.
    pub(crate) fn for_process(mut self, process: &ProcessName) -> Script {
        self.events.retain_mut(|event| event.process.take().is_none_or(|pattern| pattern.is_for(process)));
        self.calls = self.calls.for_process(process);
        self
    }

    /// The events for one device of a program.
    pub(crate) fn for_device(mut self, device: u32) -> Script {
        self.events.retain_mut(|event| event.device.take().is_none_or(|wanted| wanted == device));
        self
    }

    /// The events for two devices of a program that are the ends of one wire: a is the first of them. Those of either are turned by what is
    /// sent and received there.
    pub(crate) fn for_wire_of(mut self, a: u32) -> Script {
        self.events.retain_mut(|event| {
            let Some(device) = event.device.take() else { return true };
            let is_received = event.direction == Some(Direction::Ba);
            event.direction = Some(if (device == a) != is_received { Direction::Ab } else { Direction::Ba });
            device == a || device == a + 1
        });
        self
    }
}
