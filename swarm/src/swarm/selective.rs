//! Extensions in the swarm, and Selective Repeat among them: who offers what, what must come of that, and the order that it keeps although packets are placed early.

use softnic_nic::QpKind;
use softnic_nic::transports::negotiation::Choice;
use softnic_nic::transports::{SendOp, Transport};

use super::Swarm;
use super::ground::expect_bytes;
use super::sending::Draft;

/// How often a READ goes behind a WRITE to the same memory, in worlds with Selective Repeat.
const READ_BACK: f64 = 0.08;
/// How often who would offer both offers LoWAR.
const BOTH: f64 = 0.05;
const WINDOWS: [u32; 5] = [64, 100, 256, 1024, 4096];

impl Swarm {
    /// The transports that the two ends of a connection offer each other; `Transport::Rc` where an end offers nothing.
    pub(super) fn draw_offers(&mut self, kind: QpKind) -> [Transport; 2] {
        let chance = self.world.sr;
        let r = &mut self.sr_random;
        let sr = [0, 1].map(|_| {
            let window = WINDOWS[r.below(WINDOWS.len() as u64) as usize];
            (kind == QpKind::Rc && r.chance(chance)).then_some(Transport::Sr { window })
        });
        if kind != QpKind::Rc {
            return [Transport::Rc; 2];
        }
        let lowar = self.draw_lowar();
        [0, 1].map(|end| match (lowar[end], sr[end]) {
            (Some(code), None) => Transport::Lowar(code),
            (Some(code), Some(_)) if self.lowar_random.chance(BOTH) => Transport::Lowar(code),
            (_, Some(sr)) => sr,
            (None, None) => Transport::Rc,
        })
    }

    /// Extensions are spoken where both ends offered them, and nowhere else. MADs of the offer may be lost.
    pub(super) fn check_choices(&mut self) -> Result<(), String> {
        for q in (0..self.qps.len()).filter(|&q| self.qps[q].kind == QpKind::Rc) {
            let qp = &self.qps[q];
            let (host, qpn, ours, theirs) = (qp.host, qp.qpn, qp.offers, self.qps[qp.peer].offers);
            let credit = [qp.credit, self.qps[qp.peer].credit];
            let choice = self.pair.nic(host).choice(qpn);
            let lossy = self.world.lossy || self.world.duplicates;
            let offers = ours != Transport::Rc || credit[0];
            // Credit is said to be agreed on where it is all that is offered.
            let accepts = match ours {
                Transport::Rc => credit[1],
                _ => std::mem::discriminant(&ours) == std::mem::discriminant(&theirs),
            };
            let right = match choice {
                None => !offers,
                Some(Choice::Agreed) => offers && accepts,
                Some(Choice::Standard(_)) => offers && (!accepts || lossy),
                // It ended before it could be said.
                Some(Choice::Waiting) => offers && qp.dying,
            };
            if !right {
                return Err(format!("{qpn:?} of host {host} offers {ours:?}, its peer {theirs:?}: {choice:?}"));
            }
            let agreed = u64::from(choice == Some(Choice::Agreed));
            match ours {
                Transport::Sr { .. } => self.done.selective += agreed,
                Transport::Lowar(_) => self.done.lowar += agreed,
                _ => {}
            }
            self.done.fallen_back += u64::from(matches!(choice, Some(Choice::Standard(_))));
        }
        Ok(())
    }

    /// Now and then a READ of what a WRITE before it, which is not known to be done, puts there: it sees all of it.
    pub(super) fn read_back(&mut self, q: usize) -> Option<Draft> {
        if self.world.sr == 0.0 || self.qps[q].dying || !self.sr_random.chance(READ_BACK) {
            return None;
        }
        let theirs = self.qps[self.qps[q].peer].ground;
        let qp = &mut self.qps[q];
        let m = qp.messages[qp.completed..].iter_mut().rev().find(|m| m.target.is_some() && m.through.is_none())?;
        let ground = &self.grounds[theirs];
        let op = SendOp::Read { remote_addr: ground.addr(m.target?), rkey: ground.key };
        m.read_back = true;
        Some(Draft::new(op, m.data.clone()))
    }

    /// When a message is received, all that was written before it is there; what is known to be done may have been changed since.
    pub(super) fn check_written_before(&self, sender: usize, index: usize) -> Result<(), String> {
        let (qp, ground) = (&self.qps[sender], &self.grounds[self.qps[self.qps[sender].peer].ground]);
        for m in qp.messages.get(qp.completed..index).unwrap_or_default() {
            if let Some(target) = m.target {
                expect_bytes(&ground.read(target), &m.data, "a WRITE before a message that was received")?;
            }
        }
        Ok(())
    }
}
