//! The page: its code and style, and the report's data as JSON within it.

use std::io::{self, Write};

use serde_json::{Value, json};
use softnic_wire::Opcode;
use softnic_wire::aeth::{NakCode, RnrTimer};

use super::columns::Column;
use super::model::Source;
use super::packet::Packet;
use super::replay::Replay;

const HTML: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/style.css");
/// Parts of one script, in the order in which each needs those before it.
const SCRIPTS: [&str; 9] = [
    include_str!("page/data.js"),
    include_str!("page/format.js"),
    include_str!("page/view.js"),
    include_str!("page/plot.js"),
    include_str!("page/charts.js"),
    include_str!("page/sequence.js"),
    include_str!("page/tables.js"),
    include_str!("page/selftest.js"),
    include_str!("page/main.js"),
];

/// Writes the page. What is written into the template besides our own code is JSON without a `<`.
pub(super) fn write(out: &mut impl Write, sources: Vec<Source>, replays: &[Replay]) -> io::Result<()> {
    let data = data(sources, replays).to_string().replace('<', "\\u003c");
    let parts = [("/*STYLE*/", STYLE.to_owned()), ("/*DATA*/", data), ("/*SCRIPT*/", SCRIPTS.concat())];
    let mut rest = HTML;
    for (mark, part) in &parts {
        let (before, after) = rest.split_once(mark).unwrap_or((rest, ""));
        out.write_all(before.as_bytes())?;
        out.write_all(part.as_bytes())?;
        rest = after;
    }
    out.write_all(rest.as_bytes())?;
    out.flush()
}

/// Everything that the page shows.
pub(super) fn data(sources: Vec<Source>, replays: &[Replay]) -> Value {
    let all = joined(sources);
    let opcodes: Vec<String> = (0..=255).map(|o| Opcode(o).to_string()).collect();
    let naks: Vec<String> = (0..32).map(|code| NakCode(code).to_string()).collect();
    let rnr: Vec<u64> = (0..32).map(|code| RnrTimer(code).duration().as_micros() as u64).collect();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "files": all.files,
        "connections": all.source.connections,
        "verdicts": all.source.verdicts,
        "replays": replays,
        "paths": all.source.paths,
        "texts": all.source.texts,
        "names": { "opcodes": opcodes, "naks": naks, "rnr_micros": rnr },
        "packets": { "count": all.source.packets.len(), "columns": packet_columns(&all.source.packets) },
        "events": { "count": all.source.events.len(), "columns": event_columns(&all.source) },
    })
}

struct Joined {
    files: Vec<super::model::FileSummary>,
    source: Source,
}

/// All sources as one: places of connections, paths and texts go on from one to the next.
fn joined(sources: Vec<Source>) -> Joined {
    let mut all = Source::default();
    let mut files = Vec::new();
    for mut one in sources {
        let (file, connections) = (files.len(), all.connections.len() as u32);
        let (paths, texts) = (all.paths.len() as u32, all.texts.len() as u32);
        for packet in &mut one.packets {
            packet.connection += connections;
            packet.path += paths;
        }
        for event in &mut one.events {
            event.connection += connections;
            event.text += texts;
        }
        one.connections.iter_mut().for_each(|c| c.file = file);
        for verdict in &mut one.verdicts {
            verdict.file = file;
            verdict.connection = verdict.connection.map(|c| c + connections as usize);
        }
        all.packets.append(&mut one.packets);
        all.events.append(&mut one.events);
        all.connections.append(&mut one.connections);
        all.verdicts.append(&mut one.verdicts);
        all.paths.append(&mut one.paths);
        all.texts.append(&mut one.texts);
        files.push(one.summary);
    }
    Joined { files, source: all }
}

fn packet_columns(packets: &[Packet]) -> Vec<Column> {
    let all = || packets.iter();
    let high = |va: u64| i64::from((va >> 32) as u32);
    let low = |va: u64| i64::from(va as u32);
    vec![
        Column::delta("number", all().map(|p| p.number as i64)),
        Column::delta("time", all().map(|p| p.time)),
        Column::delta("connection", all().map(|p| p.connection.into())),
        // 0: not known.
        Column::plain("transit", all().map(|p| p.transit.map_or(0, |t| i64::from(t) + 1))),
        Column::plain("end", all().map(|p| p.end.into())),
        Column::plain("class", all().map(|p| p.class() as i64)),
        Column::plain("flags", all().map(|p| p.flags.into())),
        Column::plain("opcode", all().map(|p| p.opcode.into())),
        Column::plain("space", all().map(|p| p.space.into())),
        Column::delta("sequence", all().map(|p| p.sequence)),
        Column::plain("length", all().map(|p| p.length.into())),
        Column::plain("syndrome", all().map(|p| p.syndrome.map_or(0, |s| i64::from(s) + 1))),
        Column::delta("msn", all().map(|p| p.msn.into())),
        Column::plain("path", all().map(|p| p.path.into())),
        Column::plain("cause", all().map(|p| p.cause.into())),
        Column::plain("roundTrip", all().map(|p| p.round_trip.into())),
        Column::delta("inFlight", all().map(|p| p.in_flight.into())),
        Column::plain("completes", all().map(|p| p.completes.into())),
        Column::plain("hasTarget", all().map(|p| p.target.is_some().into())),
        Column::plain("vaHigh", all().map(|p| p.target.map_or(0, |t| high(t.va)))),
        Column::plain("vaLow", all().map(|p| p.target.map_or(0, |t| low(t.va)))),
        Column::plain("rkey", all().map(|p| p.target.map_or(0, |t| t.rkey.into()))),
        Column::plain("targetLength", all().map(|p| p.target.map_or(0, |t| t.length.into()))),
    ]
}

fn event_columns(source: &Source) -> Vec<Column> {
    let all = || source.events.iter();
    vec![
        Column::delta("time", all().map(|e| e.time)),
        Column::plain("connection", all().map(|e| e.connection.into())),
        Column::plain("end", all().map(|e| e.end.into())),
        Column::plain("kind", all().map(|e| e.kind as i64)),
        Column::plain("value", all().map(|e| e.value)),
        Column::plain("text", all().map(|e| e.text.into())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::FileSummary;

    #[test]
    fn a_file_name_cannot_leave_its_place_in_the_page() {
        let name = "</script><script>alert(1)</script><!--";
        let summary = FileSummary { name: name.into(), ..FileSummary::default() };
        let mut out = Vec::new();
        write(&mut out, vec![Source { summary, ..Source::default() }], &[]).unwrap();
        let page = String::from_utf8(out).unwrap();
        assert!(!page.contains("<script>alert") && page.contains("\\u003cscript>alert"));
        assert!(!page.contains("/*DATA*/") && page.trim_end().ends_with("</html>"));
    }
}
