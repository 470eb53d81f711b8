//! What an SDR queue pair does by itself: it posts packets of messages whose receives are there, and sends and takes control messages.

use std::any::Any;
use std::time::Duration;

use softnic_nic::transports::planted::{Bug, planted};
use softnic_nic::transports::{Completion, Data, SendFlags, SendOp, SendWr, Status, WcOpcode};
use softnic_nic::{Nic, Sink};
use softnic_wire::Instant;

use super::{CONTROL, DATA, LEFT, SdrQp, arrivals};
use crate::control::{self, Control, Kind};
use crate::error::SdrError;

/// The time after which a control message that led to nothing is sent again; each further time is twice as long.
const AGAIN: Duration = Duration::from_millis(1);
/// The longest such time.
const LONGEST: Duration = Duration::from_millis(128);
/// How often a receiver repeats unasked what it has posted: a sender that waits will ask.
const REPEATS: u32 = 3;

/// Sends that have left.
#[derive(Default)]
pub(super) struct Left {
    numbers: Vec<u64>,
    /// How the first one ended that did not.
    failed: Option<Status>,
}

impl Sink for Left {
    fn on_completion(&mut self, completion: &Completion) {
        match completion.status {
            Status::Success => self.numbers.push(completion.wr_id),
            status => _ = self.failed.get_or_insert(status),
        }
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// A control message that is sent again until it had its effect.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Repeat {
    at: Option<Instant>,
    times: u32,
}

impl Repeat {
    /// It left now: when to send it again.
    fn left(&mut self, now: Instant) {
        self.at = Some(now + (AGAIN * (1 << self.times.min(16))).min(LONGEST));
    }

    /// Whether it is time to send it again.
    fn is_due(&self, now: Instant) -> bool {
        self.at.is_some_and(|at| at <= now)
    }
}

impl SdrQp {
    /// Does what there is to do.
    pub fn progress(&mut self, now: Instant, nic: &mut Nic) {
        self.take_left(nic);
        self.take_control(nic);
        self.progress_sends(now, nic);
        self.progress_control(now, nic);
        self.publish(nic);
    }

    /// Adds what was counted since to the NIC's counters.
    pub(super) fn publish(&mut self, nic: &mut Nic) {
        let now = self.counters(nic);
        if now == self.published {
            return;
        }
        let before = std::mem::replace(&mut self.published, now);
        let all = nic.counters_mut();
        all.sdr_packets += now.packets - before.packets;
        all.sdr_into_null += now.into_null - before.into_null;
        all.sdr_old_generation += now.old_generation - before.old_generation;
        all.sdr_duplicates += now.duplicates - before.duplicates;
        all.sdr_rejected += now.rejected - before.rejected;
        all.sdr_cts_sent += now.cts_sent - before.cts_sent;
        all.sdr_cts_repeated += now.cts_repeated - before.cts_repeated;
        all.sdr_asks_sent += now.asks_sent - before.asks_sent;
    }

    /// When [`SdrQp::progress`] wants to be called although nothing happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.cts.at, self.ask.at].into_iter().flatten().min()
    }

    fn take_left(&mut self, nic: &mut Nic) {
        let sink = nic.sink_mut(self.cqs[LEFT]).and_then(|sink| sink.as_any_mut().downcast_mut::<Left>());
        let Some(sink) = sink else { return };
        self.failed = self.failed.or(sink.failed.map(SdrError::Send));
        if sink.numbers.is_empty() {
            return;
        }
        std::mem::swap(&mut self.left, &mut sink.numbers);
        self.left.drain(..).for_each(|number| self.sends.on_sent(number));
        self.sends.drop_done();
    }

    pub(super) fn progress_sends(&mut self, now: Instant, nic: &mut Nic) {
        let Some(peer) = &self.peer else { return };
        if let Err(error) = self.sends.pump(now, nic, &self.qps, peer) {
            self.failed.get_or_insert(error);
        }
        match self.sends.is_blocked() {
            false => self.ask = Repeat::default(),
            true if self.ask.at.is_none() => self.ask.left(now),
            true => {}
        }
    }

    fn take_control(&mut self, nic: &mut Nic) {
        while let Ok(Some(completion)) = nic.poll_cq(self.cqs[CONTROL]) {
            let is_receive = completion.opcode == WcOpcode::Recv;
            if completion.status != Status::Success || !is_receive {
                continue;
            }
            let mut bytes = [0; control::LEN];
            self.room.read_at(completion.wr_id as usize * control::LEN, &mut bytes);
            let _ = self.post_room(nic, completion.wr_id);
            let message = Control::decode(&bytes[..(completion.byte_len as usize).min(control::LEN)]);
            match message.filter(|m| m.token == self.info.token) {
                Some(message) => self.on_control(&message),
                None => self.counters.rejected += 1,
            }
        }
    }

    fn on_control(&mut self, message: &Control) {
        match message.kind {
            Kind::Ask => self.cts_due |= self.receives.posted > message.count,
            Kind::Cts if planted(Bug::SdrCtsTwice) && message.count == self.sends.cleared => self.sends.cleared += 1,
            Kind::Cts if message.count <= self.sends.cleared => {}
            Kind::Cts => {
                // Further ahead which message a slot is for could not be told any more. A receiver that gave up so many messages says so
                // again when they were sent.
                let most = u64::from(self.attr.generations) * self.peer.as_ref().map_or(0, |p| u64::from(p.slots));
                let limit = self.sends.started.saturating_add(most);
                self.counters.rejected += u64::from(message.count > limit);
                (self.sends.cleared, self.ask) = (message.count.min(limit).max(self.sends.cleared), Repeat::default());
            }
        }
    }

    pub(super) fn progress_control(&mut self, now: Instant, nic: &mut Nic) {
        if self.peer().is_err() {
            return;
        }
        if self.ask.is_due(now) && self.send_control(now, nic, Kind::Ask, self.sends.cleared) {
            self.counters.asks_sent += 1;
            self.ask.times += 1;
            self.ask.left(now);
        }
        let posted = self.receives.posted;
        if self.cts.is_due(now) {
            let seen = arrivals(nic, self.cqs[DATA]).map_or(0, |arrivals| arrivals.seen);
            let ends = seen >= posted || self.cts.times >= REPEATS;
            if ends {
                self.cts.at = None;
            } else {
                self.cts_due = true;
            }
        }
        if self.cts_due && self.send_control(now, nic, Kind::Cts, posted) {
            self.cts_due = false;
            self.counters.cts_sent += 1;
            self.counters.cts_repeated += u64::from(self.told == posted);
            self.cts.times = if self.told == posted { self.cts.times + 1 } else { 0 };
            self.told = posted;
            self.cts.left(now);
        }
    }

    /// Sends a control message; `false` when there is no room for it now.
    fn send_control(&mut self, now: Instant, nic: &mut Nic, kind: Kind, count: u64) -> bool {
        let (Some(qpn), Some(peer)) = (self.control, &self.peer) else { return false };
        let message = Control { kind, token: peer.token, sequence: self.sequence, count }.encode();
        let (op, flags) = (SendOp::Send, SendFlags::default());
        let wr = SendWr { wr_id: 0, op, data: Data::Inline(&message), flags, best_effort: None, to: None };
        let sent = nic.post_send(now, qpn, &wr).is_ok();
        self.sequence = self.sequence.wrapping_add(u32::from(sent));
        sent
    }
}
