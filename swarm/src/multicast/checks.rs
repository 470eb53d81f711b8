//! What completions say in a world with a group, and what is in memory then.

use softnic_nic::transports::{Completion, Status, WcOpcode};

use super::messages::{COLOUR, GAP, Message};
use super::world::{Ending, Kind};
use super::{Run, text};

/// What the sender writes over a message that is done.
const OVER: u8 = 0x3c;

impl Run<'_> {
    pub(super) fn take_received(&mut self, host: usize) -> Result<(), String> {
        let cq = self.hosts[host].cq;
        while let Some(c) = self.sim.nic(host).poll_cq(cq).map_err(text)? {
            self.sim.record(c.wr_id ^ (host as u64) << 32);
            self.on_received(host, c)?;
        }
        Ok(())
    }

    pub(super) fn on_received(&mut self, host: usize, c: Completion) -> Result<(), String> {
        let received = self.hosts[host].received;
        let expected = self.receiving.get(received).copied();
        if expected != Some(c.wr_id as usize) || received >= self.hosts[host].posted {
            return Err(format!("safety: receiver {host} completes {c:?}, and {expected:?} is its next receive"));
        }
        let n = c.wr_id as usize;
        let message = self.messages[n];
        let (opcode, imm) = match message.kind {
            Kind::WriteImm => (WcOpcode::RecvWriteImm, Some(message.imm())),
            Kind::SendImm => (WcOpcode::Recv, Some(message.imm())),
            _ => (WcOpcode::Recv, None),
        };
        let said = (c.status, c.opcode, c.byte_len as usize, c.imm, c.invalidated);
        if said != (Status::Success, opcode, message.len, imm, self.hosts[host].windows[n]) {
            return Err(format!("safety: receiver {host} completes {c:?} for {message:?}"));
        }
        self.hosts[host].received += 1;
        self.check_message(host, n, true)
    }

    pub(super) fn take_sent(&mut self) -> Result<(), String> {
        let cq = self.hosts[0].cq;
        while let Some(c) = self.sim.nic(0).poll_cq(cq).map_err(text)? {
            let n = self.completed;
            if c.wr_id != n as u64 || n >= self.posted {
                return Err(format!("safety: {c:?} is completed, and {n} is the next"));
            }
            self.completed += 1;
            self.sim.record(c.wr_id ^ (c.status as u64) << 40);
            if let (Some(ending), true) = (self.world.ending, n + 1 == self.messages.len()) {
                self.check_ending(ending, c.status)?;
                continue;
            }
            if self.over || c.status == Status::RetryExcErr && self.may_be_silent() {
                // Who refused the last message may have been heard of nothing before it.
                self.over = true;
                continue;
            }
            if c.status != Status::Success {
                return Err(format!("liveness: message {n}, {:?}: {}", self.messages[n], c.status));
            }
            for host in 1..=self.world.receivers {
                self.check_message(host, n, true).map_err(|what| format!("{what}, and the sender was told so"))?;
                let due = self.receiving.partition_point(|&receiving| receiving <= n);
                if self.hosts[host].received < due {
                    return Err(format!("safety: message {n} is complete, and receiver {host} does not know"));
                }
            }
            let Message { at, len, .. } = self.messages[n];
            self.hosts[0].buffer.write_at(at, &vec![OVER; len]);
            self.ended.messages += 1;
        }
        Ok(())
    }

    pub(super) fn check_ending(&mut self, ending: Ending, status: Status) -> Result<(), String> {
        let right = match ending {
            Ending::Read => Status::RemInvReqErr,
            Ending::Beyond | Ending::WrongKey(_) => Status::RemAccessErr,
        };
        let silent = self.over || status == Status::RetryExcErr && self.may_be_silent();
        if status != right && !silent {
            return Err(format!("a message that {ending:?} ends with {status}"));
        }
        (self.over, self.ended.refused) = (true, 1);
        Ok(())
    }

    /// Who refuses says so once, and then nothing more; a switch says so as often as it is asked.
    pub(super) fn may_be_silent(&self) -> bool {
        let loses = !self.world.faults.is_empty() || self.world.queue.limit < 1 << 20;
        matches!(self.world.ending, Some(Ending::WrongKey(_))) && loses
    }

    /// A message is there at a receiver, or the memory for it is untouched, or as far as packets have come.
    pub(super) fn check_message(&self, host: usize, n: usize, whole: bool) -> Result<(), String> {
        let message = self.messages[n];
        let mut found = vec![0; message.len + GAP];
        self.hosts[host].buffer.read_at(message.at, &mut found);
        let touched = n < self.posted && !(self.world.ending.is_some() && n + 1 == self.messages.len());
        let wrong = found.iter().enumerate().find(|&(i, &byte)| match i < message.len {
            true if whole => byte != message.byte(i),
            true if touched => byte != message.byte(i) && byte != COLOUR,
            // Of a WRITE with a key that one receiver does not have, others take what comes.
            true if n < self.posted && matches!(self.world.ending, Some(Ending::WrongKey(w)) if w + 1 != host) => {
                byte != message.byte(i) && byte != COLOUR
            }
            _ => byte != COLOUR,
        });
        match wrong {
            None => Ok(()),
            Some((i, byte)) => Err(format!("safety: byte {i} of message {n} at receiver {host} is {byte:#x}")),
        }
    }

    /// Messages that are to succeed.
    pub(super) fn good(&self) -> u64 {
        (self.messages.len() - usize::from(self.world.ending.is_some())) as u64
    }

    pub(super) fn check_memory(&self, whole: bool) -> Result<(), String> {
        let good = self.good() as usize;
        for host in 1..=self.world.receivers {
            for n in 0..self.messages.len() {
                self.check_message(host, n, n < good && whole && n < self.ended.messages as usize)?;
            }
        }
        Ok(())
    }
}
