//! `softnic sim --topology FILE`: flows between hosts of a network of switches, in virtual time.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use serde_json::{Value, json};
use softnic_perf::{say, stop};
use softnic_sim::topology::{self, Capture, Flow, FlowReport, Hooks, Topology, TopologyReport};
use softnic_sim::{CompletionTimes, SimError};

use crate::Common;
use crate::sdr::tell_shortfall;
use crate::sim::progress_bar;

/// Bytes that a topology may have: who names a capture or a device by mistake is told so at once.
const MAX_FILE: u64 = 1 << 20;

/// Runs it; `capture` is the path of a capture, and the name of the link if it is to have one alone.
pub(crate) fn run(file: &str, capture: Option<(&str, Option<&str>)>, common: &Common) -> Result<ExitCode, String> {
    let topology: Topology = read(file)?.parse().map_err(|e| format!("{file}: {e}"))?;
    let link = match capture.and_then(|(_, link)| link) {
        None => None,
        Some(name) => Some(topology.find_link(name).ok_or_else(|| {
            format!(
                "{file}: there is no link '{name}': a link is named by its two ends, as in {}",
                topology.link_name(0)
            )
        })?),
    };
    let path = capture.map(|(path, _)| path);
    let mut out = match capture {
        None => None,
        Some((path, _)) => Some(File::create(path).map(BufWriter::new).map_err(|e| not_written(path, &e))?),
    };
    let bar = progress_bar(topology.work().map(|(work, _)| work.count).sum());
    stop::install();
    let mut tell = |done| bar.set_position(done);
    let capture = out.as_mut().map(|out| Capture { out, link });
    let report = topology::run(
        &topology,
        common.seed,
        Hooks { progress: Some(&mut tell), stop: Some(&stop::requested), capture, ..Hooks::default() },
    );
    bar.finish_and_clear();
    let report = report.map_err(|e| match (e, path) {
        (SimError::Capture(e), Some(path)) => not_written(path, &e),
        (e, _) => format!("{file}: {e}"),
    })?;
    if let (Some(mut out), Some(path)) = (out, path) {
        out.flush().map_err(|e| not_written(path, &e))?;
    }
    tell_shortfalls(&report);
    let printed = if common.json { print_json(&topology, &report) } else { print_table(&topology, &report) };
    match printed {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => return Err(format!("cannot write the output: {e}")),
        _ => {}
    }
    if report.interrupted {
        return Ok(ExitCode::from(stop::EXIT_CODE));
    }
    if let Some((i, status)) = report.background.iter().enumerate().find_map(|(i, b)| Some((i, b.first_failure?))) {
        let failed = report.background[i].failed;
        return Err(format!("{failed} WRITEs of background {} failed, the first with: {status}", i + 1));
    }
    let failed: u64 = work(&report).map(|f| f.failed).sum();
    match work(&report).find_map(|f| f.first_failure) {
        Some(status) => Err(format!("{failed} work requests failed, the first of a flow with: {status}")),
        None if report.stalled => {
            Err("nothing more happens, and not all is done: something was lost, and nobody waits for it".into())
        }
        None => {
            tell_waiting(&report);
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Says what background traffic was not sent because its senders could not keep up.
fn tell_waiting(report: &TopologyReport) {
    for (i, b) in report.background.iter().enumerate().filter(|(_, b)| b.waiting > 0) {
        say!(
            "softnic: {} of {} WRITEs of background {} were due and had no room to leave",
            b.waiting,
            b.messages,
            i + 1
        );
    }
}

/// Says what could not fill the line of its sender, once for flows that are alike.
fn tell_shortfalls(report: &TopologyReport) {
    let mut said = Vec::new();
    for (i, why) in report.flows.iter().enumerate().filter_map(|(i, f)| Some((i, f.shortfall?))) {
        if said.contains(&why) {
            continue;
        }
        said.push(why);
        let others = report.flows[i + 1..].iter().filter(|f| f.shortfall == Some(why)).count();
        let others = if others > 0 { format!(" and {others} more") } else { String::new() };
        tell_shortfall(format!("flow {}{others}: {why}", i + 1));
    }
}

/// Flows, then groups.
fn work(report: &TopologyReport) -> impl Iterator<Item = &FlowReport> {
    report.flows.iter().chain(report.groups.iter().map(|group| &group.work))
}

fn not_written(path: &str, e: &io::Error) -> String {
    format!("cannot write the capture {path}: {e}")
}

/// The text of a topology.
pub(crate) fn read(file: &str) -> Result<String, String> {
    use std::io::Read;
    let mut text = String::new();
    let read = std::fs::File::open(file).and_then(|f| f.take(MAX_FILE + 1).read_to_string(&mut text));
    match read {
        Err(e) => Err(format!("{file}: {e}")),
        Ok(n) if n as u64 > MAX_FILE => Err(format!("{file}: more than 1 MiB is no topology")),
        Ok(_) => Ok(text),
    }
}

fn fct(t: &CompletionTimes) -> Value {
    json!({
        "mean": t.mean_ms(), "p50": t.quantile_ms(0.5), "p99": t.quantile_ms(0.99),
        "p999": t.quantile_ms(0.999), "max": t.max_ms(),
    })
}

/// What flows and groups have in common.
fn add_work(value: &mut Value, t: &Topology, flow: &Flow, f: &FlowReport) {
    value["from"] = json!(t.hosts[flow.from]);
    value["cc"] = json!(flow.cc.name());
    value["goodput_gbps"] = json!(f.goodput_gbps);
    value["fct_ms"] = fct(&f.completion_times);
    value["completed"] = json!(f.completed);
    value["failed"] = json!(f.failed);
    value["start_ms"] = json!(flow.start.as_secs_f64() * 1e3);
    value["duration_ms"] = json!(f.duration_ms);
}

fn print_json(t: &Topology, r: &TopologyReport) -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (i, (flow, f)) in t.flows.iter().zip(&r.flows).enumerate() {
        let mut value = json!({ "flow": i + 1, "to": t.hosts[flow.to], "transport": flow.spoken() });
        add_work(&mut value, t, flow, f);
        if !flow.transport.is_reliable() {
            value["sent"] = json!(f.sent);
        }
        if let Some(d) = &f.delivered {
            value["deadline_ms"] = json!(flow.deadline.map(|deadline| deadline.as_secs_f64() * 1e3));
            value["stride"] = json!(flow.stride);
            value["delivered_bytes"] = json!(d.bytes);
            value["missing_bytes"] = json!(d.missing_bytes);
            value["missing_ranges"] = json!(d.missing_ranges);
            value["partial"] = json!(d.partial);
            value["preempted"] = json!(d.preempted);
            value["expired"] = json!(d.expired);
            value["late_packets"] = json!(f.late_packets);
        }
        writeln!(out, "{value}")?;
    }
    for (i, (group, g)) in t.groups.iter().zip(&r.groups).enumerate() {
        let members = g.members.iter().map(|m| {
            json!({ "host": m.host, "bytes": m.bytes, "acked_psn": m.acked_psn.map(|psn| psn.value()), "behind": m.behind })
        });
        let switches = g
            .switches
            .iter()
            .map(|(name, packets_in, copies)| json!({ "switch": name, "packets_in": packets_in, "copies": copies }));
        let c = &g.counters;
        let mut value = json!({
            "group": i + 1,
            "to": group.receivers.iter().map(|host| &t.hosts[*host]).collect::<Vec<_>>(),
            "merged_at": g.merged_at,
            "packets_in": c.packets_in,
            "copies": c.copies,
            "acks_in": c.acks_in,
            "acks_out": c.acks_out,
            "naks": c.naks,
            "rnr": c.rnr,
            "cnps_in": c.cnps_in,
            "cnps_out": c.cnps_out,
            "refused": c.refused,
            "bad": c.bad,
            "unresolved": c.unresolved,
            "merged_psn": g.merged_psn.map(|psn| psn.value()),
            "members": members.collect::<Vec<_>>(),
            "switches": switches.collect::<Vec<_>>(),
        });
        add_work(&mut value, t, &group.work, &g.work);
        writeln!(out, "{value}")?;
    }
    for (i, (background, b)) in t.background.iter().zip(&r.background).enumerate() {
        let names = |hosts: &[usize]| hosts.iter().map(|host| t.hosts[*host].clone()).collect::<Vec<_>>();
        let value = json!({
            "background": i + 1,
            "pattern": background.pattern.name(),
            "from": names(&background.from),
            "to": names(&background.to),
            "transport": background.transport.to_string(),
            "cc": background.cc.name(),
            "share": background.share,
            "offered_share": b.offered_share,
            "offered_gbps": b.offered_gbps,
            "messages": b.messages,
            "bytes": b.bytes,
            "completed": b.completed,
            "failed": b.failed,
            "waiting": b.waiting,
            "start_ms": background.start.as_secs_f64() * 1e3,
        });
        writeln!(out, "{value}")?;
    }
    let ports = r.ports.iter().map(|p| {
        let mut value = json!({
            "switch": p.switch,
            "port": p.port,
            "to": p.to,
            "tx_packets": p.stats.sent,
            "dropped": p.stats.dropped,
            "marked": p.stats.marked,
            "lost": p.lost,
            "max_queue_bytes": p.stats.max_queue,
            "link_utilization": p.utilization,
        });
        if t.pfc.is_some() {
            value["pauses_sent"] = json!(p.pfc.pauses_sent);
            value["pauses_received"] = json!(p.pfc.pauses_received);
            value["max_held_bytes"] = json!(p.pfc.max_held);
        }
        value
    });
    let hosts = r.hosts.iter().map(|h| json!({ "host": h.host, "tx_frames": h.frames, "tx_bytes": h.wire_bytes }));
    let mut value = json!({ "summary": {
        "flows": r.flows.len(),
        "groups": r.groups.len(),
        "backgrounds": r.background.len(),
        "goodput_gbps": r.goodput_gbps,
        "fct_ms": fct(&r.completion_times),
        "completed": work(r).map(|f| f.completed).sum::<u64>(),
        "failed": work(r).map(|f| f.failed).sum::<u64>(),
        "tx_packets": r.tx_packets,
        "retransmitted_packets": r.retransmitted_packets,
        "dropped": r.ports.iter().map(|p| p.stats.dropped).sum::<u64>(),
        "marked": r.ports.iter().map(|p| p.stats.marked).sum::<u64>(),
        "np_cnp_sent": r.cnps_sent,
        "rp_cnp_handled": r.cnps_handled,
        "lost": r.lost_before_switches + r.ports.iter().map(|p| p.lost).sum::<u64>(),
        "discarded": r.discarded,
        "hosts": hosts.collect::<Vec<_>>(),
        "ports": ports.collect::<Vec<_>>(),
        "virtual_ms": r.virtual_ms,
        "digest": format!("{:016x}", r.digest),
    }});
    if r.interrupted {
        value["summary"]["interrupted"] = json!(true);
    }
    writeln!(out, "{value}")
}

fn print_work(
    out: &mut impl Write,
    width: usize,
    number: &str,
    [from, to]: [&str; 2],
    f: &FlowReport,
) -> io::Result<()> {
    let times = &f.completion_times;
    writeln!(
        out,
        "{number:>4}  {from:width$}  {to:width$}  {:>9} {:>7}  {:>8.3}  {:>9.3} {:>9.3} {:>9.3}",
        f.completed,
        f.failed,
        f.goodput_gbps,
        times.quantile_ms(0.5),
        times.quantile_ms(0.99),
        times.max_ms()
    )
}

/// What came of messages that may come in part.
fn print_best_effort(out: &mut impl Write, t: &Topology, r: &TopologyReport) -> io::Result<()> {
    let flows = t.flows.iter().zip(&r.flows).enumerate().filter_map(|(i, (flow, f))| Some((i, flow, f, f.delivered?)));
    let rows: Vec<_> = flows.map(|(i, flow, f, d)| (i + 1, flow.spoken(), f.late_packets, d)).collect();
    if rows.is_empty() {
        return Ok(());
    }
    let width = rows.iter().map(|(_, transport, ..)| transport.len()).max().unwrap_or(0).max(9);
    writeln!(
        out,
        "\nflow  {:width$}  {:>14} {:>12} {:>9}  {:>9} {:>9} {:>9}  {:>9}",
        "transport", "delivered", "missing", "in ranges", "in part", "preempted", "expired", "late"
    )?;
    for (number, transport, late, d) in rows {
        writeln!(
            out,
            "{number:>4}  {transport:width$}  {:>14} {:>12} {:>9}  {:>9} {:>9} {:>9}  {late:>9}",
            d.bytes, d.missing_bytes, d.missing_ranges, d.partial, d.preempted, d.expired
        )?;
    }
    Ok(())
}

/// What was posted in the background, beside what was asked for.
fn print_background(out: &mut impl Write, t: &Topology, r: &TopologyReport) -> io::Result<()> {
    if t.background.is_empty() {
        return Ok(());
    }
    writeln!(
        out,
        "\nbackground  {:8}  {:>7} {:>9}  {:>8}  {:>10} {:>10} {:>8} {:>8}",
        "pattern", "share", "offered", "Gbit/s", "messages", "completed", "failed", "waiting"
    )?;
    for (i, (background, b)) in t.background.iter().zip(&r.background).enumerate() {
        writeln!(
            out,
            "{:>10}  {:8}  {:>5.1} % {:>7.1} %  {:>8.3}  {:>10} {:>10} {:>8} {:>8}",
            i + 1,
            background.pattern.name(),
            background.share * 100.0,
            b.offered_share * 100.0,
            b.offered_gbps,
            b.messages,
            b.completed,
            b.failed,
            b.waiting
        )?;
    }
    Ok(())
}

fn print_table(t: &Topology, r: &TopologyReport) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if r.interrupted {
        writeln!(out, "interrupted: what was done until then")?;
    }
    let least = if t.groups.is_empty() { 6 } else { "256 hosts".len() };
    let width = t.hosts.iter().chain(&t.switches).map(|n| n.len()).max().unwrap_or(0).max(least);
    writeln!(
        out,
        "{:>4}  {:width$}  {:width$}  {:>9} {:>7}  {:>8}  {:>9} {:>9} {:>9}",
        "flow", "from", "to", "completed", "failed", "Gbit/s", "p50 ms", "p99 ms", "max ms"
    )?;
    for (i, (flow, f)) in t.flows.iter().zip(&r.flows).enumerate() {
        print_work(&mut out, width, &(i + 1).to_string(), [&t.hosts[flow.from], &t.hosts[flow.to]], f)?;
    }
    for (i, (group, g)) in t.groups.iter().zip(&r.groups).enumerate() {
        let to = format!("{} hosts", group.receivers.len());
        print_work(&mut out, width, &format!("g{}", i + 1), [&t.hosts[group.work.from], &to], &g.work)?;
    }
    print_best_effort(&mut out, t, r)?;
    if !r.groups.is_empty() {
        writeln!(
            out,
            "\ngroup  {:width$}  {:>9} {:>9} {:>9} {:>9} {:>6} {:>6} {:>8}  copies at",
            "merged", "packets", "copies", "acks in", "acks out", "naks", "rnr", "cnps in"
        )?;
    }
    for (i, g) in r.groups.iter().enumerate() {
        let (c, switches) = (&g.counters, g.switches.iter().map(|(name, _, copies)| format!("{name} {copies}")));
        writeln!(
            out,
            "{:>5}  {:width$}  {:>9} {:>9} {:>9} {:>9} {:>6} {:>6} {:>8}  {}",
            format!("g{}", i + 1),
            g.merged_at,
            c.packets_in,
            c.copies,
            c.acks_in,
            c.acks_out,
            c.naks,
            c.rnr,
            c.cnps_in,
            switches.collect::<Vec<_>>().join(", ")
        )?;
    }
    print_background(&mut out, t, r)?;
    writeln!(
        out,
        "\n{:width$}  {:>4}  {:width$}  {:>10} {:>9} {:>9} {:>9}  {:>9}",
        "switch", "port", "to", "frames", "dropped", "marked", "max queue", "link used"
    )?;
    for p in &r.ports {
        writeln!(
            out,
            "{:width$}  {:>4}  {:width$}  {:>10} {:>9} {:>9} {:>9}  {:>7.1} %",
            p.switch,
            p.port,
            p.to,
            p.stats.sent,
            p.stats.dropped,
            p.stats.marked,
            p.stats.max_queue,
            p.utilization * 100.0
        )?;
    }
    writeln!(out, "\ngoodput           {:>12.3} Gbit/s, all flows together", r.goodput_gbps)?;
    let unreliable = || {
        t.flows.iter().zip(&r.flows).filter(|(flow, _)| !flow.transport.is_reliable() && !flow.transport.is_bounded())
    };
    let sum = |of: fn(&FlowReport) -> u64| unreliable().map(|(_, f)| of(f)).sum::<u64>();
    if unreliable().next().is_some() {
        writeln!(out, "uc and ud         {:>12} messages sent, {} delivered", sum(|f| f.sent), sum(|f| f.completed))?;
    }
    writeln!(out, "request packets   {:>12}, {} of them again", r.tx_packets, r.retransmitted_packets)?;
    let lost = r.lost_before_switches + r.ports.iter().map(|p| p.lost).sum::<u64>();
    if lost + r.discarded > 0 {
        writeln!(out, "beside queues     {lost:>12} frames lost on links, {} discarded by switches", r.discarded)?;
    }
    if t.pfc.is_some() {
        let (pauses, held) = (r.ports.iter().map(|p| p.pfc.pauses_sent), r.ports.iter().map(|p| p.pfc.max_held));
        let (pauses, held) = (pauses.sum::<u64>(), held.max().unwrap_or(0));
        writeln!(
            out,
            "flow control      {pauses:>12} pause frames sent, at most {held} bytes held for a priority of a port"
        )?;
    }
    if r.marks_received > 0 {
        let (marks, sent, handled) = (r.marks_received, r.cnps_sent, r.cnps_handled);
        writeln!(out, "congestion        {marks:>12} marks came, {sent} CNPs sent, {handled} heeded")?;
    }
    writeln!(out, "virtual time      {:>12.3} ms", r.virtual_ms)?;
    writeln!(out, "digest            {:016x}", r.digest)
}
