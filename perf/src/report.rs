//! What was measured, in perftest's columns and as JSON.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};
use softnic_runtime::api::{FailoverCounters, Transport};

use super::best_effort::Delivered;
use super::failover::{failover_json, failover_text};
use super::interval::Interval;
use super::plan::{Op, Plan, Verb};
use super::reliable::{self, ReliableOutcome};
use super::sdr::{self, Chunks};

/// The longest time that is told apart from longer ones.
const LONGEST_NS: u64 = 60_000_000_000;

/// How fast messages of one size went.
#[derive(Debug, Clone)]
pub struct Rates {
    pub(crate) size: u32,
    /// Messages that completed.
    pub count: u64,
    pub(crate) elapsed: Duration,
    /// Messages a second in the best stretch.
    peak: f64,
    /// What was transferred in each interval, where intervals are measured.
    pub(crate) intervals: Vec<Interval>,
    /// Where messages may come in part: what came of them.
    pub delivered: Option<Delivered>,
    /// Of an SDR run: what came of its chunks.
    pub chunks: Option<Chunks>,
    /// Of reliable messages over SDR: what it took to carry them, and how long each one took.
    pub reliable: Option<Box<ReliableOutcome>>,
    pub(crate) times: Option<Box<Times>>,
    /// What failover has done so far, where there is a backup.
    pub failover: Option<Box<FailoverCounters>>,
}

impl Rates {
    pub(crate) fn new(size: u32) -> Rates {
        let (count, elapsed, peak, intervals) = (0, Duration::ZERO, 0.0, Vec::new());
        let (delivered, chunks, reliable, times, failover) = (None, None, None, None, None);
        Rates { size, count, elapsed, peak, intervals, delivered, chunks, reliable, times, failover }
    }

    /// So many completed in a stretch of time.
    pub(crate) fn window(&mut self, count: u64, time: Duration) {
        self.peak = self.peak.max(count as f64 / time.as_secs_f64());
    }

    fn messages_per_second(&self) -> f64 {
        match self.elapsed.as_secs_f64() {
            0.0 => 0.0,
            seconds => self.count as f64 / seconds,
        }
    }

    fn gbps(&self, per_second: f64) -> f64 {
        // What did not come is no bandwidth.
        let of_bytes = self.delivered.map(|delivered| delivered.share());
        let share = of_bytes.or(self.chunks.map(|chunks| chunks.share())).unwrap_or(1.0);
        per_second * f64::from(self.size) * share * 8.0 / 1e9
    }

    /// Gbit/s over the whole time.
    pub fn average_gbps(&self) -> f64 {
        self.gbps(self.messages_per_second())
    }

    fn peak_gbps(&self) -> f64 {
        self.gbps(self.peak.max(self.messages_per_second()))
    }

    /// Millions of messages a second.
    pub fn mpps(&self) -> f64 {
        self.messages_per_second() / 1e6
    }
}

/// How long messages of one size took.
#[derive(Debug, Clone)]
pub struct Times {
    pub(crate) size: u32,
    /// From the first message to the last.
    pub elapsed: Duration,
    histogram: Histogram<u64>,
    min: u64,
    max: u64,
    /// As [`Rates::intervals`].
    pub(crate) intervals: Vec<Interval>,
    /// As [`Rates::failover`].
    pub failover: Option<Box<FailoverCounters>>,
}

impl Times {
    pub(crate) fn new(size: u32) -> Times {
        // Three digits; the bounds are constants that make sense.
        let histogram = Histogram::new_with_bounds(1, LONGEST_NS, 3).unwrap_or_else(|_| unreachable!());
        Times { size, elapsed: Duration::ZERO, histogram, min: u64::MAX, max: 0, intervals: Vec::new(), failover: None }
    }

    pub(crate) fn record(&mut self, time: Duration) {
        let ns = time.as_nanos() as u64;
        self.histogram.saturating_record(ns);
        (self.min, self.max) = (self.min.min(ns), self.max.max(ns));
    }

    /// Messages that were timed.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    fn quantile(&self, q: f64) -> f64 {
        // The histogram answers with the upper edge of a bucket, which may lie beyond everything that was seen.
        self.histogram.value_at_quantile(q).min(self.max) as f64 / 1e3
    }

    /// In milliseconds.
    pub fn mean_ms(&self) -> f64 {
        self.histogram.mean() / 1e6
    }

    /// In milliseconds.
    pub fn quantile_ms(&self, q: f64) -> f64 {
        self.quantile(q) / 1e3
    }

    /// The median, in microseconds.
    pub fn typical(&self) -> f64 {
        self.quantile(0.5)
    }
}

/// What was measured of one size.
#[derive(Debug, Clone)]
pub enum Measured {
    /// How fast they went.
    Bandwidth(Rates),
    /// How long each took.
    Latency(Times),
}

impl Measured {
    /// What failover has done so far, where there is a backup.
    pub fn failover(&self) -> Option<&FailoverCounters> {
        match self {
            Measured::Bandwidth(r) => r.failover.as_deref(),
            Measured::Latency(t) => t.failover.as_deref(),
        }
    }

    pub(crate) fn set_failover(&mut self, counters: Option<FailoverCounters>) {
        let counters = counters.map(Box::new);
        match self {
            Measured::Bandwidth(r) => r.failover = counters,
            Measured::Latency(t) => t.failover = counters,
        }
    }
}

/// The line before the columns.
pub fn heading(plan: &Plan, description: &str) -> String {
    let mtu = plan.mtu.map_or(String::new(), |mtu| format!(", mtu {mtu}"));
    if plan.op.verb() == Verb::Raw {
        return format!("{}: {description}; frames without protocol", plan.op.name());
    }
    let plural = if plan.qps == 1 { "queue pair" } else { "queue pairs" };
    let depth = plan.in_flight();
    let verify = if plan.verify { ", data compared" } else { "" };
    let cc = plan.cc.as_ref().map_or(String::new(), |cc| format!(" with {cc}"));
    let auth = if plan.auth { ", authenticated" } else { "" };
    let negotiated = match (&plan.negotiated, plan.needs_link_mtu) {
        (Some(spoken), _) if *spoken == plan.name() => String::new(),
        (Some(spoken), Some(mtu)) => format!(" (needs a link MTU of {mtu}: {spoken})"),
        (Some(spoken), None) => format!(" (the peer has it not: {spoken})"),
        (None, _) => String::new(),
    };
    let spoken = match (&plan.sdr, &plan.reliable) {
        (_, Some(reliable)) => reliable::described(reliable, plan.path_mtu()),
        (Some(sdr), None) => sdr::described(sdr),
        (None, None) => plan.transport.to_string(),
    };
    format!(
        "{}: {description}; {spoken}{negotiated}{cc}{auth}{mtu}, depth {depth}, {} {plural}{verify}",
        plan.op.name(),
        plan.qps
    )
}

/// perftest's columns.
pub fn columns(op: Op) -> &'static str {
    match op.is_latency() {
        true => {
            " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]   99% percentile[usec]   99.9% percentile[usec]"
        }
        false => " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]",
    }
}

/// A line below the columns, or an object.
pub fn print(plan: &Plan, measured: &Measured, counters: &BTreeMap<String, u64>, as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if as_json {
        return writeln!(out, "{}", json(plan, measured, counters));
    }
    match measured {
        Measured::Bandwidth(r) => writeln!(
            out,
            " {:<10} {:<14} {:<18.2} {:<20.2} {:<12.6}",
            r.size,
            r.count,
            r.peak_gbps(),
            r.average_gbps(),
            r.mpps()
        )?,
        Measured::Latency(t) if t.count() == 0 => writeln!(out, " {:<7} 0", t.size)?,
        Measured::Latency(t) => writeln!(
            out,
            " {:<7} {:<14} {:<14.2} {:<14.2} {:<16.2} {:<14.2} {:<16.2} {:<22.2} {:<22.2}",
            t.size,
            t.count(),
            t.min as f64 / 1e3,
            t.max as f64 / 1e3,
            t.typical(),
            t.histogram.mean() / 1e3,
            t.histogram.stdev() / 1e3,
            t.quantile(0.99),
            t.quantile(0.999)
        )?,
    }
    if let Measured::Bandwidth(Rates { delivered: Some(d), .. }) = measured {
        writeln!(
            out,
            "   {:.4} % of the bytes delivered, {} missing; {} messages in part: {} preempted, {} expired; {} packets late",
            d.share() * 100.0,
            d.missing_bytes,
            d.partial,
            d.preempted,
            d.expired,
            d.late_packets
        )?;
        if d.no_receive > 0 {
            writeln!(out, "   {} messages found no receive: their receiver was too slow", d.no_receive)?;
        }
    }
    if let Measured::Bandwidth(Rates { chunks: Some(c), .. }) = measured {
        writeln!(
            out,
            "   {} of {} chunks missing, {} packets late; {} CTS; completing and posting a receive took {} ns",
            c.chunks_missing, c.chunks, c.late_packets, c.cts_sent, c.repost_ns
        )?;
    }
    if let Measured::Bandwidth(Rates { reliable: Some(r), times: Some(t), .. }) = measured {
        print_reliable(&mut out, r, t)?;
    }
    if let Some(failover) = measured.failover() {
        writeln!(out, "   failover: {}", failover_text(failover))?;
    }
    let trouble = [
        "retransmitted_packets",
        "lowar_recovered_packets",
        "local_ack_timeout_err",
        "lost_frames",
        "lost_messages",
        "xp_expired_sends",
        "rx_icrc_encapsulated",
    ];
    let trouble: Vec<String> =
        trouble.iter().filter_map(|name| Some(format!("{name} {}", counters.get(*name)?))).collect();
    if !trouble.is_empty() {
        writeln!(out, "   {}", trouble.join(", "))?;
    }
    out.flush()
}

/// The object of a size: the fields are a contract.
pub(crate) fn json(plan: &Plan, measured: &Measured, counters: &BTreeMap<String, u64>) -> Value {
    let transport = match plan.op.verb() {
        Verb::Raw => "raw".into(),
        _ => plan.name(),
    };
    let mut value = json!({ "transport": transport, "op": plan.op.name() });
    if let Transport::Lowar(code) = plan.transport {
        value["code"] = json!(code.to_string());
    }
    if let Some(cc) = &plan.cc {
        value["cc"] = json!(cc);
    }
    if plan.auth {
        value["auth"] = json!(true);
    }
    if let Some(negotiated) = &plan.negotiated {
        value["negotiated"] = json!(negotiated);
    }
    match measured {
        Measured::Bandwidth(r) => {
            value["bytes"] = json!(r.size);
            value["iterations"] = json!(r.count);
            value["bw_peak_gbps"] = json!(r.peak_gbps());
            value["bw_avg_gbps"] = json!(r.average_gbps());
            value["msg_rate_mpps"] = json!(r.mpps());
            if let Some(d) = r.delivered {
                value["delivered_bytes"] = json!(d.delivered_bytes);
                value["missing_bytes"] = json!(d.missing_bytes);
                value["partial"] = json!(d.partial);
                value["preempted"] = json!(d.preempted);
                value["expired"] = json!(d.expired);
                value["late_packets"] = json!(d.late_packets);
                value["no_receive"] = json!(d.no_receive);
            }
            if let Some(c) = r.chunks {
                value["chunks"] = json!(c.chunks);
                value["chunks_missing"] = json!(c.chunks_missing);
                value["late_packets"] = json!(c.late_packets);
                value["cts_sent"] = json!(c.cts_sent);
                value["repost_ns"] = json!(c.repost_ns);
            }
            if let Some(reliable) = &r.reliable {
                add_reliable(&mut value, reliable);
            }
            if let Some(t) = &r.times {
                value["fct_ms"] = json!({
                    "mean": t.mean_ms(), "p50": t.quantile_ms(0.5), "p99": t.quantile_ms(0.99),
                    "p999": t.quantile_ms(0.999), "max": t.max as f64 / 1e6,
                });
            }
        }
        Measured::Latency(t) => {
            value["bytes"] = json!(t.size);
            value["iterations"] = json!(t.count());
            value["lat_us"] = json!({
                "min": if t.count() == 0 { 0.0 } else { t.min as f64 / 1e3 },
                "typical": t.typical(),
                "avg": t.histogram.mean() / 1e3,
                "p99": t.quantile(0.99),
                "p999": t.quantile(0.999),
                "max": t.max as f64 / 1e3,
                "stdev": t.histogram.stdev() / 1e3,
            });
        }
    }
    let intervals = match measured {
        Measured::Bandwidth(r) => &r.intervals,
        Measured::Latency(t) => &t.intervals,
    };
    if !intervals.is_empty() {
        value["intervals"] = intervals.iter().map(Interval::json).collect();
    }
    if let Some(failover) = measured.failover() {
        value["failover"] = failover_json(failover);
    }
    value["counters"] = json!(counters);
    value
}

/// What it took to carry reliable messages, by the names that other transports and the simulator have for it.
fn add_reliable(value: &mut Value, r: &ReliableOutcome) {
    value["chunk"] = json!(r.chunk);
    value["retransmitted_packets"] = json!(r.retransmitted_packets);
    value["repair_packets"] = json!(r.repair_packets);
    value["rows_asked_for"] = json!(r.rows_asked_for);
    value["recovered_packets"] = json!(r.recovered_packets);
    value["acks_sent"] = json!(r.acks_sent);
    value["nacks_sent"] = json!(r.nacks_sent);
    value["chunk_timeouts"] = json!(r.chunk_timeouts);
    value["fallbacks"] = json!(r.fallbacks);
    value["failed_submessages"] = json!(r.failed_submessages);
    value["unprotected"] = json!(r.unprotected);
    value["decode_us"] = json!(r.decode_ns as f64 / 1e3);
}

fn print_reliable(out: &mut impl Write, r: &ReliableOutcome, times: &Times) -> io::Result<()> {
    writeln!(
        out,
        "   messages took {:.3} ms (median), {:.3} ms (99 %); {} packets sent again; {} ACKs, {} NACKs",
        times.quantile_ms(0.5),
        times.quantile_ms(0.99),
        r.retransmitted_packets,
        r.acks_sent,
        r.nacks_sent
    )?;
    if r.repair_packets > 0 {
        writeln!(
            out,
            "   {} packets of parity, {} recovered in {:.1} ms; {} messages fell back, for {} submessages",
            r.repair_packets,
            r.recovered_packets,
            r.decode_ns as f64 / 1e6,
            r.fallbacks,
            r.failed_submessages
        )?;
    }
    Ok(())
}

/// Whoever reads the output may go; everything else is an error.
pub fn written(result: io::Result<()>) -> Result<(), String> {
    match result {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(format!("cannot write the output: {e}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_percentile_is_above_the_longest_time() {
        let mut times = Times::new(8);
        (0..100).for_each(|i| times.record(Duration::from_nanos(1_000_001 + i)));
        assert!(times.quantile(0.999) <= times.max as f64 / 1e3, "{} > {}", times.quantile(0.999), times.max);
    }
}
