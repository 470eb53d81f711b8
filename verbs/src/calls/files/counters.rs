//! The counters of a device, with the kernel's names for ports and the names of mlx5 and rxe for hardware.
//!
//! The NIC of a device is in the process that opened it, and this process may be another one: `cat` in a script, for example. So all
//! running NICs of the device are queried by their status socket, and their counters are added. NICs that have ended are not included.

use softnic_runtime::api::{Counters, CountersByName, RunningNic, hardware_counters, port_counters};

use crate::objects::device::Device;

/// The files of the folder `counters` or `hw_counters`, by name.
pub(super) fn files(device: &Device, kind: &str) -> Vec<(String, String)> {
    let counted = counted(device);
    // The maximum age of a value in milliseconds.
    let lifespan = ("lifespan".to_string(), 0);
    let all = match kind {
        "counters" => port_counters(&counted),
        _ => hardware_counters(&counted).into_iter().chain([lifespan]).collect(),
    };
    all.into_iter().map(|(name, value)| (name, value.to_string())).collect()
}

/// The sum of the counters of all running NICs of a device.
fn counted(device: &Device) -> CountersByName {
    let mut sum: CountersByName = Counters::default().iter().map(|(name, zero)| (name.to_string(), zero)).collect();
    let is_own = |nic: &RunningNic| nic.pid == std::process::id();
    let running = RunningNic::all().unwrap_or_default().into_iter().filter(|nic| !device.is_private() || is_own(nic));
    // NICs of other users do not answer.
    for status in running.filter_map(|nic| nic.ask().ok()).filter(|status| is_of(status, &device.description())) {
        for (name, value) in counters_of(&status) {
            *sum.entry(name.to_string()).or_default() += value;
        }
    }
    sum
}

/// Whether a status is that of a NIC of a device with this description; the NIC's own description continues after it.
fn is_of(status: &str, description: &str) -> bool {
    let said = status.split_once("\"description\":\"").map_or("", |(_, said)| said);
    said.strip_prefix(description).is_some_and(|rest| rest.starts_with([',', ' ', '"']))
}

/// The counters in a NIC's status: an object that contains only names and numbers.
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
