//! How many packets a requester has outstanding, where nobody else limits it.
//!
//! A receiver in software has room for some thousand frames, and none for those that come while they are full. A sender with a hundred long
//! messages to send would fill them, lose packets and go back. So packets outstanding are limited to what fills any local network, and to
//! more only where the round trip shows that they are under way and do not stand in a queue. The peer needs to know nothing of it.

use std::time::Duration;

use softnic_wire::{Instant, PathMtu};

use super::requester::MAX_WINDOW;

/// Bytes that are outstanding at first, in whole packets: what 40 Gbit/s carry in 200 µs.
const BYTES: u32 = 1 << 20;
/// Packets that this is at least and at most, whatever the path MTU is.
const PACKETS: std::ops::RangeInclusive<u32> = 256..=512;
/// Fewer packets are never the limit: with them acknowledgements come often enough.
const FEWEST: u32 = 32;
/// Round trips that are measured before the limit grows beyond what it is at first: the shortest of them is one without a queue.
const SAMPLES: u32 = 4;

#[derive(Debug, Clone, Copy)]
pub(crate) struct FlightLimit {
    packets: u32,
    /// The limit at first; `None`: there is none.
    usual: Option<u32>,
    /// A packet would have gone, but for the limit.
    reached: bool,
    /// A packet whose answer tells the round-trip time: its number, and when it left. None that is sent again is timed.
    timed: Option<(u64, Instant)>,
    shortest: Option<Duration>,
    samples: u32,
    /// What was outstanding when the limit was cut last: one loss is noticed several times.
    cut_before: u64,
}

impl FlightLimit {
    /// No limit but that of PSNs.
    pub(crate) const NONE: FlightLimit = FlightLimit {
        packets: MAX_WINDOW,
        usual: None,
        reached: false,
        timed: None,
        shortest: None,
        samples: 0,
        cut_before: 0,
    };

    /// Packets that may be outstanding at first, by the path MTU.
    pub(crate) fn usual(mtu: PathMtu) -> u32 {
        (BYTES / mtu.bytes()).clamp(*PACKETS.start(), *PACKETS.end())
    }

    /// A limit for this path MTU.
    pub(super) fn for_mtu(mtu: PathMtu) -> FlightLimit {
        let usual = FlightLimit::usual(mtu);
        FlightLimit { packets: usual, usual: Some(usual), ..FlightLimit::NONE }
    }

    /// Packets that may be outstanding.
    #[inline]
    pub(super) fn packets(&self) -> u32 {
        self.packets
    }

    /// The same, where there is a limit.
    pub(super) fn limit(&self) -> Option<u32> {
        self.usual.map(|_| self.packets)
    }

    /// Responses that one request of a READ asks for at most. A longer READ is asked for in such pieces, which count as packets
    /// outstanding do, so that one READ does not bring more than the receiver has room for.
    #[inline]
    pub(super) fn read_packets(&self) -> u32 {
        self.usual.map_or(u32::MAX, |usual| usual / 2)
    }

    /// A packet had to wait because of the limit.
    #[inline]
    pub(super) fn on_reached(&mut self) {
        self.reached = true;
    }

    /// Packet `n` left for the first time, and asks for an answer.
    #[inline]
    pub(super) fn on_asked(&mut self, now: Instant, n: u64) {
        if self.timed.is_none() && self.usual.is_some() {
            self.timed = Some((n, now));
        }
    }

    /// A packet left again: which of two transmissions is answered could not be told.
    #[inline]
    pub(super) fn on_resent(&mut self) {
        self.timed = None;
    }

    /// All before packet `una` is acknowledged.
    #[inline]
    pub(super) fn on_acknowledged(&mut self, now: Instant, una: u64) {
        if let Some((n, left)) = self.timed
            && n < una
        {
            self.timed = None;
            self.on_sample(now.saturating_since(left));
        }
    }

    /// A round trip took so long.
    fn on_sample(&mut self, rtt: Duration) {
        let Some(usual) = self.usual else { return };
        let shortest = self.shortest.map_or(rtt, |shortest| shortest.min(rtt));
        self.shortest = Some(shortest);
        self.samples = self.samples.saturating_add(1);
        let reached = std::mem::take(&mut self.reached);
        if self.packets < usual {
            // After a loss: slowly, for what made it may still be there.
            let step = if reached { self.packets / 8 + 1 } else { 0 };
            self.packets = (self.packets + step).min(usual);
        } else if rtt > 4 * shortest {
            // They stand in a queue.
            self.packets = (self.packets - self.packets / 8).max(usual);
        } else if reached && rtt < 2 * shortest && self.samples >= SAMPLES {
            self.packets = self.packets.saturating_mul(2).min(MAX_WINDOW);
        }
    }

    /// Packets were lost of those from `una` on, before `next`.
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

    /// A window of packets that are answered after `rtt`, and of more that wait.
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
            // At 40 Gbit/s a window takes 200 µs: it waits for the receiver.
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
