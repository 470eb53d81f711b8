//! What a transfer came to, as JSON and for people.

use std::io::{self, Write};

use serde_json::json;
use softnic_fault_injector::Spec;
use softnic_perf::{failover_json, failover_text};
use softnic_sim::{Cc, Options, Report, Transport};

use super::Args;
use crate::sdr;

pub(super) fn print_json(out: &mut dyn Write, args: &Args, o: &Options, r: &Report) -> io::Result<()> {
    let t = &r.completion_times;
    let mut value = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "transport": args.transport.name(),
        "rate_bps": o.rate,
        "rtt_ms": o.rtt.as_secs_f64() * 1e3,
        "mtu": o.mtu.bytes(),
        "faults": args.fault.text,
        "seed": o.seed,
        "goodput_gbps": r.goodput_gbps,
        "link_utilization": r.link_utilization,
        "fct_ms": {
            "mean": t.mean_ms(), "p50": t.quantile_ms(0.5), "p99": t.quantile_ms(0.99),
            "p999": t.quantile_ms(0.999), "max": t.max_ms(),
        },
        "completed": r.completed,
        "failed": r.failed,
        "tx_packets": r.tx_packets,
        "retransmitted_packets": r.retransmitted_packets,
        "repair_packets": r.requester.lowar_repairs_sent + r.responder.lowar_repairs_sent,
        "recovered_packets": r.requester.lowar_recovered_packets + r.responder.lowar_recovered_packets,
        "virtual_ms": r.virtual_ms,
        "digest": format!("{:016x}", r.digest),
    });
    if r.interrupted {
        value["interrupted"] = json!(true);
    }
    let (a, b) = (&r.requester, &r.responder);
    if args.auth {
        value["auth"] = json!(true);
        value["rx_auth_failed"] = json!(a.rx_auth_failed + b.rx_auth_failed);
        value["rx_auth_replayed"] = json!(a.rx_auth_replayed + b.rx_auth_replayed);
    }
    let marks = a.np_ecn_marked_roce_packets + b.np_ecn_marked_roce_packets;
    if args.cc != Cc::None || marks > 0 {
        value["cc"] = json!(args.cc.name());
        value["np_ecn_marked_roce_packets"] = json!(marks);
        value["np_cnp_sent"] = json!(a.np_cnp_sent + b.np_cnp_sent);
        value["rp_cnp_handled"] = json!(a.rp_cnp_handled + b.rp_cnp_handled);
    }
    if let Some(d) = &r.delivered {
        value["delivered_bytes"] = json!(d.bytes);
        value["missing_bytes"] = json!(d.missing_bytes);
        value["missing_ranges"] = json!(d.missing_ranges);
        value["partial"] = json!(d.partial);
        value["preempted"] = json!(d.preempted);
        value["expired"] = json!(d.expired);
        value["late_packets"] = json!(a.xp_late_packets + b.xp_late_packets);
    }
    if let Some(c) = &r.chunks {
        value["chunks"] = json!(c.chunks);
        value["chunks_missing"] = json!(c.missing);
        value["delivered_bytes"] = json!(c.bytes);
        value["late_packets"] = json!(c.late_packets);
        value["cts_sent"] = json!(c.cts_sent);
    }
    if let Some(r) = &r.reliability {
        sdr::add_json(&mut value, r);
    }
    if let Some(f) = &r.failover {
        value["backup_faults"] = json!(args.backup_fault.text);
        value["failover"] = failover_json(&f.counters);
    }
    if tells_lost_datagrams(o, r) {
        value["lost_datagrams"] = json!(lost_datagrams(o, r));
    }
    writeln!(out, "{value}")
}

/// Whether messages arrive or not, as a whole. Of a run that was ended, nobody knows what is still on its way.
fn tells_lost_datagrams(o: &Options, r: &Report) -> bool {
    !o.transport.is_reliable() && r.chunks.is_none() && r.reliability.is_none() && !r.interrupted
}

/// Messages of uc and ud that were sent and did not arrive.
fn lost_datagrams(o: &Options, r: &Report) -> u64 {
    o.count.saturating_sub(r.completed + r.failed)
}

pub(super) fn print_table(out: &mut dyn Write, args: &Args, o: &Options, r: &Report) -> io::Result<()> {
    let t = &r.completion_times;
    if r.interrupted {
        writeln!(
            out,
            "interrupted       after {} of {} work requests: what was done until then",
            r.completed, o.count
        )?;
    }
    writeln!(
        out,
        "setting           {:>12}, {} Gbit/s, RTT {} ms, path MTU {}, seed {}, softnic {}",
        args.transport.text(),
        o.rate as f64 / 1e9,
        o.rtt.as_secs_f64() * 1e3,
        o.mtu.bytes(),
        o.seed,
        env!("CARGO_PKG_VERSION")
    )?;
    if !args.fault.text.is_empty() {
        writeln!(out, "faults            {:>12}", args.fault.text)?;
    }
    writeln!(
        out,
        "goodput           {:>12.3} Gbit/s, {:.1} % of the line used",
        r.goodput_gbps,
        r.link_utilization * 100.0
    )?;
    writeln!(out, "completed         {:>12} work requests, {} failed", r.completed, r.failed)?;
    if let Some(d) = &r.delivered {
        let late = r.requester.xp_late_packets + r.responder.xp_late_packets;
        writeln!(out, "delivered         {:>12} bytes, {} missing", d.bytes, d.missing_bytes)?;
        writeln!(
            out,
            "in part           {:>12} of them: {} preempted, {} expired; {late} packets came late",
            d.partial, d.preempted, d.expired
        )?;
    }
    if let Some(c) = &r.chunks {
        writeln!(out, "chunks            {:>12}, {} missing; {} bytes delivered", c.chunks, c.missing, c.bytes)?;
        writeln!(out, "CTS               {:>12}; {} packets came late", c.cts_sent, c.late_packets)?;
    }
    if let Some(r) = &r.reliability {
        sdr::print(out, r)?;
    }
    if tells_lost_datagrams(o, r) {
        writeln!(out, "lost datagrams    {:>12}", lost_datagrams(o, r))?;
    }
    writeln!(
        out,
        "completion times  {:>12.3} ms mean, {:.3} p50, {:.3} p99, {:.3} p99.9, {:.3} max",
        t.mean_ms(),
        t.quantile_ms(0.5),
        t.quantile_ms(0.99),
        t.quantile_ms(0.999),
        t.max_ms()
    )?;
    writeln!(out, "request packets   {:>12}, {} of them again", r.tx_packets, r.retransmitted_packets)?;
    if matches!(o.transport, Transport::Lowar(_)) {
        let (a, b) = (&r.requester, &r.responder);
        writeln!(
            out,
            "repair packets    {:>12}, {} packets recovered, {} blocks left to Go-Back-N",
            a.lowar_repairs_sent + b.lowar_repairs_sent,
            a.lowar_recovered_packets + b.lowar_recovered_packets,
            a.lowar_failed_blocks + b.lowar_failed_blocks
        )?;
    }
    let (a, b) = (&r.requester, &r.responder);
    writeln!(out, "sequence NAKs     {:>12} sent, {} received", b.sent_seq_naks, a.packet_seq_err)?;
    writeln!(out, "timeouts          {:>12}", a.local_ack_timeout_err)?;
    if args.fault.spec != Spec::default() {
        let [ab, ba] = &r.links;
        writeln!(
            out,
            "on the link       {:>12} frames lost, {} of them at a full queue, {} marked",
            ab.lost + ba.lost,
            ab.tail_dropped + ba.tail_dropped,
            ab.marked + ba.marked
        )?;
    }
    if let Some(failover) = &r.failover {
        let what = failover_text(&failover.counters);
        let (count, what) = what.split_once(' ').unwrap_or((&what, ""));
        writeln!(out, "failover          {count:>12} {what}")?;
    }
    let (marks, cnps) = (a.np_ecn_marked_roce_packets + b.np_ecn_marked_roce_packets, a.np_cnp_sent + b.np_cnp_sent);
    if marks > 0 {
        let handled = a.rp_cnp_handled + b.rp_cnp_handled;
        writeln!(out, "congestion        {marks:>12} marks came, {cnps} CNPs sent, {handled} heeded")?;
    }
    writeln!(out, "virtual time      {:>12.3} ms", r.virtual_ms)?;
    writeln!(out, "digest            {:016x}", r.digest)
}
