//! Limits the number of packets that a requester has outstanding, if nothing else limits them.
//!
//! A software receiver has room for some thousand frames; while its buffer is full, further frames are lost. A sender with a hundred long
//! messages would fill the buffer, lose packets and go back. So the number of outstanding packets is limited to what fills any local
//! network. The limit grows only if the round-trip time shows that the packets are in flight rather than in a queue. The peer is not
//! involved.

use std::time::Duration;

use softnic_wire::{Instant, PathMtu};

use super::requester::MAX_WINDOW;

/// The initial limit in bytes, rounded to whole packets: what 40 Gbit/s carry in 200 µs.
const BYTES: u32 = 1 << 20;
/// The minimum and maximum of the initial limit in packets, whatever the path MTU is.
const PACKETS: std::ops::RangeInclusive<u32> = 256..=512;
/// The limit never falls below this number of packets: acknowledgements are then still frequent enough.
const FEWEST: u32 = 32;
/// Number of round trips that are measured before the limit may exceed its initial value: the shortest of them is one without queueing.
const SAMPLES: u32 = 4;

#[derive(Debug, Clone, Copy)]
pub(crate) struct FlightLimit {
    packets: u32,
    /// The initial limit; `None` if there is no limit.
    usual: Option<u32>,
    /// The limit has delayed a packet.
    reached: bool,
    /// The packet whose answer gives the round-trip time: its number, and when it was sent. Retransmitted packets are not timed.
    timed: Option<(u64, Instant)>,
    shortest: Option<Duration>,
    samples: u32,
    /// The first packet number not yet sent at the last reduction of the limit. One loss may be noticed several times, and reduces the
    /// limit once.
    cut_before: u64,
}

impl FlightLimit {
    /// No limit other than that of PSNs.
    pub(crate) const NONE: FlightLimit = FlightLimit {
        packets: MAX_WINDOW,
        usual: None,
        reached: false,
        timed: None,
        shortest: None,
        samples: 0,
        cut_before: 0,
    };

    /// The initial limit in packets, for a path MTU.
    pub(crate) fn usual(mtu: PathMtu) -> u32 {
        (BYTES / mtu.bytes()).clamp(*PACKETS.start(), *PACKETS.end())
    }

    /// A limit for this path MTU.
    pub(super) fn for_mtu(mtu: PathMtu) -> FlightLimit {
        let usual = FlightLimit::usual(mtu);
        FlightLimit { packets: usual, usual: Some(usual), ..FlightLimit::NONE }
    }

    /// Maximum number of outstanding packets.
    #[inline]
    pub(super) fn packets(&self) -> u32 {
        self.packets
    }

    /// Maximum number of outstanding packets, if there is a limit.
    pub(super) fn limit(&self) -> Option<u32> {
        self.usual.map(|_| self.packets)
    }

    /// Maximum number of responses that one READ request asks for. A longer READ is requested in pieces of this size, which count as
    /// outstanding packets, so that one READ does not exceed the receiver's room.
    #[inline]
    pub(super) fn read_packets(&self) -> u32 {
        self.usual.map_or(u32::MAX, |usual| usual / 2)
    }

    /// The limit has delayed a packet.
    #[inline]
    pub(super) fn on_reached(&mut self) {
        self.reached = true;
    }

    /// Packet `n` was sent for the first time, and requests an acknowledgement.
    #[inline]
    pub(super) fn on_asked(&mut self, now: Instant, n: u64) {
        if self.timed.is_none() && self.usual.is_some() {
            self.timed = Some((n, now));
        }
    }

    /// A packet was retransmitted: an answer could belong to either transmission, so the measurement is dropped.
    #[inline]
    pub(super) fn on_resent(&mut self) {
        self.timed = None;
    }

    /// All packets before `una` are acknowledged.
    #[inline]
    pub(super) fn on_acknowledged(&mut self, now: Instant, una: u64) {
        if let Some((n, left)) = self.timed
            && n < una
        {
            self.timed = None;
            self.on_sample(now.saturating_since(left));
        }
    }

    /// Processes a round-trip time sample.
    fn on_sample(&mut self, rtt: Duration) {
        let Some(usual) = self.usual else { return };
        let shortest = self.shortest.map_or(rtt, |shortest| shortest.min(rtt));
        self.shortest = Some(shortest);
        self.samples = self.samples.saturating_add(1);
        let reached = std::mem::take(&mut self.reached);
        if self.packets < usual {
            // After a loss the limit grows slowly, because the cause may persist.
            let step = if reached { self.packets / 8 + 1 } else { 0 };
            self.packets = (self.packets + step).min(usual);
        } else if rtt > 4 * shortest {
            // The packets wait in a queue.
            self.packets = (self.packets - self.packets / 8).max(usual);
        } else if reached && rtt < 2 * shortest && self.samples >= SAMPLES {
            self.packets = self.packets.saturating_mul(2).min(MAX_WINDOW);
        }
    }

    /// Packets between `una` and `next` were lost.
    pub(super) fn on_loss(&mut self, una: u64, next: u64) {
        self.timed = None;
        if self.usual.is_some() && una >= self.cut_before {
            self.packets = (self.packets / 2).max(FEWEST);
            self.cut_before = next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_micros(1);

    /// One round trip of length `rtt`, while further packets wait for the limit.
    fn round(f: &mut FlightLimit, n: &mut u64, rtt: Duration) -> u32 {
        let sent = Instant::from_nanos(*n);
        f.on_asked(sent, *n);
        f.on_reached();
        *n += 1;
        f.on_acknowledged(sent + rtt, *n);
        f.packets()
    }

    #[test]
    fn on_a_local_network_as_much_is_outstanding_as_fills_it_and_no_more() {
        for (mtu, packets) in [(PathMtu::B4096, 256), (PathMtu::B2048, 512), (PathMtu::B256, 512)] {
            let (mut f, mut n) = (FlightLimit::for_mtu(mtu), 0);
            f.on_asked(Instant::ZERO, 0);
            f.on_acknowledged(Instant::ZERO + 10 * US, 1);
            // At 40 Gbit/s a window takes 200 µs: the receiver is the bottleneck.
            for _ in 0..100 {
                assert_eq!(round(&mut f, &mut n, 200 * US), packets);
            }
        }
    }

    #[test]
    fn on_a_long_path_it_grows_until_a_queue_is_seen() {
        let (mut f, mut n) = (FlightLimit::for_mtu(PathMtu::B1024), 0);
        for _ in 0..SAMPLES - 1 {
            assert_eq!(round(&mut f, &mut n, 40_000 * US), 512, "not by the first that is seen");
        }
        assert_eq!(round(&mut f, &mut n, 40_000 * US), 1024);
        assert_eq!(round(&mut f, &mut n, 41_000 * US), 2048);
        assert_eq!(round(&mut f, &mut n, 90_000 * US), 2048, "a queue");
        assert_eq!(round(&mut f, &mut n, 170_000 * US), 1792, "a long one");
        for _ in 0..100 {
            round(&mut f, &mut n, 170_000 * US);
        }
        assert_eq!(f.packets(), 512, "what it was at first");
    }

    #[test]
    fn a_loss_halves_it_once_and_it_comes_back() {
        let (mut f, mut n) = (FlightLimit::for_mtu(PathMtu::B4096), 0);
        f.on_loss(10, 266);
        f.on_loss(20, 266);
        assert_eq!(f.packets(), 128, "one loss, noticed twice");
        f.on_loss(266, 300);
        assert_eq!(f.packets(), 64);
        for i in 0..10 {
            f.on_loss(300 + i, 301 + i);
        }
        assert_eq!(f.packets(), FEWEST);
        round(&mut f, &mut n, 10 * US);
        for _ in 0..40 {
            round(&mut f, &mut n, 100 * US);
        }
        assert_eq!(f.packets(), 256);
    }

    #[test]
    fn what_does_not_need_more_gets_no_more() {
        let mut f = FlightLimit::for_mtu(PathMtu::B1024);
        for n in 0..100 {
            f.on_asked(Instant::from_nanos(n), n);
            f.on_acknowledged(Instant::from_nanos(n) + 40_000 * US, n + 1);
        }
        assert_eq!(f.packets(), 512);
    }

    #[test]
    fn without_a_limit_nothing_changes() {
        let mut f = FlightLimit::NONE;
        f.on_loss(0, 10);
        f.on_asked(Instant::ZERO, 3);
        assert!(f.timed.is_none());
        assert_eq!(f.packets(), MAX_WINDOW);
    }
}
