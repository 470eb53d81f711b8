//! Bulk transfers of the paper's grids: long WRITEs, for as many round trips as asked for.

use std::time::Duration;

use softnic_fault_injector::Spec;
use softnic_sim::Options;
use softnic_sim::table;
use softnic_transports::Transport;
use softnic_transports::qp::PayloadMode;

use super::over;

/// Bytes of a message. The paper does not say how long messages are: with 64 KiB its queue of 512 would hold three quarters of what fits a round trip
/// of 40 ms.
const SIZE: u32 = 1 << 20;
pub(super) const DEPTH: u32 = 512;

/// A transfer over a link.
pub(super) struct Bulk {
    pub(super) transport: Transport,
    pub(super) connections: u32,
    pub(super) rtt: Duration,
    /// Gbit/s that Go-Back-N should reach there. Others keep about what the line carries.
    pub(super) go_back_n: f64,
    /// Messages, at least.
    pub(super) fewest: u64,
}

impl Bulk {
    /// As many messages as take about so many round trips.
    fn count(&self, round_trips: f64) -> u64 {
        let expected = if self.transport == Transport::Rc { self.go_back_n } else { table::go_back_n(0.0, self.rtt) };
        let bytes = expected * 1e9 / 8.0 * self.rtt.as_secs_f64() * round_trips;
        ((bytes / f64::from(SIZE)) as u64).max(self.fewest)
    }

    pub(super) fn options(&self, round_trips: f64, faults: Spec, seed: u64) -> Options {
        let options = Options {
            size: SIZE,
            count: self.count(round_trips),
            depth: DEPTH,
            qps: self.connections,
            rtt: self.rtt,
            faults,
            payload: PayloadMode::Elided,
            seed,
            ..Options::default()
        };
        over(self.transport, options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_has_as_many_messages_as_take_its_round_trips_and_not_too_few() {
        let rtt = Duration::from_millis(40);
        let count = |transport, go_back_n| {
            let bulk = Bulk { transport, connections: 1, rtt, go_back_n, fewest: 64 };
            bulk.options(40.0, Spec::default(), 1).count
        };
        // 1 Gbit/s for 1.6 s.
        assert_eq!(count(Transport::Rc, 1.0), 190);
        assert_eq!(count(Transport::Rc, 0.1), 64);
        assert_eq!(count(Transport::SR, 0.1), count(Transport::Rc, table::go_back_n(0.0, rtt)));
    }
}
