//! What a wire did, for people and as JSON.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Map, Value, json};
use softnic_runtime::bump::{Counters, Residence, Summary};

use crate::colour;

/// What to do about frames that no Ethernet carries.
pub(crate) fn unsegmented(interface: &str) -> String {
    format!(
        "frames longer than the MTU come in at {interface} and are dropped: whoever sends there leaves the segmentation to its card. \
         On the sending interface: ethtool -K INTERFACE tso off gso off tx-udp-segmentation off; if {interface} merges what it \
         receives: ethtool -K {interface} gro off lro off"
    )
}

/// The heading of [`lines`].
pub(super) const HEADING: &str = "     time        frames/s   Gbit/s    roce/s  injected   dropped   waiting\n";

/// Two lines, one for each direction: what there was since the last ones. Loss that was asked for and what the wire itself dropped stand apart.
pub(super) fn lines(
    at: Duration,
    since: Duration,
    before: &[Counters; 2],
    now: &[Counters; 2],
    colours: bool,
) -> String {
    let mut out = Vec::new();
    let seconds = since.as_secs_f64().max(1e-3);
    let time = format!("{:.1} s", at.as_secs_f64());
    for (time, (name, (b, n))) in
        [time.as_str(), ""].into_iter().zip(["a>b", "b>a"].into_iter().zip(before.iter().zip(now)))
    {
        let per_second = |now: u64, before: u64| (now - before) as f64 / seconds;
        let dropped = n.own_drops() - b.own_drops();
        out.push(format!(
            "{time:>9} {name} {:>11.0} {:>8.3} {:>9.0} {:>9} {} {:>9}",
            per_second(n.tx_frames, b.tx_frames),
            per_second(n.tx_bytes, b.tx_bytes) * 8e-9,
            per_second(n.roce_frames, b.roce_frames),
            n.injected_loss() - b.injected_loss(),
            colour::red(&format!("{dropped:>9}"), colours && dropped > 0),
            n.under_way
        ));
    }
    out.join("\n")
}

/// How the line of a wire that itself dropped frames begins.
pub(super) const INVALID: &str = "INVALID";

/// What a terminal shows, again and again: the rows of [`lines`], faults, and whether the run is still valid.
pub(super) fn live(rows: &str, counters: &[Counters; 2], faults: &str) -> Vec<String> {
    let mut out = vec![HEADING.trim_end().to_string()];
    out.extend(rows.lines().map(String::from));
    out.push(format!("   faults: {}", if faults.is_empty() { "none" } else { faults }));
    let [ab, ba] = counters.map(|c| c.injected_loss());
    out.push(format!("   lost by these since the beginning: {ab} from a to b, {ba} from b to a"));
    out.extend(invalid(counters));
    out
}

/// What a summary begins with where the wire itself dropped frames.
fn invalid(counters: &[Counters; 2]) -> Option<String> {
    let [ab, ba] = counters.map(|c| c.own_drops());
    (ab + ba > 0).then(|| format!("{INVALID}: the wire itself dropped {ab} frames from a to b, {ba} from b to a"))
}

fn microseconds(ns: u64) -> String {
    format!("{:.1} µs", ns as f64 / 1e3)
}

/// The summary: what never happened is left out.
pub(super) fn text(summary: &Summary, colours: bool) -> String {
    let invalid = invalid(&summary.counters).map_or(String::new(), |line| colour::red(&line, colours) + "\n");
    let mut out = invalid
        + &format!("{:<44} {:>14} {:>14}\n", format!("{:.1} s", summary.elapsed.as_secs_f64()), "a to b", "b to a");
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
    row("held while the link was stalled", |c| c.stalled, false);
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
    out["valid"] = json!(invalid(&summary.counters).is_none());
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
        let text = text(&summary(), false);
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
    fn lines_show_what_was_new_and_fit_a_terminal() {
        let [before, now] = [Counters::default(), summary().counters[0]];
        let shown = lines(Duration::from_secs(3), Duration::from_secs(2), &[before; 2], &[now, before], true);
        let rows: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(rows[0], ["3.0", "s", "a>b", "4", "0.000", "0", "2", "0", "0"]);
        assert_eq!(rows[1], ["b>a", "0", "0.000", "0", "0", "0", "0"]);
        let many = Counters { tx_frames: 150_000_000, roce_frames: 150_000_000, fault_lost: 99_999_999, ..now };
        let shown = lines(Duration::from_secs(99_999), Duration::from_secs(1), &[before; 2], &[many; 2], false);
        assert!(shown.lines().all(|line| line.len() + 1 == HEADING.len() && line.len() <= 80), "{shown}");
    }

    #[test]
    fn a_terminal_shows_injected_loss_and_drops_of_the_wire_apart() {
        let dropped = Counters { rx_missed: 3, fault_lost: 5, ..Counters::default() };
        let now = [dropped, Counters::default()];
        let rows = lines(Duration::from_secs(1), Duration::from_secs(1), &Default::default(), &now, false);
        let shown = live(&rows, &now, "loss=0.1");
        assert_eq!(shown.len(), 6);
        assert_eq!(
            shown[3..5],
            ["   faults: loss=0.1", "   lost by these since the beginning: 5 from a to b, 0 from b to a"]
        );
        assert_eq!(shown[5], "INVALID: the wire itself dropped 3 frames from a to b, 0 from b to a");
        assert!(shown.iter().all(|line| line.chars().count() <= 80), "{shown:#?}");
        assert_eq!(live(&rows, &Default::default(), "").len(), 5);
    }

    #[test]
    fn what_the_wire_itself_dropped_is_no_injected_loss_and_makes_a_run_invalid() {
        let dropped = Counters { rx_missed: 3, fault_lost: 5, ..Counters::default() };
        let shown = lines(Duration::from_secs(1), Duration::from_secs(1), &Default::default(), &[dropped; 2], true);
        assert!(shown.contains("        5 \x1b[1;31m        3\x1b[0m"), "{shown}");
        let mut bad = summary();
        assert_eq!(json(&bad)["summary"]["valid"], true);
        bad.counters[1] = dropped;
        let said = text(&bad, true);
        assert!(
            said.starts_with("\x1b[1;31mINVALID: the wire itself dropped 0 frames from a to b, 3 from b to a\x1b[0m\n"),
            "{said}"
        );
        assert!(text(&bad, false).starts_with("INVALID: "));
        assert_eq!(json(&bad)["summary"]["valid"], false);
    }
}
