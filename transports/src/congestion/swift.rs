//! Swift (Kumar et al., SIGCOMM 2020): a window that grows while round trips are shorter than a target, and shrinks where they are longer.
//!
//! The target is a base, a part for each hop, and a part that is longer the smaller the window is (flow scaling, section 3.5 of the paper):
//! with many flows each has a small window, and the queue that their packets make by chance is longer. A window below one packet is
//! one packet at a time, so many round trips apart.

#[cfg(test)]
mod tests;

use std::time::Duration;

use softnic_wire::Instant;

use super::{CongestionControl, Feedback};
use crate::planted::{Bug, planted};

/// One packet, in the fixed point that windows are kept in: a run is the same on every machine.
const ONE: u64 = 1 << 16;
/// A packet before any was sent, in bytes.
const FIRST_PACKET: u32 = 1024;
/// A window asks for feedback so often.
const ASKS_PER_WINDOW: u64 = 8;

/// The parameters of Swift. Windows are in thousandths of a packet, factors in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwiftConfig {
    /// The part of the target that is always there: round trip of the shortest path, and host delay.
    pub base: Duration,
    /// The part for each hop.
    pub hop: Duration,
    /// Hops of the path: switches, one way. A NIC does not see how many there are.
    pub hops: u32,
    /// The most that flow scaling adds; 0: nothing.
    pub range: Duration,
    /// Flow scaling adds all of its range at this window, and nothing from the next one on.
    pub scaling: [u32; 2],
    /// Additive increase: packets a round trip.
    pub additive: u32,
    /// β: the part of what a round trip is too long by that the window is cut by.
    pub beta: u32,
    /// The window is never cut by more than this part at once.
    pub max_decrease: u32,
    /// The window at first, and the least one.
    pub start: u32,
    /// See above.
    pub floor: u32,
    /// After so many timeouts without an answer the window is the least one.
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

/// Thousandths as fixed point.
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
    /// Packets that may be in flight, in fixed point.
    window: u64,
    /// The longest frame that was sent.
    packet: u32,
    /// α of flow scaling, in nanoseconds; and 1 / √window from which on it adds nothing.
    alpha: u64,
    widest: u64,
    /// The last round trip, and the shortest one.
    delay: Option<Duration>,
    shortest: Option<Duration>,
    /// When the window was cut last.
    cut: Option<Instant>,
    /// Timeouts since the last answer.
    timeouts: u32,
    /// The last packet: when it left, and its length.
    sent: Option<(Instant, u32)>,
}

impl Swift {
    /// On a line of this rate, in bits a second with all that is on the wire.
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

    /// The round trip that is aimed at.
    pub fn target(&self) -> Duration {
        let above = inverse_root(self.window).saturating_sub(self.widest);
        let scaled = u128::from(self.alpha) * u128::from(above) / u128::from(ONE);
        let scaled = Duration::from_nanos(u64::try_from(scaled).unwrap_or(u64::MAX)).min(self.config.range);
        self.longer_path() + self.fixed_target() + scaled
    }

    /// The shortest round trip, where that is longer than any target: the path itself is, and a target counts from there.
    fn longer_path(&self) -> Duration {
        let longest = self.fixed_target() + self.config.range;
        self.shortest.filter(|&shortest| shortest > longest).unwrap_or_default()
    }

    /// The largest window that is of use: what the line carries within the longest target.
    fn ceiling(&self) -> u64 {
        let longest = self.longer_path() + self.fixed_target() + self.config.range;
        let bytes = u128::from(self.line) * longest.as_nanos() / 8_000_000_000;
        let packets = bytes * u128::from(ONE) / u128::from(self.packet);
        u64::try_from(packets).unwrap_or(u64::MAX).saturating_add(2 * ONE).min(1 << 40)
    }

    /// Whether a round trip has passed since the window was cut: what came before left before.
    fn may_cut(&self, now: Instant) -> bool {
        let round_trip = self.delay.unwrap_or(self.config.base);
        planted(Bug::SwiftCutsAgain) || self.cut.is_none_or(|cut| cut + round_trip <= now)
    }

    fn set_window(&mut self, window: u64) {
        self.window = window.min(self.ceiling()).max(fixed(self.config.floor)).max(1);
    }

    /// Leaves this part of the window, in thousandths.
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

    /// By so many packets for a window of them that came; below one packet for each of them.
    fn increase(&mut self, bytes: u64) {
        let came = u128::from(bytes) * u128::from(fixed(self.config.additive)) / u128::from(self.packet);
        let by = came * u128::from(ONE) / u128::from(self.window.max(ONE));
        let by = u64::try_from(by).unwrap_or(u64::MAX);
        self.set_window(self.window.saturating_add(by));
    }

    /// Packets were lost: at most one cut a round trip, whatever tells of it.
    fn on_loss(&mut self, now: Instant) {
        if self.may_cut(now) {
            self.cut_to(now, u64::from(1000 - self.config.max_decrease.min(1000)));
        }
    }

    /// From the last packet to the next, where less than a packet may be in flight.
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
            // Delay says more than a mark.
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
