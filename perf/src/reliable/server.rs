//! The server of a run of reliable messages: it keeps receives posted, ahead of what the client may have in flight.

use std::collections::VecDeque;
use std::time::Duration;

use softnic_runtime::api::sdr::{Outcome, ReliableQueuePair, SdrError};

use super::{Reliable, ReliableOutcome, place};
use crate::control::{Control, Hello, Message, unexpected};
use crate::pattern::Pattern;
use crate::side::{Side, next_line};
use crate::stop;

/// Rounds between looks at what the client says.
const LOOK_EVERY: u32 = 1024;

/// Agrees with the client on what the plan asks for; `None` where the NICs do not, and RC is used.
pub(crate) fn accept(side: &Side, control: &mut Control, peer: &Hello) -> Result<Option<Reliable>, String> {
    let Some(plan) = side.plan.reliable else { return Ok(None) };
    let rtt = match next_line(control, &side.context)? {
        Message::RoundTrip { ns } => Duration::from_nanos(ns),
        other => return Err(unexpected(&other)),
    };
    let mut reliable = Reliable::new(side, plan, peer, rtt)?;
    let met = reliable.meet_first(side, control)?;
    let peer_met = match next_line(control, &side.context)? {
        Message::Ready => true,
        Message::Fallback => false,
        other => return Err(unexpected(&other)),
    };
    control.send(if met { &Message::Ready } else { &Message::Fallback })?;
    Ok((met && peer_met).then_some(reliable))
}

/// Serves one client that is connected, until it says that it is done.
pub(crate) fn serve(side: &Side, mut reliable: Reliable, control: &mut Control) -> Result<(), String> {
    loop {
        match next_line(control, &side.context)? {
            Message::Go { size, .. } if side.plan.sizes.contains(&size) => {
                let qp = reliable.connected(side, size, control)?;
                let mut receiver = Receiver::new(side, &reliable, &qp, size);
                receiver.post()?;
                control.send(&Message::Ready)?;
                receiver.until_done(control)?;
                let outcome = ReliableOutcome::of(&qp, reliable.plan.chunk(side.plan.path_mtu()))?;
                control.send(&Message::Reliable(outcome))?;
            }
            Message::Bye => return Ok(()),
            other => return Err(unexpected(&other)),
        }
    }
}

/// The server's end while it receives one size.
struct Receiver<'a> {
    side: &'a Side,
    reliable: &'a Reliable,
    qp: &'a ReliableQueuePair,
    size: u32,
    pattern: Pattern,
    /// Receives from the oldest that is not over: whether each is.
    over: VecDeque<bool>,
    posted: u64,
    received: u64,
}

impl<'a> Receiver<'a> {
    fn new(side: &'a Side, reliable: &'a Reliable, qp: &'a ReliableQueuePair, size: u32) -> Receiver<'a> {
        Receiver { side, reliable, qp, size, pattern: Pattern::new(), over: VecDeque::new(), posted: 0, received: 0 }
    }

    /// Posts as many receives as there shall be.
    fn post(&mut self) -> Result<(), String> {
        while (self.over.len() as u64) < self.side.plan.posted_ahead() {
            let at = place(&self.side.plan, self.posted);
            match self.qp.receive(&self.reliable.memory, at, self.size as usize) {
                Ok(_) => {}
                // Others behind the oldest are over: their numbers serve again when it is.
                Err(SdrError::Full(_)) if !self.over.is_empty() => return Ok(()),
                Err(e) => return Err(format!("cannot post receive {}: {e}", self.posted)),
            }
            self.over.push_back(false);
            self.posted += 1;
        }
        Ok(())
    }

    /// Receives until the client says that it is done, and has what it sent.
    fn until_done(&mut self, control: &mut Control) -> Result<(), String> {
        let (mut rounds, mut idle, mut sent) = (0u32, 0u32, None);
        while sent.is_none_or(|sent| self.received < sent) {
            let received = self.take()?;
            idle = if received { 0 } else { idle.wrapping_add(1) };
            stop::yield_if_idle(idle);
            rounds = rounds.wrapping_add(1);
            if !rounds.is_multiple_of(LOOK_EVERY) {
                continue;
            }
            match control.try_receive()? {
                None if control.interruptible && stop::requested() => return Err(stop::MESSAGE.into()),
                None => {}
                Some(Message::Done { sent: all }) if sent.is_none() => sent = Some(all.iter().copied().sum::<u64>()),
                Some(other) => return Err(unexpected(&other)),
            }
        }
        Ok(())
    }

    /// Takes the messages that are over, and posts others; whether there was any.
    fn take(&mut self) -> Result<bool, String> {
        let before = self.received;
        while let Some(outcome) = self.qp.poll() {
            let Outcome::Received { id, outcome } = outcome else { continue };
            outcome.map_err(|e| format!("message {id} did not come: {e}"))?;
            if self.side.plan.verify {
                let (at, len) = (place(&self.side.plan, id), self.size as usize);
                self.pattern.compare(&self.reliable.memory, at, len, 0, id)?;
            }
            let oldest = self.posted - self.over.len() as u64;
            if let Some(over) = self.over.get_mut((id - oldest) as usize) {
                *over = true;
            }
            self.received += 1;
        }
        while self.over.front() == Some(&true) {
            self.over.pop_front();
        }
        if self.received > before {
            self.post()?;
        }
        Ok(self.received > before)
    }
}
