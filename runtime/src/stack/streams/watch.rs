//! Observations of a connection's segments, and the timers of its keep-alives.
//!
//! smoltcp 0.12 has keep-alives of its own, but they carry a byte, which a peer that missed the last segment takes for data. And when an
//! acknowledgement arrives on a connection that the peer has shut down, smoltcp stops its retransmission timer, whatever is still
//! outstanding. So this module does both: keep-alives without a byte, and retransmission in place of a lost timer.

use std::net::SocketAddr;
use std::time::Duration;

use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{IpAddress, IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber};
use softnic_wire::Instant;

use super::segment::Segment;
use super::{KEEP_ALIVE, TIMEOUT};

/// How long a connection with outstanding data may be inactive before it is probed. The time doubles with each probe.
const STALL: Duration = Duration::from_millis(300);
/// The longest of these times.
const MAX_STALL: Duration = Duration::from_secs(5);

/// The latest observations of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Watch {
    /// When a segment last arrived, and when one last arrived or left.
    heard: Instant,
    active: Instant,
    /// The peer's acknowledgement number, and its window.
    acknowledged: Option<u32>,
    window: u16,
    /// The local acknowledgement number, and the local window.
    received: Option<u32>,
    own_window: u16,
    /// The sequence number behind all data sent.
    sent: Option<u32>,
    /// How often the peer was probed since its last segment.
    tries: u32,
}

/// What to do about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Care {
    /// Nothing before this time.
    Later(Instant),
    /// Probe the peer.
    Ask,
    /// The peer has not answered for too long.
    GiveUp,
}

/// Whether sequence number `a` is not before `b`.
fn not_before(a: u32, b: u32) -> bool {
    a.wrapping_sub(b) < 1 << 31
}

/// The sequence number behind the payload of a segment.
fn data_end(segment: &Segment) -> u32 {
    segment.begin.wrapping_add(u32::from(segment.synchronises)).wrapping_add(segment.payload as u32)
}

impl Watch {
    /// The observations of a new connection.
    pub(super) fn new(now: Instant) -> Watch {
        let (acknowledged, received, sent) = (None, None, None);
        Watch { heard: now, active: now, acknowledged, window: 0, received, own_window: 0, sent, tries: 0 }
    }

    /// Observes a segment of the peer.
    pub(super) fn note_received(&mut self, now: Instant, segment: &Segment) {
        (self.heard, self.active, self.tries) = (now, now, 0);
        // smoltcp ignores acknowledgements outside of the window, so they must not be repeated to smoltcp either.
        let in_window = self.received.is_none_or(|received| {
            not_before(segment.begin, received)
                && not_before(received.wrapping_add(self.own_window.into()), segment.begin)
        });
        if let Some(number) = segment.acknowledges
            && in_window
            && self.acknowledged.is_none_or(|old| not_before(number, old))
        {
            (self.acknowledged, self.window) = (Some(number), segment.window);
        }
    }

    /// Observes an outgoing segment.
    pub(super) fn note_sent(&mut self, now: Instant, segment: &Segment) {
        self.active = now;
        self.sent = self.sent.filter(|&sent| not_before(sent, segment.end)).or(Some(segment.end));
        if let Some(number) = segment.acknowledges
            && self.received.is_none_or(|old| not_before(number, old))
        {
            (self.received, self.own_window) = (Some(number), segment.window);
        }
    }

    /// Whether smoltcp may see a segment of the peer. smoltcp relies on peers that keep to the window granted, and panics if one does not. And
    /// no peer can acknowledge data that was not sent.
    pub(super) fn admits(&self, segment: &Segment) -> bool {
        let granted = match self.received {
            Some(received) => not_before(received.wrapping_add(self.own_window.into()), data_end(segment)),
            None => segment.payload == 0 || segment.synchronises,
        };
        let sent = self.sent.zip(segment.acknowledges).is_none_or(|(sent, number)| not_before(sent, number));
        segment.resets || granted && sent
    }

    /// What to do now, with or without outstanding data.
    pub(super) fn care(&self, now: Instant, outstanding: bool) -> Care {
        let stall = STALL.saturating_mul(1 << self.tries.min(8)).min(MAX_STALL);
        let ask = match outstanding {
            true => self.active + stall,
            false => (self.heard + KEEP_ALIVE).max(self.active + MAX_STALL),
        };
        let end = self.heard + TIMEOUT;
        match now {
            now if now >= end => Care::GiveUp,
            now if now >= ask => Care::Ask,
            _ => Care::Later(ask.min(end)),
        }
    }

    /// A keep-alive, which the peer answers with an acknowledgement and its window: the segment is before what the peer expects, and empty
    /// (RFC 9293, 3.8.4, 3.10.7.4).
    pub(super) fn ask(&mut self, now: Instant, own: SocketAddr, peer: SocketAddr) -> Vec<u8> {
        (self.active, self.tries) = (now, self.tries + 1);
        let acknowledged = self.acknowledged.unwrap_or_default().wrapping_sub(1);
        acknowledgement(own, peer, acknowledged, self.received.unwrap_or_default(), self.own_window)
    }

    /// Repeats the peer's last acknowledgement to smoltcp, three times, so that smoltcp retransmits what follows (RFC 5681, 3.2). smoltcp restarts
    /// its count of duplicates after a change of the window, so a segment with another window precedes them.
    pub(super) fn duplicates(&self, own: SocketAddr, peer: SocketAddr) -> impl Iterator<Item = Vec<u8>> + use<> {
        let (number, sequence) = (self.acknowledged.unwrap_or_default(), self.received.unwrap_or_default());
        let (window, changes) = (self.window, [1, 0, 0, 0, 0]);
        changes.into_iter().map(move |change| acknowledgement(peer, own, sequence, number, window ^ change))
    }
}

/// An IP packet with an empty segment.
fn acknowledgement(from: SocketAddr, to: SocketAddr, sequence: u32, number: u32, window: u16) -> Vec<u8> {
    let tcp = TcpRepr {
        src_port: from.port(),
        dst_port: to.port(),
        control: TcpControl::None,
        seq_number: TcpSeqNumber(sequence as i32),
        ack_number: Some(TcpSeqNumber(number as i32)),
        window_len: window,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [None; 3],
        timestamp: None,
        payload: &[],
    };
    let (src, dst, sums) = (IpAddress::from(from.ip()), IpAddress::from(to.ip()), ChecksumCapabilities::default());
    let header = IpRepr::new(src, dst, IpProtocol::Tcp, tcp.buffer_len(), 64);
    let mut packet = vec![0; header.buffer_len()];
    header.emit(&mut packet[..], &sums);
    let at = header.header_len();
    tcp.emit(&mut TcpPacket::new_unchecked(&mut packet[at..]), &src, &dst, &sums);
    packet
}
