//! Faults of a link, seeded and free of IO: for each frame offered, what happens to it.

pub mod random;
pub mod spec;
pub mod units;

pub use spec::{Fault, Spec, SpecError};

use random::Random;

/// What happens to a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It goes on.
    Pass,
    /// It is lost.
    Drop,
}

/// The faults of one direction of a link.
#[derive(Debug, Clone)]
pub struct Injector {
    /// Chance of loss as a threshold for a 64-bit random number; `None` draws nothing.
    loss: Option<u64>,
    random: Random,
    enabled: bool,
}

impl Injector {
    /// The faults of `spec`, drawn from `seed`. Two directions take two seeds.
    pub fn new(spec: &Spec, seed: u64) -> Injector {
        // Several losses on one link are independent: a frame passes if it passes all.
        let passes: f64 = spec
            .faults
            .iter()
            .map(|f| match f {
                Fault::Loss(p) => 1.0 - p,
            })
            .product();
        let loss = (passes < 1.0).then(|| threshold(1.0 - passes));
        Injector { loss, random: Random::new(seed), enabled: true }
    }

    /// Decides over a frame.
    #[inline]
    pub fn offer(&mut self) -> Fate {
        match self.loss {
            Some(limit) if self.enabled && self.random.next_u64() < limit => Fate::Drop,
            _ => Fate::Pass,
        }
    }

    /// Stops all faults, or lets them begin again.
    pub fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
    }
}

/// The number below which a uniform 64-bit number lies with probability `p`.
fn threshold(p: f64) -> u64 {
    (p * 2f64.powi(64)) as u64 // saturates at the top: a chance of 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_come_as_often_as_asked_for_and_the_same_with_the_same_seed() {
        let spec: Spec = "loss=0.01".parse().unwrap();
        let run = |seed| {
            let mut i = Injector::new(&spec, seed);
            (0..1_000_000).map(|_| i.offer()).collect::<Vec<_>>()
        };
        let a = run(1);
        let lost = a.iter().filter(|f| **f == Fate::Drop).count();
        // Standard deviation 99.5: six of them.
        assert!((9_403..=10_597).contains(&lost), "{lost} of a million at 1 %");
        assert!(a == run(1) && a != run(2));
    }

    #[test]
    fn no_loss_loses_nothing_and_certain_loss_everything() {
        let all = |spec: &str, fate| {
            let mut i = Injector::new(&spec.parse().unwrap(), 3);
            (0..10_000).all(|_| i.offer() == fate)
        };
        assert!(all("", Fate::Pass) && all("loss=0", Fate::Pass) && all("loss=1", Fate::Drop));
    }
}
