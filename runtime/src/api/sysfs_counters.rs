//! Counters of a NIC under the names of sysfs: those that the kernel has for ports, and those that mlx5 and rxe have for hardware.

use std::collections::BTreeMap;

/// Counters of a NIC, by the names that the NIC has for them.
pub type CountersByName = BTreeMap<String, u64>;

/// Counters of a port that the kernel has and the NIC does not: most are about links of InfiniBand.
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

/// The files of a port's folder `counters`.
pub fn port_counters(counted: &CountersByName) -> Vec<(String, u64)> {
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

/// The counters of a port's folder `hw_counters`: those of the NIC, and some of them under a second name.
pub fn hardware_counters(counted: &CountersByName) -> Vec<(String, u64)> {
    let others = SAME.iter().map(|(other, name)| (other.to_string(), counted.get(*name).copied().unwrap_or(0)));
    counted.iter().map(|(name, n)| (name.clone(), *n)).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_ports_and_of_drivers() {
        let counts = [("sent_pkts", 3), ("sent_bytes", 4096), ("packet_seq_err", 2), ("lost_frames", 0)];
        let counted = counts.map(|(name, n)| (name.to_string(), n)).into_iter().collect();
        let find = |all: Vec<(String, u64)>, name: &str| all.into_iter().find(|(n, _)| n == name).map(|(_, n)| n);
        assert_eq!(find(port_counters(&counted), "port_xmit_data"), Some(1024));
        assert_eq!(find(port_counters(&counted), "port_xmit_packets"), Some(3));
        assert_eq!(find(hardware_counters(&counted), "packet_seq_err"), Some(2));
        assert_eq!(find(hardware_counters(&counted), "rcvd_seq_err"), Some(2));
        let all = hardware_counters(&counted);
        let mut names: Vec<&String> = all.iter().map(|(name, _)| name).collect();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all.len(), "a name twice");
    }
}
