//! The reaction point of DCQCN (Zhu et al., SIGCOMM 2015): a rate that congestion notifications reduce, and that time and sent bytes raise
//! again.
//!
//! The controller has no timer. On each call, the effects of the time since the last call are computed, period by period. The effects
//! during the wait of a packet are computed ahead, so that a rate that rises meanwhile shortens the wait.

#[cfg(test)]
mod tests;

use std::time::Duration;

use softnic_wire::Instant;

use super::{CongestionControl, Feedback, TokenBucket};

/// α = 1, in the fixed-point format of α: a run is the same on every machine.
const ONE: u64 = 1 << 32;
/// Maximum number of periods of the increase timer that are computed one by one after a pause. A rate that is still below the link rate
/// then stays as it is.
const MAX_PERIODS: u32 = 1 << 14;

/// The parameters of DCQCN. The defaults are those of the paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DcqcnConfig {
    /// g is one divided by this: the effect of a notification, or of its absence, on α. From 2 to 4096.
    pub gain: u32,
    /// α decreases after this time without a notification.
    pub alpha_timer: Duration,
    /// The rate increases once in this time.
    pub increase_timer: Duration,
    /// The rate increases each time this number of bytes was sent.
    pub byte_counter: u64,
    /// F: number of increases, by timer and by bytes, towards the previous rate before the rate increases further.
    pub fast_recovery: u32,
    /// Additive increase: the step after that, in bits per second.
    pub additive: u64,
    /// Hyper increase, after timer and bytes have both increased the rate F times: the step is applied once for the first event, twice for
    /// the second, and so on.
    pub hyper: u64,
    /// The minimum rate, in bits per second.
    pub floor: u64,
    /// A packet that leaves later than permitted, because the driver did not poll, may be made up for within this time.
    pub burst: Duration,
}

impl Default for DcqcnConfig {
    fn default() -> DcqcnConfig {
        DcqcnConfig {
            gain: 256,
            alpha_timer: Duration::from_micros(55),
            increase_timer: Duration::from_micros(55),
            byte_counter: 10_000_000,
            fast_recovery: 5,
            additive: 40_000_000,
            hyper: 400_000_000,
            floor: 10_000_000,
            burst: Duration::ZERO,
        }
    }
}

/// DCQCN for one queue pair.
#[derive(Debug, Clone, Copy)]
pub struct Dcqcn {
    config: DcqcnConfig,
    line: u64,
    current: u64,
    target: u64,
    /// α, in units of 1 / [`ONE`].
    alpha: u64,
    /// The time of the last notification: α decreases from then on.
    alpha_since: Option<Instant>,
    /// The start of the current period of the increase timer.
    timer_since: Instant,
    /// Number of increases since the last notification, by timer and by bytes.
    by_timer: u32,
    by_bytes: u32,
    /// Number of bytes sent since the last increase by bytes.
    bytes: u64,
    bucket: TokenBucket,
}

impl Dcqcn {
    /// Starts at the rate of the link, in bits per second including all bytes on the wire.
    pub fn new(line: u64, config: DcqcnConfig) -> Dcqcn {
        let line = line.max(1);
        let config = DcqcnConfig {
            gain: config.gain.clamp(2, 4096),
            floor: config.floor.clamp(1, line),
            byte_counter: config.byte_counter.max(1),
            alpha_timer: config.alpha_timer.max(Duration::from_micros(1)),
            increase_timer: config.increase_timer.max(Duration::from_micros(1)),
            ..config
        };
        Dcqcn {
            config,
            line,
            current: line,
            target: line,
            alpha: ONE,
            alpha_since: None,
            timer_since: Instant::ZERO,
            by_timer: 0,
            by_bytes: 0,
            bytes: 0,
            bucket: TokenBucket::new(line, 0).with_depth(config.burst),
        }
    }

    /// The current rate, in bits per second.
    pub fn rate(&self) -> u64 {
        self.current
    }

    /// The rate towards which the current rate rises.
    pub fn target(&self) -> u64 {
        self.target
    }

    /// α: the estimated fraction of marked packets.
    pub fn alpha(&self) -> f64 {
        self.alpha as f64 / ONE as f64
    }

    /// At the link rate, the link itself paces the packets.
    #[inline]
    fn is_limited(&self) -> bool {
        self.current < self.line
    }

    /// Applies the effects of the increase timer until now.
    #[inline]
    fn advance(&mut self, now: Instant) {
        if now >= self.timer_since + self.config.increase_timer {
            self.count_periods(now);
        }
    }

    #[inline(never)]
    fn count_periods(&mut self, now: Instant) {
        let period = self.config.increase_timer;
        for _ in 0..MAX_PERIODS {
            let next = self.timer_since + period;
            if next > now {
                return;
            }
            if !self.is_limited() {
                break;
            }
            self.timer_since = next;
            self.by_timer = self.by_timer.saturating_add(1);
            self.increase(next);
        }
        // The rate does not rise any more; the periods still count.
        let periods = now.saturating_since(self.timer_since).as_nanos() / period.as_nanos();
        self.by_timer = self.by_timer.saturating_add(u32::try_from(periods).unwrap_or(u32::MAX));
        let left = now.saturating_since(self.timer_since).as_nanos() % period.as_nanos();
        self.timer_since = Instant::from_nanos(now.as_nanos() - left as u64);
    }

    /// One increase step, by timer or by bytes.
    fn increase(&mut self, at: Instant) {
        let f = self.config.fast_recovery;
        let both = self.by_timer.min(self.by_bytes);
        let step = if both > f {
            self.config.hyper.saturating_mul(u64::from(both - f))
        } else if self.by_timer.max(self.by_bytes) > f {
            self.config.additive
        } else {
            0
        };
        self.target = self.target.saturating_add(step).min(self.line);
        // Rounded up, so that the rate reaches the target.
        self.set_rate(at, self.current + (self.target - self.current).div_ceil(2));
    }

    fn set_rate(&mut self, at: Instant, rate: u64) {
        if rate != self.current {
            self.current = rate;
            self.bucket.change_rate(at, rate);
        }
    }

    /// The earliest time for the next packet, if the rate rises until then.
    #[inline(never)]
    fn look_ahead(&self) -> Instant {
        let mut ahead = *self;
        loop {
            let (at, rises) = (ahead.bucket.next_send(), ahead.timer_since + ahead.config.increase_timer);
            if at <= rises {
                return at;
            }
            ahead.advance(rises);
            if !ahead.is_limited() {
                return rises;
            }
        }
    }

    /// Decreases α for each period without a notification.
    fn decay(&mut self, now: Instant) {
        let Some(since) = self.alpha_since else { return };
        let periods = now.saturating_since(since).as_nanos() / self.config.alpha_timer.as_nanos();
        let gain = u64::from(self.config.gain);
        for _ in 0..periods {
            let by = self.alpha / gain;
            if by == 0 {
                break; // α cannot decrease further
            }
            self.alpha -= by;
        }
    }

    fn on_notification(&mut self, now: Instant) {
        self.advance(now);
        self.decay(now);
        self.target = self.current;
        let cut = u128::from(self.current) * u128::from(self.alpha) / u128::from(2 * ONE);
        self.set_rate(now, (self.current - cut as u64).max(self.config.floor));
        let gain = u64::from(self.config.gain);
        self.alpha = (self.alpha - self.alpha / gain + ONE / gain).min(ONE);
        (self.alpha_since, self.timer_since) = (Some(now), now);
        (self.by_timer, self.by_bytes, self.bytes) = (0, 0, 0);
    }
}

impl CongestionControl for Dcqcn {
    fn rate(&self) -> Option<u64> {
        Some(self.current)
    }

    fn on_feedback(&mut self, now: Instant, feedback: Feedback) {
        // Acknowledgements and losses are ignored.
        if feedback == Feedback::CongestionNotification {
            self.on_notification(now);
        }
    }

    fn on_sent(&mut self, now: Instant, bytes: u32) {
        self.advance(now);
        if !self.is_limited() {
            return;
        }
        self.bucket.on_sent(now, bytes);
        self.bytes += u64::from(bytes);
        if self.bytes >= self.config.byte_counter {
            self.bytes %= self.config.byte_counter;
            self.by_bytes = self.by_bytes.saturating_add(1);
            self.increase(now);
        }
    }

    fn window(&self) -> u64 {
        u64::MAX
    }

    fn next_send(&self) -> Instant {
        if !self.is_limited() {
            return Instant::ZERO;
        }
        let (at, rises) = (self.bucket.next_send(), self.timer_since + self.config.increase_timer);
        if at <= rises { at } else { self.look_ahead() }
    }

    fn reset(&mut self) {
        *self = Dcqcn::new(self.line, self.config);
    }
}
