//! A swarm of worlds of collectives: groups on any network, over any transport, with any control, size and fault; and whether every result
//! is that of what came, every message ends by its deadline, every budget is what the rule says of this collective, credit and windows keep
//! their bounds, and nobody waits for ever.

mod checks;
mod controls;
mod world;

use std::time::Duration;

use checks::{Budgets, check_deadlines, plain};
use controls::Controls;
use softnic_collectives::call::Call;
use softnic_collectives::element;
use softnic_collectives::losses::LossLog;
use softnic_collectives::member::Outcome;
use softnic_collectives::model::carried_out;
use softnic_collectives::simulated::{Cluster, ClusterError};
use softnic_collectives::uc::is_bounded;
use softnic_fault_injector::random::Random;
use softnic_sim::Time;
use world::{GroupWorld, World};

/// What a seed came to.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ended {
    /// Collectives that all ranks saw through.
    pub completed: u64,
    /// Those of which bytes are missing.
    pub partial: u64,
    /// Bytes that came.
    pub bytes: u64,
    /// Budgets that were updated by the rule.
    pub budgets: u64,
    /// Ranks that gave up, where a host was cut off.
    pub gave_up: u64,
    /// Groups with Swift, and with credit.
    pub swift: u64,
    /// See above.
    pub eqds: u64,
}

/// No world has more events. Go-Back-N under jitter has by far the most: it sends most packets again.
const MAX_EVENTS: u64 = 80_000_000;
/// Where nothing is posted a cluster is looked at this often.
const TICK: Duration = Duration::from_micros(500);

/// A group while it runs.
struct Run<'w> {
    world: &'w GroupWorld,
    number: usize,
    /// Its collectives so far, warm-ups too, and those that count.
    round: usize,
    measured: u64,
    /// What is called now, its inputs, and when each rank begins it.
    call: Call,
    inputs: Vec<Vec<u8>>,
    starts: Vec<Option<Time>>,
    began: Time,
    /// When it is looked at again where somebody gave up.
    tick: Time,
    budgets: Budgets,
    done: bool,
}

/// Runs the world of a seed to its end.
///
/// # Errors
/// What does not hold, and the world.
pub fn run_seed(seed: u64) -> Result<Ended, String> {
    let world = World::new(seed);
    run(&world).map_err(|what| format!("collectives: {what}; seed {seed}: {world:?}"))
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn run(world: &World) -> Result<Ended, String> {
    let topology = world.topology();
    let mut cluster = Cluster::new(&topology, world.seed).map_err(text)?;
    let mut random = Random::stream(world.seed, 12_100);
    let mut ended = Ended::default();
    let mut groups = Vec::new();
    for group in &world.groups {
        let number = cluster.add_group(group.config()).map_err(text)?;
        cluster.watch(number);
        ended.swift += u64::from(group.cc.name() == "swift");
        ended.eqds += u64::from(group.cc.name() == "eqds");
        let mut run = Run::new(group, number);
        run.next(&mut cluster, &mut random);
        groups.push(run);
    }
    let mut controls = Controls::new(world, &mut cluster);
    let quiet_at = cluster.network().now().after(world.faults_stop);
    let cut_at = world.cut.map(|(host, after)| (host, cluster.network().now().after(after)));
    let (mut quiet, mut cut) = (false, false);
    for _ in 0..MAX_EVENTS {
        let now = cluster.network().now();
        if !quiet && now >= quiet_at {
            quiet = true;
            cluster.network().set_faults_enabled(false);
        }
        if let Some((host, at)) = cut_at
            && !cut
            && now >= at
        {
            cut = true;
            cluster.network().nic(host).set_link(false);
        }
        for run in &mut groups {
            run.turn(world, cut, &mut cluster, &mut random, &mut ended)?;
        }
        if groups.iter().all(|run| run.done) {
            controls.check_end(world, &mut cluster)?;
            return Ok(ended);
        }
        match cluster.step() {
            Ok(()) => {}
            // Where a host is cut off somebody has to.
            Err(ClusterError::Member { .. }) if cut => {}
            Err(other) => return Err(other.to_string()),
        }
        controls.check(world, &mut cluster)?;
    }
    Err("liveness: it did not end".into())
}

impl<'w> Run<'w> {
    fn new(world: &'w GroupWorld, number: usize) -> Run<'w> {
        Run {
            world,
            number,
            round: 0,
            measured: 0,
            call: world.calls[0],
            inputs: Vec::new(),
            starts: vec![None; world.hosts.len()],
            began: Time(0),
            tick: Time(0),
            budgets: Budgets::new(world),
            done: false,
        }
    }

    fn is_warm_up(&self) -> bool {
        self.round < self.world.warm_ups()
    }

    /// The next collective: its inputs, and when each rank comes to it.
    fn next(&mut self, cluster: &mut Cluster<'_>, random: &mut Random) {
        let calls = &self.world.calls;
        self.call =
            if self.is_warm_up() { calls[self.round] } else { calls[random.below(calls.len() as u64) as usize] };
        let len = self.call.bytes as usize;
        self.began = cluster.network().now();
        self.inputs.clear();
        for rank in 0..self.starts.len() {
            let mut bytes = vec![0; len];
            element::fill(self.call.element, &mut bytes, || random.below(7) as i8 - 3);
            if let Some(buffer) = cluster.endpoint(self.number, rank).buffer() {
                buffer.write_at(0, &bytes);
            }
            self.inputs.push(bytes);
            let late = if random.chance(0.3) { random.below(200_000) } else { 0 };
            let at = self.began.after(Duration::from_nanos(late));
            self.starts[rank] = Some(at);
            cluster.network().wake_at(at, self.world.hosts[rank]);
        }
    }

    /// Whatever the group does now.
    fn turn(
        &mut self,
        world: &World,
        cut: bool,
        cluster: &mut Cluster<'_>,
        random: &mut Random,
        ended: &mut Ended,
    ) -> Result<(), String> {
        if self.done {
            return Ok(());
        }
        let now = cluster.network().now();
        for rank in 0..self.starts.len() {
            if self.starts[rank].is_some_and(|at| at <= now) {
                self.starts[rank] = None;
                match cluster.start(self.number, rank, &self.call, self.is_warm_up()) {
                    Err(ClusterError::Member { .. }) if cut => {}
                    other => other.map_err(text)?,
                }
            }
        }
        if self.starts.iter().any(Option::is_some) {
            return Ok(());
        }
        let ranks = self.starts.len();
        let gave_up = (0..ranks).filter(|rank| cluster.given_up(self.number, *rank).is_some()).count();
        if gave_up > 0 {
            return self.wait_for_the_last(world, gave_up, cluster, ended);
        }
        if !cluster.is_over(self.number) {
            return Ok(());
        }
        let outcomes: Vec<Outcome> =
            cluster.take_outcomes(self.number).into_iter().map(|(outcome, _)| outcome).collect();
        self.check(world, cluster, &outcomes, ended)?;
        self.round += 1;
        self.done = self.round >= self.world.rounds;
        if !self.done {
            self.next(cluster, random);
        }
        Ok(())
    }

    /// A host was cut off: nobody waits for ever, and whoever is not through says why in a line.
    fn wait_for_the_last(
        &mut self,
        world: &World,
        gave_up: usize,
        cluster: &mut Cluster<'_>,
        ended: &mut Ended,
    ) -> Result<(), String> {
        let ranks = self.starts.len();
        for rank in 0..ranks {
            if let Some((why, _)) = cluster.given_up(self.number, rank) {
                let line = why.to_string();
                if !line.contains("rank") || line.contains('\n') {
                    return Err(format!("rank {rank} says neither who nor what: {line}"));
                }
            }
        }
        let late = cluster.network().now() > self.began.after(world.longest_wait());
        let running = (0..ranks)
            .filter(|rank| cluster.given_up(self.number, *rank).is_none() && !cluster.has_outcome(self.number, *rank));
        let running: Vec<usize> = running.collect();
        if late && !running.is_empty() {
            return Err(format!("ranks {running:?} still wait for one that is gone"));
        }
        if running.is_empty() {
            (self.done, ended.gave_up) = (true, ended.gave_up + gave_up as u64);
        } else {
            let now = cluster.network().now();
            if now < self.tick {
                return Ok(());
            }
            let tick = now.after(TICK);
            self.tick = tick;
            cluster.network().wake_at(tick, self.world.hosts[running[0]]);
        }
        Ok(())
    }

    /// A collective is over at all ranks.
    fn check(
        &mut self,
        world: &World,
        cluster: &mut Cluster<'_>,
        outcomes: &[Outcome],
        ended: &mut Ended,
    ) -> Result<(), String> {
        let (call, bounded) = (self.call, is_bounded(self.world.transport) && !self.is_warm_up());
        let what = || format!("group {}, round {}, {call}", self.number, self.round);
        let mut log = LossLog::default();
        outcomes.iter().flat_map(|outcome| &outcome.losses).for_each(|loss| log.add(loss.clone()));
        let missing: u64 = outcomes.iter().map(|outcome| outcome.expected - outcome.received).sum();
        if missing != log.bytes() {
            return Err(format!("{}: {missing} bytes are missing, ranges say {}", what(), log.bytes()));
        }
        if !log.is_empty() && !bounded {
            return Err(format!("{}: bytes are missing over a reliable transport", what()));
        }
        if !log.is_empty() && world.is_calm() && self.world.is_ample() {
            return Err(format!("{}: nothing was lost and time was ample, and bytes are missing", what()));
        }
        let results = carried_out(&call, &self.inputs, &log, self.measured).ok_or("a plan does not come to its end")?;
        for rank in 0..outcomes.len() {
            let mut got = vec![0; call.bytes as usize];
            if let Some(buffer) = cluster.endpoint(self.number, rank).buffer() {
                buffer.read_at(0, &mut got);
            }
            if got != results[rank] {
                return Err(format!("{}: rank {rank} has not what came", what()));
            }
            let range = call.result(outcomes.len(), rank);
            let range = range.start as usize..range.end as usize;
            if log.is_empty() && got[range.clone()] != plain(&call, &self.inputs, rank)[range] {
                return Err(format!("{}: rank {rank} has another result than the plain one", what()));
            }
            let notes = cluster.take_notes(self.number, rank);
            let budget = outcomes[rank].budget;
            check_deadlines(&call, rank, outcomes.len(), bounded, budget, &notes, world.slack())
                .map_err(|why| format!("{}: rank {rank}: {why}", what()))?;
        }
        ended.budgets +=
            self.budgets.check(&call, self.is_warm_up(), outcomes).map_err(|why| format!("{}: {why}", what()))?;
        self.measured += u64::from(!self.is_warm_up());
        ended.completed += 1;
        ended.partial += u64::from(!log.is_empty());
        ended.bytes += outcomes.iter().map(|outcome| outcome.received).sum::<u64>();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worlds_of_collectives_keep_their_promises() {
        let mut all = Ended::default();
        let (seeds, enough) = crate::seeds(200);
        for seed in seeds {
            let one = run_seed(seed).unwrap_or_else(|what| panic!("{what}"));
            all.completed += one.completed;
            all.partial += one.partial;
            all.bytes += one.bytes;
            all.budgets += one.budgets;
            all.gave_up += one.gave_up;
            all.swift += one.swift;
            all.eqds += one.eqds;
        }
        if !enough {
            return;
        }
        assert!(all.completed > 800 && all.partial > 50 && all.bytes > 10_000_000 && all.budgets > 150, "{all:?}");
        assert!(all.gave_up > 30 && all.swift > 20 && all.eqds > 10, "{all:?}");
    }
}
