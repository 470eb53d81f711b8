//! `softnic devinfo` and a verbs program under `softnic run`: what the one says of a device, the other sees.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::Bench;
use crate::guest::Error;

/// Asks both about devices that need neither privileges nor another end.
pub(super) fn run(bench: &Bench) -> Result<(), Error> {
    let network = format!("shm:{}", bench.scratch.0.join("described").display());
    for device in ["mem", &network] {
        agree(&bench.softnic, device).map_err(|why| Error::Failed(format!("{device}: {why}")))?;
    }
    Ok(())
}

fn agree(softnic: &Path, device: &str) -> Result<(), String> {
    let said = output(softnic, &["devinfo", "--dev", device, "--json"])?;
    let said: Value = serde_json::from_str(&said).map_err(|e| format!("devinfo prints no object: {e}"))?;
    let seen = output(softnic, &["run", "--dev", device, "--", "ibv_devinfo", "-v", "-d", "softnic0"])?;
    judge(&said, &seen).map_err(|why| format!("{why}\ndevinfo: {said}\nibv_devinfo:\n{seen}"))
}

fn output(softnic: &Path, arguments: &[&str]) -> Result<String, String> {
    let output =
        Command::new(softnic).args(arguments).output().map_err(|e| format!("softnic cannot be started: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("softnic {arguments:?}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// The value behind a name in what `ibv_devinfo` prints.
fn value<'a>(seen: &'a str, name: &str) -> Option<&'a str> {
    seen.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(':').map(str::trim))
}

fn judge(said: &Value, seen: &str) -> Result<(), String> {
    let mtu = value(seen, "active_mtu").and_then(|text| text.split_whitespace().next()).unwrap_or("?");
    if said["path_mtu"].as_u64().map(|n| n.to_string()).as_deref() != Some(mtu) {
        return Err(format!("the path MTU is {mtu}"));
    }
    let up = value(seen, "state") == Some("PORT_ACTIVE (4)");
    if up != (said["link"] == "up") {
        return Err(format!("the link is up: {up}"));
    }
    let mac = said["mac"].as_str().unwrap_or_default();
    let guid = value(seen, "node_guid").unwrap_or("?");
    if guid_of(mac).as_deref() != Some(guid) {
        return Err(format!("the GUID is {guid}, of a MAC address {mac}"));
    }
    let gids: Vec<String> = said["gids"].as_array().into_iter().flatten().map(gid_line).collect();
    let lines = seen.lines().map(str::trim).filter(|line| line.starts_with("GID["));
    let lines: Vec<String> = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    if gids != lines {
        return Err(format!("GIDs are {lines:?}, not {gids:?}"));
    }
    Ok(())
}

/// EUI-64 of a MAC address, as `ibv_devinfo` prints it.
fn guid_of(mac: &str) -> Option<String> {
    let bytes = mac.split(':').map(|byte| u8::from_str_radix(byte, 16)).collect::<Result<Vec<u8>, _>>().ok()?;
    let [a, b, c, d, e, f] = bytes.try_into().ok()?;
    Some(format!("{:02x}{b:02x}:{c:02x}ff:fe{d:02x}:{e:02x}{f:02x}", a ^ 2))
}

fn gid_line(gid: &Value) -> String {
    let text = |name: &str| gid[name].as_str().unwrap_or("?").to_string();
    let index = format!("{:>3}", gid["index"].to_string());
    format!("GID[{index}]: {}, {}", text("gid"), text("type")).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const SEEN: &str = "hca_id:\tsoftnic0\n\tnode_guid:\t\t\t0000:7fff:fe00:0001\n\t\t\tstate:\t\t\tPORT_ACTIVE (4)\n\
        \t\t\tactive_mtu:\t\t4096 (5)\n\t\t\tGID[  0]:\t\t::ffff:127.0.0.1, RoCE v2\n";

    #[test]
    fn a_difference_in_any_of_them_is_found() {
        let gid = json!({ "index": 0, "gid": "::ffff:127.0.0.1", "type": "RoCE v2" });
        let right = json!({ "path_mtu": 4096, "link": "up", "mac": "02:00:7f:00:00:01", "gids": [gid] });
        assert_eq!(judge(&right, SEEN), Ok(()));
        for (name, wrong) in [
            ("path_mtu", json!(1024)),
            ("link", json!("no carrier")),
            ("mac", json!("02:00:7f:00:00:02")),
            ("gids", json!([])),
        ] {
            let mut other = right.clone();
            other[name] = wrong;
            assert!(judge(&other, SEEN).is_err(), "{name}");
        }
    }
}
