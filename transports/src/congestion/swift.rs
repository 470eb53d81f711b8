//! Swift (Kumar et al., SIGCOMM 2020): a window that grows while round trips are shorter than a target, and shrinks when they are longer.
//!
//! The target is the sum of a base, a part for each hop, and a part that increases as the window gets smaller (flow scaling, section 3.5 of
//! the paper): with many flows, each has a small window, and the queue that their packets cause by chance is longer. A window below one
//! packet means one packet at a time, with a pause of several round trips between packets.

#[cfg(test)]
mod tests;

use std::time::Duration;

use softnic_wire::Instant;

use super::{CongestionControl, Feedback};
use crate::planted::{Bug, planted};

/// One packet, in the fixed-point format of windows: a run is the same on every machine.
const ONE: u64 = 1 << 16;
/// The assumed packet length in bytes before any packet was sent.
const FIRST_PACKET: u32 = 1024;
/// Number of times per window that feedback is requested.
const ASKS_PER_WINDOW: u64 = 8;

/// The parameters of Swift. Windows are in thousandths of a packet, factors in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwiftConfig {
    /// The constant part of the target: round trip of the shortest path, and host delay.
    pub base: Duration,
    /// The part of the target for each hop.
    pub hop: Duration,
    /// Number of hops of the path: switches, one way. A NIC cannot see how many there are.
    pub hops: u32,
    /// The maximum part of flow scaling; 0 disables it.
    pub range: Duration,
    /// Flow scaling adds its full range at the first window, and nothing from the second one on.
    pub scaling: [u32; 2],
    /// Additive increase, in packets per round trip.
    pub additive: u32,
    /// β: the fraction of the excess of a round trip by which the window is cut.
    pub beta: u32,
    /// The maximum fraction by which the window is cut at once.
    pub max_decrease: u32,
    /// The initial window.
    pub start: u32,
    /// The minimum window.
    pub floor: u32,
    /// After this number of timeouts without an answer, the window is set to the minimum.
    pub timeouts: u32,
}

impl Default for SwiftConfig {
    fn default() -> SwiftConfig {
        SwiftConfig {
            base: Duration::from_micros(25),
            hop: Duration::from_micros(1),
            hops: 1,
            range: Duration::from_micros(100),
            scaling: [100, 100_000],
            additive: 1000,
            beta: 800,
            max_decrease: 500,
            start: 16_000,
            floor: 10,
            timeouts: 5,
        }
    }
}

/// Converts thousandths to fixed point.
const fn fixed(thousandths: u32) -> u64 {
    thousandths as u64 * ONE / 1000
}

/// 1 / √window, in fixed point.
fn inverse_root(window: u64) -> u64 {
    (1 << 32) / (window << 16).isqrt().max(1)
}

/// Swift for one queue pair.
#[derive(Debug, Clone, Copy)]
pub struct Swift {
    config: SwiftConfig,
    line: u64,
    /// Maximum number of packets in flight, in fixed point.
    window: u64,
    /// The longest frame sent so far.
    packet: u32,
    /// α of flow scaling, in nanoseconds; and the value of 1 / √window from which on it adds nothing.
    alpha: u64,
    widest: u64,
    /// The last and the shortest round-trip time.
    delay: Option<Duration>,
    shortest: Option<Duration>,
    /// The time of the last window cut.
    cut: Option<Instant>,
    /// Number of timeouts since the last answer.
    timeouts: u32,
    /// The last packet: when it was sent, and its length.
    sent: Option<(Instant, u32)>,
}

impl Swift {
    /// For a link of this rate, in bits per second including all bytes on the wire.
    pub fn new(line: u64, config: SwiftConfig) -> Swift {
        let [least, most] = config.scaling.map(|window| inverse_root(fixed(window.max(1)).max(1)));
        let range = u64::try_from(config.range.as_nanos()).unwrap_or(u64::MAX);
        let alpha = u128::from(range) * u128::from(ONE) / u128::from(least.saturating_sub(most).max(1));
        Swift {
            config,
            line: line.max(1),
            window: fixed(config.start).max(1),
            packet: FIRST_PACKET,
            alpha: u64::try_from(alpha).unwrap_or(u64::MAX),
            widest: most,
            delay: None,
            shortest: None,
            cut: None,
            timeouts: 0,
            sent: None,
        }
    }

    /// The window in thousandths of a packet.
    pub fn window_in_packets(&self) -> u64 {
        self.window * 1000 / ONE
    }

    /// The part of the target that does not depend on the window.
    fn fixed_target(&self) -> Duration {
        self.config.base + self.config.hop * self.config.hops
    }

    /// The target round-trip time.
    pub fn target(&self) -> Duration {
        let above = inverse_root(self.window).saturating_sub(self.widest);
        let scaled = u128::from(self.alpha) * u128::from(above) / u128::from(ONE);
        let scaled = Duration::from_nanos(u64::try_from(scaled).unwrap_or(u64::MAX)).min(self.config.range);
        self.longer_path() + self.fixed_target() + scaled
    }

    /// The shortest round-trip time, if it exceeds any target: then the path itself is long, and the target is added to it.
    fn longer_path(&self) -> Duration {
        let longest = self.fixed_target() + self.config.range;
        self.shortest.filter(|&shortest| shortest > longest).unwrap_or_default()
    }

    /// The largest useful window: what the link carries within the longest target.
    fn ceiling(&self) -> u64 {
        let longest = self.longer_path() + self.fixed_target() + self.config.range;
        let bytes = u128::from(self.line) * longest.as_nanos() / 8_000_000_000;
        let packets = bytes * u128::from(ONE) / u128::from(self.packet);
        u64::try_from(packets).unwrap_or(u64::MAX).saturating_add(2 * ONE).min(1 << 40)
    }

    /// Whether a round trip has passed since the last cut: earlier feedback is about packets sent before the cut.
    fn may_cut(&self, now: Instant) -> bool {
        let round_trip = self.delay.unwrap_or(self.config.base);
        planted(Bug::SwiftCutsAgain) || self.cut.is_none_or(|cut| cut + round_trip <= now)
    }

    fn set_window(&mut self, window: u64) {
        self.window = window.min(self.ceiling()).max(fixed(self.config.floor)).max(1);
    }

    /// Reduces the window to this fraction, in thousandths.
    fn cut_to(&mut self, now: Instant, part: u64) {
        self.set_window((u128::from(self.window) * u128::from(part) / 1000) as u64);
        self.cut = Some(now);
    }

    fn on_acknowledged(&mut self, now: Instant, bytes: u64, rtt: Option<Duration>) {
        self.timeouts = 0;
        if let Some(rtt) = rtt {
            self.shortest = Some(self.shortest.map_or(rtt, |shortest| shortest.min(rtt)));
            self.delay = Some(rtt);
        }
        let Some(delay) = self.delay else { return };
        let target = self.target();
        if delay < target {
            self.increase(bytes);
        } else if rtt.is_some() && self.may_cut(now) {
            let beyond = (delay - target).as_nanos() * u128::from(self.config.beta) / delay.as_nanos().max(1);
            let cut = (beyond as u64).min(self.config.max_decrease.into());
            self.cut_to(now, 1000 - cut.min(1000));
        }
    }

    /// Increases the window by `additive` packets for each acknowledged window; below one packet, for each acknowledged packet.
    fn increase(&mut self, bytes: u64) {
        let came = u128::from(bytes) * u128::from(fixed(self.config.additive)) / u128::from(self.packet);
        let by = came * u128::from(ONE) / u128::from(self.window.max(ONE));
        let by = u64::try_from(by).unwrap_or(u64::MAX);
        self.set_window(self.window.saturating_add(by));
    }

    /// Packets were lost: at most one cut per round trip, whatever reports the loss.
    fn on_loss(&mut self, now: Instant) {
        if self.may_cut(now) {
            self.cut_to(now, u64::from(1000 - self.config.max_decrease.min(1000)));
        }
    }

    /// The pause between packets, if the window is less than one packet.
    #[inline(never)]
    fn pause(&self, bytes: u32) -> Duration {
        let delay = self.delay.unwrap_or(self.config.base).as_nanos();
        let pause = delay * u128::from(bytes) * u128::from(ONE) / (u128::from(self.packet) * u128::from(self.window));
        Duration::from_nanos(u64::try_from(pause).unwrap_or(u64::MAX))
    }
}

impl CongestionControl for Swift {
    fn rate(&self) -> Option<u64> {
        let delay = self.delay?.as_nanos().max(1);
        let bits = u128::from(self.window) * u128::from(self.packet) * 8_000_000_000 / u128::from(ONE);
        Some(u64::try_from(bits / delay).unwrap_or(u64::MAX).min(self.line))
    }

    fn on_feedback(&mut self, now: Instant, feedback: Feedback) {
        match feedback {
            Feedback::Acknowledged { bytes, rtt } => self.on_acknowledged(now, bytes, rtt),
            Feedback::Loss => self.on_loss(now),
            Feedback::Timeout => {
                self.timeouts = self.timeouts.saturating_add(1);
                if self.timeouts >= self.config.timeouts {
                    self.cut_to(now, 0);
                } else {
                    self.on_loss(now);
                }
            }
            // The delay is more precise than a mark.
            Feedback::CongestionNotification => {}
        }
    }

    fn on_sent(&mut self, now: Instant, bytes: u32) {
        self.packet = self.packet.max(bytes);
        self.sent = Some((now, bytes));
    }

    fn window(&self) -> u64 {
        ((u128::from(self.window) * u128::from(self.packet)) >> 16) as u64
    }

    fn next_send(&self) -> Instant {
        match self.sent {
            Some((at, bytes)) if self.window < ONE => at + self.pause(bytes),
            _ => Instant::ZERO,
        }
    }

    fn paces_answers(&self) -> bool {
        false
    }

    fn ask_every(&self) -> u64 {
        self.window() / ASKS_PER_WINDOW
    }

    fn reset(&mut self) {
        *self = Swift::new(self.line, self.config);
    }
}
