//! What the programs of a world post.

use softnic_nic::transports::{Data, RecvWr, SendFlags, SendOp, SendWr, Sge};
use softnic_sim::Time;

use super::world::Kind;
use super::{Run, byte};

impl Run<'_> {
    /// Posts receives and sends as far as there is room.
    pub(super) fn post(&mut self, host: usize) -> Result<(), String> {
        let now = self.pair.sim.now();
        let mut touched = false;
        for c in 0..self.ends.len() {
            touched |= self.receives_from <= now && self.post_receives(host, c)?;
            while self.next_post[host] <= now && self.post_send(host, c)? {
                touched = true;
                if !self.world.pause.is_zero() {
                    let pause = self.random.below(self.world.pause.as_nanos() as u64 + 1);
                    self.next_post[host] = Time(now.0 + pause * 1000);
                    self.pair.sim.wake_at(self.next_post[host], host);
                }
            }
        }
        if touched {
            self.pair.sim.touch(host);
        }
        Ok(())
    }

    fn post_receives(&mut self, host: usize, c: usize) -> Result<bool, String> {
        let peers = &self.ends[c][1 - host].works;
        let longest = peers.iter().filter(|work| work.kind.notifies()).map(|work| work.len).max().unwrap_or(0);
        let total = peers.iter().filter(|work| work.kind.notifies()).count();
        let mut any = false;
        loop {
            let end = &mut self.ends[c][host];
            if end.receives == total || end.receives >= end.heard + self.world.receives || end.over {
                return Ok(any);
            }
            let at = end.recv_at + end.receives * (longest + 8);
            // In two pieces, where that is possible.
            let half = longest / 2;
            let sge = |at: usize, len: usize| Sge {
                addr: self.targets[host].addr() + at as u64,
                len: len as u32,
                lkey: self.keys[host][1],
            };
            let sges = [sge(at, half), sge(at + half, longest - half)];
            let wr_id = (c << 32 | end.receives) as u64;
            let (qpn, wr) = (end.qpn, RecvWr { wr_id, sges: &sges, best_effort: None });
            match self.pair.host(host).post_recv(qpn, &wr) {
                Ok(()) => self.ends[c][host].receives += 1,
                Err(softnic_nic::transports::PostError::QueueFull) => return Ok(any),
                Err(error) => return Err(format!("a receive is refused: {error}")),
            }
            any = true;
        }
    }

    fn post_send(&mut self, host: usize, c: usize) -> Result<bool, String> {
        let end = &self.ends[c][host];
        let Some(&work) = end.works.get(end.posted) else { return Ok(false) };
        if end.posted - end.done >= self.world.depth as usize || end.over {
            return Ok(false);
        }
        let (local, remote) = (end.local[end.posted], end.remote[end.posted]);
        let (ours, theirs) = match work.kind {
            Kind::Read => (&self.targets[host], (&self.sources[1 - host], self.keys[1 - host][0])),
            Kind::FetchAdd | Kind::CompareSwap => {
                (&self.targets[host], (&self.targets[1 - host], self.keys[1 - host][1]))
            }
            _ => (&self.sources[host], (&self.targets[1 - host], self.keys[1 - host][1])),
        };
        let lkey = self.keys[host][usize::from(work.kind == Kind::Read || work.kind.is_atomic())];
        let sges = [Sge { addr: ours.addr() + local as u64, len: work.len as u32, lkey }];
        let (remote_addr, rkey, imm) = (theirs.0.addr() + remote as u64, theirs.1, end.posted as u32);
        let op = match work.kind {
            Kind::Write => SendOp::Write { remote_addr, rkey },
            Kind::Read => SendOp::Read { remote_addr, rkey },
            Kind::Send => SendOp::Send,
            Kind::SendImm => SendOp::SendImm { imm },
            Kind::WriteImm => SendOp::WriteImm { remote_addr, rkey, imm },
            Kind::FetchAdd => SendOp::FetchAdd { remote_addr, rkey, add: 1 },
            // They are carried out in their order: each finds what those before it left.
            Kind::CompareSwap => {
                let compare = end.atomics(end.posted) as u64;
                SendOp::CompareSwap { remote_addr, rkey, compare, swap: compare + 1 }
            }
        };
        let bytes: Vec<u8> = (local..local + work.len).map(|at| byte(host, at)).collect();
        let data = if work.inline { Data::Inline(&bytes) } else { Data::Gather(&sges) };
        let flags = SendFlags { signaled: work.signaled, solicited: false, fence: work.fence };
        let wr_id = (c << 32 | end.posted) as u64;
        let wr = SendWr { wr_id, op, data, flags, best_effort: None, to: None };
        let (qpn, now) = (end.qpn, self.pair.sim.now().instant());
        match self.pair.host(host).post_send(now, qpn, &wr) {
            Ok(()) => self.ends[c][host].posted += 1,
            Err(softnic_nic::transports::PostError::QueueFull) => return Ok(false),
            Err(error) => return Err(format!("a send is refused: {error}")),
        }
        Ok(true)
    }
}
