//! NICs as metrics: under the names of node_exporter's infiniband collector, and all counters under softnic's own.

use serde_json::Value;
use softnic_runtime::api::{Counters, CountersByName, FailoverCounters, RunningNic, port_counters};

use super::exposition::{Kind, Page};
use crate::plain::plain;

/// What is known of a NIC at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct NicSample {
    pub(crate) device: String,
    pub(crate) description: String,
    pub(crate) counters: CountersByName,
    /// Where it says so.
    pub(crate) up: Option<bool>,
    pub(crate) queue_pairs: Option<u64>,
    /// Processes that have, or had, the device open.
    pub(crate) processes: Option<u64>,
}

/// node_exporter's names for counters of a port.
const PORT: [(&str, &str, &str); 21] = [
    ("port_data_transmitted_bytes_total", "port_xmit_data", "Bytes sent"),
    ("port_data_received_bytes_total", "port_rcv_data", "Bytes received"),
    ("port_packets_transmitted_total", "port_xmit_packets", "Packets sent"),
    ("port_packets_received_total", "port_rcv_packets", "Packets received"),
    ("unicast_packets_transmitted_total", "unicast_xmit_packets", "Packets sent to one receiver"),
    ("unicast_packets_received_total", "unicast_rcv_packets", "Packets received that were sent to one receiver"),
    ("port_errors_received_total", "port_rcv_errors", "Packets received with a wrong ICRC, or malformed"),
    ("vl15_dropped_total", "VL15_dropped", "Always 0 here"),
    ("excessive_buffer_overrun_errors_total", "excessive_buffer_overrun_errors", "Always 0 here"),
    ("link_downed_total", "link_downed", "Always 0 here"),
    ("link_error_recovery_total", "link_error_recovery", "Always 0 here"),
    ("local_link_integrity_errors_total", "local_link_integrity_errors", "Always 0 here"),
    ("multicast_packets_received_total", "multicast_rcv_packets", "Always 0 here"),
    ("multicast_packets_transmitted_total", "multicast_xmit_packets", "Always 0 here"),
    ("port_constraint_errors_received_total", "port_rcv_constraint_errors", "Always 0 here"),
    ("port_receive_remote_physical_errors_total", "port_rcv_remote_physical_errors", "Always 0 here"),
    ("port_receive_switch_relay_errors_total", "port_rcv_switch_relay_errors", "Always 0 here"),
    ("port_constraint_errors_transmitted_total", "port_xmit_constraint_errors", "Always 0 here"),
    ("port_discards_transmitted_total", "port_xmit_discards", "Always 0 here"),
    ("port_transmit_wait_total", "port_xmit_wait", "Always 0 here"),
    ("symbol_error_total", "symbol_error", "Always 0 here"),
];

/// node_exporter's names for the hw_counters of mlx5 that are counted here, too.
const HARDWARE: [(&str, &str, &str); 21] = [
    ("duplicate_requests_packets_total", "duplicate_request", "Requests received that had been executed before"),
    ("implied_nak_seq_errors_total", "implied_nak_seq_err", "READ responses or atomic answers that were skipped"),
    ("local_ack_timeout_errors_total", "local_ack_timeout_err", "Timeouts of the local ACK timer"),
    ("np_cnp_packets_sent_total", "np_cnp_sent", "Congestion notifications sent"),
    (
        "np_ecn_marked_roce_packets_received_total",
        "np_ecn_marked_roce_packets",
        "Packets received with the mark of congestion",
    ),
    ("out_of_buffer_drops_total", "out_of_buffer", "Messages that found no receive posted"),
    ("out_of_sequence_packets_received_total", "out_of_sequence", "Requests that came too early"),
    ("packet_sequence_errors_total", "packet_seq_err", "Sequence NAKs received"),
    ("req_cqes_errors_total", "req_cqe_error", "Completions with an error at the requester"),
    ("req_remote_access_errors_total", "req_remote_access_errors", "NAKs received: remote access error"),
    ("req_remote_invalid_request_errors_total", "req_remote_invalid_request", "NAKs received: invalid request"),
    ("resp_cqes_errors_total", "resp_cqe_error", "Completions with an error at the responder"),
    ("resp_local_length_errors_total", "resp_local_length_error", "Messages longer than the receive"),
    ("resp_remote_access_errors_total", "resp_remote_access_errors", "NAKs sent: remote access error"),
    ("rnr_nak_retry_packets_received_total", "rnr_naks_received", "RNR NAKs received"),
    ("rp_cnp_packets_handled_total", "rp_cnp_handled", "Congestion notifications that were acted on"),
    ("rp_cnp_ignored_packets_received_total", "rp_cnp_ignored", "Congestion notifications that were ignored"),
    ("rx_atomic_requests_total", "rx_atomic_requests", "Atomic requests received"),
    ("rx_read_requests_total", "rx_read_requests", "READ requests received"),
    ("rx_write_requests_total", "rx_write_requests", "WRITE requests received"),
    ("rx_icrc_encapsulated_errors_total", "rx_icrc_encapsulated", "Packets with a wrong ICRC"),
];

/// The page of some NICs. Every counter is there, if it is 0, too.
pub(crate) fn page_of_nics(nics: &[NicSample]) -> Page {
    let mut page = Page::default();
    let version = [("version", env!("CARGO_PKG_VERSION"))];
    page.add("softnic_build_info", Kind::Gauge, "The version of softnic", &version, 1);
    nics.iter().for_each(|nic| add(&mut page, nic));
    page
}

fn add(page: &mut Page, nic: &NicSample) {
    let labels = [("device", nic.device.as_str()), ("port", "1")];
    let described = [("device", nic.device.as_str()), ("description", nic.description.as_str())];
    page.add("softnic_info", Kind::Gauge, "The device that a NIC is on", &described, 1);
    let mut gauge = |name: &str, help: &str, value: Option<u64>| {
        if let Some(value) = value {
            page.add(name, Kind::Gauge, help, &labels, value);
        }
    };
    let state = |up, down| nic.up.map(|is_up| if is_up { up } else { down });
    gauge("node_infiniband_state_id", "State of the port: 1 down, 4 active", state(4, 1));
    gauge("node_infiniband_physical_state_id", "Physical state of the port: 3 disabled, 5 link up", state(5, 3));
    gauge("softnic_queue_pairs", "Queue pairs", nic.queue_pairs);
    gauge("softnic_processes", "Processes that have, or had, the device open", nic.processes);
    let counted = with_all(&nic.counters);
    let port = port_counters(&counted);
    for (name, source, help) in PORT {
        let value = match source {
            // The kernel has words of four bytes, and node_exporter bytes.
            "port_xmit_data" => counted.get("sent_bytes").copied().unwrap_or(0),
            "port_rcv_data" => counted.get("rcvd_bytes").copied().unwrap_or(0),
            _ => port.iter().find(|(name, _)| name == source).map_or(0, |(_, n)| *n),
        };
        page.add(&format!("node_infiniband_{name}"), Kind::Counter, help, &labels, value);
    }
    for (name, source, help) in HARDWARE {
        let value = counted.get(source).copied().unwrap_or(0);
        page.add(&format!("node_infiniband_{name}"), Kind::Counter, help, &labels, value);
    }
    for (name, value) in &counted {
        page.add(
            &format!("softnic_{name}_total"),
            Kind::Counter,
            &format!("softnic's counter {name}"),
            &labels,
            *value,
        );
    }
}

/// The counters, and 0 for those that are missing.
fn with_all(counters: &CountersByName) -> CountersByName {
    let own = Counters::default();
    let mut all: CountersByName = own.iter().map(|(name, zero)| (name.to_string(), zero)).collect();
    all.insert("lost_frames".into(), 0);
    // Those of a NIC with a backup.
    let of_failover = |name: &str| FailoverCounters::default().iter().any(|(known, _)| known == name);
    for (name, value) in counters {
        // What another process says may have any name.
        if all.contains_key(name) || of_failover(name) {
            all.insert(name.clone(), *value);
        }
    }
    all
}

/// The NICs of this process, at this moment.
pub(crate) fn own_nics() -> Vec<NicSample> {
    let own = RunningNic::all().unwrap_or_default().into_iter().filter(|nic| nic.pid == std::process::id());
    own.filter_map(|nic| sample(nic, &nic.ask().ok()?)).collect()
}

fn sample(nic: RunningNic, status: &str) -> Option<NicSample> {
    let status: Value = serde_json::from_str(status).ok()?;
    // A wire is no NIC.
    let queue_pairs = Some(status["queue_pairs"].as_u64()?);
    let counters = status["counters"].as_object()?.iter().filter_map(|(name, n)| Some((name.clone(), n.as_u64()?)));
    Some(NicSample {
        device: format!("softnic{}", nic.index),
        description: plain(status["description"].as_str().unwrap_or_default()),
        counters: counters.collect(),
        up: status["up"].as_bool(),
        queue_pairs,
        processes: None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::{page_of_wire, strict};
    use super::*;

    fn nic(device: &str, counters: &[(&str, u64)]) -> NicSample {
        NicSample {
            device: device.into(),
            description: "mem, end 1".into(),
            counters: counters.iter().map(|(name, n)| (name.to_string(), *n)).collect(),
            up: Some(true),
            queue_pairs: Some(2),
            processes: Some(1),
        }
    }

    #[test]
    fn a_nic_has_the_names_of_node_exporter_and_its_own() {
        let counters = [("sent_bytes", 4096), ("packet_seq_err", 2), ("retransmitted_packets", 3)];
        let text = page_of_nics(&[nic("softnic0", &counters), nic("softnic1", &[("no such\n", 1)])]).text();
        let families = strict::parse(&text).unwrap();
        let value = |name: &str, device: &str| {
            let is_of = |s: &&strict::Sample| s.labels.contains(&("device".into(), device.into()));
            families[name].samples.iter().find(is_of).unwrap().value
        };
        assert_eq!(value("node_infiniband_port_data_transmitted_bytes_total", "softnic0"), 4096.0);
        assert_eq!(value("node_infiniband_packet_sequence_errors_total", "softnic0"), 2.0);
        assert_eq!(value("softnic_retransmitted_packets_total", "softnic0"), 3.0);
        assert_eq!(value("softnic_retransmitted_packets_total", "softnic1"), 0.0);
        assert_eq!(value("node_infiniband_state_id", "softnic1"), 4.0);
        let labels = &families["node_infiniband_symbol_error_total"].samples[0].labels;
        assert_eq!(*labels, [("device".into(), "softnic0".into()), ("port".into(), "1".into())]);
    }

    #[test]
    fn the_sources_of_all_names_exist() {
        let all = with_all(&CountersByName::new());
        let port: Vec<String> = port_counters(&all).into_iter().map(|(name, _)| name).collect();
        assert!(PORT.iter().all(|(_, source, _)| port.iter().any(|name| name == source)));
        assert!(HARDWARE.iter().all(|(_, source, _)| all.contains_key(*source)));
    }

    /// The metrics that the queries of a dashboard name.
    fn named(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                for (key, value) in map {
                    if let ("expr" | "query", Some(query)) = (key.as_str(), value.as_str()) {
                        let words = query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                        let is_ours = |w: &&str| w.starts_with("softnic_") || w.starts_with("node_infiniband_");
                        found.extend(words.filter(is_ours).map(String::from));
                    }
                    named(value, found);
                }
            }
            Value::Array(all) => all.iter().for_each(|value| named(value, found)),
            _ => {}
        }
    }

    #[test]
    fn every_metric_of_the_dashboard_is_exported() {
        let dashboard: Value = serde_json::from_str(include_str!("../../../docs/grafana-dashboard.json")).unwrap();
        let mut names = BTreeSet::new();
        named(&dashboard, &mut names);
        let texts = [
            page_of_nics(&[nic("softnic0", &[])]).text(),
            page_of_wire("eth1", "eth2", &Default::default()).text(),
            super::super::page_of_share("eth0", &Default::default()).text(),
        ];
        let exported: BTreeSet<String> =
            texts.iter().flat_map(|text| strict::parse(text).unwrap().into_keys()).collect();
        let missing: Vec<_> = names.difference(&exported).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert!(names.len() > 10, "{names:?}");
    }
}
