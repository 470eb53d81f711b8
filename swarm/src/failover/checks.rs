//! What completions must be like, and memory when they are there.

use softnic_nic::transports::{Completion, Status, WcOpcode};
use softnic_sim::pair::A;

use super::world::{Kind, Work};
use super::{Run, TAKEN, byte, text};

impl Run<'_> {
    pub(super) fn take_completions(&mut self, host: usize) -> Result<(), String> {
        let (send_cq, recv_cq) = (self.pair.sides[host].send_cq, self.pair.sides[host].recv_cq);
        while let Some(completion) = self.pair.host(host).poll_cq(send_cq).map_err(text)? {
            self.completions += 1;
            self.on_send(host, &completion)?;
        }
        while let Some(completion) = self.pair.host(host).poll_cq(recv_cq).map_err(text)? {
            self.completions += 1;
            self.on_recv(host, &completion)?;
        }
        Ok(())
    }

    /// The connection that a completion is of, and the number of the work request there.
    fn place(&self, host: usize, completion: &Completion) -> Result<(usize, usize), String> {
        let (c, n) = ((completion.wr_id >> 32) as usize, completion.wr_id as u32 as usize);
        match self.ends.get(c) {
            Some(ends) if ends[host].qpn == completion.qpn => Ok((c, n)),
            _ => Err(format!("a completion of another queue pair: {completion:?}")),
        }
    }

    fn on_send(&mut self, host: usize, completion: &Completion) -> Result<(), String> {
        let (c, n) = self.place(host, completion)?;
        let may_fail = self.world.may_fail();
        let sig_all = self.world.sig_all;
        let end = &mut self.ends[c][host];
        let next = match completion.status == Status::Success && !end.over {
            true => (end.done..end.posted).find(|&n| end.works[n].signaled || sig_all),
            // An error is told of the first that is not done, which may have been silent until then.
            false if end.over => Some(end.done),
            false => Some(n).filter(|&n| n >= end.done && !(end.done..n).any(|n| end.works[n].signaled || sig_all)),
        };
        if next != Some(n) || n >= end.posted {
            return Err(format!("send {n} of {c} completes, and not {next:?}: {completion:?}"));
        }
        let before = end.done;
        end.done = n + 1;
        if completion.status != Status::Success {
            let first = !end.over;
            end.over = true;
            if !may_fail || first && completion.status == Status::Success {
                return Err(format!("send {n} of {c} ends badly: {completion:?}"));
            }
            return Ok(());
        }
        if end.over {
            return Err(format!("send {n} of {c} goes well behind an error"));
        }
        self.ended.completed += 1;
        let expected = match end.works[n].kind {
            Kind::Write | Kind::WriteImm => WcOpcode::Write,
            Kind::Read => WcOpcode::Read,
            Kind::Send | Kind::SendImm => WcOpcode::Send,
            Kind::FetchAdd => WcOpcode::FetchAdd,
            Kind::CompareSwap => WcOpcode::CompareSwap,
        };
        if completion.opcode != expected {
            return Err(format!("send {n} of {c} has another opcode: {completion:?}"));
        }
        // Those before it are done as well, though nobody was told.
        for i in before..=n {
            let end = &self.ends[c][host];
            let (work, local, remote, atomics) = (end.works[i], end.local[i], end.remote[i], end.atomics(i));
            if work.kind == Kind::Read {
                self.check(host, local, work.len, remote, "a READ")?;
            }
            if work.kind.is_atomic() {
                let found = self.value(host, local);
                if found != atomics {
                    return Err(format!("atomic {i} of {c} found {found}, and {atomics} were before it"));
                }
                self.ends[c][host].counted += 1;
                self.ended.atomics += 1;
            }
        }
        Ok(())
    }

    /// Eight bytes at a host's targets, as a number.
    pub(super) fn value(&self, host: usize, at: usize) -> usize {
        let mut bytes = [0; 8];
        self.targets[host].read_at(at, &mut bytes);
        u64::from_ne_bytes(bytes) as usize
    }

    /// A notification: all data before it is there, and is taken.
    fn on_recv(&mut self, host: usize, completion: &Completion) -> Result<(), String> {
        let (c, n) = self.place(host, completion)?;
        let [a, b] = &self.ends[c];
        let (end, peer) = if host == A { (a, b) } else { (b, a) };
        if n != end.heard || n >= end.receives {
            return Err(format!("receive {n} of {c} completes, and not {}: {completion:?}", end.heard));
        }
        if completion.status != Status::Success {
            if !self.world.may_fail() {
                return Err(format!("receive {n} of {c} ends badly: {completion:?}"));
            }
            let end = &mut self.ends[c][host];
            (end.heard, end.over) = (n + 1, true);
            return Ok(());
        }
        let notices = |works: &[Work]| -> Vec<usize> {
            works.iter().enumerate().filter(|(_, work)| work.kind.notifies()).map(|(i, _)| i).collect()
        };
        let all = notices(&peer.works);
        let Some(&at) = all.get(n) else { return Err(format!("receive {n} of {c}: nobody sent that")) };
        let first = n.checked_sub(1).map_or(0, |before| all[before] + 1);
        if at >= peer.posted {
            return Err(format!("receive {n} of {c}: it was not sent yet"));
        }
        let work = peer.works[at];
        let longest = all.iter().map(|&i| peer.works[i].len).max().unwrap_or(0);
        let imm = matches!(work.kind, Kind::SendImm | Kind::WriteImm).then_some(at as u32);
        let opcode = if work.kind == Kind::WriteImm { WcOpcode::RecvWriteImm } else { WcOpcode::Recv };
        if (completion.imm, completion.opcode, completion.byte_len as usize) != (imm, opcode, work.len) {
            return Err(format!("receive {n} of {c} is another one than {work:?}: {completion:?}"));
        }
        let mut places: Vec<(usize, usize, usize)> = (first..=at)
            .filter(|&i| matches!(peer.works[i].kind, Kind::Write | Kind::WriteImm))
            .map(|i| (peer.remote[i], peer.works[i].len, peer.local[i]))
            .collect();
        if opcode == WcOpcode::Recv {
            places.push((end.recv_at + n * (longest + 8), work.len, peer.local[at]));
        }
        for (target, len, source) in places {
            self.check(host, target, len, source, "data behind a notification")?;
            self.targets[host].write_at(target, &vec![TAKEN; len]);
            self.taken[host].push((target, len));
        }
        self.ends[c][host].heard += 1;
        Ok(())
    }

    /// Whether bytes at a host are those of the peer's memory.
    fn check(&self, host: usize, at: usize, len: usize, source: usize, what: &str) -> Result<(), String> {
        let mut bytes = vec![0; len];
        self.targets[host].read_at(at, &mut bytes);
        let wrong = (0..len).find(|&i| bytes[i] != byte(1 - host, source + i));
        wrong.map_or(Ok(()), |i| Err(format!("{what} at {host} is not there: byte {i} of {len} at {at}")))
    }
}
