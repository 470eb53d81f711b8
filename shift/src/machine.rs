//! The state machine of one protected connection, and the actions that follow from each event (SHIFT §4.3).
//!
//! A connection has two sides: the queue pair at the default NIC and the queue pair at the backup NIC. Each direction uses one side at a
//! time, independently of the other. A *switch-over* leaves one side for the other after a failure. An epoch counts switch-overs; both ends
//! are in the same epoch when one is complete. The return to the default side needs no epoch: no work is lost that would have to be counted.
//!
//! The state that both ends share is one block of memory, the status. Each end writes its status into the peer's memory. A status
//! describes a state, not an event, so a status that is delivered twice, or that overwrites an earlier one, does no harm.

#[cfg(test)]
mod tests;

use std::time::Duration;

use softnic_nic::transports::planted::{Bug, planted};
use softnic_wire::failover::{Phase, Side, Status};
use softnic_wire::{Instant, Psn};

/// A default side that fails again within this time after a return counts as flapping.
const FLAPPING: Duration = Duration::from_secs(10);
/// How long a flapping side is held back before the connection returns to it: the first hold, and the longest.
const FIRST_HOLD: Duration = Duration::from_secs(1);
const LONGEST_HOLD: Duration = Duration::from_secs(64);

/// The timing parameters of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Interval between two probes of the default side.
    pub probe: Duration,
    /// How long to wait for the program's next signaled send before a fence of our own is posted.
    pub fence: Duration,
    /// How long to wait for the peer's answer to a switch-over.
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
    /// The port is down, or has been removed.
    Port,
    /// The peer left the side.
    Peer,
}

/// Why a connection ends in errors although it has a backup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Outstanding work must not be executed twice: atomics, and work that changes keys.
    Unsafe,
    /// Neither side works.
    BothSides,
    /// The peer refused to continue, in its status.
    Peer,
    /// The peer did not answer in time.
    Silence,
    /// The peer's status is not possible.
    Lie,
    /// The peer's backup has no region for a key of a work request.
    Key,
}

/// An action for the driver of the machine. Actions are carried out in the order in which they are polled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Halt the queue pair of a side, and leave its work in place.
    Halt(Side),
    /// Count the completed receives of this side, and move the others to the other side.
    MoveRecvs(Side),
    /// Count the completed receives, and leave the others in place.
    CountRecvs,
    /// Write the local status into the peer's memory by a side, with an immediate if the peer waits for one.
    Publish {
        /// The side that carries the WRITE.
        by: Side,
        /// The peer has posted a receive of its own for the immediate.
        wake: bool,
    },
    /// Take the sends out of the queue pair of a side. Those covered by the peer's receive count are complete; the others are sent again.
    TakeSends {
        /// The side that was left.
        from: Side,
        /// The peer's count of completed receives.
        received: u32,
    },
    /// Reconnect the queue pair of a side.
    Remake(Side),
    /// Post a probe at the default side.
    Probe,
    /// The default side works: its queue pair counts retries again.
    Trust,
    /// Post a fence of our own at the backup.
    Fence,
    /// Post the work that waits.
    Release,
    /// End the connection in errors.
    Fail(Refusal),
    /// The sends of this connection use this side from now on. For counters and notices.
    Tell(Side, Reason),
}

/// The state machine of one protected connection.
#[derive(Debug, Clone)]
pub struct Machine {
    times: Times,
    phase: Phase,
    recv_on: Side,
    epoch: u32,
    recv_count: u32,
    /// For each side, the local send PSN at which its queue pair starts when it is reconnected.
    next_psn: [Psn; 2],
    returned: u32,
    /// The status that opened this epoch woke the peer by an immediate.
    woke: bool,
    peer: Option<Status>,
    /// The side that this epoch left, until its queue pair is reconnected.
    left: Option<Side>,
    reason: Reason,
    /// Why the connection ended in errors.
    refusal: Option<Refusal>,
    /// The return notification was posted at the default side, and is not yet known to have arrived.
    notified: bool,
    /// When to act without an event: a probe, a fence, or giving up.
    timer: Option<Instant>,
    probing: bool,
    /// A probe was answered since the connection left the default side.
    answered: bool,
    /// The connection does not return to the default side before this time.
    hold_until: Instant,
    hold: Duration,
    returned_at: Option<Instant>,
    actions: Vec<Action>,
}

impl Machine {
    /// A connection that uses the default side, and whose two sides are ready.
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

    /// The phase of the local sends.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    /// The side that holds the receives.
    pub fn recv_on(&self) -> Side {
        self.recv_on
    }

    /// The number of switch-overs so far.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Why the last switch-over happened.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Why the connection ended in errors, if it did.
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    /// The side at which new sends are posted; `None` while they wait.
    pub fn send_side(&self) -> Option<Side> {
        match self.phase {
            Phase::Default => Some(Side::Default),
            Phase::Fallback | Phase::WaitSignaled => Some(Side::Backup),
            // The doorbell of the default side is withheld until all earlier sends have completed (§4.3.3).
            Phase::WaitDrained if planted(Bug::ShiftDoorbell) => Some(Side::Default),
            Phase::Moving | Phase::WaitDrained | Phase::Failed => None,
        }
    }

    /// Whether both ends are known to be in their initial state. Then only an event can change the connection. A connection that is not
    /// settled reads the peer's status whenever a frame arrives.
    pub fn is_settled(&self) -> bool {
        self.phase == Phase::Default
            && self.recv_on == Side::Default
            && self.left.is_none()
            && self.peer.is_none_or(|peer| peer.phase == Phase::Default)
    }

    /// When to call [`Machine::on_time`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timer
    }

    /// The next action to carry out.
    pub fn poll_action(&mut self) -> Option<Action> {
        (!self.actions.is_empty()).then(|| self.actions.remove(0))
    }

    /// The local status, as it is written to the peer.
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

    /// The last status received from the peer.
    pub fn peer(&self) -> Option<&Status> {
        self.peer.as_ref()
    }

    /// Sets the number of completed receives, which is the number of messages received from the peer.
    pub fn set_recv_count(&mut self, count: u32) {
        self.recv_count = count;
    }

    /// A queue pair has halted: it starts at this PSN when it is reconnected.
    pub fn set_next_psn(&mut self, side: Side, psn: Psn) {
        self.next_psn[side as usize] = psn;
    }

    fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    /// The queue pair of a side halted, or its port is down.
    pub fn on_failure(&mut self, now: Instant, side: Side, reason: Reason) {
        // A queue pair that is probed does not give up by itself: there is no new failure.
        let probing = self.phase == Phase::Fallback && side == Side::Default && self.recv_on == Side::Backup;
        match self.phase {
            Phase::Failed => {}
            // The side was left already, or is not in use. It is reconnected before it is used.
            _ if self.left == Some(side) => {}
            _ if probing => {}
            // The standby side has no work. A failure there shows when the side is needed.
            Phase::Default if side == Side::Backup && self.recv_on == Side::Default => {}
            _ if self.left.is_some() => self.fail(Refusal::BothSides),
            // A probe has shown that the default side works; only the return is still held back.
            Phase::Fallback if side == Side::Backup && self.answered => self.switch(now, side, reason),
            // The port may come back: the retry count decides.
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
            // A peer that was about to return needs the count as well.
            self.act(Action::CountRecvs);
        }
        let moves = match self.phase {
            Phase::Default => left == Side::Default,
            // No local send is outstanding. But only the peer's answer shows where its receives are.
            Phase::WaitDrained if self.notified => left == Side::Default,
            Phase::Fallback | Phase::WaitSignaled | Phase::WaitDrained => left == Side::Backup,
            Phase::Moving | Phase::Failed => false,
        };
        if moves {
            self.phase = Phase::Moving;
            self.timer = Some(now + self.times.answer);
        } else if left == Side::Default && self.phase != Phase::Moving {
            // The return to the default is cancelled. No timeout limits the peer's answer here: sends continue at the backup, and the status of
            // either end may be queued behind messages that wait for a receive. The next send detects a peer that is gone.
            (self.phase, self.timer) = (Phase::Fallback, None);
        }
        if left == Side::Default {
            (self.notified, self.probing, self.answered) = (false, false, false);
            self.hold_back(now);
        }
        self.act(Action::Publish { by: to, wake });
    }

    /// Doubles the hold of a default side that fails soon after a return, and clears it after a longer time. A side that fails
    /// before the local return (the peer had returned, or was about to) keeps its hold.
    fn hold_back(&mut self, now: Instant) {
        self.hold = match self.returned_at.take() {
            None => self.hold,
            Some(at) if now < at + FLAPPING.max(self.hold * 2) => (self.hold * 2).clamp(FIRST_HOLD, LONGEST_HOLD),
            Some(_) => Duration::ZERO,
        };
        self.hold_until = now + self.hold;
    }

    /// Handles the peer's status, as read from local memory.
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
            // Each end has left the side that the other end moved to.
            0 if self.left == Some(status.recv_on) => return self.fail(Refusal::BothSides),
            0 => {}
            // The peer left a side before this end noticed a failure. Its receives are on the side that it moved to.
            u32::MAX => {
                let left = other(status.recv_on);
                let both = self.left.is_some_and(|side| side != left);
                if both {
                    return self.fail(Refusal::BothSides);
                }
                self.switch(now, left, Reason::Peer);
            }
            // The peer wrote this status before it learned of the current epoch.
            1 => return,
            _ => return self.fail(Refusal::Lie),
        }
        self.peer = Some(*status);
        // A status that is read again requires no action, unless a bug is planted.
        if let Some(left) = self.left.or(again.then_some(other(status.recv_on))) {
            self.arrive(now, left, status);
        }
        if status.returned == self.epoch && self.epoch > 0 && self.recv_on == Side::Backup {
            self.recv_on = Side::Default;
            self.act(Action::MoveRecvs(Side::Backup));
        }
    }

    /// Both ends have left a side: the outstanding work moves to the other side.
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

    /// The local sends use the default side again; tells the peer.
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

    /// The probe could not be posted, because the default has no address or no queue pair. A later probe may succeed.
    pub fn on_no_probe(&mut self, now: Instant) {
        if self.probing {
            self.probing = false;
            self.timer = Some(now + self.times.probe);
        }
    }

    /// The fence, which is a signaled send of the program or one of our own, was posted at the backup. Later sends wait.
    pub fn on_fence_sent(&mut self) {
        if self.phase == Phase::WaitSignaled {
            (self.phase, self.notified, self.timer) = (Phase::WaitDrained, false, None);
            if planted(Bug::ShiftFence) {
                self.on_drained();
            }
        }
    }

    /// The queue had no room for a fence of our own.
    pub fn on_no_fence(&mut self, now: Instant) {
        if self.phase == Phase::WaitSignaled {
            self.timer = Some(now + self.times.fence);
        }
    }

    /// All sends at the backup have completed: the return notification is posted, by itself.
    pub fn on_drained(&mut self) {
        if self.phase == Phase::WaitDrained && !self.notified {
            self.notified = true;
            self.returned = self.epoch;
            self.act(Action::Publish { by: Side::Default, wake: false });
        }
    }

    /// Whether the return notification is outstanding.
    pub fn awaits_notice(&self) -> bool {
        self.phase == Phase::WaitDrained && self.notified
    }

    /// Whether a probe is outstanding.
    pub fn awaits_probe(&self) -> bool {
        self.probing
    }

    /// The return notification was acknowledged: the waiting sends are released.
    pub fn on_notified(&mut self, now: Instant) {
        if self.awaits_notice() {
            (self.phase, self.notified, self.timer) = (Phase::Default, false, None);
            self.settle_down(now);
            self.act(Action::Tell(Side::Default, self.reason));
            self.act(Action::Release);
        }
    }

    /// Call when the time given by [`Machine::poll_timeout`] may have passed.
    pub fn on_time(&mut self, now: Instant) {
        if self.timer.is_none_or(|at| now < at) {
            return;
        }
        self.timer = None;
        match self.phase {
            Phase::Moving => self.fail(Refusal::Silence),
            // The queue pair retransmits the probe until it is answered.
            Phase::Fallback if !self.probing && self.left.is_none() => {
                self.probing = true;
                self.act(Action::Probe);
            }
            Phase::WaitSignaled => self.act(Action::Fence),
            _ => {}
        }
    }

    /// The connection cannot continue: all work ends in errors, and the peer is notified.
    pub fn fail(&mut self, why: Refusal) {
        if self.phase != Phase::Failed {
            self.phase = Phase::Failed;
            self.refusal = Some(why);
            self.timer = None;
            // Pending actions are dropped: the work stays where it is.
            self.actions.clear();
            self.act(Action::Fail(why));
        }
    }
}

/// The opposite side.
pub fn other(side: Side) -> Side {
    match side {
        Side::Default => Side::Backup,
        Side::Backup => Side::Default,
    }
}
