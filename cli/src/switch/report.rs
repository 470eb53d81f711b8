//! What a switch did, for people and as JSON.

use std::fmt::Write;
use std::time::Duration;

use serde_json::{Map, Value, json};
use softnic_runtime::switch::{PortReport, Report};
use softnic_switch::group::{MAX_GROUPS, MAX_RANGES};
use softnic_switch::{GroupReport, MemberReport};

use crate::colour;

/// What a terminal shows again and again: rates since `before`.
pub(super) fn live(now: &Report, before: &Report, since: Duration) -> Vec<String> {
    let seconds = since.as_secs_f64().max(1e-3);
    let mut out = vec![format!(
        "{:<16} {:>11} {:>11} {:>8} {:>8} {:>9} {:>9} {:>9}",
        "port", "in/s", "out/s", "Gbit/s<", "Gbit/s>", "dropped", "marked", "queue"
    )];
    for (n, b) in now.ports.iter().zip(&before.ports) {
        let per_second = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        out.push(format!(
            "{:<16} {:>11.0} {:>11.0} {:>8.3} {:>8.3} {:>9} {:>9} {:>9}",
            n.interface,
            per_second(n.rx, b.rx),
            per_second(n.tx, b.tx),
            per_second(n.rx_bytes, b.rx_bytes) * 8e-9,
            per_second(n.tx_bytes, b.tx_bytes) * 8e-9,
            n.dropped,
            n.marked,
            n.queue
        ));
    }
    for group in &now.groups {
        out.push(group_line(group));
    }
    out
}

fn group_line(group: &GroupReport) -> String {
    let c = &group.counters;
    let behind = group.members.iter().filter_map(|m| Some((m.behind?, m.address))).max();
    let behind = behind.filter(|(n, _)| *n > 0).map_or(String::new(), |(n, who)| format!(", {who} {n} behind"));
    format!(
        "group {} {:#x}: {} packets, {} copies, {} of {} acknowledgements{behind}",
        group.sender,
        group.mc_id.value(),
        c.packets_in,
        c.copies,
        c.acks_out,
        c.acks_in
    )
}

/// The summary: what never happened is left out.
pub(super) fn text(report: &Report, colours: bool) -> String {
    let mut out = format!("{:.1} s\n", report.elapsed.as_secs_f64());
    // Writing to a string does not fail.
    let _ = writeln!(
        out,
        "{:<16} {:>12} {:>12} {:>10} {:>10} {:>10} {:>10}",
        "port", "in", "out", "dropped", "marked", "max queue", "too long"
    );
    for port in &report.ports {
        let dropped = format!("{:>10}", port.dropped);
        let _ = writeln!(
            out,
            "{:<16} {:>12} {:>12} {} {:>10} {:>10} {:>10}",
            port.interface,
            port.rx,
            port.tx,
            colour::red(&dropped, colours && port.dropped > 0),
            port.marked,
            port.max_queue,
            port.too_long
        );
    }
    let others = [
        ("unsegmented", "not segmented by the sender"),
        ("silent", "for an interface that was gone"),
        ("rx_missed", "dropped by the kernel: our ring was full"),
        ("tx_refused", "dropped by the kernel: its queue was full"),
    ];
    for (counter, words) in others {
        for port in &report.ports {
            if let Some((_, n)) = port.iter().find(|(name, n)| *name == counter && *n > 0) {
                let _ = writeln!(out, "{}: {words}: {n}", port.interface);
            }
        }
    }
    for (name, n) in report.switch_counters().filter(|(_, n)| *n > 0) {
        let _ = writeln!(out, "{:<44} {n:>14}", name.replace('_', " "));
    }
    for group in &report.groups {
        let _ = writeln!(out, "{}", group_line(group));
        let unusual = ["naks", "rnr", "cnps_in", "refused", "bad", "unresolved"];
        let counters = Report::group_counters(group).filter(|(name, n)| *n > 0 && unusual.contains(name));
        let counters: Vec<String> = counters.map(|(name, n)| format!("{name} {n}")).collect();
        if !counters.is_empty() {
            let _ = writeln!(out, "  {}", counters.join(", "));
        }
        for member in group.members.iter().filter(|member| member.unresolved > 0) {
            let _ = writeln!(out, "  {}: copies whose next hop was not known: {}", member.address, member.unresolved);
        }
    }
    out
}

fn object(counters: impl Iterator<Item = (&'static str, u64)>) -> Map<String, Value> {
    counters.map(|(name, n)| (name.to_string(), n.into())).collect()
}

fn port(port: &PortReport) -> Value {
    let mut out = json!({ "interface": port.interface, "up": port.up });
    if let Some(out) = out.as_object_mut() {
        out.extend(object(port.iter()));
    }
    out
}

/// A group, and its members.
pub(super) fn group(group: &GroupReport) -> Value {
    let mut out = json!({
        "sender": group.sender,
        "mc_id": group.mc_id.value(),
        "qpn": group.sender_qpn.map(|qpn| qpn.value()),
        "merged_psn": group.merged_psn.map(|psn| psn.value()),
        "members": group.members.iter().map(member).collect::<Vec<_>>(),
    });
    if let Some(out) = out.as_object_mut() {
        out.extend(object(Report::group_counters(group)));
    }
    out
}

fn member(member: &MemberReport) -> Value {
    json!({
        "address": member.address,
        "qpn": member.qpn.value(),
        "acked_psn": member.acked_psn.map(|psn| psn.value()),
        "behind": member.behind,
        "last_heard_ms": member.last_heard.map(|time| time.as_millis() as u64),
        "unresolved": member.unresolved,
    })
}

/// All but the groups.
pub(super) fn status(report: &Report) -> Value {
    let table = |used: usize, size: usize| json!({ "used": used, "size": size });
    json!({
        "seconds": report.elapsed.as_secs_f64(),
        "ports": report.ports.iter().map(port).collect::<Vec<_>>(),
        "switch": object(report.switch_counters()),
        "tables": {
            "groups": table(report.fill.groups, MAX_GROUPS),
            "ranges": table(report.fill.ranges, MAX_RANGES),
        },
        "neighbours": report.neighbours,
    })
}

/// The object at the end: the fields are a contract.
pub(super) fn summary(report: &Report) -> Value {
    let mut out = status(report);
    out["groups"] = report.groups.iter().map(group).collect();
    json!({ "summary": out })
}

#[cfg(test)]
mod tests {
    use softnic_switch::group::GroupCounters;
    use softnic_wire::{Psn, Qpn};

    use super::*;

    fn example() -> Report {
        let member = |n: u8, behind: u32| MemberReport {
            address: [10, 0, 0, n].into(),
            qpn: Qpn::new(n.into()),
            acked_psn: Some(Psn::new(100 - behind)),
            behind: Some(behind),
            last_heard: Some(Duration::from_millis(12)),
            unresolved: 0,
        };
        let counters =
            GroupCounters { packets_in: 40, copies: 80, acks_in: 4, acks_out: 2, naks: 1, ..GroupCounters::default() };
        Report {
            elapsed: Duration::from_secs(2),
            ports: vec![PortReport { interface: "eth1".into(), up: true, rx: 7, dropped: 3, ..PortReport::default() }],
            groups: vec![GroupReport {
                sender: [10, 0, 0, 1].into(),
                mc_id: Qpn::new(0x77),
                sender_qpn: Some(Qpn::new(17)),
                counters,
                merged_psn: Some(Psn::new(98)),
                members: vec![member(2, 0), member(3, 2)],
            }],
            ..Report::default()
        }
    }

    #[test]
    fn the_summary_has_what_was_promised() {
        let v = summary(&example());
        let s = &v["summary"];
        for name in ["rx", "tx", "dropped", "marked", "max_queue", "too_long"] {
            assert!(s["ports"][0][name].is_u64(), "{name}: {v}");
        }
        let group = &s["groups"][0];
        for name in [
            "packets_in",
            "copies",
            "acks_in",
            "acks_out",
            "naks",
            "rnr",
            "cnps_in",
            "cnps_out",
            "refused",
            "bad",
            "unresolved",
            "merged_psn",
        ] {
            assert!(group[name].is_u64(), "{name}: {v}");
        }
        for name in ["acked_psn", "behind", "last_heard_ms", "unresolved"] {
            assert!(group["members"][1][name].is_u64(), "{name}: {v}");
        }
        assert_eq!((&group["merged_psn"], &group["members"][1]["behind"]), (&98.into(), &2.into()));
        assert_eq!(s["tables"]["groups"], json!({ "used": 0, "size": 65536 }));
    }

    #[test]
    fn people_see_who_is_behind_and_what_is_unusual() {
        let text = text(&example(), false);
        assert!(
            text.contains("group 10.0.0.1 0x77: 40 packets, 80 copies, 2 of 4 acknowledgements, 10.0.0.3 2 behind"),
            "{text}"
        );
        assert!(text.contains("  naks 1\n") && !text.contains("flooded"), "{text}");
        assert!(!text.contains("not known"), "{text}");
        let mut without = example();
        without.groups[0].members[1].unresolved = 5;
        let text = super::text(&without, false);
        assert!(text.contains("  10.0.0.3: copies whose next hop was not known: 5\n"), "{text}");
        assert!(!text.contains("10.0.0.2:"), "{text}");
        let mut later = example();
        later.ports[0].rx += 100;
        let lines = live(&later, &example(), Duration::from_secs(2));
        assert_eq!(lines.len(), 3);
        assert!(lines[1].starts_with("eth1 ") && lines[1].split_whitespace().nth(1) == Some("50"), "{lines:?}");
        assert!(lines.iter().all(|line| line.chars().count() <= 100), "{lines:?}");
    }
}
