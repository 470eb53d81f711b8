//! Devices of a program that back each other: two NICs are on each interface then, so this process shares it, with the program alone.

use softnic_perf::say;
use softnic_runtime::afxdp::CopyMode;
use softnic_runtime::api::{DeviceSpec, mutual_backups};
use softnic_runtime::share::{Limits, Share, ShareOptions};

use super::devices::Devices;

/// As many as there can be: a program may have children that open the devices, too.
const CLIENTS: usize = 255;

/// Shares the interfaces of `afxdp:` devices until what is returned is dropped; the devices are places on them then. Others stay as they are.
pub(super) fn share(devices: &Devices) -> Result<(Devices, Vec<Share>), String> {
    let places: Vec<DeviceSpec> = devices.specs().map(place_on).collect::<Result<_, _>>()?;
    mutual_backups(&places).map_err(|e| format!("--backup: {e}"))?;
    let shares = devices.specs().filter_map(|device| match device {
        DeviceSpec::AfXdp { interface, queues, .. } => Some(share_one(interface, queues.unwrap_or(1))),
        _ => None,
    });
    let shares = shares.collect::<Result<_, _>>()?;
    let names: Vec<String> = places.iter().map(DeviceSpec::to_string).collect();
    Devices::parse(names.iter().map(String::as_str)).map(|devices| (devices, shares))
}

/// A device as it is when its interface is shared.
fn place_on(device: &DeviceSpec) -> Result<DeviceSpec, String> {
    match device {
        DeviceSpec::AfXdp { interface, mode: CopyMode::Auto, chunks: None, .. } => {
            Ok(DeviceSpec::Shared { interface: interface.clone() })
        }
        DeviceSpec::AfXdp { .. } => {
            Err(format!("--backup mutual: {device}: an interface that is shared has neither mode= nor chunks="))
        }
        other => Ok(other.clone()),
    }
}

fn share_one(interface: &str, queues: u32) -> Result<Share, String> {
    let options = ShareOptions {
        interface: interface.into(),
        group: None,
        mode: 0o600,
        clients: CLIENTS,
        clients_of_user: CLIENTS,
        queues,
        limits: Limits::default(),
    };
    let shared = Share::start(options).map_err(|e| e.to_string())?;
    say!("softnic: sharing {} with the program: two NICs are on it", shared.description());
    Ok(shared)
}
