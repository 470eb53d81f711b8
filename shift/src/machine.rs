//! The states of one protected connection, and what follows from each thing that happens to it (SHIFT §4.3).
//!
//! A connection has two sides, the default NIC's queue pair and the backup's. Our sends go by one of them, and the peer's come by one of
//! them: each direction by itself. A *switch-over* leaves one side for the other after a failure; an epoch counts them, and both ends are
//! in the same epoch when it is over. The way back to the default needs no epoch: it loses nothing that would have to be counted.
//!
//! What both ends must know of each other is one block of memory, the status, which each writes into the other's memory. It tells how
//! things are, not what happened, so one that comes twice, or instead of two, does no harm.

#[cfg(test)]
mod tests;

use std::time::Duration;

use softnic_nic::transports::planted::{Bug, planted};
use softnic_wire::failover::{Phase, Side, Status};
use softnic_wire::{Instant, Psn};

/// The time between failures of the default side within which it counts as flapping.
const FLAPPING: Duration = Duration::from_secs(10);
/// How long a side that flaps is not returned to, at first and at most.
const FIRST_HOLD: Duration = Duration::from_secs(1);
const LONGEST_HOLD: Duration = Duration::from_secs(64);

/// The times of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Between two probes of the default side.
    pub probe: Duration,
    /// How long the program's next signaled send is waited for, before a fence of our own.
    pub fence: Duration,
    /// How long the peer's answer is waited for.
    pub answer: Duration,
}

impl Default for Times {
    fn default() -> Times {
        Times { probe: Duration::from_millis(100), fence: Duration::from_millis(100), answer: Duration::from_secs(5) }
    }
}

/// Why a connection left a side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A work request ran out of retries.
    Retries,
    /// The port is down, or gone.
    Port,
    /// The peer left it.
    Peer,
}

/// Why a connection ends in errors although it has a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Work is outstanding that must not be carried out twice: atomics, and what changes keys.
    Unsafe,
    /// Neither side works.
    BothSides,
    /// The peer does not go on: it said so.
    Peer,
    /// The peer did not answer in time.
    Silence,
    /// The peer's status cannot be right.
    Lie,
    /// The peer has no region on its backup for a key of a work request.
    Key,
}

/// What is to be done, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Stop the queue pair of a side, with its work in place.
    Halt(Side),
    /// Count the receives that are done, and move those that are not to the other side; from this one.
    MoveRecvs(Side),
    /// Count the receives that are done, and leave the others where they are.
    CountRecvs,
    /// Write our status into the peer's memory by a side; with an immediate where the peer waits for one.
    Publish {
        /// The side.
        by: Side,
        /// A receive of its own waits there for it.
        wake: bool,
    },
    /// Take the sends out of the queue pair of a side. Those that the peer's counter covers are done, the others are to be sent again.
    TakeSends {
        /// The side that was left.
        from: Side,
        /// The peer's count of receives that are done.
        received: u32,
    },
    /// Connect the queue pair of a side anew.
    Remake(Side),
    /// Send a probe by the default side.
    Probe,
    /// The default side works: its queue pair may give up again.
    Trust,
    /// Send a fence of our own by the backup.
    Fence,
    /// What waits may go.
    Release,
    /// End in errors.
    Fail(Refusal),
    /// The sends of this connection go by this side from now on: for whoever watches.
    Tell(Side, Reason),
}

/// One protected connection.
#[derive(Debug, Clone)]
pub struct Machine {
    times: Times,
    phase: Phase,
    recv_on: Side,
    epoch: u32,
    recv_count: u32,
    /// The first PSN that we send in the next life of each side's queue pair.
    next_psn: [Psn; 2],
    returned: u32,
    /// The peer was woken by an immediate when this epoch began.
    woke: bool,
    peer: Option<Status>,
    /// The side that this epoch left, while its queue pair is not connected anew.
    left: Option<Side>,
    reason: Reason,
    /// Why it ended in errors.
    refusal: Option<Refusal>,
    /// The notification left, by the default side, and is not known to have come.
    notified: bool,
    /// When to do something although nothing happens: a probe, a fence, giving up.
    timer: Option<Instant>,
    probing: bool,
    /// A probe was answered since the default side was left.
    answered: bool,
    /// Before this, the default side is not returned to.
    hold_until: Instant,
    hold: Duration,
    returned_at: Option<Instant>,
    actions: Vec<Action>,
}

impl Machine {
    /// A connection whose both sides are ready, and that uses the default one.
    pub fn new(times: Times) -> Machine {
        Machine {
            times,
            phase: Phase::Default,
            recv_on: Side::Default,
            epoch: 0,
            recv_count: 0,
            next_psn: [Psn::new(0); 2],
            returned: 0,
            woke: false,
            peer: None,
            left: None,
            reason: Reason::Retries,
            refusal: None,
            notified: false,
            timer: None,
            probing: false,
            answered: false,
            hold_until: Instant::ZERO,
            hold: Duration::ZERO,
            returned_at: None,
            actions: Vec::new(),
        }
    }

    /// Where our sends are.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// Where the receives are.
    pub fn recv_on(&self) -> Side {
        self.recv_on
    }

    /// How many switch-overs there were.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Why the last one was.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Why it ended in errors, where it did.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// The side that new sends go to; `None` while they wait.
    pub fn send_side(&self) -> Option<Side> {
        match self.phase {
            Phase::Default => Some(Side::Default),
            Phase::Fallback | Phase::WaitSignaled => Some(Side::Backup),
            // The doorbell of the default side is withheld until all before has completed (§4.3.3).
            Phase::WaitDrained if planted(Bug::ShiftDoorbell) => Some(Side::Default),
            Phase::Moving | Phase::WaitDrained | Phase::Failed => None,
        }
    }

    /// Whether everything is as it was at the beginning, also as far as the peer is known: then only an event can bring news. One that is not
    /// settled looks at the peer's status whenever a frame came.
    pub fn is_settled(&self) -> bool {
        self.phase == Phase::Default
            && self.recv_on == Side::Default
            && self.left.is_none()
            && self.peer.is_none_or(|peer| peer.phase == Phase::Default)
    }

    /// When [`Machine::on_time`] wants to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timer
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        (!self.actions.is_empty()).then(|| self.actions.remove(0))
    }

    /// What the peer is to know.
    pub fn status(&self) -> Status {
        Status {
            epoch: self.epoch,
            phase: self.phase,
            recv_on: self.recv_on,
            recv_count: self.recv_count,
            next_psn: self.next_psn,
            returned: self.returned,
            woke: self.woke,
            refused: self.phase == Phase::Failed,
        }
    }

    /// What the peer said last.
    pub fn peer(&self) -> Option<&Status> {
        self.peer.as_ref()
    }

    /// The receives were counted: as many messages of the peer have come.
    pub fn set_recv_count(&mut self, count: u32) {
        self.recv_count = count;
    }

    /// A queue pair has halted: its next life begins with this PSN.
    pub fn set_next_psn(&mut self, side: Side, psn: Psn) {
        self.next_psn[side as usize] = psn;
    }

    fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// The queue pair of a side halted, or its port is down.
    pub fn on_failure(&mut self, now: Instant, side: Side, reason: Reason) {
        // The queue pair that is probed gives up nothing by itself.
        let probing = self.phase == Phase::Fallback && side == Side::Default && self.recv_on == Side::Backup;
        match self.phase {
            Phase::Failed => {}
            // It was left already, or it is not used: it is connected anew when it is.
            _ if self.left == Some(side) => {}
            _ if probing => {}
            // The one that stands by has no work. Whether it works is seen when it is needed.
            Phase::Default if side == Side::Backup && self.recv_on == Side::Default => {}
            _ if self.left.is_some() => self.fail(Refusal::BothSides),
            // The default was seen to work, and is only not returned to yet.
            Phase::Fallback if side == Side::Backup && self.answered => self.switch(now, side, reason),
            // A port may come back: the retries decide.
            Phase::Fallback if side == Side::Backup && reason == Reason::Port => {}
            Phase::Fallback if side == Side::Backup => self.fail(Refusal::BothSides),
            _ => self.switch(now, side, reason),
        }
    }

    /// Leaves a side.
    fn switch(&mut self, now: Instant, left: Side, reason: Reason) {
        let to = other(left);
        let wake = self.phase == Phase::Default && to == Side::Backup;
        self.epoch += 1;
        self.woke = wake;
        (self.left, self.reason) = (Some(left), reason);
        self.act(Action::Halt(left));
        if self.recv_on == left {
            self.recv_on = to;
            self.act(Action::MoveRecvs(left));
        } else {
            // A peer that was about to return wants to know, too.
            self.act(Action::CountRecvs);
        }
        let moves = match self.phase {
            Phase::Default => left == Side::Default,
            // Nothing of ours is outstanding; but where the peer's receives are we learn by its answer.
            Phase::WaitDrained if self.notified => left == Side::Default,
            Phase::Fallback | Phase::WaitSignaled | Phase::WaitDrained => left == Side::Backup,
            Phase::Moving | Phase::Failed => false,
        };
        if moves {
            self.phase = Phase::Moving;
            self.timer = Some(now + self.times.answer);
        } else if left == Side::Default && self.phase != Phase::Moving {
            // Our way back is over before it began. The peer's answer has no limit here: sends go on by the backup, and either status may
            // lie there behind messages that wait for a receive. A peer that is gone is found so by the next send.
            (self.phase, self.timer) = (Phase::Fallback, None);
        }
        if left == Side::Default {
            (self.notified, self.probing, self.answered) = (false, false, false);
            self.hold_back(now);
        }
        self.act(Action::Publish { by: to, wake });
    }

    /// A default side that fails soon after it was returned to is returned to later each time. One that fails before
    /// that, because the peer had returned or was about to, counts no further.
    fn hold_back(&mut self, now: Instant) {
        self.hold = match self.returned_at.take() {
            None => self.hold,
            Some(at) if now < at + FLAPPING.max(self.hold * 2) => (self.hold * 2).clamp(FIRST_HOLD, LONGEST_HOLD),
            Some(_) => Duration::ZERO,
        };
        self.hold_until = now + self.hold;
    }

    /// The peer's status as it is in our memory now.
    pub fn on_status(&mut self, now: Instant, status: &Status) {
        let again = self.peer.as_ref() == Some(status);
        if self.phase == Phase::Failed || again && !planted(Bug::ShiftTwice) {
            return;
        }
        if status.refused {
            return self.fail(Refusal::Peer);
        }
        let behind = self.epoch.wrapping_sub(status.epoch);
        match behind {
            // Each has left the side that the other went to.
            0 if self.left == Some(status.recv_on) => return self.fail(Refusal::BothSides),
            0 => {}
            // It left a side, and we did not know. Its receives are where it goes on.
            u32::MAX => {
                let left = other(status.recv_on);
                let both = self.left.is_some_and(|side| side != left);
                if both {
                    return self.fail(Refusal::BothSides);
                }
                self.switch(now, left, Reason::Peer);
            }
            // Written before it knew of the present epoch.
            1 => return,
            _ => return self.fail(Refusal::Lie),
        }
        self.peer = Some(*status);
        // One that is read again finds the two ends where they are, unless a bug is planted.
        if let Some(left) = self.left.or(again.then_some(other(status.recv_on))) {
            self.arrive(now, left, status);
        }
        if status.returned == self.epoch && self.epoch > 0 && self.recv_on == Side::Backup {
            self.recv_on = Side::Default;
            self.act(Action::MoveRecvs(Side::Backup));
        }
    }

    /// Both ends have left a side: what was outstanding there goes on by the other.
    fn arrive(&mut self, now: Instant, left: Side, peer: &Status) {
        self.left = None;
        if self.phase == Phase::Moving {
            self.act(Action::TakeSends { from: left, received: peer.recv_count });
            self.phase = if left == Side::Default { Phase::Fallback } else { Phase::Default };
            self.act(Action::Tell(other(left), self.reason));
        }
        self.act(Action::Remake(left));
        match self.phase {
            Phase::Fallback => self.timer = Some(now + self.times.probe),
            Phase::Default => {
                self.timer = None;
                self.settle_down(now);
            }
            _ => {}
        }
        self.act(Action::Release);
    }

    /// Our sends go by the default side again, and the peer shall know it.
    fn settle_down(&mut self, now: Instant) {
        self.probing = false;
        self.act(Action::Trust);
        self.returned = self.epoch;
        self.returned_at = Some(now);
        self.act(Action::Publish { by: Side::Default, wake: false });
    }

    /// A probe was answered: the default side works.
    pub fn on_probe(&mut self, now: Instant) {
        if self.phase != Phase::Fallback || self.left.is_some() || !self.probing {
            return;
        }
        (self.probing, self.answered) = (false, true);
        if now < self.hold_until {
            self.timer = Some(now + self.times.probe);
            return;
        }
        self.phase = Phase::WaitSignaled;
        self.timer = Some(now + self.times.fence);
        self.act(Action::Trust);
    }

    /// A probe could not be sent: the default has no address, or no queue pair. It may have later.
    pub fn on_no_probe(&mut self, now: Instant) {
        if self.probing {
            self.probing = false;
            self.timer = Some(now + self.times.probe);
        }
    }

    /// The program's signaled send, or a fence of our own, went to the backup: what follows waits.
    pub fn on_fence_sent(&mut self) {
        if self.phase == Phase::WaitSignaled {
            (self.phase, self.notified, self.timer) = (Phase::WaitDrained, false, None);
            if planted(Bug::ShiftFence) {
                self.on_drained();
            }
        }
    }

    /// There was no room for a fence of our own.
    pub fn on_no_fence(&mut self, now: Instant) {
        if self.phase == Phase::WaitSignaled {
            self.timer = Some(now + self.times.fence);
        }
    }

    /// All that went by the backup has completed: the notification leaves, alone.
    pub fn on_drained(&mut self) {
        if self.phase == Phase::WaitDrained && !self.notified {
            self.notified = true;
            self.returned = self.epoch;
            self.act(Action::Publish { by: Side::Default, wake: false });
        }
    }

    /// Whether the notification is under way.
    pub fn awaits_notice(&self) -> bool {
        self.phase == Phase::WaitDrained && self.notified
    }

    /// Whether a probe is under way.
    pub fn awaits_probe(&self) -> bool {
        self.probing
    }

    /// The notification has come: the rest follows.
    pub fn on_notified(&mut self, now: Instant) {
        if self.awaits_notice() {
            (self.phase, self.notified, self.timer) = (Phase::Default, false, None);
            self.settle_down(now);
            self.act(Action::Tell(Side::Default, self.reason));
            self.act(Action::Release);
        }
    }

    /// The time of [`Machine::poll_timeout`] may have come.
    pub fn on_time(&mut self, now: Instant) {
        if self.timer.is_none_or(|at| now < at) {
            return;
        }
        self.timer = None;
        match self.phase {
            Phase::Moving => self.fail(Refusal::Silence),
            // The queue pair itself sends it again until it is answered.
            Phase::Fallback if !self.probing && self.left.is_none() => {
                self.probing = true;
                self.act(Action::Probe);
            }
            Phase::WaitSignaled => self.act(Action::Fence),
            _ => {}
        }
    }

    /// Something that cannot go on: everything ends in errors, and the peer learns of it.
    pub fn fail(&mut self, why: Refusal) {
        if self.phase != Phase::Failed {
            self.phase = Phase::Failed;
            self.refusal = Some(why);
            self.timer = None;
            // What was about to be done is not done any more: the work is where it is.
            self.actions.clear();
            self.act(Action::Fail(why));
        }
    }
}

/// The side that is not this one.
pub fn other(side: Side) -> Side {
    match side {
        Side::Default => Side::Backup,
        Side::Backup => Side::Default,
    }
}
