//! Names of the packets of one direction that are the same in every run: destinations in the order seen, PSNs from the first one on, and the
//! how-manieth time that a packet passes.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, DefaultHasher};

use softnic_wire::{Layout, Opcode, Psn, Qpn, bth};

/// Destination queue pairs that `"#1"` and `"+2"` can speak of, in each direction. Those seen later are matched by their
/// number only.
pub(crate) const MAX_QPS: usize = 1 << 16;
/// Packets whose `iteration` is known, in each direction. Beyond that the one seen first is forgotten; when it comes again it
/// counts as new. That is more than any queue pair here has outstanding, and fewer than there are PSNs.
pub(crate) const MAX_PACKETS: usize = 1 << 16;

/// With a fixed seed: nothing random that was not handed in. It is looked up only, never walked through.
type Table<K, V> = HashMap<K, V, BuildHasherDefault<DefaultHasher>>;

/// What names are made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Numbers {
    pub(super) opcode: Opcode,
    pub(super) qpn: Qpn,
    pub(super) psn: Psn,
}

impl Numbers {
    /// Those of a frame, whole from Ethernet on; `None` where it is no RoCE packet. All headers must be in `frame`, the payload may be
    /// missing.
    pub(super) fn of(frame: &[u8]) -> Option<Numbers> {
        let layout = Layout::locate(frame).ok()?;
        let header = bth::Packet::new_checked(frame.get(layout.bth..)?).ok()?;
        Some(Numbers { opcode: header.opcode(), qpn: header.dest_qp(), psn: header.psn() })
    }
}

/// Destination queue pairs in the order seen. QP1 has no place: management comes before a connection or does not, by how programs meet, and
/// must not move the others.
#[derive(Debug, Clone, Default)]
pub(super) struct Destinations(Table<Qpn, Destination>);

/// A destination queue pair.
#[derive(Debug, Clone, Copy)]
struct Destination {
    /// From 1.
    place: u32,
    /// The first PSNs of requests, of answers, and of all else. A queue pair's requests and its answers have PSNs of two sequences, which
    /// have nothing to do with each other: programs draw where each begins.
    firsts: [Option<Psn>; 3],
}

/// Which of a destination's first PSNs a packet counts from.
fn sequence_of(opcode: Opcode) -> usize {
    match () {
        () if opcode.is_request() => 0,
        () if opcode.is_response() => 1,
        () => 2,
    }
}

impl Destinations {
    /// The place of a packet's destination, and the PSN that the packet is counted from.
    pub(super) fn see(&mut self, packet: Numbers) -> Option<(u32, Psn)> {
        let Numbers { opcode, qpn, psn } = packet;
        // What a Repair Header stands in has the PSN of a block, or none: no count of packets begins with it.
        if opcode == Opcode::LOWAR {
            let Destination { place, firsts: [requests, answers, _] } = self.0.get(&qpn)?;
            return Some((*place, requests.or(*answers)?));
        }
        let place = self.0.len() as u32 + 1 - u32::from(self.0.contains_key(&Qpn::GSI));
        let next = Destination { place: if qpn == Qpn::GSI { 0 } else { place }, firsts: [None; 3] };
        let destination = match self.0.len() < MAX_QPS {
            true => self.0.entry(qpn).or_insert(next),
            false => self.0.get_mut(&qpn)?,
        };
        Some((destination.place, *destination.firsts[sequence_of(opcode)].get_or_insert(psn)))
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// How many times packets have passed.
#[derive(Debug, Clone, Default)]
pub(super) struct Passes {
    counts: Table<u64, u32>,
    /// The oldest first.
    order: VecDeque<u64>,
}

impl Passes {
    /// The how-manieth time it is that a packet with this destination, PSN and opcode passes.
    pub(super) fn count(&mut self, packet: Numbers) -> u32 {
        let Numbers { opcode, qpn, psn } = packet;
        self.count_key(u64::from(qpn.value()) << 32 | u64::from(psn.value()) << 8 | u64::from(opcode.0))
    }

    fn count_key(&mut self, packet: u64) -> u32 {
        if let Some(n) = self.counts.get_mut(&packet) {
            *n = n.saturating_add(1);
            return *n;
        }
        if self.order.len() == MAX_PACKETS
            && let Some(oldest) = self.order.pop_front()
        {
            self.counts.remove(&oldest);
        }
        self.order.push_back(packet);
        self.counts.insert(packet, 1);
        1
    }
}

/// The name of a packet: what an event of a script says to be for it alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PacketName {
    /// The place of its destination in the order seen, from 1: `qpn = "#1"`. 0 is QP1: `qpn = 1`.
    pub destination: u32,
    /// Its opcode.
    pub opcode: Opcode,
    /// How far it is behind the first PSN for this destination, of requests or of answers: `psn = "+2"`.
    pub psn: u32,
    /// The how-manieth time that it passes, from 1.
    pub iteration: u32,
}

/// Names the packets of one direction, as the events of a script count them there.
#[derive(Debug, Clone, Default)]
pub struct PacketNames {
    destinations: Destinations,
    passes: Passes,
}

impl PacketNames {
    /// None has passed yet. The memory for all that is remembered is taken now.
    pub fn with_room() -> PacketNames {
        let mut names = PacketNames::default();
        names.passes.counts.reserve(MAX_PACKETS);
        names.passes.order.reserve_exact(MAX_PACKETS);
        names
    }

    /// The name of a packet that passes now, given from Ethernet on; the headers are enough. `None` for what is no RoCE packet, and for
    /// those that no event can name: of destinations beyond the first 65,536, and of repair packets before the first that they repair.
    pub fn name(&mut self, frame: &[u8]) -> Option<PacketName> {
        let packet = Numbers::of(frame)?;
        let (destination, first) = self.destinations.see(packet)?;
        let iteration = self.passes.count(packet);
        Some(PacketName { destination, opcode: packet.opcode, psn: packet.psn.forward_from(first), iteration })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_the_oldest_packet_is_forgotten() {
        let mut passes = Passes::default();
        for packet in 0..MAX_PACKETS as u64 {
            assert_eq!(passes.count_key(packet), 1);
        }
        assert_eq!(passes.count_key(0), 2);
        assert_eq!(passes.count_key(MAX_PACKETS as u64), 1, "takes the place of the oldest");
        assert_eq!((passes.count_key(1), passes.count_key(2)), (2, 2));
        assert_eq!(passes.count_key(0), 1);
        assert_eq!((passes.counts.len(), passes.order.len()), (MAX_PACKETS, MAX_PACKETS));
    }
}
