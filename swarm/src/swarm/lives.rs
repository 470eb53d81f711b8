//! Second lives: when all is done, connections are ended, reset and made anew, and nothing of the first may be left in them.

use softnic_nic::transports::qp::QpState;
use softnic_nic::{QpAttr, QpKind};

use super::ground::Content;
use super::{Drain, Swarm};

impl Swarm {
    /// Messages that each queue pair sends until the end of this life.
    pub(super) fn total(&self) -> usize {
        self.world.messages as usize * self.life as usize
    }

    /// Ends all connections, those that failed too, and begins anew with other PSNs. Only to be called when nothing is under way.
    pub(super) fn revive(&mut self) -> Result<(), String> {
        self.life += 1;
        self.forget_counters();
        let connected: Vec<usize> = (0..self.qps.len()).filter(|&q| self.qps[q].kind != QpKind::Ud).collect();
        let known: Vec<bool> = connected.iter().map(|&q| !self.qps[q].dying).collect();
        for &q in &connected {
            self.qps[q].dying = true;
            self.set_state(q, QpState::Error)?;
        }
        self.collect(true)?;
        for queue in &self.queues {
            let owned = queue.owner.is_some_and(|qpn| connected.iter().any(|&q| self.qps[q].qpn == qpn));
            if owned && !queue.all_free() {
                return Err("receives were lost when their queue pair ended".into());
            }
        }
        for &q in &connected {
            self.set_state(q, QpState::Reset)?;
        }
        self.check_unused()?;
        self.pair.draw_psns();
        for (&q, known) in connected.iter().zip(known) {
            if q < self.qps[q].peer {
                self.connect(self.qps[q].kind, [q, self.qps[q].peer])?;
            }
            if self.qps[q].kind == QpKind::Rc {
                self.count_on(q, known)?;
            }
            let qp = &mut self.qps[q];
            (qp.life_start, qp.completed, qp.reborn) = (qp.messages.len(), qp.messages.len(), true);
            (qp.drain, qp.dying, qp.failed, qp.dead) = (Drain::No, false, false, false);
            qp.gave_up = false;
            qp.receiving.clear();
        }
        self.done.revived += 1;
        Ok(())
    }

    pub(super) fn set_state(&mut self, q: usize, state: QpState) -> Result<(), String> {
        let attr = QpAttr { state: Some(state), ..QpAttr::default() };
        let (host, qpn) = (self.qps[q].host, self.qps[q].qpn);
        self.pair.nic(host).modify_qp(qpn, &attr).map_err(|e| e.to_string())
    }

    /// The peer's atomics go on from what is there, which must be what they made of it, unless the connection failed.
    fn count_on(&mut self, q: usize, known: bool) -> Result<(), String> {
        let qp = &mut self.qps[q];
        let ground = &mut self.grounds[qp.ground];
        let bytes = ground.read(qp.counter_area);
        let value = bytes.first_chunk().map_or(0, |b| u64::from_ne_bytes(*b));
        if known && value != qp.counter {
            return Err(format!("safety: atomics made {value:#x} of a counter, not {:#x}", qp.counter));
        }
        qp.counter = value;
        ground.expect(qp.counter_area, Content::Exact(bytes));
        Ok(())
    }
}
