//! Pacing by a token bucket: a rate, and the amount that may be sent at once after a pause.

use std::time::Duration;

use softnic_wire::Instant;

/// Bytes of a frame on a wire besides those from its Ethernet header to its ICRC: preamble, FCS, gap.
const FRAMING: u64 = 8 + 4 + 12;
/// Fractional bits of a nanosecond, so that a rate is exact over millions of packets.
const FRACTION_BITS: u32 = 20;

/// A token bucket, stored as the time at which it would be full again: one number instead of a level and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenBucket {
    /// Nanoseconds per byte, in fixed point.
    per_byte: u64,
    /// The time that the bucket takes to fill, in fixed point.
    depth: u128,
    /// The time at which the bucket is full, in fixed point.
    full: u128,
}

impl TokenBucket {
    /// `rate` bits per second, including all bytes on the wire. `burst` bytes may be sent at once; one packet is always permitted.
    pub fn new(rate: u64, burst: u64) -> TokenBucket {
        let mut bucket = TokenBucket { per_byte: 0, depth: 0, full: 0 };
        bucket.set_rate(rate);
        bucket.depth = u128::from(burst) * u128::from(bucket.per_byte);
        bucket
    }

    /// Changes the rate; the packets already sent are paid for at the old rate.
    pub fn set_rate(&mut self, rate: u64) {
        let per_byte = ((8_000_000_000u128) << FRACTION_BITS) / u128::from(rate.max(1));
        self.per_byte = u64::try_from(per_byte).unwrap_or(u64::MAX);
    }

    /// Changes the rate, also for the packets not yet paid for.
    pub fn change_rate(&mut self, now: Instant, rate: u64) {
        let old = u128::from(self.per_byte).max(1);
        self.set_rate(rate);
        // A burst is permitted at any rate; only the wait after it changes.
        let due = (u128::from(now.as_nanos()) << FRACTION_BITS) + self.depth;
        let wait = self.full.saturating_sub(due);
        if wait > 0 {
            self.full = due + wait.saturating_mul(u128::from(self.per_byte)).div_ceil(old);
        }
    }

    /// The bucket with another depth, at any rate: a sender that is late by no more than the depth makes up for all of it.
    pub fn with_depth(self, depth: Duration) -> TokenBucket {
        TokenBucket { depth: depth.as_nanos() << FRACTION_BITS, ..self }
    }

    /// The earliest time for the next packet.
    #[inline]
    pub fn next_send(&self) -> Instant {
        let at = self.full.saturating_sub(self.depth);
        // Rounded up, so that the rate is never exceeded.
        let nanos = (at + (1 << FRACTION_BITS) - 1) >> FRACTION_BITS;
        Instant::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// A frame of `bytes`, from its Ethernet header to its ICRC, is sent now.
    #[inline]
    pub fn on_sent(&mut self, now: Instant, bytes: u32) {
        let now = u128::from(now.as_nanos()) << FRACTION_BITS;
        let cost = u128::from(u64::from(bytes) + FRAMING) * u128::from(self.per_byte);
        // A packet that was sent at the next whole nanosecond was on time.
        let paced = self.full + (1 << FRACTION_BITS) > now;
        self.full = if paced { self.full } else { now } + cost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends `frames` frames of `bytes` each, as early as the bucket permits; returns the time of the last one.
    fn run(bucket: &mut TokenBucket, frames: u32, bytes: u32) -> Instant {
        let mut now = Instant::ZERO;
        for _ in 0..frames {
            now = now.max(bucket.next_send());
            bucket.on_sent(now, bytes);
        }
        now
    }

    #[test]
    fn the_rate_is_kept_over_a_million_packets_of_any_size() {
        for (rate, bytes) in [(10_000_000_000, 1082), (100_000_000_000, 4154), (3_333_333_333, 90), (1_000_000, 300)] {
            let frames = 1_000_000u32;
            let took = run(&mut TokenBucket::new(rate, 0), frames, bytes).as_nanos() as f64;
            let exact = f64::from(frames - 1) * f64::from(bytes + 24) * 8e9 / rate as f64;
            assert!((took / exact - 1.0).abs() < 1e-5, "{rate} bit/s, {bytes} bytes: {took} ns instead of {exact}");
            assert!(took >= exact * 0.99999, "never faster: {took} ns instead of {exact}");
        }
    }

    #[test]
    fn a_pause_is_worth_a_burst_and_no_more() {
        let (rate, bytes) = (8_000_000_000, 976); // one byte per nanosecond, one microsecond per frame
        let mut bucket = TokenBucket::new(rate, 3000);
        run(&mut bucket, 100, bytes);
        let now = Instant::from_nanos(1_000_000_000);
        let mut at_once = 0;
        while bucket.next_send() <= now {
            bucket.on_sent(now, bytes);
            at_once += 1;
        }
        assert_eq!(at_once, 4, "three that were saved up, and the one that is due");
        assert_eq!(bucket.next_send().as_nanos(), now.as_nanos() + 1000);
    }

    #[test]
    fn a_new_rate_holds_for_what_leaves_from_then_on() {
        let mut bucket = TokenBucket::new(8_000_000_000, 0);
        let at = Instant::from_nanos;
        bucket.on_sent(at(0), 976);
        bucket.set_rate(4_000_000_000);
        assert_eq!(bucket.next_send(), at(1000));
        bucket.on_sent(at(1000), 976);
        assert_eq!(bucket.next_send(), at(3000));
    }

    #[test]
    fn a_rate_that_changes_at_once_holds_for_the_wait_that_is_left() {
        let at = Instant::from_nanos;
        let mut bucket = TokenBucket::new(8_000_000_000, 0);
        bucket.on_sent(at(0), 976); // one microsecond
        bucket.change_rate(at(250), 4_000_000_000);
        assert_eq!(bucket.next_send(), at(250 + 1500), "three quarters of it at half the rate");
        bucket.change_rate(at(1000), 8_000_000_000);
        assert_eq!(bucket.next_send(), at(1000 + 375));
        bucket.change_rate(at(2000), 1_000_000);
        assert_eq!(bucket.next_send(), at(1375), "what is paid stays paid");
    }

    #[test]
    fn who_is_late_makes_up_for_as_much_as_the_depth_at_any_rate() {
        let at = Instant::from_nanos;
        let mut bucket = TokenBucket::new(8_000_000_000, 0).with_depth(Duration::from_micros(5));
        let now = at(1_000_000);
        let burst = |bucket: &mut TokenBucket| {
            let mut n = 0;
            while bucket.next_send() <= now {
                bucket.on_sent(now, 976);
                n += 1;
            }
            n
        };
        assert_eq!(burst(&mut bucket), 6, "five microseconds, and the one that is due");
        let mut slower = TokenBucket::new(1_600_000_000, 0).with_depth(Duration::from_micros(5));
        assert_eq!(burst(&mut slower), 2);
    }
}
