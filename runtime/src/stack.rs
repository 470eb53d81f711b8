//! A port's own stack, for ports whose packets no kernel sees: neighbours, multicast groups and TCP streams, as one Node beside the NIC.
//!
//! Free of IO and clocks like everything else. There is one table of neighbours, that of [`Neighbours`]: TCP makes IP packets, and they get
//! their Ethernet header from it, or wait until it knows the next hop.

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

/// Where the ethertype of an untagged frame is.
const ETHERTYPE: usize = 12;

/// What a port answers by itself, and what it sends of its own: all that is no RoCE.
pub struct Stack {
    neighbours: Neighbours,
    memberships: Memberships,
    streams: Option<Box<Streams>>,
    /// Packets of streams.
    waiting: Waiting,
    /// The VLAN that the port is in.
    vlan: Option<u16>,
    /// Neighbours moved, or have an address of the port: for whoever looks without having the stack.
    news: Arc<AtomicBool>,
}

impl From<Neighbours> for Stack {
    /// Neighbours alone. Segments of TCP are not answered, not even with a reset: there may be a kernel that knows better.
    fn from(neighbours: Neighbours) -> Stack {
        // Other than those of other hosts is all that the delays of reports need to be.
        let [a, b, c, d, e, f] = neighbours.mac().0;
        let memberships = Memberships::new(u64::from_be_bytes([0, 0, a, b, c, d, e, f]));
        Stack { neighbours, memberships, streams: None, waiting: Waiting::default(), vlan: None, news: Arc::default() }
    }
}

impl Stack {
    /// With streams: TCP of the port's addresses is its own. IP packets are at most `mtu` bytes long; what must not be guessed is drawn
    /// from `seed`.
    pub fn with_streams(neighbours: Neighbours, mtu: usize, seed: u64) -> Stack {
        let (memberships, streams) = (Memberships::new(seed), Some(Box::new(Streams::new(mtu, seed))));
        Stack { memberships, streams, ..Stack::from(neighbours) }
    }

    /// In a VLAN, by its id of 1 to 4094: all that leaves has its tag, and what comes without is not looked at. Only the stack's own
    /// frames: those of the NIC have the tags of their paths.
    pub fn in_vlan(self, id: u16) -> Stack {
        Stack { vlan: Some(id), ..self }
    }

    /// The table of neighbours.
    pub fn neighbours(&mut self) -> &mut Neighbours {
        &mut self.neighbours
    }

    /// Set when [`Neighbours::poll_conflict`] or [`Neighbours::poll_moved`] has something, and never taken back here.
    pub(crate) fn news(&self) -> &Arc<AtomicBool> {
        &self.news
    }

    /// The streams, if it has any. Poll for frames to send, and for the timer, after every call.
    pub fn streams(&mut self) -> Result<&mut Streams, StreamError> {
        self.streams.as_deref_mut().ok_or(StreamError::NoStreams)
    }

    /// The port is a member of these multicast groups from now on, as [`softnic_nic::Nic::multicast_groups`] has them, and of those in which
    /// it is asked for its IPv6 addresses (RFC 4291, 2.8): switches that look at reports pass on no others.
    pub fn set_groups(&mut self, now: Instant, groups: impl IntoIterator<Item = IpAddr>) -> Result<(), TooManyGroups> {
        let groups: BTreeSet<_> = groups.into_iter().chain(self.neighbours.solicited_groups()).collect();
        self.memberships.set(now, &groups)?;
        self.report(now);
        Ok(())
    }

    /// The groups that must come in by the port: these, those in which it is asked for its IPv6 addresses, and those in which queriers ask.
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

    /// Hands a frame to the memberships; `None` when it is not for them.
    fn give_to_memberships(&mut self, now: Instant, frame: &[u8]) -> Option<()> {
        let (_, packet) = ip_in(frame)?;
        let to_many = frame[0] & 1 == 1;
        (to_many && self.memberships.handle_packet(now, packet)).then_some(())
    }

    /// Begins a connection to a peer on the link or beyond a gateway, from the address that fits.
    pub fn connect(&mut self, peer: SocketAddr) -> Result<StreamId, StreamError> {
        let streams = self.streams.as_deref_mut().ok_or(StreamError::NoStreams)?;
        self.neighbours.next_hop(peer.ip())?;
        let source = self.neighbours.source_for(peer.ip()).ok_or(NeighbourError::NoSource(peer.ip()))?;
        streams.connect(source, peer)
    }

    /// The MAC address that packets for `address` go to, as [`Neighbours::mac_of`] has it.
    pub fn mac_of(&mut self, now: Instant, address: IpAddr) -> Result<Option<MacAddr>, NeighbourError> {
        self.neighbours.mac_of(now, address)
    }

    /// Hands a frame to the streams; `None` when it is not for them.
    fn give_to_streams(&mut self, now: Instant, frame: &[u8]) -> Option<()> {
        let streams = self.streams.as_deref_mut()?;
        let (header, packet) = ip_in(frame)?;
        // To us alone: nobody opens connections to many (RFC 1122, 4.2.3.10).
        if header.dst() != self.neighbours.mac() {
            return None;
        }
        let segment = Segment::of(packet)?;
        if self.neighbours.is_ours(segment.destination())
            && let Some(reply) = streams.handle_packet(now, &segment, packet)
        {
            // Back to where it came from: so strangers that we turn away are no neighbours, and need not be asked for.
            self.neighbours.push_ip(header.src(), &reply);
        }
        Some(())
    }

    /// What cannot be sent is told to who wanted to connect there.
    fn lose(&mut self, address: IpAddr, error: NeighbourError) {
        if let Some(streams) = &mut self.streams {
            streams.handle_unreachable(address, error.into());
        }
    }

    /// The next packet of streams that can be sent, and the MAC address that it goes to.
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

/// The IP packet in an untagged frame, with the frame's header.
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
