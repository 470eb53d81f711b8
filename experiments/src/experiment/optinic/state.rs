//! `optinic-state`: bytes of a queue pair, and how many of them, and of ranks, there are in 4 MB (Table 4).

use softnic_transports::{StateSize, Transport};

use super::super::Setting;
use super::super::outcome::{Figures, Outcome, Table};
use super::{of_all_transports, paper};
use crate::chart::{Axis, Chart, Kind, Panel, Point as Dot, Scale, Series};

/// The memory of the NIC, as the paper has it.
const MEMORY: f64 = 4e6;
/// Queue pairs for each peer.
const CONNECTIONS: f64 = 2.0;
const TRANSPORTS: [&str; 6] = ["rc", "sr", "lowar:32,1", "xp", "uc", "ud"];

/// A queue pair of somebody's.
struct Line {
    name: String,
    bytes: f64,
    connections: f64,
    /// Queue pairs and nodes, as stated.
    stated: Option<(f64, f64)>,
    size: Option<StateSize>,
}

impl Line {
    fn queue_pairs(&self) -> f64 {
        (MEMORY / self.bytes).floor()
    }

    fn nodes(&self) -> f64 {
        (self.queue_pairs() / self.connections).floor()
    }
}

pub(in super::super) fn run(setting: &Setting) -> Result<Outcome, String> {
    of_all_transports(setting)?;
    let mut lines = Vec::new();
    for name in TRANSPORTS {
        let transport: Transport = name.parse().map_err(|e| format!("{e}"))?;
        let size = StateSize::of(transport);
        let bytes = size.state() as f64;
        lines.push(Line {
            name: format!("softnic {name}"),
            bytes,
            connections: CONNECTIONS,
            stated: None,
            size: Some(size),
        });
    }
    for (name, bytes, queue_pairs, nodes, connections) in paper::TABLE_4 {
        lines.push(Line { name: name.into(), bytes, connections, stated: Some((queue_pairs, nodes)), size: None });
    }
    let thousands = |n: f64| if n >= 1000.0 { format!("{:.1}K", n / 1e3) } else { format!("{n}") };
    let stated = |line: &Line, of: fn((f64, f64)) -> f64| line.stated.map_or(String::new(), |s| thousands(of(s)));
    let row = |line: &Line| {
        vec![
            line.name.clone(),
            line.bytes.to_string(),
            thousands(line.queue_pairs()),
            stated(line, |s| s.0),
            thousands(line.nodes()),
            stated(line, |s| s.1),
        ]
    };
    let parts = |line: &Line| {
        let size = line.size?;
        let of = [size.machine, size.headers_and_heads, size.apart, size.agreement, size.slot, size.all()];
        Some(std::iter::once(line.name.clone()).chain(of.map(|bytes| bytes.to_string())).collect())
    };
    let figures = |line: &Line| {
        let size = |of: fn(StateSize) -> usize| line.size.map(|size| of(size) as f64);
        vec![
            line.name.as_str().into(),
            line.bytes.into(),
            line.queue_pairs().into(),
            line.nodes().into(),
            line.stated.map(|s| s.0).into(),
            line.stated.map(|s| s.1).into(),
            size(|s| s.machine).into(),
            size(|s| s.headers_and_heads).into(),
            size(|s| s.apart).into(),
            size(|s| s.agreement).into(),
            size(|s| s.slot).into(),
        ]
    };
    let dots = lines.iter().enumerate().map(|(x, line)| Dot::exact(x as f64, line.bytes)).collect();
    Ok(Outcome {
        what: "Bytes of a queue pair: of softnic by the sizes of the types in this program (the state machine, and what it keeps behind pointers from the beginning), of others as Table 4 states. Queue pairs are those in 4 MB, nodes those with 2 connections a peer (UCCL 256).".into(),
        tables: vec![
            Table {
                title: "State of a queue pair".into(),
                columns: ["transport", "bytes", "queue pairs", "as stated", "nodes", "as stated"].map(String::from).into(),
                rows: lines.iter().map(row).collect(),
            },
            Table {
                title: "What is counted of ours, bytes".into(),
                columns: ["transport", "machine", "of it headers, queue heads", "apart", "agreement", "slot", "all"]
                    .map(String::from)
                    .into(),
                rows: lines.iter().filter_map(parts).collect(),
            },
        ],
        figures: Figures {
            columns: vec![
                "transport",
                "bytes",
                "queue_pairs",
                "nodes",
                "stated_queue_pairs",
                "stated_nodes",
                "machine",
                "headers_and_heads",
                "apart",
                "agreement",
                "slot",
            ],
            rows: lines.iter().map(figures).collect(),
        },
        chart: Chart {
            panels: vec![Panel {
                title: "State of a queue pair".into(),
                x: Axis::new("Transport", Scale::Categories(lines.iter().map(|line| line.name.clone()).collect())),
                y: Axis::new("Bytes", Scale::Linear),
                series: vec![Series::new("bytes", Kind::Measured, 0, dots)],
            }],
            caption: "softnic by the sizes of its types, others as the paper states.".into(),
        },
        notes: [
            "4 MB / 596 B is 6.7K and 4 MB / 242 B is 16.5K: the paper's 8K for IRN and 20K for SRNIC do not follow from its bytes. 4 MB / 52 B is 76.9K (80K with 4 MiB), 4 MB / 407 B is 9.8K, 4 MB / 350 B is 11.4K.",
            "Nodes are queue pairs over connections a peer: 10K / 256 are 38 for UCCL, where the paper has 256.",
            "Hardware keeps elsewhere, or has not, what software has in its state: headers of frames (computed), heads of the two queues, counts of 64 bits, pointers. A packet of xp touches 84 to 125 bytes (docs/xp.md).",
            "Slot (attributes, agreement, place in the table) and agreement no packet of an established connection looks at; they are not in the bytes of the first table. Rings of work requests, bitmaps and buffers of what is in flight are in neither: sim/tests/queue_pair_bytes.rs counts every allocation.",
        ]
        .map(String::from)
        .into(),
        runs: 1,
        of: 1,
        ..Outcome::default()
    })
}
