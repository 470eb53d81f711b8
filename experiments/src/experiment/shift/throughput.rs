//! `shift-throughput`: bytes over time while a NIC or a switch port fails and comes back, with a backup and without (figure 5).

use std::time::Duration;

use softnic_sim::{Backup, Failover, Op, Options, run_timed};
use softnic_wire::PathMtu;

use super::super::Setting;
use super::super::outcome::{Bound, Figures, Goal, Outcome, Table, shown};
use super::super::stats::ratio;
use super::{Failure, OPS, transport};
use crate::chart::{Axis, Chart, Kind, Panel, Point as Dot, Scale, Series};

const FAILS: Duration = Duration::from_secs(5);
const LASTS: Duration = Duration::from_secs(5);
const WHOLE: Duration = Duration::from_secs(15);
/// The finer of the two intervals that are looked at; the other is a second.
const INTERVAL: Duration = Duration::from_millis(10);
const A_SECOND: usize = 100;
const SIZE: u32 = 16 << 10;

/// Seconds that are wholly before the failure, in fallback, and after the return.
const PARTS: [(&str, std::ops::Range<usize>); 3] = [("before", 1..5), ("in fallback", 6..10), ("after", 12..15)];

#[derive(Debug, Clone, Copy, PartialEq)]
struct Case {
    op: (Op, &'static str),
    failure: Failure,
    protected: bool,
}

impl Case {
    fn name(self) -> String {
        format!("{}, {}", self.op.1, if self.protected { "with backup" } else { "plain" })
    }
}

/// What a run came to.
#[derive(Debug, Clone)]
struct Ran {
    /// Work requests that completed in each interval.
    completed: Vec<u64>,
    /// When the first failed, in seconds: then the program ends.
    ended: Option<f64>,
    failover: Option<Failover>,
}

impl Ran {
    /// Gbit/s of payload in each second.
    fn seconds(&self) -> Vec<f64> {
        self.completed.chunks(A_SECOND).map(|second| gbps(second, WHOLE / 15)).collect()
    }

    /// Gbit/s of payload in a part of the run.
    fn in_part(&self, seconds: &std::ops::Range<usize>) -> f64 {
        let part = &self.completed[seconds.start * A_SECOND..seconds.end * A_SECOND];
        gbps(part, Duration::from_secs(seconds.len() as u64))
    }

    /// The intervals after the failure in which nothing completed, in ms.
    fn silent_ms(&self) -> f64 {
        let failed = FAILS.as_millis() as usize / INTERVAL.as_millis() as usize;
        let silent = self.completed[failed..].iter().filter(|&&n| n == 0).count();
        silent as f64 * INTERVAL.as_millis() as f64
    }
}

fn gbps(completed: &[u64], time: Duration) -> f64 {
    completed.iter().sum::<u64>() as f64 * f64::from(SIZE) * 8.0 / time.as_secs_f64() / 1e9
}

pub(in super::super) fn run(setting: &Setting) -> Result<Outcome, String> {
    let (transport, seed) = (transport(setting)?, setting.first_seed);
    let rate: u64 = if setting.quick { 100_000_000 } else { 1_000_000_000 };
    let one = move |case: &Case| {
        let plain = Options {
            transport,
            op: case.op.0,
            size: SIZE,
            // More than the line carries in that time, so that the run ends by time.
            count: rate / 8 * WHOLE.as_secs() / u64::from(SIZE) + 1,
            depth: 64,
            mtu: PathMtu::B4096,
            rate,
            rtt: Duration::from_micros(10),
            timeout: Some(14),
            retry: 7,
            backup: case.protected.then(Backup::default),
            seed,
            ..Options::default()
        };
        measure(&case.failure.added_to(plain, FAILS, LASTS)?)
    };
    let with = |protected| move |(op, failure)| Case { op, failure, protected };
    let points = || OPS.into_iter().flat_map(|op| Failure::ALL.map(|failure| (op, failure)));
    let cases: Vec<Case> = points().map(with(true)).chain(points().map(with(false))).collect();
    let results = setting.each(cases.clone(), one)?;
    let of = cases.len();
    let ran: Vec<(Case, Ran)> = cases.into_iter().zip(results).filter_map(|(case, ran)| Some((case, ran?))).collect();
    Ok(Outcome {
        what: format!(
            "Messages of 16 KiB over {transport}, 64 outstanding, MTU 4096, round trip 10 µs, ACK timeout 2^14 (67 ms) and 7 retries, as perftest has them. A failure at 5 s, over at 10 s; a probe every 100 ms. The line has {} Mbit/s, not the paper's 100 Gbit/s, so that a run takes seconds.",
            rate / 1_000_000
        ),
        tables: vec![table_of(&ran)],
        figures: figures(&ran),
        chart: Chart {
            panels: Failure::ALL.into_iter().map(|failure| panel(&ran, failure)).collect(),
            caption: format!(
                "Payload completed in each second, seed {seed} alone. The failure is from 5 s to 10 s. Each 10 ms is in the CSV."
            ),
        },
        goals: goals(&ran),
        notes: notes(&ran),
        runs: ran.len(),
        of,
        ..Outcome::default()
    })
}

fn measure(options: &Options) -> Result<Ran, String> {
    let mut completed = vec![0; WHOLE.as_millis() as usize / INTERVAL.as_millis() as usize];
    let (mut before, mut ended) = (0, None);
    let report = run_timed(options, &mut |at| {
        if let Some(interval) = completed.get_mut((at.now.as_nanos() / INTERVAL.as_nanos()) as usize) {
            *interval += at.completed - before;
            before = at.completed;
        }
        if at.failed > 0 {
            ended.get_or_insert(at.now.as_secs_f64());
        }
        at.now < WHOLE && ended.is_none()
    });
    let report = report.map_err(|e| e.to_string())?;
    if let (true, Some(status)) = (options.backup.is_some(), report.first_failure) {
        return Err(format!("a connection with a backup failed: {status}"));
    }
    Ok(Ran { completed, ended, failover: report.failover })
}

fn find(ran: &[(Case, Ran)], case: Case) -> Option<&Ran> {
    ran.iter().find(|(c, _)| *c == case).map(|(_, ran)| ran)
}

/// Of plain RC before the failure: what the line carries.
fn beside_plain(ran: &[(Case, Ran)], case: Case, part: &std::ops::Range<usize>) -> Option<f64> {
    let plain = find(ran, Case { protected: false, ..case }).map(|plain| plain.in_part(&PARTS[0].1));
    ratio(find(ran, case).map(|ran| ran.in_part(part)), plain)
}

fn table_of(ran: &[(Case, Ran)]) -> Table {
    let row = |(case, run): &(Case, Ran)| {
        let fallback = run.failover.as_ref().and_then(|failover| failover.counters.fallback_us(1.0));
        let parts = PARTS.iter().map(|(_, seconds)| format!("{:.4}", run.in_part(seconds)));
        let mut row = vec![case.op.1.into(), case.failure.name().into()];
        row.push(if case.protected { "yes" } else { "no" }.into());
        row.extend(parts);
        row.push(shown(Some(run.silent_ms()), 0));
        row.push(shown(fallback, 1));
        row.push(run.ended.map_or("goes on".into(), |at| format!("ends at {at:.2} s")));
        row
    };
    let columns = [
        "operation",
        "failure",
        "backup",
        "Gbit/s before",
        "in fallback",
        "after",
        "silent ms",
        "fallback µs",
        "the program",
    ];
    Table {
        title: "Goodput before a failure, while it lasts, and after it".into(),
        columns: columns.map(String::from).into(),
        rows: ran.iter().map(row).collect(),
    }
}

/// One figure a row, for each second and for each 10 ms.
fn figures(ran: &[(Case, Ran)]) -> Figures {
    let mut rows = Vec::new();
    for (case, run) in ran {
        let mut add = |interval_ms: f64, i: usize, value: f64| {
            rows.push(vec![
                case.op.1.into(),
                case.failure.name().into(),
                if case.protected { "yes" } else { "no" }.into(),
                interval_ms.into(),
                (i as f64 * interval_ms / 1e3).into(),
                value.into(),
            ]);
        };
        run.seconds().into_iter().enumerate().for_each(|(i, value)| add(1000.0, i, value));
        for (i, n) in run.completed.iter().enumerate() {
            add(INTERVAL.as_millis() as f64, i, gbps(&[*n], INTERVAL));
        }
    }
    Figures { columns: vec!["operation", "failure", "backup", "interval_ms", "time_s", "gbps"], rows }
}

fn panel(ran: &[(Case, Ran)], failure: Failure) -> Panel {
    let series = |(case, run): &(Case, Ran)| {
        let hue = OPS.iter().position(|op| *op == case.op).unwrap_or(0) + if case.protected { 0 } else { OPS.len() };
        let points = run.seconds().into_iter().enumerate().map(|(i, y)| Dot::exact(i as f64 + 0.5, y)).collect();
        Series::new(case.name(), Kind::Measured, hue, points)
    };
    Panel {
        title: format!("Failure of the {}", failure.name()),
        x: Axis::new("Time (s)", Scale::Linear),
        y: Axis::new("Goodput (Gbit/s)", Scale::Linear),
        series: ran.iter().filter(|(case, _)| case.failure == failure).map(series).collect(),
    }
}

/// The lowest of all operations and failures, in each part of the run.
fn goals(ran: &[(Case, Ran)]) -> Vec<Goal> {
    let of = |(part, seconds): &(&str, std::ops::Range<usize>)| {
        let all = ran.iter().filter(|(case, _)| case.protected);
        let ratios = all.filter_map(|(case, _)| beside_plain(ran, *case, seconds));
        Goal {
            what: format!("goodput with a backup {part}, of that of plain connections, at the least"),
            bound: Bound::AtLeast(0.99),
            measured: ratios.reduce(f64::min),
        }
    };
    PARTS.iter().map(of).collect()
}

fn notes(ran: &[(Case, Ran)]) -> Vec<String> {
    let mut notes = vec![
        "The paper has curves only: no throughput is lost while nothing fails, traffic goes on and returns. There are no figures to stand beside ours.".to_string(),
        "A failure of the initiator's NIC, or of the responder's, is known to that NIC at once. That of a switch port leaves both links up, and only retries tell: those are the silent time of it.".into(),
        "GPUDirect RDMA, the paper's other columns, has no counterpart here.".into(),
    ];
    let waits = |(case, run): &&(Case, Ran)| !case.protected && run.ended.is_none();
    if let Some((case, _)) = ran.iter().find(waits) {
        notes.push(format!(
            "A plain connection with a failure of the {} does not end: a link of one's own that is down uses up no retries, and work waits for it.",
            case.failure.name()
        ));
    }
    notes
}
