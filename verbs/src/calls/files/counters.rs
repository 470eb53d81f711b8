//! The counters of a device, under the names that the kernel has for ports and that mlx5 and rxe have for hardware.
//!
//! The NIC of a device is in the process that opened it, and this process may be another one: `cat`, that a script runs. So all running NICs of
//! the device are asked by their status socket, and what they say is added. Those that ended are forgotten.

use std::collections::BTreeMap;

use softnic_runtime::api::{Counters, RunningNic};

use crate::objects::device::Device;

/// What was counted, by the names that NICs have for it.
type Counted = BTreeMap<String, u64>;

/// Counters of a port that the kernel has, and that nobody counts here: most are about links of InfiniBand.
const NOTHING: [&str; 14] = [
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_discards",
    "port_xmit_wait",
    "symbol_error",
];

/// Names of rxe's for what has another name of mlx5's.
const SAME: [(&str, &str); 4] = [
    ("out_of_seq_request", "out_of_sequence"),
    ("rcvd_rnr_err", "rnr_naks_received"),
    ("rcvd_seq_err", "packet_seq_err"),
    ("retry_rnr_exceeded_err", "rnr_nak_retry_err"),
];

/// The files of the folder `counters` or `hw_counters`, by name.
pub(super) fn files(device: &Device, kind: &str) -> Vec<(String, String)> {
    let counted = counted(device);
    let all = if kind == "counters" { of_port(&counted) } else { of_hardware(&counted) };
    all.into_iter().map(|(name, value)| (name, value.to_string())).collect()
}

fn of_port(counted: &Counted) -> Vec<(String, u64)> {
    let value = |name| counted.get(name).copied().unwrap_or(0);
    let counts = [
        // In words of four bytes, as InfiniBand has it.
        ("port_xmit_data", value("sent_bytes") / 4),
        ("port_rcv_data", value("rcvd_bytes") / 4),
        ("port_xmit_packets", value("sent_pkts")),
        ("port_rcv_packets", value("rcvd_pkts")),
        ("unicast_xmit_packets", value("sent_pkts")),
        ("unicast_rcv_packets", value("rcvd_pkts")),
        ("port_rcv_errors", value("rx_icrc_encapsulated") + value("rx_malformed")),
    ];
    counts.into_iter().chain(NOTHING.map(|name| (name, 0))).map(|(name, n)| (name.to_string(), n)).collect()
}

fn of_hardware(counted: &Counted) -> Vec<(String, u64)> {
    let others = SAME.iter().map(|(other, name)| (other.to_string(), counted.get(*name).copied().unwrap_or(0)));
    // How many milliseconds a value may be old.
    let lifespan = ("lifespan".to_string(), 0);
    counted.iter().map(|(name, n)| (name.clone(), *n)).chain(others).chain([lifespan]).collect()
}

/// What all running NICs of a device counted.
fn counted(device: &Device) -> Counted {
    let mut sum: Counted = Counters::default().iter().map(|(name, zero)| (name.to_string(), zero)).collect();
    let is_own = |nic: &RunningNic| nic.pid == std::process::id();
    let running = RunningNic::all().unwrap_or_default().into_iter().filter(|nic| !device.is_private() || is_own(nic));
    // Those of other users do not answer.
    for status in running.filter_map(|nic| nic.ask().ok()).filter(|status| is_of(status, &device.description())) {
        for (name, value) in counters_of(&status) {
            *sum.entry(name.to_string()).or_default() += value;
        }
    }
    sum
}

/// Whether a NIC's status is that of a device with this description: its own goes on behind it.
fn is_of(status: &str, description: &str) -> bool {
    let said = status.split_once("\"description\":\"").map_or("", |(_, said)| said);
    said.strip_prefix(description).is_some_and(|rest| rest.starts_with([',', ' ', '"']))
}

/// The counters in a NIC's status: an object of names and numbers alone.
fn counters_of(status: &str) -> impl Iterator<Item = (&str, u64)> {
    let object = status.split_once("\"counters\":{").and_then(|(_, rest)| rest.split_once('}'));
    object.map_or("", |(object, _)| object).split(',').filter_map(|pair| {
        let (name, value) = pair.split_once(':')?;
        Some((name.trim_matches('"'), value.parse().ok()?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "{\"pid\":7,\"nic\":0,\"description\":\"afxdp:v0 (native XDP), inline progress\",\"mac\":\"02:00:00:00:00:01\",\
        \"counters\":{\"sent_pkts\":3,\"sent_bytes\":4096,\"packet_seq_err\":2,\"lost_frames\":0},\"misfits\":[]}";

    #[test]
    fn a_status_is_read() {
        let counted: Vec<_> = counters_of(STATUS).collect();
        assert_eq!(counted, [("sent_pkts", 3), ("sent_bytes", 4096), ("packet_seq_err", 2), ("lost_frames", 0)]);
        assert!(is_of(STATUS, "afxdp:v0"));
        assert!(!is_of(STATUS, "afxdp:v") && !is_of(STATUS, "afxdp:v01") && !is_of("{}", "afxdp:v0"));
        assert_eq!(counters_of("{}").count(), 0);
    }

    #[test]
    fn names_are_those_of_ports_and_of_drivers() {
        let counted = counters_of(STATUS).map(|(name, n)| (name.to_string(), n)).collect();
        let find = |all: Vec<(String, u64)>, name: &str| all.into_iter().find(|(n, _)| n == name).map(|(_, n)| n);
        assert_eq!(find(of_port(&counted), "port_xmit_data"), Some(1024));
        assert_eq!(find(of_port(&counted), "port_xmit_packets"), Some(3));
        assert_eq!(find(of_hardware(&counted), "packet_seq_err"), Some(2));
        assert_eq!(find(of_hardware(&counted), "rcvd_seq_err"), Some(2));
        let all = of_hardware(&counted);
        let mut names: Vec<&String> = all.iter().map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all.len(), "a name twice");
    }
}
