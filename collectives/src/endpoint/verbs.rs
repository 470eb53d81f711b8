//! The verbs that an endpoint stands on: what a rank asks of its NIC, and memory that is registered there.

use std::sync::Arc;

use softnic_nic::Buffer;
use softnic_transports::{Completion, PostError, RecvWr, SendWr, Sge};
use softnic_wire::{Instant, Qpn};

use crate::fabric::Refused;

/// The calls that a rank makes, with the domain and the completion queue that are its own.
pub trait Verbs {
    /// Whether frames carry their payload.
    fn has_payload(&self) -> bool;

    /// Registers `len` bytes that may be received into, at `base` where that can be chosen; without bytes where `real` is not said.
    ///
    /// # Errors
    /// When there is no room.
    fn register(&mut self, base: u64, len: u64, real: bool) -> Result<Memory, Refused>;

    /// Gives memory back.
    ///
    /// # Errors
    /// When it is in use.
    fn deregister(&mut self, memory: &Memory) -> Result<(), Refused>;

    /// A key by which the peer may write to memory, until it is closed.
    ///
    /// # Errors
    /// When there is none.
    fn open_key(&mut self, memory: &Memory) -> Result<u32, Refused>;

    /// From when this returns on nothing is written by a key.
    fn close_key(&mut self, key: u32);

    /// Posts a receive. Its deadline is by the fabric's clock, which says `now`.
    ///
    /// # Errors
    /// When it is not taken.
    fn post_receive(&mut self, now: Instant, qpn: Qpn, wr: &RecvWr<'_>) -> Result<(), PostError>;

    /// Posts a send, as [`Verbs::post_receive`].
    ///
    /// # Errors
    /// When it is not taken.
    fn post_send(&mut self, now: Instant, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), PostError>;

    /// The oldest completion.
    fn poll(&mut self) -> Option<Completion>;

    /// The time now, where it goes on while a rank computes; else what the fabric was made with holds.
    fn clock(&self) -> Option<Instant> {
        None
    }
}

/// Registered memory; without bytes where frames carry none.
pub struct Memory {
    /// Its first address.
    pub base: u64,
    /// Its key.
    pub key: u32,
    /// Its bytes.
    pub buffer: Option<Arc<Buffer>>,
}

impl Memory {
    pub(super) fn sge(&self, at: u64, len: u32) -> Sge {
        Sge { addr: self.base + at, len, lkey: self.key }
    }

    /// Makes room for `len` bytes; what was there is gone.
    pub(super) fn grow(&mut self, verbs: &mut impl Verbs, len: u64) -> Result<(), Refused> {
        if self.buffer.as_ref().is_some_and(|buffer| (buffer.len() as u64) < len) {
            verbs.deregister(self)?;
            *self = verbs.register(self.base, len, true)?;
        }
        Ok(())
    }
}
