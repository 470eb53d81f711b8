//! The network stack of a port whose packets no kernel sees: neighbours, multicast groups and TCP streams, as one Node beside the NIC.
//!
//! Free of IO and clocks like the other Nodes. The only table of neighbours is that of [`Neighbours`]. TCP emits IP packets; each gets its
//! Ethernet header from the table, or waits until the MAC address of the next hop is known.

mod fuzz;
mod memberships;
mod streams;
pub(crate) mod vlan;
mod waiting;

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use softnic_wire::ethernet::{self, ethertype};
use softnic_wire::{Instant, MacAddr, Node, TxFrame};

use crate::neighbours::{NeighbourError, Neighbours};
pub(crate) use fuzz::fuzz_stack;
use memberships::Memberships;
pub use memberships::TooManyGroups;
use streams::Segment;
pub use streams::{StreamError, StreamId, StreamState, Streams};
use waiting::{Outcome, Waiting};

/// Offset of the ethertype in an untagged frame.
const ETHERTYPE: usize = 12;

/// Answers and sends all traffic of a port that is not RoCE.
pub struct Stack {
    neighbours: Neighbours,
    memberships: Memberships,
    streams: Option<Box<Streams>>,
    /// Packets of streams that wait for a MAC address.
    waiting: Waiting,
    /// The VLAN of the port.
    vlan: Option<u16>,
    /// Set when a neighbour moved or uses an address of the port. Readable without the stack.
    news: Arc<AtomicBool>,
}

impl From<Neighbours> for Stack {
    /// A stack with neighbours alone. TCP segments are not answered, not even with a reset: a kernel may own their connections.
    fn from(neighbours: Neighbours) -> Stack {
        // The seed of the report delays only needs to differ from those of other hosts.
        let [a, b, c, d, e, f] = neighbours.mac().0;
        let memberships = Memberships::new(u64::from_be_bytes([0, 0, a, b, c, d, e, f]));
        Stack { neighbours, memberships, streams: None, waiting: Waiting::default(), vlan: None, news: Arc::default() }
    }
}

impl Stack {
    /// A stack with streams, which handles TCP for the port's addresses. IP packets are at most `mtu` bytes long. `seed` is the seed of
    /// unpredictable values.
    pub fn with_streams(neighbours: Neighbours, mtu: usize, seed: u64) -> Stack {
        let (memberships, streams) = (Memberships::new(seed), Some(Box::new(Streams::new(mtu, seed))));
        Stack { memberships, streams, ..Stack::from(neighbours) }
    }

    /// Puts the stack into a VLAN with an id of 1 to 4094: it tags all frames that it sends, and ignores frames without the tag. This concerns
    /// the stack's own frames only: those of the NIC have the tags of their paths.
    pub fn in_vlan(self, id: u16) -> Stack {
        Stack { vlan: Some(id), ..self }
    }

    /// The table of neighbours.
    pub fn neighbours(&mut self) -> &mut Neighbours {
        &mut self.neighbours
    }

    /// Set when [`Neighbours::poll_conflict`] or [`Neighbours::poll_moved`] has an item. The stack never clears it.
    pub(crate) fn news(&self) -> &Arc<AtomicBool> {
        &self.news
    }

    /// The streams, if the stack has any. After every call, poll for frames to send and for the timer.
    pub fn streams(&mut self) -> Result<&mut Streams, StreamError> {
        self.streams.as_deref_mut().ok_or(StreamError::NoStreams)
    }

    /// Makes the port a member of these multicast groups, as given by [`softnic_nic::Nic::multicast_groups`], and of the solicited-node groups of
    /// its IPv6 addresses (RFC 4291, 2.8): switches that snoop on reports forward no other groups.
    pub fn set_groups(&mut self, now: Instant, groups: impl IntoIterator<Item = IpAddr>) -> Result<(), TooManyGroups> {
        let groups: BTreeSet<_> = groups.into_iter().chain(self.neighbours.solicited_groups()).collect();
        self.memberships.set(now, &groups)?;
        self.report(now);
        Ok(())
    }

    /// The groups that the port must receive: these, the solicited-node groups of its IPv6 addresses, and those to which queriers send.
    pub(crate) fn listened_groups(&self, groups: impl IntoIterator<Item = IpAddr>) -> BTreeSet<IpAddr> {
        let of_queriers = [IpAddr::from([224, 0, 0, 1]), IpAddr::from([0xff02, 0, 0, 0, 0, 0, 0, 1])];
        groups.into_iter().chain(self.neighbours.solicited_groups()).chain(of_queriers).collect()
    }

    /// Sends the reports that are due.
    fn report(&mut self, now: Instant) {
        if self.memberships.next().is_some_and(|next| next <= now) {
            let sources = self.neighbours.report_sources();
            for (mac, packet) in self.memberships.poll(now, sources) {
                self.neighbours.push_ip(mac, &packet);
            }
        }
    }

    /// Passes a frame to the memberships; `None` if it is not for them.
    fn give_to_memberships(&mut self, now: Instant, frame: &[u8]) -> Option<()> {
        let (_, packet) = ip_in(frame)?;
        let to_many = frame[0] & 1 == 1;
        (to_many && self.memberships.handle_packet(now, packet)).then_some(())
    }

    /// Opens a connection to a peer on the link or beyond a gateway, from the source address that fits.
    pub fn connect(&mut self, peer: SocketAddr) -> Result<StreamId, StreamError> {
        let streams = self.streams.as_deref_mut().ok_or(StreamError::NoStreams)?;
        self.neighbours.next_hop(peer.ip())?;
        let source = self.neighbours.source_for(peer.ip()).ok_or(NeighbourError::NoSource(peer.ip()))?;
        streams.connect(source, peer)
    }

    /// The MAC address for packets to `address`, as given by [`Neighbours::mac_of`].
    pub fn mac_of(&mut self, now: Instant, address: IpAddr) -> Result<Option<MacAddr>, NeighbourError> {
        self.neighbours.mac_of(now, address)
    }

    /// Passes a frame to the streams; `None` if it is not for them.
    fn give_to_streams(&mut self, now: Instant, frame: &[u8]) -> Option<()> {
        let streams = self.streams.as_deref_mut()?;
        let (header, packet) = ip_in(frame)?;
        // Unicast only: a segment to a broadcast or multicast address opens no connection (RFC 1122, 4.2.3.10).
        if header.dst() != self.neighbours.mac() {
            return None;
        }
        let segment = Segment::of(packet)?;
        if self.neighbours.is_ours(segment.destination())
            && let Some(reply) = streams.handle_packet(now, &segment, packet)
        {
            // The reply goes to the sender's MAC address, so rejected strangers need no entry in the table and no address resolution.
            self.neighbours.push_ip(header.src(), &reply);
        }
        Some(())
    }

    /// Reports an address as unreachable to the streams that wanted to connect there.
    fn lose(&mut self, address: IpAddr, error: NeighbourError) {
        if let Some(streams) = &mut self.streams {
            streams.handle_unreachable(address, error.into());
        }
    }

    /// The next stream packet that can be sent, with its destination MAC address.
    fn next_packet(&mut self, now: Instant) -> Option<(MacAddr, Vec<u8>)> {
        match self.waiting.poll(now, &mut self.neighbours) {
            Some(Outcome::Send(mac, packet)) => return Some((mac, packet)),
            Some(Outcome::Lost(address, error)) => self.lose(address, error),
            None => {}
        }
        let (destination, packet) = self.streams.as_deref_mut()?.poll_packet(now)?;
        match self.neighbours.mac_of(now, destination) {
            Ok(Some(mac)) => return Some((mac, packet)),
            Ok(None) => self.waiting.push(&self.neighbours, destination, packet),
            Err(error) => self.lose(destination, error),
        }
        None
    }
}

/// The header of an untagged frame and the IP packet in it.
fn ip_in(frame: &[u8]) -> Option<(ethernet::Packet<&[u8]>, &[u8])> {
    let header = ethernet::Packet::new_checked(frame).ok()?;
    let (kind, packet) = frame.get(ETHERTYPE..)?.split_first_chunk()?;
    let is_ip = matches!(u16::from_be_bytes(*kind), ethertype::IPV4 | ethertype::IPV6);
    is_ip.then_some((header, packet))
}

impl Node for Stack {
    fn handle_frame(&mut self, now: Instant, _port: usize, frame: &mut [u8]) {
        let Some(frame) = vlan::untagged(self.vlan, frame) else { return };
        self.waiting.look();
        let taken = self.give_to_streams(now, frame).or_else(|| self.give_to_memberships(now, frame));
        if taken.is_none() {
            self.neighbours.handle_frame(now, 0, frame);
            if self.neighbours.has_news() {
                self.news.store(true, Ordering::Release);
            }
        }
    }

    fn poll_transmit(&mut self, now: Instant, _port: usize, tx: &mut TxFrame<'_>) -> bool {
        loop {
            if self.neighbours.poll_transmit(now, 0, tx) {
                if self.vlan.is_none_or(|vlan| vlan::tag(vlan, tx)) {
                    return true;
                }
                continue;
            }
            if let Some((mac, packet)) = self.next_packet(now) {
                self.neighbours.push_ip(mac, &packet);
            } else if !self.may_transmit(0) {
                return false;
            }
        }
    }

    #[inline]
    fn may_transmit(&self, _port: usize) -> bool {
        self.neighbours.may_transmit(0)
            || self.waiting.may_have()
            || self.streams.as_ref().is_some_and(|streams| streams.may_transmit())
    }

    #[inline]
    fn poll_timeout(&self) -> Option<Instant> {
        let streams = self.streams.as_ref().and_then(|streams| streams.poll_timeout());
        [self.neighbours.poll_timeout(), self.memberships.next(), streams].into_iter().flatten().min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.waiting.look();
        self.neighbours.handle_timeout(now);
        self.report(now);
        if let Some(streams) = &mut self.streams {
            streams.handle_timeout(now);
        }
    }
}

#[cfg(test)]
mod tests;
