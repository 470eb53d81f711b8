//! `softnic report`: captures and traces as a page that shows what happened.

mod capture;
mod columns;
mod ends;
mod follow;
mod model;
mod packet;
mod page;
mod qlog;
mod replay;

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::process::ExitCode;

use serde_json::{Value, json};
use softnic_perf::say;

use crate::{Common, capture_source};
use model::Source;
use replay::Replay;

/// Make a page of captures and traces: verdicts, sequence diagram, PSNs, bytes in flight, round trips, throughput
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic report pcaps/corpus/loss_send_middle_nak.pcap -o report.html
  softnic sim --size 64K --count 20 --fault loss=0.01 --pcap run.pcap && softnic report run.pcap
  softnic sim --transport lowar --count 20 --trace run.sqlog && softnic report run.sqlog
  softnic replay --json capture.pcap > replay.json; softnic report capture.pcap replay.json

The page is one file that needs no network: open it in a browser. docs/report.md describes it.

Exit code: 0, or 1 where a file cannot be read to its end (the page then has what stood before), or where the page cannot
be written.")]
pub(crate) struct Args {
    /// Captures (pcap, pcapng), traces (qlog), plain or packed by gzip or zstd, - for standard input; and what
    /// `softnic replay --json` printed, behind the capture that it is of
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Where the page goes, - for standard output; a page that is there is replaced
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    output: String,
    /// Of each file, the first N packets: a browser needs about 150 bytes of memory for each
    #[arg(long, value_name = "N", default_value_t = 4_000_000)]
    packets: usize,
}

/// What a file is, by its first bytes.
enum Content {
    Source(Source),
    Replay(Replay),
}

pub(crate) fn run(args: &Args, common: &Common) -> Result<ExitCode, String> {
    let to_stdout = args.output == "-";
    if !to_stdout && let Some(input) = args.files.iter().find(|input| is_same(input, &args.output)) {
        return Err(format!("{input} is both read and written: choose another -o"));
    }
    if to_stdout && common.json {
        return Err("--json and -o - both write to standard output: leave one out".into());
    }
    let (mut sources, mut replays, mut captures) = (Vec::new(), Vec::new(), None);
    for name in &args.files {
        let shown = if name == "-" { "standard input" } else { name };
        match read(name, shown, args.packets, captures).map_err(|e| format!("{shown}: {e}"))? {
            Content::Replay(replay) => replays.push(replay),
            Content::Source(source) => {
                if source.summary.kind == "capture" {
                    captures = Some(sources.len());
                }
                sources.push(source);
            }
        }
    }
    if sources.is_empty() {
        return Err("a report needs a capture or a trace".into());
    }
    let faults: Vec<String> = sources
        .iter()
        .filter_map(|s| Some(format!("{}: {}; the page shows what stood before", s.summary.name, s.fault.as_ref()?)))
        .collect();
    for source in sources.iter().filter(|s| s.summary.cut) {
        say!("softnic: {}: only its first {} packets are in the report (--packets)", source.summary.name, args.packets);
    }
    let (packets, connections, verdicts) = sources.iter().fold((0, 0, 0), |(p, c, v), s: &Source| {
        (p + s.summary.packets, c + s.connections.len(), v + s.verdicts.len())
    });
    let written = match to_stdout {
        true => page::write(&mut BufWriter::new(io::stdout().lock()), sources, &replays),
        false => File::create(&args.output).and_then(|file| page::write(&mut BufWriter::new(file), sources, &replays)),
    };
    match written {
        Err(e) if to_stdout && e.kind() == io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
        written => written.map_err(|e| format!("cannot write the report {}: {e}", args.output))?,
    }
    if common.json {
        let line = json!({
            "report": args.output, "files": args.files.len(), "packets": packets, "connections": connections,
            "verdicts": verdicts, "faults": faults,
        });
        let _ = writeln!(io::stdout(), "{line}");
    } else if !to_stdout {
        say!("softnic: {}: {packets} packets, {connections} connections, {verdicts} verdicts", args.output);
    }
    match faults.is_empty() {
        true => Ok(ExitCode::SUCCESS),
        false => Err(faults.join("\nsoftnic: ")),
    }
}

/// Whether both names are one regular file.
fn is_same(input: &str, output: &str) -> bool {
    let canonical = |name: &str| fs::canonicalize(Path::new(name)).ok().filter(|path| path.is_file());
    canonical(input).is_some_and(|input| canonical(output).is_some_and(|output| input == output))
}

fn read(name: &str, shown: &str, limit: usize, capture: Option<usize>) -> Result<Content, String> {
    let source: Box<dyn Read> = match name {
        "-" => Box::new(io::stdin()),
        // Its errors begin with the name.
        file => {
            capture_source::open(file).map_err(|e| e.strip_prefix(&format!("{file}: ")).unwrap_or(&e).to_owned())?
        }
    };
    let mut source = BufReader::with_capacity(1 << 16, source);
    let first = source.fill_buf().map_err(|e| e.to_string())?;
    match first.first() {
        None => Err("is empty".into()),
        Some(0x1e | b'{') => json_content(shown, source, limit, capture),
        Some(_) => capture::read(shown, source, limit).map(Content::Source).map_err(|e| {
            format!("{e} (a report is made of captures, of traces, and of what `softnic replay --json` prints)")
        }),
    }
}

/// A trace, whose first record says so, or the outcome of a replay, which is one line.
fn json_content(name: &str, mut source: impl BufRead, limit: usize, capture: Option<usize>) -> Result<Content, String> {
    let mut line = String::new();
    source.read_line(&mut line).map_err(|e| e.to_string())?;
    let text = line.trim().trim_start_matches('\u{1e}');
    let header: Value = serde_json::from_str(text).unwrap_or_default();
    if header.get("file_schema").is_some() {
        return qlog::read(name, io::Cursor::new(line).chain(source), limit).map(Content::Source);
    }
    if header.get("differences").is_some() {
        return replay::read(name, text, capture).map(Content::Replay);
    }
    Err("neither a capture, nor a trace (qlog, JSON-SEQ), nor what `softnic replay --json` prints".into())
}
