//! Groups, as they are asked for: one sender, many receivers, and where each of them has the memory that the sender writes to.

mod memory;
pub mod merge;
mod table;

use std::net::IpAddr;

use softnic_wire::{MacAddr, Psn, Qpn};

pub(crate) use memory::{Found, Memory};
pub use merge::{Answer, Member, Merge, Merged};
pub(crate) use table::{Branch, BranchAside, Egress, Group, Groups, Looked};
pub use table::{Fill, GroupCounters};

/// Groups of a switch.
pub const MAX_GROUPS: usize = 65_536;
/// Receivers of a group.
pub const MAX_RECEIVERS: usize = 256;
/// Ranges of memory of all groups and receivers.
pub const MAX_RANGES: usize = 1 << 20;

/// A group at one switch: the receivers that are reached through it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSpec {
    /// The sender's address.
    pub sender: IpAddr,
    /// The destination of the sender's packets: a queue pair that nobody has.
    pub mc_id: Qpn,
    /// Where acknowledgements are merged: at the sender's own switch, and at no other.
    pub merge: Option<MergeSpec>,
    /// The first one's address is the packets' destination.
    pub receivers: Vec<Receiver>,
    /// Memory that the sender writes to; may be empty for who only sends.
    pub ranges: Vec<Range>,
}

/// What merging takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergeSpec {
    /// The sender's queue pair.
    pub qpn: Qpn,
    /// Of the first packet that it sends.
    pub psn: Psn,
}

/// A receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receiver {
    /// Its address, by which it is known: an acknowledgement names no queue pair of who sends it.
    pub address: IpAddr,
    /// Its queue pair.
    pub qpn: Qpn,
    /// Its MAC address where it is on a link of the switch's and known; else its address is routed.
    pub mac: Option<MacAddr>,
    /// Receivers with the same number are reached by one copy, which a switch further on copies again.
    pub branch: Option<u32>,
}

/// Memory as the sender names it, and as each receiver does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range {
    /// The first address.
    pub start: u64,
    /// Bytes.
    pub len: u64,
    /// The key that the sender writes.
    pub rkey: u32,
    /// One for each receiver, in their order.
    pub targets: Vec<Target>,
}

/// A receiver's memory of a [`Range`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// Where it begins.
    pub start: u64,
    /// Its key.
    pub rkey: u32,
}

/// Why there is no such group.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// Nobody gets anything.
    #[error("a group has at least one receiver")]
    NoReceivers,
    /// More than the tables hold.
    #[error("a group has at most {MAX_RECEIVERS} receivers, this one {0}")]
    TooManyReceivers(usize),
    /// Acknowledgements name no queue pair, so a member is known by its address.
    #[error("two receivers have the address {0}: a member is known by its address, so a group has one for each")]
    SameAddress(IpAddr),
    /// An IP version for all.
    #[error("{0} is not of the sender's IP version")]
    MixedVersions(IpAddr),
    /// It would hear itself.
    #[error("the sender {0} is among the receivers")]
    SenderReceives(IpAddr),
    /// Numbers that mean something else.
    #[error("{what} {qpn:#x} is reserved: QP0, QP1 and 0xffffff have a meaning of their own")]
    ReservedQpn {
        /// Whose.
        what: &'static str,
        /// The number.
        qpn: u32,
    },
    /// There is one.
    #[error("there is a group of the sender {0} with MC_ID {1:#x} already")]
    Exists(IpAddr, u32),
    /// Acknowledgements could not be told apart.
    #[error("the sender's queue pair {1:#x} at {0} is in another group already")]
    SenderTaken(IpAddr, u32),
    /// There is none.
    #[error("there is no group of the sender {0} with MC_ID {1:#x}")]
    Unknown(IpAddr, u32),
    /// A range ends behind the end of all addresses, or nowhere.
    #[error("the range at {0:#x} is empty or ends behind the last address")]
    BadRange(u64),
    /// Two of them have an address and the key in common.
    #[error("the ranges at {0:#x} and {1:#x} overlap, with the same key")]
    Overlap(u64, u64),
    /// One for each receiver.
    #[error("the range at {start:#x} names the memory of {have} receivers, and there are {need}")]
    Targets {
        /// Which range.
        start: u64,
        /// Receivers of the group.
        need: usize,
        /// Targets of the range.
        have: usize,
    },
    /// No room.
    #[error("the table of groups is full: {MAX_GROUPS}")]
    GroupsFull,
    /// No room.
    #[error("the table of memory is full: {MAX_RANGES} ranges, of which {0} are free")]
    RangesFull(usize),
}

impl GroupSpec {
    /// Whether it makes sense by itself.
    pub fn check(&self) -> Result<(), GroupError> {
        let reserved = |what, qpn: Qpn| match qpn.value() {
            0 | 1 | 0xff_ffff => Err(GroupError::ReservedQpn { what, qpn: qpn.value() }),
            _ => Ok(()),
        };
        reserved("MC_ID", self.mc_id)?;
        if let Some(merge) = &self.merge {
            reserved("the sender's queue pair", merge.qpn)?;
        }
        match self.receivers.len() {
            0 => return Err(GroupError::NoReceivers),
            n if n > MAX_RECEIVERS => return Err(GroupError::TooManyReceivers(n)),
            _ => {}
        }
        for (i, receiver) in self.receivers.iter().enumerate() {
            let Receiver { address, qpn, .. } = *receiver;
            reserved("a receiver's queue pair", qpn)?;
            if address.is_ipv4() != self.sender.is_ipv4() {
                return Err(GroupError::MixedVersions(address));
            }
            if address == self.sender {
                return Err(GroupError::SenderReceives(address));
            }
            if self.receivers[..i].iter().any(|other| other.address == address) {
                return Err(GroupError::SameAddress(address));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
