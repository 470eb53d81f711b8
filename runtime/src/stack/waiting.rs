//! IP packets whose next hop's MAC address is still asked for.

use std::collections::VecDeque;
use std::net::IpAddr;

use softnic_wire::{Instant, MacAddr};

use crate::neighbours::{NeighbourError, Neighbours};

/// Packets that wait, for all neighbours together. The oldest one goes where another comes: of a connection the latest packet says most (RFC
/// 1122, 2.3.2.2).
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
    /// Something came in or time has passed: an answer may be among it.
    look: bool,
}

/// What became of a packet.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It goes to this MAC address.
    Send(MacAddr, Vec<u8>),
    /// It cannot be sent to this address.
    Lost(IpAddr, NeighbourError),
}

impl Waiting {
    /// A packet for a neighbour that is asked for.
    pub(super) fn push(&mut self, neighbours: &Neighbours, destination: IpAddr, bytes: Vec<u8>) {
        if self.packets.len() >= MAX_WAITING {
            self.packets.pop_front();
        }
        let next_hop = neighbours.next_hop(destination).unwrap_or(destination);
        self.packets.push_back(Packet { destination, next_hop, bytes });
    }

    /// The next call of [`Waiting::poll`] looks at the neighbours again.
    #[inline]
    pub(super) fn look(&mut self) {
        self.look = true;
    }

    /// Whether [`Waiting::poll`] may have something.
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
                // The next look would ask anew: the others that wait for it go, too.
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
