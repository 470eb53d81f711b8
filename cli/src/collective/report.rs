//! What a run of collectives came to, for people and for programs.

use std::io::{self, Write};
use std::time::Duration;

use serde_json::{Map, Value, json};
use softnic_collectives::call::Operation;
use softnic_collectives::member::MemberCounters;
use softnic_collectives::report::{RankReport, Report, Times};
use softnic_collectives::run::Options;
use softnic_collectives::uc::is_bounded;
use softnic_transports::Counters;

fn cct(times: &Times) -> Value {
    json!({
        "mean": times.mean_ms(), "p50": times.quantile_ms(0.5), "p99": times.quantile_ms(0.99),
        "p999": times.quantile_ms(0.999), "max": times.quantile_ms(1.0),
    })
}

/// The budgets: null where there was none.
fn timeouts(timeouts: &[Duration]) -> Value {
    let ms = |d: &Duration| d.as_secs_f64() * 1e3;
    let (Some(first), Some(last)) = (timeouts.first(), timeouts.last()) else { return Value::Null };
    json!({
        "first": ms(first), "last": ms(last),
        "min": timeouts.iter().min().map(ms), "max": timeouts.iter().max().map(ms),
    })
}

/// What members and NICs counted; of NICs what is not zero.
fn counters(member: &MemberCounters, nic: &Counters) -> Value {
    let MemberCounters {
        collectives,
        messages,
        partial_messages,
        received_bytes,
        missing_bytes,
        control_sent,
        control_dropped,
    } = *member;
    let mut all = Map::new();
    let own = [
        ("collectives", collectives),
        ("messages", messages),
        ("partial_messages", partial_messages),
        ("received_bytes", received_bytes),
        ("missing_bytes", missing_bytes),
        ("control_sent", control_sent),
        ("control_dropped", control_dropped),
    ];
    own.into_iter().chain(nic.iter().filter(|(_, n)| *n > 0)).for_each(|(name, n)| {
        all.insert(name.to_owned(), json!(n));
    });
    Value::Object(all)
}

fn fraction(member: &MemberCounters) -> f64 {
    let all = member.received_bytes + member.missing_bytes;
    if all == 0 { 0.0 } else { member.missing_bytes as f64 / all as f64 }
}

/// The bus bandwidth by a rank's own times.
fn bus_gbps(options: &Options, times: &Times) -> f64 {
    let (bytes, factor) = (options.call.bytes as f64, options.call.operation.bus_factor(options.ranks));
    let mean = times.mean_ms();
    if mean > 0.0 { bytes * factor * 8.0 / mean / 1e6 } else { 0.0 }
}

/// A line for each rank, and one for all.
pub(super) fn print_json(options: &Options, report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let (mut member, mut nic) = (MemberCounters::default(), Counters::default());
    for (rank, r) in (report.first_rank..).zip(&report.ranks) {
        let value = json!({
            "rank": rank,
            "cct_ms": cct(&r.times),
            "missing_fraction": fraction(&r.member),
            "timeouts_ms": timeouts(&report.timeouts),
            "bus_gbps": bus_gbps(options, &r.times),
            "counters": counters(&r.member, &r.nic),
        });
        writeln!(out, "{value}")?;
        member = sum(&member, &r.member);
        nic.add(&r.nic);
    }
    let call = &options.call;
    let root = match call.operation {
        Operation::Broadcast { root } => json!(root),
        _ => Value::Null,
    };
    let mut value = json!({ "summary": {
        "operation": call.operation.to_string(),
        "algorithm": call.algorithm.to_string(),
        "type": call.element.to_string(),
        "reduction": call.reduction.to_string(),
        "root": root,
        "ranks": options.ranks,
        "size": call.bytes,
        "transport": options.transport.to_string(),
        "cc": options.cc.name(),
        "iterations": report.times.all().len(),
        "cct_ms": cct(&report.times),
        "deviation_ms": report.times.deviation_ms(),
        "missing_fraction": report.missing_fraction(),
        "timeouts_ms": timeouts(&report.timeouts),
        "warm_up_ms": report.warm_up.map(|d| d.as_secs_f64() * 1e3),
        "bus_gbps": report.bus_gbps,
        "counters": counters(&member, &nic),
        "total_ms": report.total_time.as_secs_f64() * 1e3,
        "digest": report.digest.map(|digest| format!("{digest:016x}")),
    }});
    if report.interrupted {
        value["summary"]["interrupted"] = json!(true);
    }
    writeln!(out, "{value}")
}

fn sum(a: &MemberCounters, b: &MemberCounters) -> MemberCounters {
    MemberCounters {
        collectives: a.collectives.max(b.collectives),
        messages: a.messages + b.messages,
        partial_messages: a.partial_messages + b.partial_messages,
        received_bytes: a.received_bytes + b.received_bytes,
        missing_bytes: a.missing_bytes + b.missing_bytes,
        control_sent: a.control_sent + b.control_sent,
        control_dropped: a.control_dropped + b.control_dropped,
    }
}

pub(super) fn print_table(options: &Options, report: &Report) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if report.interrupted {
        writeln!(out, "interrupted: what was done until then")?;
    }
    let times = &report.times;
    writeln!(out, "collective        {}, {} ranks over {}", options.call, options.ranks, options.transport)?;
    writeln!(
        out,
        "completion times  {:>12.3} ms mean, {:.3} p50, {:.3} p99, {:.3} p99.9, {:.3} max, of {}",
        times.mean_ms(),
        times.quantile_ms(0.5),
        times.quantile_ms(0.99),
        times.quantile_ms(0.999),
        times.quantile_ms(1.0),
        times.all().len()
    )?;
    writeln!(out, "bus bandwidth     {:>12.3} Gbit/s", report.bus_gbps)?;
    let (slowest, fastest) = extremes(&report.ranks);
    writeln!(out, "ranks             {slowest:>12.3} ms mean of the slowest, {fastest:.3} of the fastest")?;
    if let (Some(first), Some(last)) = (report.timeouts.first(), report.timeouts.last()) {
        let ms = |d: &Duration| d.as_secs_f64() * 1e3;
        writeln!(out, "budget            {:>12.3} ms first, {:.3} last", ms(first), ms(last))?;
    }
    if is_bounded(options.transport) || !report.losses.is_empty() {
        let partial: u64 = report.ranks.iter().map(|rank| rank.member.partial_messages).sum();
        let (missing, bytes) = (report.missing_fraction() * 100.0, report.losses.bytes());
        writeln!(out, "missing           {missing:>12.4} %, {bytes} bytes of {partial} messages")?;
    }
    let mut nic = Counters::default();
    report.ranks.iter().for_each(|rank| nic.add(&rank.nic));
    writeln!(out, "request packets   {:>12}, {} of them again", nic.sent_requests, nic.retransmitted_packets)?;
    let total = report.total_time.as_secs_f64() * 1e3;
    match report.digest {
        Some(digest) => writeln!(out, "virtual time      {total:>12.3} ms\ndigest            {digest:016x}"),
        None => writeln!(out, "time              {total:>12.3} ms"),
    }
}

fn extremes(ranks: &[RankReport]) -> (f64, f64) {
    let means = ranks.iter().map(|rank| rank.times.mean_ms());
    (means.clone().fold(0.0, f64::max), means.fold(f64::INFINITY, f64::min))
}
