//! `shift-memory`: what the backup of a connection takes of memory (§4.2).

use std::sync::Arc;

use super::super::outcome::{Beside, Bound, Figures, Goal, Outcome, Table, shown};
use super::super::{Setting, pool};
use super::over_rc_alone;
use super::paper;
use super::program::{Printed, Program};
use crate::chart::{Axis, Chart, Kind, Panel, Point as Dot, Scale, Series};

/// Objects that are measured, as the program and as people call them, with the paper's figure of each.
const OBJECTS: [(&str, &str, super::super::paper::Stated); 2] =
    [("qp", "queue pair", paper::QP_BYTES), ("cq", "completion queue", paper::CQ_BYTES)];
/// Connections that the paper adds up.
const MANY: f64 = 1000.0;

/// Bytes of an object: plain, and with a backup.
fn bytes(runs: &[Option<Printed>], name: &str) -> [Option<f64>; 2] {
    let of = |at: usize| runs.get(at)?.as_ref()?.get(name)?.first().copied();
    [of(0), of(1)]
}

/// What the backup adds.
fn added(runs: &[Option<Printed>], name: &str) -> Option<f64> {
    let [plain, backup] = bytes(runs, name);
    Some(backup? - plain?)
}

pub(in super::super) fn run(setting: &Setting) -> Result<Outcome, String> {
    over_rc_alone(setting)?;
    let connections = if setting.quick { 50 } else { 1000 };
    let program = Arc::new(Program::compile(setting.name)?);
    let one = {
        let program = Arc::clone(&program);
        move |&backup: &bool| program.run(backup, &["memory", &connections.to_string()])
    };
    let runs = pool::run(setting.name, vec![false, true], 1, one)?;
    let both = OBJECTS.map(|(name, ..)| added(&runs, name));
    let many = both[0].and_then(|qp| Some((qp + both[1]?) * MANY / 1e6));
    let row = |(name, people, stated): &(&str, &str, super::super::paper::Stated)| {
        let [plain, backup] = bytes(&runs, name);
        vec![
            (*people).into(),
            shown(plain, 0),
            shown(backup, 0),
            shown(added(&runs, name), 0),
            stated.value.to_string(),
        ]
    };
    let dots = |place: usize| {
        let dot =
            |(x, (name, ..)): (usize, &(&str, _, _))| Some(Dot::exact(x as f64, bytes(&runs, name)[place]? / 1e3));
        OBJECTS.iter().enumerate().filter_map(dot).collect::<Vec<_>>()
    };
    let of_paper =
        OBJECTS.iter().enumerate().map(|(x, (_, _, stated))| Dot::exact(x as f64, stated.value / 1e3)).collect();
    let backups =
        OBJECTS.iter().enumerate().filter_map(|(x, (name, ..))| Some(Dot::exact(x as f64, added(&runs, name)? / 1e3)));
    let done = runs.iter().flatten().count();
    Ok(Outcome {
        what: format!(
            "Bytes that are allocated for {connections} connections between two devices on wires in memory, at each end a completion queue of 512 and a queue pair of 512 sends and 256 receives, when all have met their backups: every allocation of the program and of the library is counted, as the C library hands it out, in a process without a backup and in one with it. The difference is the backup's."
        ),
        tables: vec![Table {
            title: "Bytes of an object".into(),
            columns: ["object", "plain", "with backup", "the backup's", "paper"].map(String::from).into(),
            rows: OBJECTS.iter().map(row).collect(),
        }],
        figures: Figures {
            columns: vec!["object", "connections", "plain_bytes", "backup_bytes", "added_bytes", "paper_bytes"],
            rows: OBJECTS
                .iter()
                .map(|(name, people, stated)| {
                    let [plain, backup] = bytes(&runs, name);
                    let connections = f64::from(connections);
                    vec![(*people).into(), connections.into(), plain.into(), backup.into(), added(&runs, name).into(), stated.value.into()]
                })
                .collect(),
        },
        chart: Chart {
            panels: vec![Panel {
                title: "Memory of an object at one end".into(),
                x: Axis::new("Object", Scale::Categories(OBJECTS.iter().map(|(_, people, _)| people.to_string()).collect())),
                y: Axis::new("Memory (KB)", Scale::Linear),
                series: vec![
                    Series::new("plain", Kind::Measured, 0, dots(0)),
                    Series::new("with backup", Kind::Measured, 1, dots(1)),
                    Series::new("the backup's", Kind::Measured, 2, backups.collect()),
                    Series::new("the backup's, paper", Kind::Measured, 3, of_paper),
                ],
            }],
            caption: format!("{connections} connections."),
        },
        goals: vec![
            goal("the backup of a queue pair, bytes", both[0], paper::QP_BYTES.value),
            goal("the backup of a completion queue, bytes", both[1], paper::CQ_BYTES.value),
            goal("both for 1000 connections, MB", many, (paper::QP_BYTES.value + paper::CQ_BYTES.value) * MANY / 1e6),
        ],
        beside: OBJECTS.iter().map(|(name, _, stated)| Beside { stated: *stated, ours: added(&runs, name) }).collect(),
        notes: [
            "The backups of all connections of a NIC complete in one queue, whose completions are handed on at once: a completion queue has no backup of its own.",
            "Memory of the kernel, and what is mapped without the C library, is not counted.",
        ]
        .map(String::from)
        .into(),
        runs: done,
        of: 2,
        ..Outcome::default()
    })
}

fn goal(what: &str, measured: Option<f64>, most: f64) -> Goal {
    Goal { what: what.into(), bound: Bound::AtMost(most), measured }
}
