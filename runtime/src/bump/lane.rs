//! One direction of the wire: what becomes of each frame, and what is counted of it.

use hdrhistogram::Histogram;
use softnic_fault_injector::{Direction, EmulatedLink, Offered, Spec};
use softnic_wire::{Instant, Layout};

use super::counters::{Counters, Residence};
use crate::port::{checksum, exceeds};

/// Frames that are held back at a time; more are lost. Memory for them is taken when they come.
const MAX_HELD: usize = 1 << 14;
/// The longest time that is told apart from longer ones.
const LONGEST_NS: u64 = 10_000_000_000;

/// One direction.
#[derive(Debug)]
pub(super) struct Lane {
    link: EmulatedLink,
    /// Whether faults are for all frames; otherwise for RoCE packets alone.
    all_traffic: bool,
    counters: Counters,
    residence: Histogram<u64>,
}

impl Lane {
    /// What `spec` says of this direction, drawn from `seed`, for frames of at most `max_len` bytes.
    pub(super) fn new(spec: &Spec, direction: Direction, seed: u64, all_traffic: bool, max_len: usize) -> Lane {
        // Two digits: what is asked for is an order of magnitude. The bounds are constants that make sense.
        let residence = Histogram::new_with_bounds(1, LONGEST_NS, 2).unwrap_or_else(|_| unreachable!());
        let link = EmulatedLink::new(spec, direction, seed, MAX_HELD, max_len);
        Lane { link, all_traffic, counters: Counters::default(), residence }
    }

    /// A frame came in from an interface with the first MTU, for one with the second: `true` when it is to go on at once, as it is
    /// now. `record` sees it before any fault does.
    #[inline]
    pub(super) fn take(
        &mut self,
        now: Instant,
        frame: &mut [u8],
        [from_mtu, to_mtu]: [usize; 2],
        record: impl FnOnce(&[u8]),
    ) -> bool {
        self.counters.rx_frames += 1;
        self.counters.rx_bytes += frame.len() as u64;
        self.counters.checksums_completed += u64::from(checksum::complete(frame));
        record(frame);
        let is_roce = Layout::locate(frame).is_ok();
        self.counters.roce_frames += u64::from(is_roce);
        if exceeds(frame, from_mtu) {
            self.counters.unsegmented += 1;
            return false;
        }
        if exceeds(frame, to_mtu) {
            self.counters.too_long += 1;
            return false;
        }
        !(is_roce || self.all_traffic) || self.link.offer(now, frame) == Offered::Pass
    }

    /// From now on other faults hold.
    pub(super) fn set_faults(&mut self, now: Instant, spec: &Spec, direction: Direction, seed: u64) {
        self.link.set_spec(now, spec, direction, seed);
    }

    /// The next frame whose time has come.
    pub(super) fn poll(&mut self, now: Instant) -> Option<&[u8]> {
        self.link.poll(now).map(|frame| &*frame)
    }

    /// When [`Lane::poll`] has a frame.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.link.next_due()
    }

    /// A frame was put into the other interface's ring.
    #[inline]
    pub(super) fn sent(&mut self, len: usize) {
        self.counters.tx_frames += 1;
        self.counters.tx_bytes += len as u64;
    }

    /// So many frames took so long.
    pub(super) fn stayed(&mut self, frames: u64, ns: u64) {
        // A value beyond the bounds counts as the highest, and there are not 2^64 frames.
        let _ = self.residence.record_n(ns.clamp(1, LONGEST_NS), frames);
    }

    /// The counters kept here, without what the kernel dropped.
    pub(super) fn counters(&self) -> Counters {
        let stats = self.link.stats();
        let overflowed = self.link.overflowed();
        Counters {
            fault_lost: stats.lost - stats.tail_dropped - overflowed,
            queue_full: stats.tail_dropped,
            overflowed,
            duplicated: stats.duplicated,
            corrupted: stats.corrupted,
            reordered: stats.held,
            stalled: stats.stalled,
            delayed: stats.delayed,
            marked: stats.marked,
            under_way: self.link.under_way() as u64,
            ..self.counters
        }
    }

    /// How long frames stayed.
    pub(super) fn residence(&self) -> Residence {
        let at = |q| self.residence.value_at_quantile(q);
        match self.residence.len() {
            0 => Residence::default(),
            frames => Residence { frames, p50: at(0.5), p99: at(0.99), p999: at(0.999), max: self.residence.max() },
        }
    }

    /// The script's events for this direction: their places, from 0, and for how many packets each was.
    pub(super) fn applied(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.link.applied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_nanos(1000);
    const MTUS: [usize; 2] = [1500, 1500];

    fn lane(spec: &str, all_traffic: bool) -> Lane {
        Lane::new(&spec.parse().unwrap(), Direction::Ab, 7, all_traffic, 2000)
    }

    /// Ethernet, IPv4, UDP to this port, with room for a BTH.
    fn udp(port: u16) -> Vec<u8> {
        let mut frame = vec![2; 80];
        frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0x00]);
        frame[16..18].copy_from_slice(&66u16.to_be_bytes());
        (frame[20], frame[21], frame[23]) = (0, 0, 17);
        frame[36..38].copy_from_slice(&port.to_be_bytes());
        frame[38..40].copy_from_slice(&46u16.to_be_bytes());
        frame[40..42].fill(0);
        frame
    }

    /// How many of a thousand frames go on at once.
    fn passed(lane: &mut Lane, frame: &[u8]) -> usize {
        (0..1000).filter(|_| lane.take(NOW, &mut frame.to_vec(), MTUS, |_| ())).count()
    }

    #[test]
    fn faults_are_for_roce_unless_they_are_for_everything() {
        let mut l = lane("loss=0.5", false);
        assert_eq!(passed(&mut l, &udp(53)), 1000);
        let left = passed(&mut l, &udp(4791));
        assert!((400..600).contains(&left));
        let c = l.counters();
        assert_eq!((c.rx_frames, c.rx_bytes, c.roce_frames, c.fault_lost), (2000, 160_000, 1000, 1000 - left as u64));
        let mut l = lane("loss=1", true);
        assert_eq!(passed(&mut l, &udp(53)), 0);
    }

    #[test]
    fn a_frame_longer_than_an_mtu_is_dropped_and_the_reason_counted() {
        let mut l = lane("", false);
        let mut take = |len: usize, tag: u16, mtus: [usize; 2]| {
            let mut frame = vec![0; len];
            frame[12..14].copy_from_slice(&tag.to_be_bytes());
            l.take(NOW, &mut frame, mtus, |_| ())
        };
        assert!(
            take(1514, 0x0800, [1500, 1500]) && take(1518, 0x8100, [1500, 1500]) && take(1518, 0x88a8, [1500, 1500])
        );
        assert!(!take(1515, 0x0800, [1500, 1500]) && !take(1519, 0x8100, [1500, 9000]));
        assert!(!take(1515, 0x0800, [9000, 1500]) && take(1515, 0x0800, [1501, 1501]));
        let c = l.counters();
        assert_eq!((c.rx_frames, c.unsegmented, c.too_long), (7, 2, 1));
    }

    #[test]
    fn what_is_recorded_is_what_came_in_before_any_fault() {
        let mut l = lane("corrupt=1", false);
        let (frame, mut recorded) = (udp(4791), Vec::new());
        let mut damaged = frame.clone();
        assert!(l.take(NOW, &mut damaged, MTUS, |f| recorded = f.to_vec()));
        assert!(recorded == frame && damaged != frame);
        assert_eq!(l.counters().corrupted, 1);
    }

    #[test]
    fn a_delayed_frame_is_under_way_until_it_is_due() {
        let mut l = lane("delay=1us", false);
        assert!(!l.take(NOW, &mut udp(4791), MTUS, |_| ()));
        assert_eq!((l.counters().under_way, l.next_due()), (1, Some(Instant::from_nanos(2000))));
        assert!(l.poll(Instant::from_nanos(1999)).is_none());
        assert_eq!(l.poll(Instant::from_nanos(2000)), Some(&udp(4791)[..]));
        assert_eq!(l.counters().under_way, 0);
    }

    #[test]
    fn frames_add_up_whatever_happens_to_them() {
        let mut l = lane("loss=0.1,dup=0.1,corrupt=0.1,reorder=0.1:3,rate=1Gbit,queue=20K,jitter=10us", false);
        let mut sent = 0;
        for n in 0..10_000 {
            let now = Instant::from_nanos(n * 900);
            sent += u64::from(l.take(now, &mut udp(4791), MTUS, |_| ()));
            while l.poll(now).is_some() {
                sent += 1;
            }
        }
        let c = l.counters();
        assert_eq!(c.rx_frames + c.duplicated, sent + c.fault_lost + c.queue_full + c.overflowed + c.under_way);
        assert!(c.fault_lost > 500 && c.duplicated > 500 && c.corrupted > 500 && c.reordered > 500, "{c:?}");
    }

    #[test]
    fn times_are_kept_by_frames() {
        let mut l = lane("", false);
        assert_eq!(l.residence(), Residence::default());
        l.stayed(99, 1000);
        l.stayed(1, 1_000_000);
        let r = l.residence();
        assert_eq!(r.frames, 100);
        assert!((990..1010).contains(&r.p50) && (990..1010).contains(&r.p99) && r.max >= 990_000, "{r:?}");
    }
}
