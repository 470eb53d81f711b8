//! `optinic-timeout`: budgets that follow what was needed (§3.1.2), and what they cost in bytes (§5.3.1).

mod drawing;

use std::time::Duration;

use softnic_collectives::call::{Algorithm, Operation};
use softnic_collectives::member::MemberSettings;
use softnic_collectives::timeouts::{Observation, TimeoutSettings, Timeouts};
use softnic_sim::Transport;
use softnic_sim::topology::{Background, Pattern, Place, Topology};

use super::super::Setting;
use super::super::outcome::{Beside, Bound, Goal, Outcome, Table, percent, shown};
use super::super::stats::ratio;
use super::grid::Sum;
use super::network::{Net, Shape};
use super::runner::{self, Case, Ran, Timeout};
use super::{of_all_transports, paper};
use drawing::{chart, figures};

const MARGINS: [f64; 5] = [0.0, 0.1, 0.25, 0.5, 1.0];
/// Fixed budgets, as parts of the loss-free mean.
const PARTS: [f64; 9] = [0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.3];
const SHORT: u64 = 2_000_000;
const LONG: u64 = 20_000_000;
/// Loads of the step: of each line, before and after.
const LOAD: f64 = 0.2;
/// How far T may be from its final value, and how soon it has to stay there.
const SETTLED: f64 = 0.05;
const SLOW_RANK: usize = 3;

/// What is run.
#[derive(Debug, Clone, Copy, PartialEq)]
enum What {
    /// The load doubles in the middle; margin.
    Step(f64),
    /// The link of one rank has 10 Gbit/s.
    SlowRank,
    /// A margin under bursts, with loss.
    Margin(f64, f64),
    /// No loss, the usual margin: what is needed.
    Needed,
    /// `rc` with its best timeout, for the paper's ratio.
    Rc,
    /// A fixed budget.
    Fixed(f64, Duration),
}

impl What {
    fn name(self) -> &'static str {
        match self {
            What::Step(_) => "step",
            What::SlowRank => "slow rank",
            What::Margin(..) => "margin",
            What::Needed => "needed",
            What::Rc => "rc",
            What::Fixed(..) => "fixed",
        }
    }
}

struct Plan {
    quick: bool,
}

impl Plan {
    fn collectives(&self, what: What) -> u64 {
        match (what, self.quick) {
            (What::Step(_), true) => 60,
            (What::Step(_), false) => 160,
            (What::SlowRank, _) => 40,
            (What::Margin(..), true) => 10,
            (What::Margin(..), false) => 100,
            (_, true) => 2,
            (_, false) => 10,
        }
    }

    /// When the load doubles.
    fn step(&self) -> Duration {
        Duration::from_millis(if self.quick { 45 } else { 120 })
    }

    fn case(&self, what: What) -> Result<(Topology, Case), String> {
        let (background, loss) = match what {
            What::Step(_) | What::SlowRank => (0.0, 0.0),
            What::Margin(_, loss) => (0.5, loss),
            What::Needed => (0.5, 0.0),
            What::Fixed(..) | What::Rc => (0.5, 1e-3),
        };
        let net = Net { shape: Shape::Star, hosts: 8, background, loss, queue: 4 << 20 };
        let mut topology = net.topology()?;
        let margin = match what {
            What::Step(margin) | What::Margin(margin, _) => margin,
            _ => TimeoutSettings::default().margin,
        };
        if matches!(what, What::Step(_) | What::SlowRank) {
            // Even traffic, so that what is seen is the rule and not the load.
            topology.background.push(even(Duration::ZERO));
        }
        if let What::Step(_) = what {
            topology.background.push(even(self.step()));
        }
        if what == What::SlowRank {
            let link = topology.links.iter_mut().find(|link| link.a == Place::Host(SLOW_RANK));
            link.ok_or("a host has a link")?.rate = 10_000_000_000;
        }
        let fixed = if let What::Fixed(_, budget) = what { Some(budget) } else { None };
        let short = matches!(what, What::Step(_) | What::SlowRank | What::Margin(..));
        let transport = if what == What::Rc { "rc" } else { "xp:tail=2" };
        Ok((
            topology,
            Case {
                net,
                operation: Operation::AllReduce,
                algorithm: Algorithm::Ring,
                bytes: if short { SHORT } else { LONG },
                transport: transport.parse::<Transport>().map_err(|e| e.to_string())?,
                timeout: if what == What::Rc { Timeout::Code(10) } else { Timeout::Least },
                cc: "window",
                member: MemberSettings {
                    fixed,
                    timeouts: TimeoutSettings { margin, ..TimeoutSettings::default() },
                    ..MemberSettings::default()
                },
                collectives: self.collectives(what),
                most: Duration::from_secs(1000),
            },
        ))
    }
}

/// Messages of 16 KiB between all hosts.
fn even(start: Duration) -> Background {
    let hosts: Vec<usize> = (0..8).collect();
    Background {
        from: hosts.clone(),
        to: hosts,
        pattern: Pattern::Poisson { sizes: vec![(16 << 10, 1.0)] },
        share: LOAD,
        transport: Transport::Uc,
        cc: softnic_sim::Cc::None,
        dscp: 0,
        start,
        stop: None,
    }
}

type Runs = Vec<(What, Vec<(u64, Ran)>)>;

/// Makes all of these, each with all seeds; how many there were to be.
fn each(setting: &Setting, whats: &[What]) -> Result<(Runs, usize), String> {
    let seeds = setting.seeds();
    let jobs: Vec<(What, u64)> = whats.iter().flat_map(|&what| seeds.iter().map(move |&seed| (what, seed))).collect();
    let plan = Plan { quick: setting.quick };
    let results = setting.each(jobs.clone(), move |&(what, seed)| {
        let (topology, case) = plan.case(what)?;
        runner::run_on(&topology, &case, seed)
    })?;
    let mut runs: Runs = whats.iter().map(|&what| (what, Vec::new())).collect();
    for ((what, seed), run) in jobs.iter().zip(results) {
        if let (Some((_, of)), Some(run)) = (runs.iter_mut().find(|(w, _)| w == what), run) {
            of.push((*seed, run));
        }
    }
    Ok((runs, jobs.len()))
}

pub(in super::super) fn run(setting: &Setting) -> Result<Outcome, String> {
    of_all_transports(setting)?;
    let losses: &[f64] = if setting.quick { &[1e-3] } else { &[0.0, 1e-3] };
    let mut whats = vec![What::Needed, What::Rc, What::SlowRank, What::Step(0.0), What::Step(0.5)];
    whats.extend(losses.iter().flat_map(|&loss| MARGINS.map(|margin| What::Margin(margin, loss))));
    let (mut runs, of_first) = each(setting, &whats)?;
    let needed = sum(&runs, |what| what == What::Needed).map(|sum| sum.mean);
    let parts: &[f64] = if setting.quick { &PARTS[2..6] } else { &PARTS };
    let fixed = |mean: f64| {
        let budget = move |&part: &f64| What::Fixed(part, Duration::from_secs_f64(mean * part / 1e3));
        parts.iter().map(budget).collect::<Vec<_>>()
    };
    let (more, of_more) = match needed {
        Some(mean) => each(setting, &fixed(mean))?,
        None => (Vec::new(), parts.len()),
    };
    runs.extend(more);
    let plan = Plan { quick: setting.quick };
    let steps: Vec<(f64, Vec<Settling>)> = [0.0, 0.5]
        .into_iter()
        .map(|margin| {
            (margin, of_what(&runs, What::Step(margin)).iter().map(|(_, run)| settling(run, plan.step())).collect())
        })
        .collect();
    let lies = lies(&runs)?;
    Ok(Outcome {
        what: format!(
            "Ring AllReduces of 8 ranks on one switch at 25 Gbit/s over xp:tail=2, --cc window. Steps of load and the slow rank: 2 MB beside messages of 16 KiB on 20 % of each line, on 40 % later. Margins: 2 MB beside bursts on half of each line. Fixed budgets: 20 MB, the same, 0.1 % loss. {}.",
            setting.means()
        ),
        tables: vec![step_table(&steps), lie_table(&lies), margin_table(&runs), fixed_table(&runs, needed)],
        figures: figures(&runs),
        chart: chart(&runs, needed),
        goals: goals(&runs, &steps, &lies, needed),
        beside: beside(&runs),
        notes: notes(&runs, needed),
        runs: runs.iter().map(|(_, of)| of.len()).sum(),
        of: of_first + of_more,
        ..Outcome::default()
    })
}

fn of_what(runs: &Runs, what: What) -> &[(u64, Ran)] {
    runs.iter().find(|(w, _)| *w == what).map_or(&[], |(_, of)| of)
}

fn sum(runs: &Runs, is: impl Fn(What) -> bool) -> Option<Sum> {
    let (_, of) = runs.iter().find(|(what, _)| is(*what))?;
    Sum::of(of.iter().map(|(_, run)| run))
}

/// How soon T stays within 5 % of its final value.
#[derive(Debug, Clone, Copy, Default)]
struct Settling {
    /// Collectives from the first one on, and from the step on.
    at_first: usize,
    after_step: usize,
    /// T over the mean time of the last ten, before the step and at the end.
    over_mean: [f64; 2],
}

fn settling(run: &Ran, step: Duration) -> Settling {
    let ms = step.as_secs_f64() * 1e3;
    // Times of the run count from behind the warm-up, which takes a little of the time until the step.
    let before = run.began.iter().position(|&began| began + run.warm_up.unwrap_or(0.0) * 1.2 >= ms);
    let before = before.unwrap_or(run.budgets.len());
    let of = |budgets: &[f64], times: &[f64]| {
        let last = |all: &[f64]| {
            let last = &all[all.len().saturating_sub(10)..];
            last.iter().sum::<f64>() / last.len().max(1) as f64
        };
        let end = last(budgets);
        let outside = budgets.iter().rposition(|budget| (budget / end - 1.0).abs() > SETTLED);
        (outside.map_or(0, |i| i + 1), end / last(times))
    };
    let (at_first, low) = of(&run.budgets[..before], &run.times[..before]);
    let (after_step, high) = of(&run.budgets[before..], &run.times[before..]);
    Settling { at_first, after_step, over_mean: [low, high] }
}

/// How far T moves where one rank's reports are this much off, by the margin.
type Lie = (f64, f64, Option<f64>);

/// The updates of a run again, with the reports of one rank multiplied by 10 and by 0.1. Where nothing is cut off, what ranks report does not
/// follow from T.
fn lies(runs: &Runs) -> Result<Vec<Lie>, String> {
    let mut all = Vec::new();
    for margin in [0.0, 0.5] {
        for factor in [10.0, 0.1] {
            let mut most: Option<f64> = None;
            for (_, run) in of_what(runs, What::Step(margin)) {
                let plain = replayed(run, margin, 1.0);
                if plain.iter().zip(&run.budgets).any(|(a, b)| (a / b - 1.0).abs() > 1e-6) {
                    return Err("budgets do not follow from the reports of the ranks".into());
                }
                let off = replayed(run, margin, factor);
                let moved = plain.iter().zip(off).map(|(a, b)| (b / a - 1.0).abs()).fold(0.0, f64::max);
                most = Some(most.unwrap_or(0.0).max(moved));
            }
            all.push((margin, factor, most));
        }
    }
    Ok(all)
}

/// T of each collective in ms, from what ranks knew; that of one rank is multiplied.
fn replayed(run: &Ran, margin: f64, factor: f64) -> Vec<f64> {
    let case = match (Plan { quick: false }).case(What::Step(margin)) {
        Ok((_, case)) => case,
        Err(_) => return Vec::new(),
    };
    let (call, settings) = (case.call(), case.member.timeouts);
    let mut ranks: Vec<Timeouts> = run.warm_ups.iter().map(|_| Timeouts::new(settings)).collect();
    let off = |rank: usize, time: Duration| if rank == SLOW_RANK { time.mul_f64(factor) } else { time };
    for (rank, (timeouts, took)) in ranks.iter_mut().zip(&run.warm_ups).enumerate() {
        timeouts.warm_up(&call, off(rank, *took));
    }
    let mut budgets = Vec::new();
    for outcomes in &run.outcomes {
        let proposals: Vec<u64> =
            ranks.iter().zip(outcomes).filter_map(|(timeouts, o)| timeouts.proposal(&call, o.expected)).collect();
        // All ranks come to the same budget.
        let next = ranks.iter_mut().map(|timeouts| timeouts.next(&call, &mut proposals.clone())).collect::<Vec<_>>();
        budgets.extend(next[0].map(|budget| budget.timeout.as_secs_f64() * 1e3));
        for (rank, (timeouts, o)) in ranks.iter_mut().zip(outcomes).enumerate() {
            let observation = Observation { elapsed: off(rank, o.elapsed), received: o.received, expected: o.expected };
            timeouts.observe(&call, observation);
        }
    }
    budgets
}

fn step_table(steps: &[(f64, Vec<Settling>)]) -> Table {
    let row = |(margin, of): &(f64, Vec<Settling>)| {
        let most = |part: fn(&Settling) -> usize| of.iter().map(part).max().map_or("–".into(), |n| n.to_string());
        let mean = |i: usize| {
            let mean = of.iter().map(|s| s.over_mean[i]).sum::<f64>() / of.len().max(1) as f64;
            shown((!of.is_empty()).then_some(mean), 3)
        };
        vec![margin.to_string(), most(|s| s.at_first), mean(0), most(|s| s.after_step), mean(1)]
    };
    Table {
        title: "Collectives until T stays within 5 % of its final value, most of all seeds".into(),
        columns: ["margin", "from the warm-up on", "T / mean time", "after the load doubles", "T / mean time"]
            .map(String::from)
            .into(),
        rows: steps.iter().map(row).collect(),
    }
}

fn lie_table(lies: &[Lie]) -> Table {
    let row = |(margin, factor, moved): &Lie| {
        vec![format!("× {factor}"), margin.to_string(), shown(moved.map(|m| m * 100.0), 2)]
    };
    Table {
        title: "One of eight ranks reports another time than it needed: how far T moves at most, %".into(),
        columns: ["reports", "margin", "%"].map(String::from).into(),
        rows: lies.iter().map(row).collect(),
    }
}

fn margin_table(runs: &Runs) -> Table {
    let rows = runs.iter().filter_map(|(what, of)| {
        let What::Margin(margin, loss) = *what else { return None };
        let sum = Sum::of(of.iter().map(|(_, run)| run))?;
        let last = of.iter().filter_map(|(_, run)| run.budgets.last()).sum::<f64>() / of.len() as f64;
        Some(vec![
            percent(loss),
            margin.to_string(),
            format!("{:.3} ±{:.3}", sum.mean, sum.deviation),
            format!("{:.3}", sum.p99),
            format!("{last:.3}"),
            format!("{:.3}", sum.missing * 100.0),
        ])
    });
    Table {
        title: "The rule of the paper (margin 0), and margins: AllReduce of 2 MB beside bursts on half of each line"
            .into(),
        columns: ["loss", "margin", "mean ±σ, ms", "p99", "T at the end", "missing %"].map(String::from).into(),
        rows: rows.collect(),
    }
}

/// Fixed budgets: the part of what is needed, mean time and what is missing.
fn fixed(runs: &Runs) -> Vec<(f64, Duration, Sum)> {
    let of = |(what, of): &(What, Vec<(u64, Ran)>)| match *what {
        What::Fixed(part, budget) => Some((part, budget, Sum::of(of.iter().map(|(_, run)| run))?)),
        _ => None,
    };
    runs.iter().filter_map(of).collect()
}

/// The mean time at which 4.5 % are missing, between the two fixed budgets around it.
fn aggressive(runs: &Runs) -> Option<f64> {
    let all = fixed(runs);
    let pair = all.windows(2).find(|pair| pair[0].2.missing >= 0.045 && pair[1].2.missing < 0.045)?;
    let [(_, _, more), (_, _, less)] = pair else { return None };
    let along = (more.missing - 0.045) / (more.missing - less.missing);
    Some(more.mean + along * (less.mean - more.mean))
}

fn fixed_table(runs: &Runs, needed: Option<f64>) -> Table {
    let rows = fixed(runs).into_iter().map(|(part, budget, sum)| {
        vec![
            part.to_string(),
            format!("{:.2}", budget.as_secs_f64() * 1e3),
            format!("{:.2} ±{:.2}", sum.mean, sum.deviation),
            format!("{:.2}", sum.p99),
            shown(needed.map(|needed| sum.mean / needed), 3),
            format!("{:.3}", sum.missing * 100.0),
        ]
    });
    Table {
        title: "Fixed budgets, AllReduce of 20 MB beside bursts on half of each line, 0.1 % loss".into(),
        columns: ["part of the loss-free mean", "budget, ms", "mean ±σ, ms", "p99", "/ loss-free", "missing %"]
            .map(String::from)
            .into(),
        rows: rows.collect(),
    }
}

fn goals(runs: &Runs, steps: &[(f64, Vec<Settling>)], lies: &[Lie], needed: Option<f64>) -> Vec<Goal> {
    let mut goals = Vec::new();
    let mut goal = |what: String, bound, measured| goals.push(Goal { what, bound, measured });
    for (margin, of) in steps {
        let most = |part: fn(&Settling) -> usize| of.iter().map(part).max().map(|n| n as f64);
        let settled = format!("margin {margin}: collectives until T stays within 5 %");
        goal(format!("{settled}, from the warm-up on"), Bound::AtMost(20.0), most(|s| s.at_first));
        goal(format!("{settled}, after the load doubles"), Bound::AtMost(30.0), most(|s| s.after_step));
    }
    for (margin, factor, moved) in lies {
        let what = format!("margin {margin}: T moved by one rank whose reports are off by × {factor}, %");
        goal(what, Bound::AtMost(10.0), moved.map(|moved| moved * 100.0));
    }
    let what = "mean with 4.5 % missing / loss-free mean".into();
    goal(what, Bound::AtMost(1.10), ratio(aggressive(runs), needed));
    goals
}

fn beside(runs: &Runs) -> Vec<Beside> {
    let rc = sum(runs, |what| what == What::Rc).map(|sum| sum.mean);
    vec![Beside { stated: paper::AGGRESSIVE, ours: ratio(rc, aggressive(runs)) }]
}

fn notes(runs: &Runs, needed: Option<f64>) -> Vec<String> {
    let mut notes = vec![
        "The rule of the paper pulls T to the median of what was needed: about half of the ranks are then cut off. The default margin is 0.5: with it nothing is cut off here nor in docs/collectives.md, where links stall; and a margin costs time only where bytes do not come.".to_string(),
        "Reports that are off: the updates of the runs of the step, made again with the reports of one rank changed. With the margin nothing is cut off in them, so no report depends on T; without it reports are as the T of the run cut them.".to_string(),
    ];
    if let (Some(time), Some(needed)) = (aggressive(runs), needed) {
        notes.push(format!("With 4.5 % of the bytes missing a collective takes {:.3} of the loss-free mean: the line is the bound, and 4.5 % less to wait for is not much.", time / needed));
    }
    if let Some((_, of)) = runs.iter().find(|(what, _)| *what == What::SlowRank)
        && let Some(sum) = Sum::of(of.iter().map(|(_, run)| run))
    {
        let last = of.iter().filter_map(|(_, run)| run.budgets.last()).sum::<f64>() / of.len() as f64;
        notes.push(format!("With one rank's link at 10 Gbit/s AllReduces of 2 MB take {:.3} ms and T is {:.2} of that; {:.4} % are missing: in a ring all ranks wait for the slow one, so all report its time.", sum.mean, last / sum.mean, sum.missing * 100.0));
    }
    notes
}
