//! The devices that a program gets: which, and whether they can be opened at all.

use std::net::IpAddr;

use softnic_fault_injector::Spec;
use softnic_runtime::afxdp::{AfXdp, Device};
use softnic_runtime::api::{DeviceSpec, OpenError};
use softnic_runtime::host_network::{HostNetwork, Interface};

/// Devices in their order, as they were written.
pub(super) struct Devices(Vec<(String, DeviceSpec)>);

impl Devices {
    /// Those with these names.
    pub(super) fn parse<'a>(names: impl Iterator<Item = &'a str>) -> Result<Devices, String> {
        let one = |name: &str| {
            if name.contains(';') {
                return Err(format!(
                    "`{name}`: a device has no `;` in it, which stands between devices in SOFTNIC_DEV"
                ));
            }
            let device = name.parse().map_err(|e| format!("--dev: {e}"))?;
            Ok((name.to_string(), device))
        };
        names.map(one).collect::<Result<_, String>>().map(Devices)
    }

    /// The only interface of this network namespace that is up and has an address that others can reach.
    pub(super) fn only_interface() -> Result<Devices, String> {
        let names = Interface::names().map_err(|e| e.to_string())?;
        let mut usable: Vec<String> = names.into_iter().filter(|name| is_usable(name)).collect();
        usable.sort();
        match usable.len() {
            1 => Devices::parse([format!("afxdp:{}", usable.remove(0)).as_str()].into_iter()),
            0 => Err(
                "no Ethernet interface here is up and has an address: give one to an interface by `ip address add`, \
                      or say --dev mem (two devices, joined in memory)"
                    .into(),
            ),
            _ => Err(format!("which interface? Say --dev afxdp:INTERFACE with one of {}", usable.join(", "))),
        }
    }

    /// For SOFTNIC_DEV.
    pub(super) fn joined(&self) -> String {
        self.0.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(";")
    }

    /// Whether all can be opened, and have these faults, as far as can be told without doing it.
    pub(super) fn check(&self, faults: Option<&Spec>) -> Result<(), String> {
        for (i, (name, device)) in self.0.iter().enumerate() {
            if *device != DeviceSpec::Mem && self.0[..i].iter().any(|(_, earlier)| earlier == device) {
                return Err(format!("--dev {name} is given twice"));
            }
            if let Some(spec) = faults {
                let fits = if *device == DeviceSpec::Mem { spec.check_link() } else { spec.for_device().map(|_| ()) };
                fits.map_err(|e| format!("--fault: {e}"))?;
            }
            match device {
                DeviceSpec::Mem => {}
                DeviceSpec::Dgram { own, .. } if own.addresses.is_empty() => {
                    return Err(OpenError::NoAddress(device.to_string()).to_string());
                }
                DeviceSpec::Dgram { .. } => {}
                DeviceSpec::AfXdp { interface } => {
                    let host = HostNetwork::open(interface).map_err(|e| e.to_string())?;
                    host.port().map_err(|e| e.to_string())?;
                    AfXdp::check(&host.bottom().name).map_err(|e| e.to_string())?;
                    if host.addresses().is_empty() {
                        return Err(format!("{interface} has no address: give it one by `ip address add`"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Ethernet, up, with an address beyond the link.
fn is_usable(name: &str) -> bool {
    let reachable = |ip: &IpAddr| !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let Ok(host) = HostNetwork::open(name) else { return false };
    host.interface().up && host.addresses().iter().any(reachable) && Device::find(&host.bottom().name).is_ok()
}
