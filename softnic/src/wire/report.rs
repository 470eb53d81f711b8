//! What a wire did, for people and as JSON.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Map, Value, json};
use softnic_runtime::bump::{Counters, Residence, Summary};

/// What to do about frames that no Ethernet carries.
pub(super) fn unsegmented(interface: &str) -> String {
    format!(
        "frames longer than the MTU come in at {interface} and are dropped: whoever sends there leaves the segmentation to its card. \
         On the sending interface: ethtool -K INTERFACE tso off gso off tx-udp-segmentation off; if {interface} merges what it \
         receives: ethtool -K {interface} gro off lro off"
    )
}

/// Frames that did not get through.
fn lost(c: &Counters) -> u64 {
    c.fault_lost + c.queue_full + c.overflowed + c.too_long + c.unsegmented + c.rx_missed + c.tx_refused
}

/// A line of both directions: what there was since the last one.
pub(super) fn line(at: Duration, since: Duration, before: &[Counters; 2], now: &[Counters; 2]) -> String {
    let mut out = format!("{:>7.1} s", at.as_secs_f64());
    let seconds = since.as_secs_f64().max(1e-3);
    for (name, (b, n)) in ["a>b", "b>a"].into_iter().zip(before.iter().zip(now)) {
        let frames = (n.tx_frames - b.tx_frames) as f64 / seconds;
        let gbit = (n.tx_bytes - b.tx_bytes) as f64 * 8e-9 / seconds;
        let _ = write!(
            out,
            "  {name} {frames:>9.0} frames/s {gbit:>7.3} Gbit/s, roce {}, lost {}, dup {}, corrupt {}, reorder {}, waiting {}",
            n.roce_frames - b.roce_frames,
            lost(n) - lost(b),
            n.duplicated - b.duplicated,
            n.corrupted - b.corrupted,
            n.reordered - b.reordered,
            n.under_way
        );
        if name == "a>b" {
            out.push_str("  |");
        }
    }
    out
}

fn microseconds(ns: u64) -> String {
    format!("{:.1} µs", ns as f64 / 1e3)
}

/// The summary: what never happened is left out.
pub(super) fn text(summary: &Summary) -> String {
    let mut out =
        format!("{:<44} {:>14} {:>14}\n", format!("{:.1} s", summary.elapsed.as_secs_f64()), "a to b", "b to a");
    let [ab, ba] = &summary.counters;
    let mut row = |name: &str, of: fn(&Counters) -> u64, always: bool| {
        let (there, back) = (of(ab), of(ba));
        if always || there + back > 0 {
            let _ = writeln!(out, "{name:<44} {there:>14} {back:>14}");
        }
    };
    row("frames in", |c| c.rx_frames, true);
    row("bytes in", |c| c.rx_bytes, true);
    row("RoCE packets among them", |c| c.roce_frames, true);
    row("frames out", |c| c.tx_frames, true);
    row("bytes out", |c| c.tx_bytes, true);
    row("lost by faults", |c| c.fault_lost, true);
    row("lost at the bottleneck's full queue", |c| c.queue_full, false);
    row("lost because too many were under way", |c| c.overflowed, false);
    row("duplicated", |c| c.duplicated, false);
    row("corrupted", |c| c.corrupted, false);
    row("held until later ones had passed", |c| c.reordered, false);
    row("delayed by a script", |c| c.delayed, false);
    row("marked: congestion experienced", |c| c.marked, false);
    row("still on the way or held", |c| c.under_way, false);
    row("checksums completed", |c| c.checksums_completed, false);
    row("dropped: too long for the other MTU", |c| c.too_long, false);
    row("dropped: not segmented by the sender", |c| c.unsegmented, false);
    row("dropped by the kernel: our ring was full", |c| c.rx_missed, false);
    row("dropped by the kernel: its queue was full", |c| c.tx_refused, false);
    let [ab, ba] = &summary.residence;
    let mut row = |name: &str, of: fn(&Residence) -> u64| {
        let _ = writeln!(out, "{name:<44} {:>14} {:>14}", microseconds(of(ab)), microseconds(of(ba)));
    };
    if ab.frames + ba.frames > 0 {
        row("from ring to ring, median", |r| r.p50);
        row("from ring to ring, 99 %", |r| r.p99);
        row("from ring to ring, longest", |r| r.max);
    }
    out
}

fn counters(c: &Counters) -> Map<String, Value> {
    c.iter().map(|(name, value)| (name.to_string(), value.into())).collect()
}

/// An object while it runs.
pub(super) fn json_line(at: Duration, [ab, ba]: &[Counters; 2]) -> Value {
    json!({ "seconds": at.as_secs_f64(), "ab": counters(ab), "ba": counters(ba) })
}

/// The object at the end: the fields are a contract.
pub(super) fn json(summary: &Summary) -> Value {
    let residence = |r: &Residence| {
        let us = |ns| ns as f64 / 1e3;
        json!({ "frames": r.frames, "p50": us(r.p50), "p99": us(r.p99), "p999": us(r.p999), "max": us(r.max) })
    };
    let mut out = json_line(summary.elapsed, &summary.counters);
    for (name, r) in ["ab", "ba"].into_iter().zip(&summary.residence) {
        out[name]["residence_us"] = residence(r);
    }
    out["script_applied"] = json!(summary.applied);
    json!({ "summary": out })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        let ab = Counters { rx_frames: 10, tx_frames: 8, fault_lost: 2, ..Counters::default() };
        let residence = Residence { frames: 8, p50: 1500, p99: 2500, p999: 3000, max: 4000 };
        Summary {
            elapsed: Duration::from_millis(1500),
            counters: [ab, Counters::default()],
            residence: [residence, Residence::default()],
            applied: vec![1, 0],
        }
    }

    #[test]
    fn the_summary_leaves_out_what_never_happened() {
        let text = text(&summary());
        let row = |name: &str| {
            let line = text.lines().find(|line| line.starts_with(name))?;
            Some(line[name.len()..].split_whitespace().collect::<Vec<_>>().join(" "))
        };
        assert_eq!(row("frames in").as_deref(), Some("10 0"));
        assert_eq!(row("lost by faults").as_deref(), Some("2 0"));
        assert_eq!(row("from ring to ring, 99 %").as_deref(), Some("2.5 µs 0.0 µs"));
        assert_eq!(row("duplicated"), None);
    }

    #[test]
    fn json_has_both_directions() {
        let v = json(&summary());
        assert_eq!(v["summary"]["ab"]["fault_lost"], 2);
        assert_eq!(v["summary"]["ba"]["rx_frames"], 0);
        assert_eq!(v["summary"]["ab"]["residence_us"]["p50"], 1.5);
        assert_eq!(v["summary"]["script_applied"], json!([1, 0]));
    }

    #[test]
    fn a_line_shows_what_was_new() {
        let [before, now] = [Counters::default(), summary().counters[0]];
        let line = line(Duration::from_secs(3), Duration::from_secs(2), &[before; 2], &[now, before]);
        assert!(line.contains("a>b         4 frames/s") && line.contains("lost 2"), "{line}");
    }
}
