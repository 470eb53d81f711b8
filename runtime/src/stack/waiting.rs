//! IP packets that wait for the MAC address of their next hop.

use std::collections::VecDeque;
use std::net::IpAddr;

use softnic_wire::{Instant, MacAddr};

use crate::neighbours::{NeighbourError, Neighbours};

/// Number of packets that wait, for all neighbours together. A new packet displaces the oldest one: the latest packet of a connection is the
/// most useful (RFC 1122, 2.3.2.2).
const MAX_WAITING: usize = 64;

/// A packet that waits.
#[derive(Debug)]
struct Packet {
    destination: IpAddr,
    next_hop: IpAddr,
    bytes: Vec<u8>,
}

/// The packets that wait.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    packets: VecDeque<Packet>,
    /// A frame arrived or time has passed since the last look: a next hop may have answered.
    look: bool,
}

/// The outcome for a packet that waited.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The packet is to be sent to this MAC address.
    Send(MacAddr, Vec<u8>),
    /// The packet cannot be sent to this address.
    Lost(IpAddr, NeighbourError),
}

impl Waiting {
    /// Adds a packet whose next hop is being resolved.
    pub(super) fn push(&mut self, neighbours: &Neighbours, destination: IpAddr, bytes: Vec<u8>) {
        if self.packets.len() >= MAX_WAITING {
            self.packets.pop_front();
        }
        let next_hop = neighbours.next_hop(destination).unwrap_or(destination);
        self.packets.push_back(Packet { destination, next_hop, bytes });
    }

    /// Makes the next call of [`Waiting::poll`] check the neighbours again.
    #[inline]
    pub(super) fn look(&mut self) {
        self.look = true;
    }

    /// Whether [`Waiting::poll`] may have a packet.
    #[inline]
    pub(super) fn may_have(&self) -> bool {
        self.look && !self.packets.is_empty()
    }

    /// The next packet that need not wait any longer.
    pub(super) fn poll(&mut self, now: Instant, neighbours: &mut Neighbours) -> Option<Outcome> {
        if !self.may_have() {
            return None;
        }
        for at in 0..self.packets.len() {
            let Packet { destination, next_hop, .. } = self.packets[at];
            match neighbours.mac_of(now, next_hop) {
                Ok(None) => {}
                Ok(Some(mac)) => return self.packets.remove(at).map(|packet| Outcome::Send(mac, packet.bytes)),
                // The next check would start address resolution again, so drop all packets for this next hop.
                Err(error) => {
                    self.packets.retain(|packet| packet.next_hop != next_hop);
                    return Some(Outcome::Lost(destination, error));
                }
            }
        }
        self.look = false;
        None
    }
}
