//! The device of smoltcp: IP packets in memory, one inbound at a time, and a short outbound queue.

use std::collections::VecDeque;

use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::time::Instant;

/// Capacity of the outbound queue; smoltcp emits no packets while the queue is full.
const MAX_OUT: usize = 64;

/// The packets to and from smoltcp.
#[derive(Debug)]
pub(super) struct Packets {
    mtu: usize,
    /// The packet that arrived, until smoltcp takes it.
    pub(super) received: Option<Vec<u8>>,
    /// The immediate reply of smoltcp to that packet: a reset, or an acknowledgement.
    pub(super) reply: Option<Vec<u8>>,
    /// The packets that connections send.
    pub(super) out: VecDeque<Vec<u8>>,
}

impl Packets {
    pub(super) fn new(mtu: usize) -> Packets {
        Packets { mtu, received: None, reply: None, out: VecDeque::new() }
    }

    pub(super) fn is_full(&self) -> bool {
        self.out.len() >= MAX_OUT
    }
}

/// A packet that arrived.
pub(super) struct Received(Vec<u8>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

/// Room for an outgoing packet.
pub(super) enum Room<'a> {
    Reply(&'a mut Option<Vec<u8>>),
    Out(&'a mut VecDeque<Vec<u8>>),
}

impl TxToken for Room<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut packet = vec![0; len];
        let result = write(&mut packet);
        match self {
            Room::Reply(place) => *place = Some(packet),
            Room::Out(queue) => queue.push_back(packet),
        }
        result
    }
}

impl Device for Packets {
    type RxToken<'a> = Received;
    type TxToken<'a> = Room<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Room<'_>)> {
        Some((Received(self.received.take()?), Room::Reply(&mut self.reply)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Room<'_>> {
        (!self.is_full()).then_some(Room::Out(&mut self.out))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ip;
        capabilities.max_transmission_unit = self.mtu;
        capabilities
    }
}
