//! What must hold when a collective is over: the plain result, deadlines, and budgets by the rule, which is worked out here again.

use std::collections::BTreeMap;
use std::time::Duration;

use softnic_collectives::call::{Algorithm, Call, Operation};
use softnic_collectives::element::reduce;
use softnic_collectives::endpoint::Noted;
use softnic_collectives::member::Outcome;
use softnic_collectives::plan::Plan;
use softnic_collectives::timeouts::Budget;
use softnic_collectives::uc::is_bounded;
use softnic_wire::Instant;

use super::world::GroupWorld;

/// The buffer of a rank where nothing is missing. Numbers are small and whole, so the order of a sum does not matter.
pub(super) fn plain(call: &Call, inputs: &[Vec<u8>], rank: usize) -> Vec<u8> {
    let (ranks, mut out) = (inputs.len(), inputs[rank].clone());
    let place = |range: std::ops::Range<u64>| range.start as usize..range.end as usize;
    match call.operation {
        Operation::AllReduce | Operation::ReduceScatter => {
            let others = (0..ranks).filter(|other| *other != rank);
            others.for_each(|other| reduce(call.element, call.reduction, &mut out, &inputs[other]));
        }
        Operation::AllGather => (0..ranks).for_each(|other| {
            let block = place(call.blocks(ranks, other..other + 1));
            out[block.clone()].copy_from_slice(&inputs[other][block]);
        }),
        Operation::AllToAll => (0..ranks).for_each(|other| {
            let (to, from) = (place(call.equal_block(ranks, other)), place(call.equal_block(ranks, rank)));
            out[to].copy_from_slice(&inputs[other][from]);
        }),
        Operation::Broadcast { root } => out.copy_from_slice(&inputs[root]),
        Operation::Barrier => {}
    }
    out
}

/// Whether every message had the deadline of its phase, and ended by it.
pub(super) fn check_deadlines(
    call: &Call,
    rank: usize,
    ranks: usize,
    bounded: bool,
    budget: Option<Budget>,
    notes: &[Noted],
    slack: Duration,
) -> Result<(), String> {
    if !bounded {
        let late = notes.iter().any(|note| note.posted.is_some_and(|deadline| deadline.is_some()));
        return if late || budget.is_some() { Err("it has a deadline".into()) } else { Ok(()) };
    }
    let Budget { timeout, spare, .. } = budget.ok_or("it has no budget")?;
    let plan = Plan::new(call, ranks, rank, true).map_err(|e| e.to_string())?;
    let (mut deadlines, mut from) = (BTreeMap::<u32, Instant>::new(), None);
    for note in notes {
        match note.posted {
            Some(None) => return Err(format!("step {} has no deadline", note.step)),
            Some(Some(deadline)) => {
                let step = plan.steps.get(note.step as usize).ok_or("a step that is none")?;
                let (part, all) = plan.share(step.phase);
                let slice = (timeout - spare).as_secs_f64() * part as f64 / all as f64;
                let begin = deadline.as_nanos() as f64 - (spare.as_secs_f64() + slice) * 1e9;
                let first = *from.get_or_insert(begin);
                // Receives are posted when everybody has come, and that is when the budget begins.
                let is_receive_late = step.is_receive() && (begin - note.at.as_nanos() as f64).abs() > 10.0;
                if (begin - first).abs() > 10.0 || is_receive_late {
                    return Err(format!("step {} of phase {} has the deadline of another one", note.step, step.phase));
                }
                deadlines.insert(note.step, deadline);
            }
            None => match deadlines.remove(&note.step) {
                Some(deadline) if note.at <= deadline.max(Instant::from_nanos(0)) + slack => {}
                Some(deadline) => {
                    // What is posted when its time is over ends at once.
                    let posted = notes.iter().find(|n| n.step == note.step && n.posted.is_some()).map(|n| n.at);
                    if posted.is_none_or(|at| at + slack < note.at) {
                        return Err(format!("step {} ended at {:?}, and was due at {deadline:?}", note.step, note.at));
                    }
                }
                None => return Err(format!("step {} ended twice, or was not posted", note.step)),
            },
        }
    }
    if deadlines.is_empty() { Ok(()) } else { Err(format!("{} messages have no end", deadlines.len())) }
}

/// What is known of one kind of collective.
#[derive(Debug, Clone, Default)]
struct Kind {
    /// What was needed and what is spare, in nanoseconds.
    timeout: Option<(f64, f64)>,
    /// Of each rank, the last time: nanoseconds, bytes that came, and bytes that should have.
    news: Vec<Option<(f64, u64, u64)>>,
    warm_ups: Vec<Option<f64>>,
}

/// The budgets of a group by the rule of §3.1.2, with the bounds of docs/collectives.md.
pub(super) struct Budgets {
    world: GroupWorld,
    /// By operation, algorithm and size.
    kinds: BTreeMap<(Operation, Algorithm, u64), Kind>,
}

fn scaled(time: f64, to: u64, from: u64) -> f64 {
    if from == to || from == 0 { time } else { time * to as f64 / from as f64 }
}

fn nanos(time: Duration) -> f64 {
    time.as_nanos() as f64
}

impl Budgets {
    pub(super) fn new(world: &GroupWorld) -> Budgets {
        Budgets { world: world.clone(), kinds: BTreeMap::new() }
    }

    /// Whether all ranks had the budget of the rule; takes note of how long it took. How many updates were looked at.
    pub(super) fn check(&mut self, call: &Call, warm_up: bool, outcomes: &[Outcome]) -> Result<u64, String> {
        let ranks = outcomes.len();
        // A new size begins with what the next larger one has, unless it warmed up.
        let (operation, algorithm, bytes) = (call.operation, call.algorithm, call.bytes);
        let larger = self.kinds.range((operation, algorithm, bytes)..=(operation, algorithm, u64::MAX));
        let larger = larger.filter_map(|(&(_, _, from), kind)| Some((from, kind.timeout?))).next();
        let kind = self.kinds.entry((operation, algorithm, bytes)).or_default();
        kind.news.resize(ranks, None);
        kind.warm_ups.resize(ranks, None);
        if warm_up {
            let took = outcomes.iter().map(|outcome| Some(nanos(outcome.elapsed)));
            kind.warm_ups = took.collect();
            return Ok(0);
        }
        if !is_bounded(self.world.transport) {
            return Ok(0);
        }
        let Some(budget) = outcomes[0].budget else { return Err("there is no budget".into()) };
        if outcomes.iter().any(|outcome| outcome.budget != Some(budget)) {
            return Err("ranks have different budgets".into());
        }
        if let Some(fixed) = self.world.fixed {
            return if budget.timeout == fixed { Ok(0) } else { Err("the budget is not the fixed one".into()) };
        }
        let settings = self.world.timeouts;
        let warmed_up = kind.timeout.is_none() && kind.warm_ups.iter().any(Option::is_some);
        let before = larger
            .filter(|_| !warmed_up)
            .map(|(from, (need, spare))| (scaled(need, bytes, from), scaled(spare, bytes, from)));
        let mut proposals = Vec::new();
        for (rank, outcome) in outcomes.iter().enumerate() {
            match (kind.news[rank], kind.warm_ups[rank]) {
                (Some((_, _, 0)), _) => {}
                (Some((_, 0, _)), _) => proposals.push(u64::MAX as f64),
                (Some((took, came, _)), _) => proposals.push(scaled(took, outcome.expected, came)),
                (None, Some(took)) => proposals.push(took),
                (None, None) => {}
            }
        }
        if let Some((need, spare)) = before {
            let t = need + spare;
            proposals.iter_mut().for_each(|p| *p = p.clamp(t / settings.bound, t * settings.bound));
        }
        proposals.sort_unstable_by(f64::total_cmp);
        let n = proposals.len();
        let median = (n > 0).then(|| (proposals[(n - 1) / 2] + proposals[n / 2]) / 2.0);
        let (need, spare) = match (before, median) {
            (Some((need, spare)), Some(median)) => {
                let smooth = |new: f64, old: f64| settings.alpha * new + (1.0 - settings.alpha) * old;
                (smooth(median, need), smooth(median * settings.margin, spare))
            }
            (Some(before), None) => before,
            (None, Some(median)) => (median, settings.gamma * median + nanos(settings.delta)),
            (None, None) => (nanos(self.world.patience()), 0.0),
        };
        let most = nanos(self.world.most());
        let wanted =
            if before.is_none() && median.is_none() { need } else { (need + spare).clamp(nanos(settings.delta), most) };
        let got = nanos(budget.timeout);
        // The other side counts in whole nanoseconds, a few times.
        if (got - wanted).abs() > 20.0 + wanted * 1e-6 {
            return Err(format!("the budget is {got} ns, by the rule {wanted}"));
        }
        if before.is_some() || median.is_some() {
            // What it keeps is taken over as it is, so that roundings do not add up.
            let spare = nanos(budget.spare);
            kind.timeout = Some((got - spare, spare));
        }
        let wide = |outcome: &Outcome| Some((nanos(outcome.elapsed), outcome.received, outcome.expected));
        kind.news = outcomes.iter().map(wide).collect();
        kind.warm_ups = vec![None; ranks];
        Ok(u64::from(median.is_some()))
    }
}
