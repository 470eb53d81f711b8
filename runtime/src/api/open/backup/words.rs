//! What options of commands and environment variables say of a backup.

use std::time::Duration;

use softnic_fault_injector::units;

use super::super::DeviceSpec;
use crate::failover::kv::Kv;

/// The time between two probes, at least: each is a packet of each connection.
const SHORTEST_PROBE: Duration = Duration::from_millis(1);
/// And at most: who waits longer does not want to return.
const LONGEST_PROBE: Duration = Duration::from_secs(3600);

/// Devices of a program that back each other, in pairs.
pub const MUTUAL: &str = "mutual";

/// The backups of devices that back each other: the first is the second's and the second the first's, and so on. A NIC and the backup of
/// another one share each interface.
///
/// # Errors
/// When they are no pairs, or one of them bears no second NIC.
pub fn mutual_backups(devices: &[DeviceSpec]) -> Result<Vec<DeviceSpec>, String> {
    let alone = |device: &&DeviceSpec| !matches!(device, DeviceSpec::Shared { .. });
    match (devices.iter().find(alone), devices.len()) {
        (Some(device), _) => {
            Err(format!("`mutual` puts two NICs on each device, and {device} bears one: take shared:IF"))
        }
        (None, count) if count == 0 || count % 2 == 1 => {
            Err(format!("`mutual` is for two devices that back each other, or for pairs of them, and not for {count}"))
        }
        _ => Ok((0..devices.len()).map(|place| devices[place ^ 1].clone()).collect()),
    }
}

/// The device of a backup.
///
/// # Errors
/// What is wrong with it.
pub fn parse_backup(text: &str) -> Result<DeviceSpec, String> {
    match text {
        MUTUAL => {
            Err("`mutual` stands alone, for a program with two devices of which each is the other's backup".into())
        }
        _ => text.parse::<DeviceSpec>().map_err(|e| e.to_string()),
    }
}

/// How connections fail over: there is one way.
///
/// # Errors
/// When another one is asked for.
pub fn parse_failover(text: &str) -> Result<(), String> {
    match text {
        "shift" => Ok(()),
        _ => Err(format!("`{text}` is no way to fail over: there is shift")),
    }
}

/// Where a NIC finds the backups of its peers.
///
/// # Errors
/// What is wrong with it. Nothing of the text is quoted: a password may be in it.
pub fn parse_kv(text: &str) -> Result<Kv, String> {
    text.parse::<Kv>().map_err(|why| why.to_string())
}

/// The time between two probes of a device that failed.
///
/// # Errors
/// When it is no time, or makes no sense.
pub fn parse_probe(text: &str) -> Result<Duration, String> {
    let time = units::parse_time(text)?;
    match (SHORTEST_PROBE..=LONGEST_PROBE).contains(&time) {
        true => Ok(time),
        false => Err(format!("`{text}`: between two probes there are at least 1 ms and at most an hour")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_back_each_other_in_pairs_where_each_bears_two_nics() {
        let of = |names: &[&str]| {
            let devices: Vec<DeviceSpec> = names.iter().map(|name| name.parse().unwrap()).collect();
            mutual_backups(&devices).map(|all| all.iter().map(DeviceSpec::to_string).collect::<Vec<_>>())
        };
        assert_eq!(of(&["shared:a", "shared:b"]).unwrap(), ["shared:b", "shared:a"]);
        let four = of(&["shared:a", "shared:b", "shared:c", "shared:d"]).unwrap();
        assert_eq!(four, ["shared:b", "shared:a", "shared:d", "shared:c"]);
        assert!(of(&["shared:a"]).unwrap_err().contains("not for 1"));
        assert!(of(&[]).is_err() && of(&["shared:a", "shared:b", "shared:c"]).is_err());
        assert!(of(&["shared:a", "afxdp:b"]).unwrap_err().contains("afxdp:b bears one"));
        assert!(of(&["mem", "mem"]).is_err());
    }

    #[test]
    fn what_there_is_not_is_refused_and_named() {
        assert_eq!(parse_backup("mem"), Ok(DeviceSpec::Mem));
        assert!(parse_backup("mutual").unwrap_err().contains("two devices"));
        assert!(matches!(parse_kv("redis://10.0.0.9:6379"), Ok(Kv::Redis(_))));
        assert_eq!((parse_kv("peer"), parse_failover("shift")), (Ok(Kv::Peer), Ok(())));
        assert!(parse_kv("etcd://x").is_err() && parse_failover("raid").is_err());
    }

    #[test]
    fn probes_come_neither_all_the_time_nor_never() {
        assert_eq!(parse_probe("100ms"), Ok(Duration::from_millis(100)));
        for wrong in ["0s", "10us", "2h", "often", ""] {
            assert!(parse_probe(wrong).is_err(), "{wrong}");
        }
    }
}
