//! The steps of a collective that is under way: what is posted, what has come, and what its turn is.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use softnic_transports::planted::{Bug, planted};
use softnic_wire::Instant;

use super::error::MemberError;
use crate::call::{Algorithm, Call, Element, Operation, Reduction};
use crate::element::reduce;
use crate::fabric::{Fabric, Region, Window};
use crate::losses::{Loss, bytes_of, tidy};
use crate::plan::{Act, Plan, Step};
use crate::timeouts::Budget;

/// Bytes that are reduced or copied at once: a whole number of elements of every type.
const AT_ONCE: usize = 4096;

/// Where a step stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It waits for others, for the peer, or for its message.
    Open,
    /// Its message is there, and its turn is not.
    Arrived,
    /// Its send is posted.
    Posted,
    Done,
}

/// A collective under way. Its memory is used again by the next one.
#[derive(Debug, Default)]
pub(super) struct Running {
    plan: Option<Arc<Plan>>,
    stages: Vec<Stage>,
    /// Steps that each step still waits for.
    waits: Vec<u32>,
    left: usize,
    /// For each rank, messages that were posted, and whether it takes any.
    posted: Vec<(usize, bool)>,
    /// When the budget began, and what it is.
    budget: Option<(Instant, Budget)>,
    /// What is missing, of each step that is not whole; those of a step are `lost[step]`.
    missing: Vec<Range<u32>>,
    lost: Vec<Range<u32>>,
    /// The missing ranges of one message.
    ranges: Vec<Range<u32>>,
    /// Steps that have become due.
    due: Vec<u32>,
    bytes: u64,
    messages: u64,
}

impl Running {
    fn plan(&self) -> &Plan {
        static NOTHING: std::sync::LazyLock<Plan> = std::sync::LazyLock::new(|| {
            let call = Call {
                operation: Operation::Barrier,
                algorithm: Algorithm::Ring,
                element: Element::F32,
                reduction: Reduction::Sum,
                bytes: 0,
            };
            Plan::new(&call, 1, 0, false).unwrap_or_else(|_| unreachable!("one rank can always wait for itself"))
        });
        self.plan.as_deref().unwrap_or(&NOTHING)
    }

    pub(super) fn begin(&mut self, plan: Arc<Plan>) {
        let steps = plan.steps.len();
        self.stages.clear();
        self.stages.resize(steps, Stage::Open);
        self.waits.clear();
        self.waits.extend(&plan.waits);
        self.lost.clear();
        self.lost.resize(steps, 0..0);
        self.posted.clear();
        self.posted.resize(plan.ranks, (0, false));
        self.missing.clear();
        self.due.clear();
        self.due.reserve(steps);
        (self.left, self.bytes, self.messages, self.budget) = (steps, 0, 0, None);
        self.plan = Some(plan);
    }

    pub(super) fn call(&self) -> Call {
        self.plan().call
    }

    pub(super) fn expected(&self) -> u64 {
        self.plan().received()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn messages(&self) -> u64 {
        self.messages
    }

    pub(super) fn is_over(&self) -> bool {
        self.left == 0
    }

    pub(super) fn receives_from(&self, peer: usize) -> bool {
        !self.plan().receives_from(peer).is_empty()
    }

    /// Where the n-th message from a rank goes, if it has to know.
    pub(super) fn window(&self, peer: usize, message: usize, fabric: &impl Fabric) -> Option<Window> {
        let &step = self.plan().receives_from(peer).get(message)?;
        fabric.window(step, &self.plan().steps[step as usize])
    }

    /// The budget is known.
    pub(super) fn set_out(&mut self, budget: Option<(Instant, Budget)>) {
        self.budget = budget;
    }

    fn deadline(&self, step: &Step) -> Option<Instant> {
        let (from, Budget { timeout, spare, .. }) = self.budget?;
        let phase = step.phase + u32::from(planted(Bug::CollectiveDeadlineOfAnother));
        let (part, all) = self.plan().share(phase);
        let nanos = (timeout - spare).as_nanos().saturating_mul(u128::from(part)) / u128::from(all);
        Some(from + spare + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }

    pub(super) fn post_receives(&mut self, fabric: &mut impl Fabric) -> Result<(), MemberError> {
        let plan = self.plan();
        for peer in 0..plan.ranks {
            for &i in plan.receives_from(peer) {
                let step = &plan.steps[i as usize];
                fabric.post_receive(i, step, self.deadline(step)).map_err(MemberError::Refused)?;
            }
        }
        Ok(())
    }

    /// A rank takes messages.
    pub(super) fn open(&mut self, peer: usize, fabric: &mut impl Fabric) -> Result<(), MemberError> {
        self.posted[peer].1 = true;
        self.post_sends(peer, fabric)
    }

    /// Posts the messages to a rank whose turn it is.
    fn post_sends(&mut self, peer: usize, fabric: &mut impl Fabric) -> Result<(), MemberError> {
        if !self.posted[peer].1 {
            return Ok(());
        }
        while let Some(&i) = self.plan().sends_to(peer).get(self.posted[peer].0) {
            if self.waits[i as usize] > 0 {
                break;
            }
            let step = &self.plan().steps[i as usize];
            fabric.post_send(i, step, self.deadline(step)).map_err(MemberError::Refused)?;
            self.stages[i as usize] = Stage::Posted;
            self.posted[peer].0 += 1;
        }
        Ok(())
    }

    /// A message has left.
    pub(super) fn sent(&mut self, step: u32, fabric: &mut impl Fabric) -> Result<(), MemberError> {
        match self.stages.get(step as usize) {
            Some(Stage::Posted) => self.complete(step, fabric),
            _ => Ok(()),
        }
    }

    /// A message has come, as far as it will: in whole, of so many bytes, or not; `replay` are ranges that are lost again.
    pub(super) fn received(
        &mut self,
        index: u32,
        whole: Option<u32>,
        replay: &[Range<u32>],
        fabric: &mut impl Fabric,
    ) -> Result<(), MemberError> {
        let i = index as usize;
        if self.stages.get(i) != Some(&Stage::Open) || !self.plan().steps[i].is_receive() {
            return Ok(());
        }
        let step = self.plan().steps[i];
        self.messages += 1;
        self.bytes += u64::from(step.len);
        if whole.is_none_or(|len| len < step.len) || !replay.is_empty() {
            let ranges = &mut self.ranges;
            ranges.clear();
            ranges.extend(replay.iter().map(|range| range.start.min(step.len)..range.end.min(step.len)));
            match whole {
                Some(len) => ranges.push(len.min(step.len)..step.len),
                None => fabric.missing(index, &step, &mut |range| ranges.push(range)),
            }
            ranges.retain(|range| !range.is_empty());
            tidy(ranges);
            self.bytes -= bytes_of(ranges);
            let from = self.missing.len() as u32;
            self.missing.append(ranges);
            self.lost[i] = from..self.missing.len() as u32;
        }
        self.stages[i] = Stage::Arrived;
        if self.waits[i] == 0 { self.complete(index, fabric) } else { Ok(()) }
    }

    /// A step is done, and with it those that waited for nothing else and whose message is there.
    fn complete(&mut self, step: u32, fabric: &mut impl Fabric) -> Result<(), MemberError> {
        self.due.push(step);
        while let Some(step) = self.due.pop() {
            let i = step as usize;
            self.apply(i, fabric);
            self.stages[i] = Stage::Done;
            self.left -= 1;
            for at in 0..self.plan().followers(i).len() {
                let next = self.plan().followers(i)[at] as usize;
                self.waits[next] -= 1;
                if self.waits[next] > 0 {
                    continue;
                }
                match (self.stages[next], self.plan().steps[next].act) {
                    (Stage::Arrived, _) => self.due.push(next as u32),
                    (_, Act::Send) => self.post_sends(self.plan().steps[next].peer, fabric)?,
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// What a message does to the buffer. What is missing of a sum, or of the least or greatest, was not there; else it is zero.
    fn apply(&self, i: usize, fabric: &mut impl Fabric) {
        let step = &self.plan().steps[i];
        if step.act == Act::Send || !fabric.has_bytes() {
            return;
        }
        if planted(Bug::CollectiveStepSkipped) && i % 5 == 3 {
            return;
        }
        let mut missing = &self.missing[self.lost[i].start as usize..self.lost[i].end as usize];
        if planted(Bug::CollectiveStaleBytes) {
            missing = &[];
        }
        let mut at = 0;
        for hole in missing.iter().cloned().chain(std::iter::once(step.len..step.len)) {
            self.take(step, at..hole.start, fabric);
            if step.act != Act::Reduce {
                clear(step, hole.clone(), fabric);
            }
            at = hole.end;
        }
    }

    /// Takes bytes that came into the buffer.
    fn take(&self, step: &Step, range: Range<u32>, fabric: &mut impl Fabric) {
        if step.act == Act::Place {
            return;
        }
        let call = self.plan().call;
        let (mut into, mut from) = ([0; AT_ONCE], [0; AT_ONCE]);
        for start in range.clone().step_by(AT_ONCE) {
            let len = (range.end - start).min(AT_ONCE as u32) as usize;
            let (at, scratch) = (step.at + u64::from(start), step.scratch + u64::from(start));
            fabric.read(Region::Scratch, scratch, &mut from[..len]);
            if step.act == Act::Copy {
                fabric.write(Region::Buffer, at, &from[..len]);
                continue;
            }
            fabric.read(Region::Buffer, at, &mut into[..len]);
            reduce(call.element, call.reduction, &mut into[..len], &from[..len]);
            fabric.write(Region::Buffer, at, &into[..len]);
        }
    }

    /// Ranks that a step waits for.
    pub(super) fn awaited(&self) -> Vec<usize> {
        let open = self.plan().steps.iter().zip(&self.stages).filter(|(step, stage)| match stage {
            // Who was never ready for its message is waited for as well.
            Stage::Open => step.is_receive() || !self.posted[step.peer].1,
            Stage::Posted => true,
            Stage::Arrived | Stage::Done => false,
        });
        let mut ranks: Vec<usize> = open.map(|(step, _)| step.peer).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// What did not come.
    pub(super) fn losses(&self, collective: u64, rank: usize) -> Vec<Loss> {
        let steps = (0u32..).zip(&self.plan().steps).zip(&self.lost).filter(|(_, lost)| !lost.is_empty());
        let loss = |((step, Step { peer, .. }), lost): ((u32, &Step), &Range<u32>)| {
            let ranges = self.missing[lost.start as usize..lost.end as usize].to_vec();
            Loss { collective, rank, step, from: *peer, ranges }
        };
        steps.map(loss).collect()
    }
}

/// Zeroes bytes of the buffer that did not come: nobody takes what was there before for data.
fn clear(step: &Step, range: Range<u32>, fabric: &mut impl Fabric) {
    const ZERO: [u8; AT_ONCE] = [0; AT_ONCE];
    for start in range.clone().step_by(AT_ONCE) {
        let len = (range.end - start).min(AT_ONCE as u32) as usize;
        fabric.write(Region::Buffer, step.at + u64::from(start), &ZERO[..len]);
    }
}
