//! What makes the messages of a connection reliable: the seam at which programs bring a scheme of their own (SDR-RDMA §4.1).

use std::collections::VecDeque;
use std::time::Duration;

use softnic_nic::Nic;
use softnic_wire::Instant;

use super::{Outcome, ReliableCounters, ReliableError};
use crate::Local;
use crate::error::SdrError;
use crate::qp::{LONGEST_CONTROL, SdrQp};

/// What a scheme has to work with.
pub struct Io<'a> {
    /// The time.
    pub now: Instant,
    /// The NIC: its memory is read and written by [`Nic::read_local`] and [`Nic::write_local`].
    pub nic: &'a mut Nic,
    /// The queue pair that carries the data.
    pub qp: &'a mut SdrQp,
    /// What is counted.
    pub counters: &'a mut ReliableCounters,
    pub(super) outcomes: &'a mut VecDeque<Outcome>,
}

impl Io<'_> {
    /// Sends a control message to the peer's scheme. Bytes 4 to 7 are the peer's token ([`SdrQp::peer_token`]), and byte 1 is neither 1 nor 2,
    /// which are the SDK's own. `false` when there is no room for it now.
    pub fn send_control(&mut self, message: &[u8]) -> bool {
        self.qp.send_other(self.now, self.nic, message)
    }

    /// Takes the next control message of the peer's scheme; how many bytes of `room` it has.
    pub fn take_control(&mut self, room: &mut [u8; LONGEST_CONTROL]) -> Option<usize> {
        self.qp.take_other(self.nic, room)
    }

    /// Tells the program that a message is over. One that is not carried over ends the connection.
    pub fn over(&mut self, outcome: Outcome) {
        self.outcomes.push_back(outcome);
    }
}

/// A scheme: a state machine that takes what has come, what has left and time, and hands out sends.
///
/// The n-th WRITE of one end goes into the n-th receive of the other, of the same length. Messages of the SDK match by order, too: how many
/// of them a WRITE is, and in which order, both ends must reckon alike.
pub trait Reliability: Send {
    /// Takes over a WRITE; its number, from 0.
    fn write(&mut self, io: &mut Io<'_>, memory: Local) -> Result<u64, SdrError>;

    /// Takes over memory for the peer's next WRITE; its number, from 0.
    fn receive(&mut self, io: &mut Io<'_>, memory: Local) -> Result<u64, SdrError>;

    /// Does what there is to do: takes control messages, looks at bitmaps and at the time, sends, and says what is over.
    fn progress(&mut self, io: &mut Io<'_>);

    /// When [`Reliability::progress`] wants to be called although nothing happens. It is asked after each call of that.
    fn poll_timeout(&mut self, io: &mut Io<'_>) -> Option<Instant>;

    /// The connection ends, and its queue pairs with it: all that was posted and is not over is over by this.
    fn fail(&mut self, io: &mut Io<'_>, why: ReliableError);

    /// Gives back what it has of the NIC. The queue pair is gone.
    fn destroy(&mut self, _nic: &mut Nic) {}

    /// The round trip, as far as it is known.
    fn rtt(&self) -> Duration {
        Duration::ZERO
    }
}
