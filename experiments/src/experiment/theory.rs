//! What theory says of goodput and completion times over a path that loses packets.

use std::time::Duration;

use softnic_transports::Transport;
use softnic_transports::lowar::Code;

/// What a full packet has beside its payload: Ethernet, IPv4, UDP, BTH, ICRC, and what Ethernet adds around it.
const AROUND: u32 = 14 + 20 + 8 + 12 + 4 + 24;

/// A path between two NICs, and how many connections share it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Path {
    /// Bits a second.
    pub(super) rate: u64,
    pub(super) rtt: Duration,
    /// Bytes of payload of a packet.
    pub(super) mtu: u32,
    pub(super) connections: u32,
}

impl Path {
    /// Seconds that a full packet takes on the line.
    fn packet_time(&self) -> f64 {
        f64::from((self.mtu + AROUND) * 8) / self.rate as f64
    }

    /// Packets that fit a round trip.
    pub(super) fn bdp(&self) -> f64 {
        self.rtt.as_secs_f64() / self.packet_time()
    }

    pub(super) fn loss_free_gbps(&self) -> f64 {
        f64::from(self.mtu * 8) / self.packet_time() / 1e9
    }

    /// Goodput, where there is a formula. With Go-Back-N each loss costs a connection what it sends in a round trip, its part of what fits
    /// the path. With LoWAR that is so for each block that cannot be repaired, and what came of the block behind the first loss, in the mean
    /// a third of it, is lost, too.
    pub(super) fn goodput_gbps(&self, transport: Transport, loss: f64) -> Option<f64> {
        let share = self.bdp() / f64::from(self.connections);
        match transport {
            Transport::Rc => Some(self.loss_free_gbps() / (1.0 + loss * share)),
            Transport::Lowar(code) => {
                let (r, all) = (f64::from(code.r()), f64::from(code.r()) + f64::from(code.c()));
                Some(self.loss_free_gbps() * r / all / (1.0 + given_up(code, loss) / all * (share + all / 3.0)))
            }
            _ => None,
        }
    }

    /// The mean time in ms that a message takes from post to completion if nothing else is under way, where there is a formula: its time on
    /// the line and a round trip, and a round trip more for each loss with Go-Back-N, once if anything is lost with Selective Repeat, and for
    /// each block that cannot be repaired with LoWAR.
    pub(super) fn mean_completion_ms(&self, transport: Transport, loss: f64, size: u32) -> Option<f64> {
        let packets = f64::from(size.div_ceil(self.mtu).max(1));
        let (sent, round_trips) = match transport {
            Transport::Rc => (packets, packets * loss),
            Transport::Sr { .. } => (packets, 1.0 - (1.0 - loss).powf(packets)),
            Transport::Lowar(code) => {
                let blocks = (packets / f64::from(code.r())).ceil();
                (packets + blocks * f64::from(code.c()), blocks * given_up(code, loss))
            }
            _ => return None,
        };
        let base = sent * self.packet_time() + self.rtt.as_secs_f64();
        Some((base + round_trips * self.rtt.as_secs_f64()) * 1e3)
    }
}

/// Lanes of a block, in the mean, that lose two packets or more, which their repair packet cannot restore.
fn given_up(code: Code, loss: f64) -> f64 {
    let n = f64::from(code.r()) / f64::from(code.c()) + 1.0;
    let at_most_one = (1.0 - loss).powf(n) + n * loss * (1.0 - loss).powf(n - 1.0);
    f64::from(code.c()) * (1.0 - at_most_one)
}

#[cfg(test)]
mod tests {
    use super::super::lowar;
    use super::*;
    use softnic_sim::table;

    const PATH: Path = Path { rate: 10_000_000_000, rtt: Duration::from_millis(40), mtu: 1024, connections: 1 };

    #[test]
    fn go_back_n_is_what_the_snapshot_tables_expect() {
        for loss in [0.0, 1e-5, 1e-3] {
            let ours = PATH.goodput_gbps(Transport::Rc, loss).unwrap();
            assert!((ours / table::go_back_n(loss, PATH.rtt) - 1.0).abs() < 1e-9, "{loss}: {ours}");
        }
        assert!((PATH.bdp() / table::bdp(PATH.rtt) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn repair_packets_cost_a_little_and_save_the_round_trips_of_single_losses() {
        let of = |transport, loss| PATH.goodput_gbps(transport, loss).unwrap();
        assert!((of(lowar(32, 1), 0.0) / of(Transport::Rc, 0.0) - 32.0 / 33.0).abs() < 1e-9);
        // The full runs came to 5.17 and 6.81 Gbit/s.
        assert!((4.9..5.6).contains(&of(lowar(32, 1), 1e-3)), "{}", of(lowar(32, 1), 1e-3));
        assert!((6.4..7.4).contains(&of(lowar(8, 1), 1e-3)), "{}", of(lowar(8, 1), 1e-3));
        assert_eq!(PATH.goodput_gbps(Transport::SR, 1e-3), None);
    }

    #[test]
    fn completion_times_are_those_of_the_full_runs() {
        for (transport, loss, ms) in [
            (Transport::Rc, 0.0, 40.906),
            (Transport::Rc, 5e-4, 62.3),
            (Transport::SR, 1e-3, 66.8),
            (lowar(32, 1), 1e-4, 40.98),
        ] {
            let ours = PATH.mean_completion_ms(transport, loss, 1 << 20).unwrap();
            assert!((ours / ms - 1.0).abs() < 0.03, "{transport} {loss}: {ours}");
        }
    }
}
