//! The counters of a device, under the names that the kernel has for ports and that mlx5 and rxe have for hardware.
//!
//! The NIC of a device is in the process that opened it, and this process may be another one: `cat`, that a script runs. So all running NICs of
//! the device are asked by their status socket, and what they say is added. Those that ended are forgotten.

use softnic_runtime::api::{Counters, CountersByName, RunningNic, hardware_counters, port_counters};

use crate::objects::device::Device;

/// The files of the folder `counters` or `hw_counters`, by name.
pub(super) fn files(device: &Device, kind: &str) -> Vec<(String, String)> {
    let counted = counted(device);
    // How many milliseconds a value may be old.
    let lifespan = ("lifespan".to_string(), 0);
    let all = match kind {
        "counters" => port_counters(&counted),
        _ => hardware_counters(&counted).into_iter().chain([lifespan]).collect(),
    };
    all.into_iter().map(|(name, value)| (name, value.to_string())).collect()
}

/// What all running NICs of a device counted.
fn counted(device: &Device) -> CountersByName {
    let mut sum: CountersByName = Counters::default().iter().map(|(name, zero)| (name.to_string(), zero)).collect();
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
}
