//! Extensions in the swarm, and Selective Repeat among them: who offers what, what must come of that, and the order that it keeps although packets are placed early.

use softnic_nic::QpKind;
use softnic_nic::transports::SendOp;
use softnic_nic::transports::lowar::Code;
use softnic_nic::transports::negotiation::Choice;
use softnic_nic::transports::sr::SrConfig;

use super::Swarm;
use super::ground::expect_bytes;
use super::sending::Draft;

/// How often a READ goes behind a WRITE to the same memory, in worlds with Selective Repeat.
const READ_BACK: f64 = 0.08;
/// How often who would offer both offers LoWAR.
const BOTH: f64 = 0.05;
const WINDOWS: [u32; 5] = [64, 100, 256, 1024, 4096];

/// What a queue pair offers its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Offers {
    Nothing,
    Sr(SrConfig),
    Lowar(Code),
}

impl Offers {
    pub(super) fn sr(self) -> Option<SrConfig> {
        if let Offers::Sr(config) = self { Some(config) } else { None }
    }

    pub(super) fn lowar(self) -> Option<Code> {
        if let Offers::Lowar(code) = self { Some(code) } else { None }
    }
}

impl Swarm {
    /// What the two ends of a connection offer each other.
    pub(super) fn draw_offers(&mut self, kind: QpKind) -> [Offers; 2] {
        let (chance, rate) = (self.world.sr, self.world.rate);
        let r = &mut self.sr_random;
        let sr = [0, 1].map(|_| {
            let window = WINDOWS[r.below(WINDOWS.len() as u64) as usize];
            (kind == QpKind::Rc && r.chance(chance)).then_some(SrConfig { window, rate })
        });
        if kind != QpKind::Rc {
            return [Offers::Nothing; 2];
        }
        let lowar = self.draw_lowar();
        [0, 1].map(|end| match (lowar[end], sr[end]) {
            (Some(code), None) => Offers::Lowar(code),
            (Some(code), Some(_)) if self.lowar_random.chance(BOTH) => Offers::Lowar(code),
            (_, Some(config)) => Offers::Sr(config),
            (None, None) => Offers::Nothing,
        })
    }

    /// Extensions are spoken where both ends offered them, and nowhere else. MADs of the offer may be lost.
    pub(super) fn check_choices(&mut self) -> Result<(), String> {
        for q in (0..self.qps.len()).filter(|&q| self.qps[q].kind == QpKind::Rc) {
            let qp = &self.qps[q];
            let (host, qpn, ours, theirs) = (qp.host, qp.qpn, qp.offers, self.qps[qp.peer].offers);
            let choice = self.pair.sim.nic(host).choice(qpn);
            let lossy = self.world.lossy || self.world.duplicates;
            let offers = ours != Offers::Nothing;
            let accepts = std::mem::discriminant(&ours) == std::mem::discriminant(&theirs);
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
                Offers::Sr(_) => self.done.selective += agreed,
                Offers::Lowar(_) => self.done.lowar += agreed,
                Offers::Nothing => {}
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
