//! How fast a direction sends before and after it is told of congestion.

use super::Packets;

/// Packets over which a rate is measured.
const STRETCH: u32 = 32;

/// The rates of a direction around its first congestion notification.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Notifications that its sender got.
    pub(super) told: Packets,
    /// Bytes a nanosecond just before the first.
    before: Option<f64>,
    /// The slowest stretch since, and how many there were.
    slowest: Option<f64>,
    stretches: u32,
    /// Where the current stretch began, and what it has.
    stretch: Stretch,
    /// All since the first notification.
    since: Stretch,
}

#[derive(Debug, Clone, Copy, Default)]
struct Stretch {
    begin: Option<i64>,
    end: i64,
    packets: u32,
    bytes: u64,
}

impl Stretch {
    fn add(&mut self, bytes: u32, now: i64) {
        // The first packet only begins the time over which the bytes of the others went.
        if self.begin.is_some() {
            self.bytes += u64::from(bytes);
            self.packets += 1;
        }
        self.begin.get_or_insert(now);
        self.end = now;
    }

    fn rate(&self) -> Option<f64> {
        let nanos = self.end - self.begin?;
        (nanos > 0).then(|| self.bytes as f64 / nanos as f64)
    }
}

impl Pace {
    /// A packet with `bytes` of payload was sent.
    pub(super) fn sent(&mut self, bytes: u32, now: i64) {
        self.stretch.add(bytes, now);
        let told = self.told.count() > 0;
        if told {
            self.since.add(bytes, now);
        }
        if self.stretch.packets < STRETCH {
            return;
        }
        let rate = std::mem::take(&mut self.stretch).rate();
        if told {
            self.stretches += 1;
            self.slowest = match (self.slowest, rate) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
        } else {
            self.before = rate;
        }
        // The next stretch begins with this packet.
        self.stretch.add(bytes, now);
    }

    /// The sender was told of congestion.
    pub(super) fn told(&mut self, number: u64) {
        if self.told.count() == 0 {
            self.stretch = Stretch::default();
        }
        self.told.push(number);
    }

    /// Bits a second before and after the first notification, where the sender never became slower.
    pub(super) fn no_reaction(&self) -> Option<(f64, f64)> {
        let (before, after) = (self.before?, self.since.rate()?);
        let unmoved = after >= 0.9 * before && self.slowest? >= 0.75 * before;
        (unmoved && self.told.count() >= 4 && self.stretches >= 4).then_some((before * 8e9, after * 8e9))
    }
}
