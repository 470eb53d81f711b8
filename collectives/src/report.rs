//! The report of a run of collectives: times, budgets, losses, counters.

use std::time::Duration;

use softnic_transports::Counters;

use crate::losses::LossLog;
use crate::member::MemberCounters;

/// Times, in the order in which they were taken.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Times(Vec<Duration>);

impl Times {
    /// Adds one.
    pub fn add(&mut self, time: Duration) {
        self.0.push(time);
    }

    /// All of them.
    pub fn all(&self) -> &[Duration] {
        &self.0
    }

    /// Their mean in milliseconds.
    pub fn mean_ms(&self) -> f64 {
        self.0.iter().map(Duration::as_secs_f64).sum::<f64>() * 1e3 / self.0.len().max(1) as f64
    }

    /// Their standard deviation in milliseconds.
    pub fn deviation_ms(&self) -> f64 {
        let mean = self.mean_ms();
        let squares = self.0.iter().map(|time| (time.as_secs_f64() * 1e3 - mean).powi(2));
        (squares.sum::<f64>() / self.0.len().max(1) as f64).sqrt()
    }

    /// The least that at least this part of them is not above, in milliseconds; 0 of none.
    pub fn quantile_ms(&self, q: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        let place = (sorted.len() as f64 * q).ceil() as usize;
        sorted.get(place.clamp(1, sorted.len().max(1)) - 1).map_or(0.0, |time| time.as_secs_f64() * 1e3)
    }
}

/// What a rank did.
#[derive(Debug, Clone, Default)]
pub struct RankReport {
    /// From when all began to when this rank was through, of each collective.
    pub times: Times,
    /// What its member counted, without warm-ups.
    pub member: MemberCounters,
    /// What its NIC counted.
    pub nic: Counters,
}

/// What a run came to.
#[derive(Debug, Clone, Default)]
pub struct Report {
    /// From when all began to when the last rank was through, of each collective.
    pub times: Times,
    /// Each rank that was here; the first of them is `first_rank`.
    pub ranks: Vec<RankReport>,
    /// See above.
    pub first_rank: usize,
    /// The budget of each collective, where there was one: the same at all ranks.
    pub timeouts: Vec<Duration>,
    /// Of each collective the part of the bytes that did not come.
    pub missing: Vec<f64>,
    /// What did not come.
    pub losses: LossLog,
    /// How long the warm-up took, where there was one.
    pub warm_up: Option<Duration>,
    /// Bytes of the buffer times what the operation needs to send of each, by the mean time: as nccl-tests has it.
    pub bus_gbps: f64,
    /// How long all of it took: virtual time in the simulator.
    pub total_time: Duration,
    /// The hash of everything that happened, in the simulator.
    pub digest: Option<u64>,
    /// It was ended from outside: what was done until then.
    pub interrupted: bool,
}

impl Report {
    /// The part of all bytes that did not come.
    pub fn missing_fraction(&self) -> f64 {
        let sum = |of: fn(&MemberCounters) -> u64| self.ranks.iter().map(|rank| of(&rank.member)).sum::<u64>();
        let (came, missing) = (sum(|m| m.received_bytes), sum(|m| m.missing_bytes));
        if missing == 0 { 0.0 } else { missing as f64 / (came + missing) as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_times_that_were_taken() {
        let mut times = Times::default();
        assert_eq!((times.quantile_ms(0.5), times.mean_ms()), (0.0, 0.0));
        (1..=200).rev().for_each(|ms| times.add(Duration::from_millis(ms)));
        let of = |q| times.quantile_ms(q);
        assert_eq!([of(0.0), of(0.5), of(0.99), of(0.999), of(1.0)], [1.0, 100.0, 198.0, 200.0, 200.0]);
        assert!((times.mean_ms() - 100.5).abs() < 1e-9 && (times.deviation_ms() - 57.73).abs() < 0.01);
    }
}
