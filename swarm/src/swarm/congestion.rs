//! Congestion control in the swarm: what decides how fast each end of a reliable connection sends, and who offers its peer credit.

use std::time::Duration;

use softnic_nic::QpKind;
use softnic_nic::transports::congestion::{Cc, DcqcnConfig, EqdsConfig, SwiftConfig};

use super::{Qp, Swarm};

/// No rate is less than the line's divided by this: an answer that waits for its turn must come before all retries are over.
pub(super) const SLOWEST: u64 = 20;

impl Swarm {
    /// Gives a queue pair what its world draws for it.
    pub(super) fn draw_congestion_control(&mut self, q: usize) -> Result<(), String> {
        let (kind, host, qpn) = (self.qps[q].kind, self.qps[q].host, self.qps[q].qpn);
        if kind != QpKind::Rc || !self.cc_random.chance(self.world.cc) {
            return Ok(());
        }
        let line = self.world.rate;
        let cc = match self.cc_random.below(10) {
            0..4 => self.draw_dcqcn(),
            4..7 => self.draw_swift(),
            _ => self.draw_fixed(),
        };
        self.pair.nic(host).set_congestion_control(qpn, cc.make(line, Duration::ZERO)).map_err(|e| e.to_string())
    }

    /// Has a queue pair offer its peer credit, beside whatever controls it, or not.
    pub(super) fn draw_credit(&mut self, q: usize) -> Result<(), String> {
        let Qp { kind, host, qpn, offers, .. } = self.qps[q];
        let (r, mtu) = (&mut self.credit_random, self.world.mtu.bytes());
        if kind != QpKind::Rc || !offers.has_credit() || !r.chance(self.world.credit) {
            return Ok(());
        }
        let config = EqdsConfig {
            // Three packets at least, and little, so that much has to wait.
            speculative: [3 * mtu + 1000, 10_000.max(3 * mtu)][r.below(2) as usize],
            quantum: [1000, mtu, 16 << 10][r.below(3) as usize].max(1000),
            retry: Duration::from_micros([20, 200, 5000][r.below(3) as usize]),
            ..EqdsConfig::default()
        };
        self.qps[q].credit = true;
        self.pair.nic(host).use_credit(qpn, Some(config)).map_err(|e| e.to_string())
    }

    /// Credit of an honest peer is never refused, whatever was lost on the way; but a frame that was held back on the way may come in
    /// another life of the connection.
    pub(super) fn check_credit(&mut self) -> Result<(), String> {
        for host in 0..self.pair.nics() {
            let counters = *self.pair.nic(host).counters();
            self.done.credited += counters.eqds_granted_bytes;
            if counters.eqds_credit_rejected > 0 && self.world.lives == 1 {
                return Err(format!("NIC {host} refused credit of an honest peer"));
            }
        }
        Ok(())
    }

    fn draw_fixed(&mut self) -> Cc {
        let (line, mtu) = (self.world.rate, u64::from(self.world.mtu.bytes()));
        let r = &mut self.cc_random;
        let rate = line / (1 + r.below(SLOWEST));
        // From less than a packet on.
        let window = [1, mtu, 3 * mtu, 64 * mtu, u64::MAX][r.below(5) as usize];
        Cc::Fixed { rate, window }
    }

    /// Its least window is such that an answer comes before all retries are over: a fifth of a packet in a round trip.
    fn draw_swift(&mut self) -> Cc {
        let r = &mut self.cc_random;
        Cc::Swift(SwiftConfig {
            base: Duration::from_micros([1, 25, 500][r.below(3) as usize]),
            range: Duration::from_micros([0, 100][r.below(2) as usize]),
            additive: [100, 1000, 8000][r.below(3) as usize],
            beta: [200, 800][r.below(2) as usize],
            start: [200, 1000, 16_000, 200_000][r.below(4) as usize],
            floor: 200,
            timeouts: 1 + r.below(5) as u32,
            ..SwiftConfig::default()
        })
    }

    /// Its times and bytes are such that every phase comes in the short life of a world.
    fn draw_dcqcn(&mut self) -> Cc {
        let line = self.world.rate;
        let r = &mut self.cc_random;
        let mut time = || Duration::from_micros([1, 5, 55, 500][r.below(4) as usize]);
        let (alpha_timer, increase_timer, burst) = (time(), time(), time());
        Cc::Dcqcn(DcqcnConfig {
            gain: [2, 16, 256][r.below(3) as usize],
            alpha_timer,
            increase_timer,
            byte_counter: [1000, 20_000, 10_000_000][r.below(3) as usize],
            fast_recovery: [1, 5][r.below(2) as usize],
            additive: line / [10, 100, 1000][r.below(3) as usize],
            hyper: line / [2, 10, 100][r.below(3) as usize],
            floor: line / SLOWEST,
            burst: if r.chance(0.5) { Duration::ZERO } else { burst },
        })
    }
}
