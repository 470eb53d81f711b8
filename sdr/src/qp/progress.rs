//! What an SDR queue pair does by itself: it posts packets of messages whose receives are there, and sends and takes control messages.

use std::sync::atomic::Ordering;
use std::time::Duration;

use softnic_nic::Nic;
use softnic_nic::transports::planted::{Bug, planted};
use softnic_nic::transports::{Data, SendFlags, SendOp, SendWr, Sge, Status, WcOpcode};
use softnic_wire::Instant;

use super::{CONTROLS, LONGEST_CONTROL, SdrQp};
use crate::control::{Control, Kind};

/// The time after which a control message that led to nothing is sent again; each further time is twice as long.
const AGAIN: Duration = Duration::from_millis(1);
/// The longest such time.
const LONGEST: Duration = Duration::from_millis(128);
/// How often a receiver repeats unasked what it has posted: a sender that waits will ask.
const REPEATS: u32 = 3;

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
        self.branch.take_left(nic);
        if nic.cq_len(self.control_cq).is_ok_and(|waiting| waiting > 0) {
            let mut other = [0; LONGEST_CONTROL];
            while self.take_other(nic, &mut other).is_some() {
                self.counters.rejected += 1;
            }
        }
        self.branch.pump(now, nic);
        self.watch_sends(now);
        self.progress_control(now, nic);
        self.publish(nic);
    }

    /// Adds what was counted since to the NIC's counters.
    pub(super) fn publish(&mut self, nic: &mut Nic) {
        self.branch.publish(nic);
        let now = self.counters;
        if now != self.published {
            now.add_since(&self.published, nic.counters_mut());
            self.published = now;
        }
    }

    /// When [`SdrQp::progress`] wants to be called although nothing happens.
    pub fn poll_timeout(&self) -> Option<Instant> {
        [self.cts.at, self.ask.at].into_iter().flatten().min()
    }

    /// As long as sends wait for receives of the peer, these are asked for.
    pub(super) fn watch_sends(&mut self, now: Instant) {
        match self.branch.sends.is_blocked() {
            false => self.ask = Repeat::default(),
            true if self.ask.at.is_none() => self.ask.left(now),
            true => {}
        }
    }

    /// Takes note of what has left and of what has come, for whoever looks at it before [`SdrQp::progress`].
    pub fn take_note(&mut self, nic: &mut Nic) {
        self.branch.take_left(nic);
        self.branch.publish(nic);
    }

    /// Takes the control messages that came: those of the SDK as they are meant, and the first that it does not know into `room`; how many
    /// bytes it has. Whoever has messages of its own takes them before [`SdrQp::progress`], which rejects them.
    pub fn take_other(&mut self, nic: &mut Nic, room: &mut [u8; LONGEST_CONTROL]) -> Option<usize> {
        // What comes before the peer is known waits: nobody could say whether it is the peer's.
        self.link.as_ref()?;
        while let Ok(Some(completion)) = nic.poll_cq(self.control_cq) {
            let is_receive = completion.opcode == WcOpcode::Recv;
            if completion.status != Status::Success || !is_receive {
                continue;
            }
            let len = completion.byte_len.min(self.attr.control_len) as usize;
            let bytes = &mut room[..len];
            self.room.read_at(completion.wr_id as usize * self.attr.control_len as usize, bytes);
            let _ = self.post_room(nic, completion.wr_id);
            let token = bytes.get(4..8) == Some(&self.info.token.to_be_bytes());
            match Control::decode(bytes) {
                Some(message) if token => self.on_control(&message),
                None if token => return Some(len),
                _ => self.counters.rejected += 1,
            }
        }
        None
    }

    fn on_control(&mut self, message: &Control) {
        let cleared = self.cleared();
        match message.kind {
            Kind::Ask => self.cts_due |= self.announced > message.count,
            Kind::Cts if planted(Bug::SdrCtsTwice) && message.count == cleared => self.clear(cleared + 1),
            Kind::Cts if message.count <= cleared => {}
            Kind::Cts => {
                // Further ahead which message a slot is for could not be told any more. A receiver that gave up so many messages says so
                // again when they were sent.
                let most = u64::from(self.attr.generations) * self.link.as_ref().map_or(0, |l| u64::from(l.peer.slots));
                let limit = self.branch.sends.started.saturating_add(most);
                self.counters.rejected += u64::from(message.count > limit);
                self.ask = Repeat::default();
                self.clear(message.count.min(limit).max(cleared));
            }
        }
    }

    /// So many receives of the peer are there: all engines may send for them.
    fn clear(&mut self, receives: u64) {
        self.branch.common.cleared.store(receives, Ordering::Release);
        if let Some(wake) = &self.wake {
            wake();
        }
    }

    pub(super) fn progress_control(&mut self, now: Instant, nic: &mut Nic) {
        if self.link.is_none() {
            return;
        }
        if self.ask.is_due(now) && self.send_control(now, nic, Kind::Ask, self.cleared()) {
            self.counters.asks_sent += 1;
            self.ask.times += 1;
            self.ask.left(now);
        }
        let posted = self.announced;
        if self.cts.is_due(now) {
            self.branch.publish(nic);
            let seen = self.branch.common.seen.load(Ordering::Relaxed);
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
        let (Some(qpn), Some(link)) = (self.control, &self.link) else { return false };
        let message = Control { kind, token: link.peer.token, sequence: self.sequence, count }.encode();
        let sent = nic.post_send(now, qpn, &send(Data::Inline(&message))).is_ok();
        self.sequence = self.sequence.wrapping_add(u32::from(sent));
        sent
    }

    /// Sends a control message that is none of the SDK's; `false` when there is no room for it now.
    pub fn send_other(&mut self, now: Instant, nic: &mut Nic, message: &[u8]) -> bool {
        let (Some(lkey), Some(qpn), Some(_)) = (self.room_key, self.control, &self.link) else { return false };
        let longest = u64::from(self.attr.control_len);
        let Some(message) = message.get(..message.len().min(longest as usize)) else { return false };
        // As many places as work requests: where one can be posted, the one that had its place has left.
        let at = (u64::from(CONTROLS) + self.others_sent % u64::from(CONTROLS)) * longest;
        let sge = Sge { addr: self.room.addr() + at, len: message.len() as u32, lkey };
        if nic.write_send(qpn, &send(Data::Gather(&[sge]))).is_err() {
            return false;
        }
        // Not before the place is free; it is read when the packet leaves.
        self.room.write_at(at as usize, message);
        nic.ring_doorbell(now, qpn);
        self.others_sent += 1;
        true
    }
}

fn send(data: Data<'_>) -> SendWr<'_> {
    SendWr { wr_id: 0, op: SendOp::Send, data, flags: SendFlags::default(), best_effort: None, to: None }
}
