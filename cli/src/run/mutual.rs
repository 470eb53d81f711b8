//! Devices of a program that back each other: two NICs are on each interface then, so this process shares it, with the program alone.

use softnic_perf::say;
use softnic_runtime::afxdp::CopyMode;
use softnic_runtime::api::DeviceSpec;
use softnic_runtime::share::{Limits, Share, ShareOptions};

use super::devices::Devices;

/// As many as there can be: a program may have children that open the devices, too.
const CLIENTS: usize = 255;

/// Shares the interfaces of `afxdp:` devices until what is returned is dropped; the devices are places on them then. Others stay as they are.
pub(super) fn share(devices: &Devices) -> Result<(Devices, Vec<Share>), String> {
    let (mut names, mut shares) = (Vec::new(), Vec::new());
    for device in devices.specs() {
        let DeviceSpec::AfXdp { interface, mode, queues, chunks } = device else {
            names.push(device.to_string());
            continue;
        };
        if *mode != CopyMode::Auto || chunks.is_some() {
            return Err(format!(
                "--backup mutual: {device}: an interface that is shared has neither mode= nor chunks="
            ));
        }
        let options = ShareOptions {
            interface: interface.clone(),
            group: None,
            mode: 0o600,
            clients: CLIENTS,
            clients_of_user: CLIENTS,
            queues: queues.unwrap_or(1),
            limits: Limits::default(),
        };
        let shared = Share::start(options).map_err(|e| e.to_string())?;
        say!("softnic: sharing {} with the program: two NICs are on it", shared.description());
        names.push(format!("shared:{interface}"));
        shares.push(shared);
    }
    Devices::parse(names.iter().map(String::as_str)).map(|devices| (devices, shares))
}
