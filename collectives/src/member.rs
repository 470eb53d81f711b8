//! One rank of a group: takes part in one collective after the other.
//!
//! A collective begins with a **Hello** to all other ranks: what is called, and what this rank proposes as its time. Who has everybody's
//! knows that all call the same, and the budget, which is the same everywhere. Then receives are posted, their senders are told by a
//! **Ready**, and steps follow as what they wait for is done. Nobody is asked anything afterwards: a rank that has done its steps is done.

mod error;
mod running;

use std::sync::Arc;
use std::time::Duration;

use softnic_wire::Instant;

use crate::call::Call;
use crate::control::{Control, KEYS};
use crate::fabric::{Fabric, FabricEvent};
use crate::losses::{Loss, LossLog};
use crate::plan::Plan;
use crate::timeouts::{Budget, Observation, TimeoutSettings, Timeouts};

pub use error::MemberError;
use running::Running;

/// Plans that are kept: of the calls that were new last.
const PLANS: usize = 16;

/// How a member works.
#[derive(Debug, Clone)]
pub struct MemberSettings {
    /// Messages have deadlines, and may be lost: the transport is one of best effort.
    pub bounded: bool,
    /// A budget that is the same for ever, instead of one that follows what was needed.
    pub fixed: Option<Duration>,
    /// How budgets follow what was needed.
    pub timeouts: TimeoutSettings,
    /// How long a rank is waited for of which nothing is heard.
    pub patience: Duration,
    /// What is lost again, beside what the network loses.
    pub replay: Arc<LossLog>,
}

impl MemberSettings {
    /// What all ranks of a group must have alike, so that they compute the same budgets.
    pub fn budgets(&self) -> String {
        let TimeoutSettings { alpha, gamma, delta, margin, bound, most } = self.timeouts;
        match self.fixed {
            Some(budget) => format!(", budget {budget:?}"),
            None => format!(
                ", budgets by alpha {alpha}, gamma {gamma}, delta {delta:?}, margin {margin}, bound {bound}, at most {most:?}"
            ),
        }
    }
}

impl Default for MemberSettings {
    fn default() -> MemberSettings {
        MemberSettings {
            bounded: false,
            fixed: None,
            timeouts: TimeoutSettings::default(),
            patience: Duration::from_secs(10),
            replay: Arc::default(),
        }
    }
}

/// How a collective ended at a rank.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// From when everybody had come to the last step.
    pub elapsed: Duration,
    /// From the call.
    pub since_call: Duration,
    /// Bytes that came.
    pub received: u64,
    /// Bytes that would have come.
    pub expected: u64,
    /// The budget, where there was one.
    pub budget: Option<Budget>,
    /// What did not come, by step.
    pub losses: Vec<Loss>,
}

/// How far a collective is.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// None is under way.
    Idle,
    /// It is under way.
    Running,
    /// It is over; said once.
    Done(Outcome),
}

/// What was counted over all collectives of a member.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemberCounters {
    /// Collectives that are over.
    pub collectives: u64,
    /// Messages that came, in whole or not.
    pub messages: u64,
    /// Those that were not whole.
    pub partial_messages: u64,
    /// Bytes that came.
    pub received_bytes: u64,
    /// Bytes that did not.
    pub missing_bytes: u64,
    /// Control messages that were sent.
    pub control_sent: u64,
    /// Control messages that were none, or that nobody should have sent.
    pub control_dropped: u64,
}

impl MemberCounters {
    /// What was counted after `before`.
    pub fn since(&self, before: &MemberCounters) -> MemberCounters {
        MemberCounters {
            collectives: self.collectives - before.collectives,
            messages: self.messages - before.messages,
            partial_messages: self.partial_messages - before.partial_messages,
            received_bytes: self.received_bytes - before.received_bytes,
            missing_bytes: self.missing_bytes - before.missing_bytes,
            control_sent: self.control_sent - before.control_sent,
            control_dropped: self.control_dropped - before.control_dropped,
        }
    }
}

/// What another rank has said.
#[derive(Debug, Clone, Copy, Default)]
struct Peer {
    /// Its Hello of the present collective, and of the next one.
    hellos: [Option<Hello>; 2],
    /// Collectives, of which it is ready for this many.
    ready: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Hello {
    call: Call,
    ranks: u32,
    proposal: Option<u64>,
}

/// Where a member stands.
#[derive(Debug)]
enum State {
    Idle,
    /// Its Hello is sent; others are waited for.
    Meeting,
    Running,
    /// An error: it takes part in nothing more.
    Over(MemberError),
}

/// A rank of a group.
#[derive(Debug)]
pub struct Member {
    rank: usize,
    ranks: usize,
    settings: MemberSettings,
    timeouts: Timeouts,
    /// The collective that is next, or under way.
    number: u64,
    /// The same, warm-ups not counted: how logs of losses count.
    measured: u64,
    peers: Vec<Peer>,
    state: State,
    running: Running,
    called_at: Instant,
    met_at: Instant,
    heard_at: Instant,
    budget: Option<Budget>,
    /// Not bounded by a deadline whatever the settings say: it goes by a reliable transport to see how long it takes.
    warming_up: bool,
    proposals: Vec<u64>,
    plans: Vec<Arc<Plan>>,
    counters: MemberCounters,
}

impl Member {
    /// Rank `rank` of a group of `ranks`.
    pub fn new(rank: usize, ranks: usize, settings: MemberSettings) -> Member {
        let most = TimeoutSettings { most: settings.timeouts.most.min(settings.patience), ..settings.timeouts };
        Member {
            rank,
            ranks,
            timeouts: Timeouts::new(most),
            settings,
            number: 0,
            measured: 0,
            peers: vec![Peer::default(); ranks],
            state: State::Idle,
            running: Running::default(),
            called_at: Instant::ZERO,
            met_at: Instant::ZERO,
            heard_at: Instant::ZERO,
            budget: None,
            warming_up: false,
            proposals: Vec::with_capacity(ranks),
            plans: Vec::new(),
            counters: MemberCounters::default(),
        }
    }

    /// Which rank it is.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// What was counted.
    pub fn counters(&self) -> &MemberCounters {
        &self.counters
    }

    /// The budgets.
    pub fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// The plan of a call, made once. Where there is more than one phase the same call warms up and is bounded by the same plan.
    fn plan(&mut self, call: &Call) -> Result<Arc<Plan>, MemberError> {
        if let Some(plan) = self.plans.iter().find(|plan| plan.call == *call) {
            return Ok(Arc::clone(plan));
        }
        let plan = Plan::new(call, self.ranks, self.rank, self.settings.bounded).map_err(MemberError::Call)?;
        if self.plans.len() == PLANS {
            self.plans.remove(0);
        }
        let plan = Arc::new(plan);
        self.plans.push(Arc::clone(&plan));
        Ok(plan)
    }

    /// Begins a collective.
    ///
    /// # Errors
    /// When another one is under way or the group cannot make it.
    pub fn start(&mut self, call: &Call, fabric: &mut impl Fabric) -> Result<(), MemberError> {
        self.begin(call, false, fabric)
    }

    /// Begins a collective over a reliable transport to see how long it takes: the first budget of such calls comes from that.
    ///
    /// # Errors
    /// As [`Member::start`].
    pub fn warm_up(&mut self, call: &Call, fabric: &mut impl Fabric) -> Result<(), MemberError> {
        self.begin(call, true, fabric)
    }

    fn begin(&mut self, call: &Call, warming_up: bool, fabric: &mut impl Fabric) -> Result<(), MemberError> {
        match &self.state {
            State::Idle => {}
            State::Over(error) => return Err(error.clone()),
            _ => return Err(MemberError::Busy),
        }
        let plan = self.plan(call)?;
        let proposal = if self.is_adaptive() { self.timeouts.proposal(call, plan.received()) } else { None };
        fabric.prepare(&plan).map_err(MemberError::Refused)?;
        self.running.begin(plan);
        self.warming_up = warming_up;
        self.called_at = fabric.now();
        self.heard_at = self.called_at;
        let own = Hello { call: *call, ranks: self.ranks as u32, proposal };
        self.peers[self.rank].hellos[0] = Some(own);
        let Hello { call, ranks, proposal } = own;
        let hello = Control::Hello { number: self.number, call, ranks, proposal };
        self.state = State::Meeting;
        for peer in self.others() {
            self.tell(peer, &hello, fabric)?;
        }
        fabric.wake_at(self.called_at + self.settings.patience);
        Ok(())
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.rank;
        (0..self.ranks).filter(move |peer| *peer != own)
    }

    fn is_adaptive(&self) -> bool {
        self.settings.bounded && self.settings.fixed.is_none()
    }

    fn tell(&mut self, peer: usize, message: &Control, fabric: &mut impl Fabric) -> Result<(), MemberError> {
        let tail = Control::Tail { number: self.number };
        for message in [message, &tail] {
            self.counters.control_sent += 1;
            fabric.tell(peer, &message.emit()).map_err(MemberError::Refused)?;
        }
        Ok(())
    }

    /// Goes on as far as can be gone now.
    ///
    /// # Errors
    /// What ends the group's work: from then on every call says so.
    pub fn advance(&mut self, fabric: &mut impl Fabric) -> Result<Progress, MemberError> {
        let progress = self.try_advance(fabric);
        if let Err(error) = &progress
            && !matches!(self.state, State::Over(_))
        {
            self.state = State::Over(error.clone());
            // Others need not wait until they lose patience.
            let abort = Control::Abort { number: self.number, culprit: error.culprit().unwrap_or(self.rank) as u32 };
            for peer in self.others() {
                let _ = self.tell(peer, &abort, fabric);
            }
        }
        progress
    }

    fn try_advance(&mut self, fabric: &mut impl Fabric) -> Result<Progress, MemberError> {
        if let State::Over(error) = &self.state {
            return Err(error.clone());
        }
        while let Some(event) = fabric.poll() {
            self.heard_at = fabric.now();
            match event {
                FabricEvent::Control { peer, .. } => {
                    let message = Control::parse(fabric.heard());
                    self.hear(peer, message, fabric)?;
                }
                FabricEvent::Sent { step } => self.running.sent(step, fabric)?,
                FabricEvent::Received { step, whole, len } => {
                    let replay = match self.warming_up {
                        true => &[],
                        false => self.settings.replay.ranges(self.measured, self.rank, step),
                    };
                    self.running.received(step, whole.then_some(len), replay, fabric)?;
                }
                FabricEvent::Failed { peer, why } => return Err(MemberError::Failed { rank: peer, why }),
            }
        }
        if matches!(self.state, State::Meeting) && self.everybody_has_come()? {
            self.set_out(fabric)?;
        }
        if self.end().is_some_and(|end| end <= fabric.now()) {
            // Messages to a rank that never was ready end at once, and count: the next one is the next one's.
            for peer in self.others() {
                self.running.open(peer, fabric)?;
            }
        }
        match self.state {
            State::Running if self.running.is_over() => Ok(Progress::Done(self.conclude(fabric.now()))),
            State::Meeting | State::Running => self.wait(fabric),
            _ => Ok(Progress::Idle),
        }
    }

    /// Takes what a rank says.
    fn hear(&mut self, peer: usize, message: Option<Control>, fabric: &mut impl Fabric) -> Result<(), MemberError> {
        match message {
            Some(Control::Hello { number, call, ranks, proposal })
                if number == self.number || number == self.number + 1 =>
            {
                let place = &mut self.peers[peer].hellos[(number - self.number) as usize];
                // The first word counts.
                self.counters.control_dropped += u64::from(place.is_some());
                place.get_or_insert(Hello { call, ranks, proposal });
            }
            Some(Control::Ready { number }) if number == self.number => {
                self.peers[peer].ready = number + 1;
                if matches!(self.state, State::Running) {
                    self.running.open(peer, fabric)?;
                }
            }
            // The last word of its sender, of whichever collective: it takes part in nothing more.
            Some(Control::Abort { culprit, .. }) => {
                return Err(MemberError::Aborted { rank: peer, culprit: (culprit as usize).min(self.ranks - 1) });
            }
            Some(Control::Keys { number, first, windows }) if number == self.number => {
                for (i, window) in (0u32..).zip(windows.into_iter().flatten()) {
                    let known = first.checked_add(i).is_some_and(|message| fabric.learn(peer, message, window));
                    self.counters.control_dropped += u64::from(!known);
                }
            }
            Some(Control::Tail { .. }) => {}
            _ => self.counters.control_dropped += 1,
        }
        Ok(())
    }

    /// Whether the Hellos of all ranks are there, and say the same.
    fn everybody_has_come(&self) -> Result<bool, MemberError> {
        let Some(own) = self.peers[self.rank].hellos[0] else { return Ok(false) };
        for (rank, peer) in self.peers.iter().enumerate() {
            let Some(hello) = peer.hellos[0] else { continue };
            if hello.ranks != own.ranks || hello.call != own.call {
                let (theirs, ours) = ((hello.call, hello.ranks), (own.call, own.ranks));
                return Err(MemberError::Disagree { rank, theirs, own: self.rank, ours });
            }
        }
        Ok(self.peers.iter().all(|peer| peer.hellos[0].is_some()))
    }

    /// Everybody has come: the budget is known, receives are posted, senders are told.
    fn set_out(&mut self, fabric: &mut impl Fabric) -> Result<(), MemberError> {
        self.met_at = fabric.now();
        let call = self.running.call();
        self.budget = None;
        if self.settings.bounded && !self.warming_up {
            self.budget = match self.settings.fixed {
                Some(timeout) => Some(Budget { timeout, spare: Duration::ZERO, median: None, before: None }),
                None => {
                    self.proposals.clear();
                    let told = self.peers.iter().filter_map(|peer| peer.hellos[0].and_then(|hello| hello.proposal));
                    self.proposals.extend(told);
                    let budget = self.timeouts.next(&call, &mut self.proposals);
                    // Without any experience it may take as long as anybody is waited for.
                    let timeout = self.settings.patience;
                    Some(budget.unwrap_or(Budget { timeout, spare: Duration::ZERO, median: None, before: None }))
                }
            };
        }
        self.state = State::Running;
        self.running.set_out(self.budget.map(|budget| (self.met_at, budget)));
        self.running.post_receives(fabric)?;
        let ready = Control::Ready { number: self.number };
        for peer in 0..self.ranks {
            if self.running.receives_from(peer) {
                self.tell_keys(peer, fabric)?;
                self.tell(peer, &ready, fabric)?;
            }
            if self.peers[peer].ready > self.number {
                self.running.open(peer, fabric)?;
            }
        }
        Ok(())
    }

    /// Tells a rank where its messages go, if it has to know.
    fn tell_keys(&mut self, peer: usize, fabric: &mut impl Fabric) -> Result<(), MemberError> {
        for first in (0..).step_by(KEYS) {
            let windows = std::array::from_fn(|i| self.running.window(peer, first + i, fabric));
            if windows[0].is_none() {
                break;
            }
            let keys = Control::Keys { number: self.number, first: first as u32, windows };
            self.counters.control_sent += 1;
            fabric.tell(peer, &keys.emit()).map_err(MemberError::Refused)?;
        }
        Ok(())
    }

    /// When the budget is over, if there is one and it is running.
    fn end(&self) -> Option<Instant> {
        self.budget.filter(|_| matches!(self.state, State::Running)).map(|budget| self.met_at + budget.timeout)
    }

    /// Nothing more can be done now: until when?
    fn wait(&mut self, fabric: &mut impl Fabric) -> Result<Progress, MemberError> {
        let until = self.heard_at + self.settings.patience;
        let now = fabric.now();
        if now < until {
            fabric.wake_at(self.end().filter(|end| *end > now).map_or(until, |end| end.min(until)));
            return Ok(Progress::Running);
        }
        let waited = self.settings.patience;
        let absent = |peers: &[Peer]| {
            let absent = peers.iter().enumerate().filter(|(_, peer)| peer.hellos[0].is_none());
            absent.map(|(rank, _)| rank).collect::<Vec<_>>()
        };
        Err(match self.state {
            State::Meeting => MemberError::Absent { ranks: absent(&self.peers), number: self.number, waited },
            _ => MemberError::Silent { ranks: self.running.awaited(), number: self.number, waited },
        })
    }

    fn conclude(&mut self, now: Instant) -> Outcome {
        let call = self.running.call();
        let (elapsed, since_call) = (now - self.met_at, now - self.called_at);
        let (received, expected) = (self.running.bytes(), self.running.expected());
        let losses = self.running.losses(self.measured, self.rank);
        self.measured += u64::from(!self.warming_up);
        if self.warming_up {
            self.timeouts.warm_up(&call, elapsed);
        } else if self.is_adaptive() {
            self.timeouts.observe(&call, Observation { elapsed, received, expected });
        }
        self.counters.collectives += 1;
        self.counters.messages += self.running.messages();
        self.counters.partial_messages += losses.len() as u64;
        self.counters.received_bytes += received;
        self.counters.missing_bytes += expected - received;
        self.number += 1;
        for peer in &mut self.peers {
            peer.hellos = [peer.hellos[1].take(), None];
        }
        self.state = State::Idle;
        Outcome { elapsed, since_call, received, expected, budget: self.budget, losses }
    }
}
