//! `shift-training`: the progress of a training job whose NIC fails, in the paper's five settings (figure 8).

use std::time::Duration;

use softnic_sim::Outage;
use softnic_sim::training::{Trained, Training, TrainingBackup, train};

use super::super::Setting;
use super::super::outcome::{Beside, Bound, Figures, Goal, Outcome, Table, shown};
use super::over_rc_alone;
use super::paper::{self, EPOCHS};
use crate::chart::{Axis, Chart, Kind, Panel, Point as Dot, Scale, Series};

/// What a step of a second has of communication: 124 million gradients of four bytes, three quarters of which go each way twice between two
/// servers of two GPUs each, at 100 Gbit/s.
const COMMUNICATION: f64 = 2.0 * 0.75 * 124e6 * 32.0 / 100e9;
const RATE: u64 = 1_000_000_000;
const CHUNK: u32 = 4096;
/// How much shorter everything is than in the paper, and in a quick run.
const SCALE: f64 = 100.0;
const QUICK_SCALE: f64 = 1000.0;

/// The paper's settings, by its numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    NoFailure,
    Restart,
    BusyBackup,
    IdleBackup,
    Flapping,
}

impl Case {
    const ALL: [Case; 5] = [Case::NoFailure, Case::Restart, Case::BusyBackup, Case::IdleBackup, Case::Flapping];

    fn name(self) -> &'static str {
        match self {
            Case::NoFailure => "(1) no failure",
            Case::Restart => "(2) checkpoint, restart",
            Case::BusyBackup => "(3) busy backup",
            Case::IdleBackup => "(4) idle backup",
            Case::Flapping => "(5) flapping, busy backup",
        }
    }
}

/// Steps over time, in seconds of the paper: a job, and the one that goes on after it, where there is one.
#[derive(Debug, Clone, Default)]
struct Course {
    /// When steps were done, and how many epochs that is.
    progress: Vec<(f64, f64)>,
    /// How long it all took.
    total_s: f64,
    /// How long nobody trained, between two jobs.
    rescheduling_s: f64,
    /// What was done once more.
    again_s: f64,
    /// The longest time between the ends of two steps of a job, beyond that of a usual one.
    longest_pause_s: f64,
    failovers: u64,
    failbacks: u64,
}

/// The sizes of a run: a step is a second of the paper's.
#[derive(Debug, Clone, Copy)]
struct Job {
    scale: f64,
    seed: u64,
}

impl Job {
    /// Steps of an epoch.
    fn epoch(self) -> u64 {
        let seconds = paper::FAILS_AT_S / paper::FAILS_AT_EPOCH;
        // A quick run has fewer and longer ones.
        (seconds * SCALE / self.scale).round() as u64
    }

    /// Seconds of the paper that a step takes.
    fn step_s(self) -> f64 {
        paper::FAILS_AT_S / paper::FAILS_AT_EPOCH / self.epoch() as f64
    }

    fn scaled(self, seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds / self.scale)
    }

    fn unscaled(self, time: Duration) -> f64 {
        time.as_secs_f64() * self.scale
    }

    fn training(self, steps: u64, backup: TrainingBackup, outage: Option<Outage>) -> Training {
        let step = self.scaled(self.step_s());
        let bytes = step.as_secs_f64() * COMMUNICATION * RATE as f64 / 8.0;
        let gradients = ((bytes / f64::from(2 * CHUNK)).round() as u32).max(1) * 2 * CHUNK;
        // A local ACK timeout of 2^18, as NCCL has it, is a second.
        let timeout = (18.0 - self.scale.log2()).round() as u8;
        Training {
            steps,
            compute: step.mul_f64(1.0 - COMMUNICATION),
            gradients,
            chunk: CHUNK,
            rate: RATE,
            rtt: Duration::from_micros(10),
            timeout,
            backup,
            probe: self.scaled(0.1),
            outage,
            seed: self.seed,
        }
    }

    fn train(self, steps: u64, backup: TrainingBackup, lasts: Option<f64>) -> Result<Trained, String> {
        let outage =
            lasts.map(|lasts| Outage { host: 0, from: self.scaled(paper::FAILS_AT_S), lasts: self.scaled(lasts) });
        let trained = train(&self.training(steps, backup, outage)).map_err(|e| e.to_string())?;
        match trained.wrong {
            0 => Ok(trained),
            wrong => Err(format!("{wrong} chunks of gradients were not what the peer had sent")),
        }
    }

    /// Adds a job that begins at a time, with so many steps done.
    fn add(self, course: &mut Course, trained: &Trained, begin_s: f64, done: u64) {
        course.progress.push((begin_s, done as f64 / self.epoch() as f64));
        let mut last = 0.0;
        for (i, &at) in trained.steps.iter().enumerate() {
            let at = self.unscaled(at);
            course.longest_pause_s = course.longest_pause_s.max(at - last);
            course.progress.push((begin_s + at, (done + i as u64 + 1) as f64 / self.epoch() as f64));
            last = at;
        }
        course.total_s = begin_s + last;
        if let Some(failover) = &trained.failover {
            course.failovers += failover.failovers;
            course.failbacks += failover.failbacks;
        }
    }

    /// The rest of a job whose NIC works, after the time that it takes to be scheduled.
    fn go_on(self, course: &mut Course, ended_s: f64, rescheduling_s: f64, done: u64) -> Result<(), String> {
        let rest = self.train(EPOCHS * self.epoch() - done, TrainingBackup::None, None)?;
        course.rescheduling_s = rescheduling_s;
        self.add(course, &rest, ended_s + rescheduling_s, done);
        Ok(())
    }

    fn course(self, case: Case) -> Result<Course, String> {
        const FOR_EVER: f64 = 1e6;
        let (all, epoch) = (EPOCHS * self.epoch(), self.epoch());
        let mut course = Course::default();
        match case {
            Case::NoFailure => self.add(&mut course, &self.train(all, TrainingBackup::None, None)?, 0.0, 0),
            Case::Restart => {
                let first = self.train(all, TrainingBackup::None, Some(FOR_EVER))?;
                let failed = first.failed.ok_or("a job without a backup went on although its NIC failed")?;
                self.add(&mut course, &first, 0.0, 0);
                let done = first.steps.len() as u64;
                let kept = done / epoch * epoch;
                let checkpoint = kept.checked_sub(1).map_or(Duration::ZERO, |last| first.steps[last as usize]);
                let failed = self.unscaled(failed);
                // From the checkpoint on: what was computed when the error came counts as well.
                course.again_s = failed - self.unscaled(checkpoint);
                self.go_on(&mut course, failed, paper::RESCHEDULED_AFTER_ERROR_S, kept)?;
            }
            Case::BusyBackup => {
                // Until the next checkpoint, then on hosts whose NICs work.
                let steps = (paper::FAILS_AT_EPOCH.ceil() as u64) * epoch;
                let first = unfailed(self.train(steps, TrainingBackup::Busy, Some(FOR_EVER))?)?;
                self.add(&mut course, &first, 0.0, 0);
                let ended = course.total_s;
                self.go_on(&mut course, ended, paper::RESCHEDULED_S, steps)?;
            }
            Case::IdleBackup => {
                let trained = unfailed(self.train(all, TrainingBackup::Idle, Some(FOR_EVER))?)?;
                self.add(&mut course, &trained, 0.0, 0);
            }
            Case::Flapping => {
                let trained = unfailed(self.train(all, TrainingBackup::Busy, Some(paper::FLAP_S))?)?;
                self.add(&mut course, &trained, 0.0, 0);
            }
        }
        Ok(course)
    }
}

fn unfailed(trained: Trained) -> Result<Trained, String> {
    match trained.failed {
        None => Ok(trained),
        Some(at) => Err(format!("a job with a backup failed after {at:?}")),
    }
}

type Courses = Vec<(Case, Course)>;

fn of(courses: &Courses, case: Case) -> Option<&Course> {
    courses.iter().find(|(other, _)| *other == case).map(|(_, course)| course)
}

/// How much longer than without a failure.
fn lost(courses: &Courses, case: Case) -> Option<f64> {
    Some(of(courses, case)?.total_s - of(courses, Case::NoFailure)?.total_s)
}

/// What is lost beside the time of scheduling, and what is done again: by the network.
fn network(courses: &Courses, case: Case) -> Option<f64> {
    let course = of(courses, case)?;
    Some(lost(courses, case)? - course.rescheduling_s - course.again_s)
}

pub(in super::super) fn run(setting: &Setting) -> Result<Outcome, String> {
    over_rc_alone(setting)?;
    let job = Job { scale: if setting.quick { QUICK_SCALE } else { SCALE }, seed: setting.first_seed };
    let results = setting.each(Case::ALL.into(), move |&case: &Case| job.course(case))?;
    let courses: Courses =
        Case::ALL.into_iter().zip(results).filter_map(|(case, course)| Some((case, course?))).collect();
    Ok(Outcome {
        what: format!(
            "Data-parallel training on two hosts, four epochs of {} steps with a checkpoint after each: a step computes, and then reduces {} KiB of gradients by a ring, as WRITEs and a WRITE with immediate. The NIC of a host fails at 2000 s. Times are the paper's: the virtual ones are {} times as short, with links of 1 Gbit/s, and so are timeouts and probes. Communication takes {:.1} % of a step.",
            job.epoch(),
            job.training(1, TrainingBackup::None, None).gradients / 1024,
            job.scale,
            COMMUNICATION * 100.0
        ),
        tables: vec![table(&courses)],
        figures: figures(&courses),
        chart: chart(&courses),
        goals: goals(&courses),
        beside: vec![
            Beside { stated: paper::DONE_AGAIN, ours: of(&courses, Case::Restart).map(|course| course.again_s) },
            Beside { stated: paper::NOTHING_DONE_AGAIN, ours: of(&courses, Case::BusyBackup).map(|course| course.again_s) },
        ],
        notes: [
            "63 and 37 seconds to schedule a job anew are the paper's, taken as they are: nothing of it is the network's. What is measured is what is done again, and what the network adds.",
            "Other traffic on the backup sends WRITEs of 64 KiB, 8 at a time, from the host whose NIC fails, all the time. Its share of the link is what RC without congestion control gives it.",
            "How long a step takes is not stated: it is a second here, of which the gradients of GPT-2 with 124 million parameters take the part that they would at 100 Gbit/s. No GPU, no NCCL: what the job does between two all-reduces is to wait.",
            "Each chunk of each all-reduce is compared with what the peer sent.",
        ]
        .map(String::from)
        .into(),
        runs: courses.len(),
        of: Case::ALL.len(),
        ..Outcome::default()
    })
}

fn table(courses: &Courses) -> Table {
    let row = |(case, course): &(Case, Course)| {
        vec![
            case.name().into(),
            shown(Some(course.total_s), 1),
            shown(lost(courses, *case), 2),
            shown(Some(course.rescheduling_s), 0),
            shown(Some(course.again_s), 1),
            shown(network(courses, *case), 2),
            shown(Some(course.longest_pause_s), 2),
            course.failovers.to_string(),
            course.failbacks.to_string(),
        ]
    };
    let columns = [
        "setting",
        "whole, s",
        "lost, s",
        "scheduling (given)",
        "done again",
        "network",
        "longest step",
        "failovers",
        "failbacks",
    ];
    Table {
        title: "Four epochs, in seconds of the paper".into(),
        columns: columns.map(String::from).into(),
        rows: courses.iter().map(row).collect(),
    }
}

fn figures(courses: &Courses) -> Figures {
    let rows = |(case, course): &(Case, Course)| {
        let row = |&(at, epochs): &(f64, f64)| vec![case.name().into(), at.into(), epochs.into()];
        course.progress.iter().map(row).collect::<Vec<_>>()
    };
    Figures { columns: vec!["setting", "time_s", "epochs"], rows: courses.iter().flat_map(rows).collect() }
}

/// As the paper has it: each of the last three beside the first two.
fn chart(courses: &Courses) -> Chart {
    let series = |(hue, case): (usize, Case)| {
        let progress = of(courses, case).map_or(&[][..], |course| &course.progress);
        // Few of thousands, and all where the line bends.
        let every = (progress.len() / 60).max(1);
        let bends = |i: usize| {
            i > 0
                && (progress[i].1 <= progress[i - 1].1
                    || progress[i].0 - progress[i - 1].0 > 10.0 * (progress[1].0 - progress[0].0))
        };
        let kept = progress.iter().enumerate();
        let kept = kept.filter(|&(i, _)| {
            i % every == 0 || i + 1 == progress.len() || bends(i) || (i + 1 < progress.len() && bends(i + 1))
        });
        let points = kept.map(|(_, &(x, y))| Dot::exact(x, y)).collect();
        Series::new(case.name(), Kind::Theory, hue, points)
    };
    let panel = |case: Case| Panel {
        title: case.name().into(),
        x: Axis::new("Time (s)", Scale::Linear),
        y: Axis::new("Epochs", Scale::Linear),
        series: [Case::NoFailure, Case::Restart, case].into_iter().enumerate().map(series).collect(),
    };
    Chart {
        panels: [Case::BusyBackup, Case::IdleBackup, Case::Flapping].map(panel).into(),
        caption: "A checkpoint after each epoch. A NIC fails at 2000 s, for ever, or for 2 s.".into(),
    }
}

fn goals(courses: &Courses) -> Vec<Goal> {
    let goal = |what: &str, most: f64, measured| Goal { what: what.into(), bound: Bound::AtMost(most), measured };
    let plain = of(courses, Case::NoFailure).map(|course| course.total_s);
    let part = |case| Some(network(courses, case)? / plain?);
    vec![
        goal("(3) done again, s", 0.0, of(courses, Case::BusyBackup).map(|course| course.again_s)),
        goal("(4) lost, of the whole time", 0.01, part(Case::IdleBackup)),
        goal("(5) lost, of the whole time", 0.01, part(Case::Flapping)),
        Goal {
            what: "(2) lost over (3) lost".into(),
            bound: Bound::AtLeast(10.0),
            measured: lost(courses, Case::Restart).and_then(|restart| Some(restart / lost(courses, Case::BusyBackup)?)),
        },
    ]
}
