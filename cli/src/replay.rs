//! `softnic replay`: our NIC in the place of each end of a capture.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::process::ExitCode;

use serde_json::{Value, json};
use softnic_perf::say;
use softnic_replay::{Counts, FlowReport, Options, PeerKind, ReplayVerdict, Report, Side, peers};

use crate::Common;

/// Play a capture at our NIC, in the place of each end in turn, and compare what it sends with what was captured
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic replay pcaps/corpus/loss_send_middle_nak.pcap
  softnic replay pcaps/corpus/cm_rping_ipv6.pcap
  softnic replay --json capture.pcapng | jq .differences
  softnic replay --side capture.toml capture.pcap
  softnic sim --op read --size 8K --fault loss=0.01 --pcap run.pcap && softnic replay run.pcap
  softnic sim --transport sr --size 64K --fault loss=0.01 --pcap run.pcap && softnic replay run.pcap
  softnic replay --allowed

Exit code: 0 no unexplained difference, 1 differences, 2 nothing could be replayed.

A side file tells what packets do not: docs/replay.md has all keys. capture.toml:
  [[qp]]
  address = \"10.0.0.2\"
  qp = 0x11
  receives = [512, 64]       # bytes of each receive, in the order in which messages take them
  rights = [\"write\"]         # what the peer may do: write, read, atomic")]
pub(crate) struct Args {
    /// A pcap or pcapng file, or - for standard input
    #[arg(required_unless_present = "allowed")]
    file: Option<String>,
    /// What the packets do not tell: a TOML file
    #[arg(long, value_name = "FILE")]
    side: Option<String>,
    /// What kind of NIC both ends are: rxe, softnic or hardware [default: told from the packets of each]
    #[arg(long, value_name = "KIND", value_parser = peer_arg)]
    peer: Option<PeerKind>,
    /// Connections with Selective Repeat (sr) whose negotiation is not in the capture begin with it
    #[arg(long)]
    begins: bool,
    /// Print the table of allowed differences, and nothing else
    #[arg(long)]
    allowed: bool,
}

fn peer_arg(s: &str) -> Result<PeerKind, String> {
    PeerKind::from_name(s).ok_or_else(|| "rxe, softnic and hardware are the kinds there are".into())
}

/// Nothing could be replayed.
const CANNOT_REPLAY: u8 = 2;

pub(crate) fn run(args: &Args, common: &Common) -> Result<ExitCode, String> {
    let mut out = BufWriter::new(io::stdout().lock());
    let written = match &args.file {
        None => allowed(&mut out, common.json).map(|()| ExitCode::SUCCESS),
        Some(_) if args.allowed => allowed(&mut out, common.json).map(|()| ExitCode::SUCCESS),
        Some(file) => {
            let report = match replay(args, file) {
                Ok(report) => report,
                Err(e) => {
                    say!("softnic: {e}");
                    return Ok(ExitCode::from(CANNOT_REPLAY));
                }
            };
            if let Some(fault) = &report.fault {
                say!("softnic: {file}: {fault}; what stood before is replayed");
            }
            let code = ExitCode::from(report.exit_code());
            if common.json { print_json(&mut out, &report) } else { print_human(&mut out, &report) }.map(|()| code)
        }
    };
    match written.and_then(|code| out.flush().map(|()| code)) {
        Ok(code) => Ok(code),
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(e) => Err(format!("cannot write the output: {e}")),
    }
}

fn replay(args: &Args, file: &str) -> Result<Report, String> {
    let side = match &args.side {
        None => Side::default(),
        Some(path) => {
            let text = fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?;
            text.parse().map_err(|e| format!("{path}: {e}"))?
        }
    };
    let options = Options { side, peer: args.peer, begins: args.begins };
    if file == "-" {
        return softnic_replay::replay(io::stdin().lock(), &options).map_err(|e| format!("standard input: {e}"));
    }
    let source = File::open(file).map_err(|e| format!("{file}: {e}"))?;
    if source.metadata().is_ok_and(|m| m.is_dir()) {
        return Err(format!("{file}: is a directory, not a capture"));
    }
    softnic_replay::replay(source, &options).map_err(|e| format!("{file}: {e}"))
}

fn allowed(out: &mut impl Write, as_json: bool) -> io::Result<()> {
    for row in peers::TABLE {
        let who: Vec<&str> = row.peers.iter().map(|p| p.name()).collect();
        if as_json {
            writeln!(out, "{}", json!({ "what": row.what, "peers": who, "why": row.why }))?;
        } else {
            writeln!(out, "{}\n    {}: {}", row.what, who.join(", "), row.why)?;
        }
    }
    Ok(())
}

fn counts_json(c: &Counts) -> Value {
    json!({
        "requests_equal": c.requests_equal, "answers_equal": c.answers_equal, "given": c.given,
        "changed_by_owner": c.changed_by_owner,
        "lost_requests": c.lost_requests, "answers_not_captured": c.answers_not_captured,
        "requests_not_captured": c.requests_not_captured, "timeouts": c.timeouts, "duplicated": c.duplicated,
        "reordered": c.reordered, "repairs_equal": c.repairs_equal, "recovered": c.recovered,
        "repairs_too_few": c.repairs_too_few,
    })
}

fn verdict_name(report: &Report) -> &'static str {
    match report.verdict() {
        ReplayVerdict::Same => "same",
        ReplayVerdict::Differs => "differs",
        ReplayVerdict::CannotReplay => "cannot_replay",
    }
}

fn print_json(out: &mut impl Write, r: &Report) -> io::Result<()> {
    let flow = |f: &FlowReport| {
        json!({
            "service": format!("{:?}", f.service).to_lowercase(),
            "requester": f.requester, "requester_qp": f.requester_qp.map(|q| q.value()),
            "requester_kind": f.requester_kind.name(),
            "responder": f.responder, "responder_qp": f.responder_qp.value(),
            "responder_kind": f.responder_kind.name(),
            "mtu": f.mtu, "requests": f.requests, "answers": f.answers, "counts": counts_json(&f.counts),
        })
    };
    let difference = |d: &softnic_replay::Difference| {
        json!({
            "packet": d.packet, "flow": d.flow, "role": d.role.to_string(),
            "ours": d.ours, "captured": d.captured, "why": d.why,
        })
    };
    let skipped: serde_json::Map<String, Value> =
        r.skipped.iter().map(|(why, n)| (why.name().to_owned(), json!(n))).collect();
    let report = json!({
        "verdict": verdict_name(r),
        "frames": r.frames,
        "packets": r.packets,
        "counts": counts_json(&r.counts()),
        "differences": r.differences.iter().map(difference).collect::<Vec<_>>(),
        "allowed": r.allowed.iter().map(|a| json!({"packet": a.packet, "flow": a.flow, "what": a.rule.row().what}))
            .collect::<Vec<_>>(),
        "undetermined": r.undetermined.iter().map(|u| json!({"packet": u.packet, "flow": u.flow, "why": u.why}))
            .collect::<Vec<_>>(),
        "skipped": skipped,
        "sdr_packets": r.sdr_packets,
        "skew": r.skews.iter().map(|s| json!({
            "from": s.from, "to": s.to, "nanos": s.nanos, "bound_nanos": s.bound, "moved": s.moved,
        })).collect::<Vec<_>>(),
        "flows": r.flows.iter().map(flow).collect::<Vec<_>>(),
        "fault": r.fault,
    });
    writeln!(out, "{report}")
}

/// Lines of one kind that people get to see.
const SHOWN: usize = 50;

fn print_human(out: &mut impl Write, r: &Report) -> io::Result<()> {
    let colour = crate::colour::wanted(io::stdout().is_terminal());
    let paint = |code: &str, text: String| if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text };
    for f in &r.flows {
        let qp = f.requester_qp.map_or("?".into(), |q| q.to_string());
        writeln!(
            out,
            "{:?} {} qp {qp} ({}) > {} qp {} ({}), mtu {}: {} of {} requests and {} of {} answers as ours",
            f.service,
            f.requester,
            f.requester_kind,
            f.responder,
            f.responder_qp,
            f.responder_kind,
            f.mtu,
            f.counts.requests_equal,
            f.requests,
            f.counts.answers_equal,
            f.answers
        )?;
    }
    for d in r.differences.iter().take(SHOWN) {
        let what = paint("31", format!("packet {}: ", d.packet));
        writeln!(out, "{what}captured {}; our NIC as the {} sends {}: {}", d.captured, d.role, d.ours, d.why)?;
    }
    for u in r.undetermined.iter().take(SHOWN) {
        writeln!(out, "{}undetermined: {}", paint("33", format!("packet {}: ", u.packet)), u.why)?;
    }
    for a in r.allowed.iter().take(SHOWN) {
        let row = a.rule.row();
        writeln!(out, "{}allowed: {}", paint("90", format!("packet {}: ", a.packet)), row.what)?;
    }
    for (kind, n) in [
        ("differences", r.differences.len()),
        ("undetermined answers", r.undetermined.len()),
        ("allowed differences", r.allowed.len()),
    ] {
        if n > SHOWN {
            writeln!(out, "… and {} more {kind}: see --json", n - SHOWN)?;
        }
    }
    for (why, n) in &r.skipped {
        writeln!(out, "skipped: {n} {why}")?;
    }
    if r.sdr_packets > 0 {
        writeln!(
            out,
            "left out: {} packets of SDR-RDMA are replayed as those of UC that they are; its bitmaps, late packets and control messages are not",
            r.sdr_packets
        )?;
    }
    for s in &r.skews {
        writeln!(
            out,
            "inferred: packets from {} to {} were recorded at least {:.3} µs late (up to {:.3} µs is allowed for): \
             {} packets of the other direction moved behind them",
            s.from,
            s.to,
            s.nanos as f64 / 1e3,
            s.bound as f64 / 1e3,
            s.moved
        )?;
    }
    let c = r.counts();
    for (n, what) in [
        (c.given, "data answers are known from nowhere else, and taken as they are"),
        (c.changed_by_owner, "times memory was changed by its owner since it was last seen"),
        (c.lost_requests, "requests were lost before the responder"),
        (c.answers_not_captured, "answers of ours are not in the capture: coalesced, or lost before it"),
        (c.requests_not_captured, "requests are missing in the capture"),
        (c.timeouts, "times a timer ran out"),
        (c.duplicated, "packets came twice"),
        (c.reordered, "packets were overtaken by others before they were captured"),
        (c.repairs_equal, "repair packets are the sums of their blocks"),
        (c.recovered, "packets were lost before the capture, and recovered from a repair packet"),
        (c.repairs_too_few, "repair packets could not be checked: too much of their blocks is missing in the capture"),
    ] {
        if n > 0 {
            writeln!(out, "inferred: {n} {what}")?;
        }
    }
    let sum = format!(
        "{} differences, {} undetermined, {} allowed; {} requests and {} answers equal, in {} packets of {} frames",
        r.differences.len(),
        r.undetermined.len(),
        r.allowed.len(),
        c.requests_equal,
        c.answers_equal,
        r.packets,
        r.frames
    );
    match r.verdict() {
        ReplayVerdict::Same => writeln!(out, "{}", paint("32", sum)),
        ReplayVerdict::Differs => writeln!(out, "{}", paint("31", sum)),
        ReplayVerdict::CannotReplay => writeln!(out, "{}", paint("33", format!("nothing can be replayed: {sum}"))),
    }
}
