//! `softnic faults`: a capture becomes a script of faults.

use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};
use softnic_fault_injector::{Script, units};
use softnic_pcaps::PacketNumber;
use softnic_pcaps::faults::{Action, At, Event, Header, MOST_EVENTS, Observer, Options, Played, Report, Way};
use softnic_perf::say;
use softnic_wire::Qpn;

use crate::Common;
use crate::inspect::{Followed, MOST_FILES, NotShown, parse_qp, read_files};

/// Make a script of faults from a capture: what was lost, doubled, late, damaged or marked in it happens again to a program on softnic
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic faults pcaps/corpus/loss_send_middle_nak.pcap
  softnic faults pcaps/corpus/loss_read_resp_last.pcap -o faults.toml
  softnic faults --at responder --for responder pcaps/corpus/interop_loss_rxe.pcap
  softnic faults --qp 0x7c --direction ab pcaps/corpus/loss_send_middle_nak.pcap --json

Each event says which packets of the capture show it. What a script can say, and how to play one: docs/faults.md")]
pub(crate) struct Args {
    /// Pcap or pcapng files, plain or packed by gzip or zstd. Several are read together, by their times as they stand
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Only what befell connections of this queue pair; decimal or 0x…; may be given more than once
    #[arg(long, value_name = "N", value_parser = parse_qp)]
    qp: Vec<Qpn>,
    /// Only what befell packets to the responder (ab), or from it (ba)
    #[arg(long, value_enum, value_name = "ab|ba")]
    direction: Option<WayArg>,
    /// Where the capture was taken: losses of what goes away from there are in it, losses of what comes there are not; senders: packets as they
    /// leave each end (softnic sim, softnic wire) [default: as its losses show]
    #[arg(long, value_enum, value_name = "PLACE")]
    at: Option<AtArg>,
    /// Where the script is played: on a link (softnic sim, softnic wire), or on the device of one end (softnic run, softnic perf)
    #[arg(long = "for", value_enum, value_name = "WHERE", default_value = "link")]
    played: PlayedArg,
    /// Round trips that took longer become delays of as much as they exceed the shortest [default: none do]
    #[arg(long, value_name = "T", value_parser = units::parse_time)]
    delay_over: Option<Duration>,
    /// Events, at most: the first ones
    #[arg(long, value_name = "N", default_value = "1000", value_parser = most_arg)]
    most: usize,
    /// Write the script to a file, and to stdout what was found
    #[arg(short, long, value_name = "FILE")]
    output: Option<String>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum WayArg {
    Ab,
    Ba,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum AtArg {
    Requester,
    Responder,
    Middle,
    Senders,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum PlayedArg {
    Link,
    Requester,
    Responder,
}

fn most_arg(s: &str) -> Result<usize, String> {
    match units::parse_count(s)? {
        n if (1..=MOST_EVENTS as u64).contains(&n) => Ok(n as usize),
        _ => Err(format!("from 1 to {MOST_EVENTS}")),
    }
}

impl Args {
    fn options(&self) -> Options {
        Options {
            at: self.at.map(|at| match at {
                AtArg::Requester => At::Requester,
                AtArg::Responder => At::Responder,
                AtArg::Middle => At::Middle,
                AtArg::Senders => At::Senders,
            }),
            delay_over: self.delay_over,
            queue_pairs: self.qp.clone(),
            direction: self.direction.map(|way| match way {
                WayArg::Ab => Way::Ab,
                WayArg::Ba => Way::Ba,
            }),
            most: self.most,
        }
    }

    fn header(&self) -> Header {
        let played = match self.played {
            PlayedArg::Link => Played::Link,
            PlayedArg::Requester => Played::Requester,
            PlayedArg::Responder => Played::Responder,
        };
        Header { files: self.files.clone(), played }
    }
}

pub(crate) fn run(args: &Args, common: &Common) -> Result<ExitCode, String> {
    if args.files.iter().any(|file| file == "-") && args.files.len() > 1 {
        return Err("standard input is a capture for itself: it cannot be read together with files".into());
    }
    if args.files.len() > MOST_FILES {
        return Err(format!("at most {MOST_FILES} captures can be read together"));
    }
    let (mut followed, mut observer) = (Followed::default(), Observer::new(args.options()));
    let mut unsupported = None;
    let end = read_files(&args.files, |frame| {
        match followed.take(frame) {
            Ok(taken) if taken.copy_of.is_none() => {
                observer.add(frame.number, frame.time, taken.bytes, &taken.packet, taken.event);
            }
            Err(NotShown::LinkType(link)) => unsupported = Some(link),
            Ok(_) | Err(NotShown::Undecoded(_)) => {}
        }
        Ok(true)
    })?;
    let end = end.map_err(|e| e.to_string())?;
    if let Some(link) = unsupported {
        say!("softnic: some frames are of link type {}, which is not understood", link.value());
    }
    let files = args.files.join(", ");
    if followed.summary.packets == 0 {
        return Err(end.unwrap_or_else(|| format!("{files}: there are no RoCE packets in it")));
    }
    followed.analysis.finish();
    let report = observer.finish(&followed.analysis);
    if report.events.is_empty() {
        return Err(end.unwrap_or_else(|| nothing_found(&files, &report)));
    }
    let mut script = String::new();
    report.write_script(&args.header(), &mut script).map_err(|e| e.to_string())?;
    // What a script cannot say must not be written.
    Script::parse(&script).map_err(|e| format!("the script would not be understood: {e}"))?;
    let said = match (&args.output, common.json) {
        (None, false) => script.clone(),
        (None, true) => to_json(&report),
        (Some(path), json) => {
            fs::write(path, &script).map_err(|e| format!("cannot write {path}: {e}"))?;
            if json { to_json(&report) } else { format!("{path}: {}\n", report.counts()) }
        }
    };
    match io::stdout().write_all(said.as_bytes()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => return Err(format!("cannot write the output: {e}")),
        _ => {}
    }
    if report.left_out > 0 {
        say!("softnic: {} more were found and are left out: --most N has more of them", report.left_out);
    }
    match end {
        None => Ok(ExitCode::SUCCESS),
        Some(e) => Err(e),
    }
}

fn nothing_found(files: &str, report: &Report) -> String {
    let not_ready = match report.not_ready {
        0 => String::new(),
        n => format!("; receivers were not ready {n} times, which is no fault of a link"),
    };
    let elsewhere = match report.elsewhere {
        0 => String::new(),
        n => format!("; there are {n} between other hosts, which --qp chooses"),
    };
    format!("{files}: no faults were found in its {} RoCE packets{not_ready}{elsewhere}", report.packets)
}

fn to_json(report: &Report) -> String {
    let taken = |t: Option<bool>| t.map(|before| if before { "before" } else { "behind" });
    let all = json!({
        "packets": report.packets,
        "hosts": report.hosts.map(|hosts| hosts.map(|h| h.to_string())),
        "connections": report.connections,
        "taken": { "ab": taken(report.taken[0]), "ba": taken(report.taken[1]) },
        "left_out": report.left_out,
        "elsewhere": report.elsewhere,
        "not_ready": report.not_ready,
        "events": report.events.iter().map(event_json).collect::<Vec<_>>(),
    });
    format!("{all}\n")
}

fn event_json(e: &Event) -> Value {
    let (action, key, value) = match e.action {
        Action::Drop => ("drop", "", Value::Null),
        Action::Duplicate => ("duplicate", "", Value::Null),
        Action::Corrupt(bit) => ("corrupt", "bit", json!(bit)),
        Action::Reorder(behind) => ("reorder", "behind", json!(behind)),
        Action::Mark => ("ecn", "", Value::Null),
        Action::Delay(by) => ("delay", "delay_us", json!(by.as_micros() as u64)),
    };
    let number = |n: u64| match PacketNumber(n).file() {
        None => json!(n),
        Some(_) => json!(PacketNumber(n).to_string()),
    };
    let mut all = json!({
        "action": action,
        "direction": e.way.to_string(),
        "opcode": e.opcode.map(|o| o.to_string()),
        "qpn": e.dest_qp.value(),
        "destination": e.destination,
        "psn": e.psn.value(),
        "after_first": e.after_first,
        "iteration": e.iteration,
        "nth": e.nth,
        "packet": e.packet.map(number),
        "time_ns": e.time,
        "why": e.why,
    });
    if !value.is_null() {
        all[key] = value;
    }
    all
}
