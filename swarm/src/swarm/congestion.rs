//! Congestion control in the swarm: what decides how fast each end of a reliable connection sends.

use std::time::Duration;

use softnic_nic::QpKind;
use softnic_nic::transports::congestion::{Cc, DcqcnConfig, SwiftConfig};

use super::Swarm;

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
