//! The devices that a program gets: which, and whether they can be opened at all.

use std::net::IpAddr;

use softnic_fault_injector::Spec;
use softnic_perf::say;
use softnic_runtime::afxdp::{AfXdp, Device};
use softnic_runtime::api::{DeviceSpec, OpenError};
use softnic_runtime::host_network::{HostNetwork, Interface};
use softnic_runtime::share::{served, served_here};

/// Devices in their order, as they were written.
pub(super) struct Devices(Vec<(String, DeviceSpec)>);

impl Devices {
    /// Those with these names.
    pub(super) fn parse<'a>(names: impl Iterator<Item = &'a str>) -> Result<Devices, String> {
        Devices::parse_with(names, |name| name.parse().map_err(|e| format!("--dev: {e}")))
    }

    /// Those with these names, as `parse` understands them.
    pub(super) fn parse_with<'a>(
        names: impl Iterator<Item = &'a str>,
        parse: impl Fn(&str) -> Result<DeviceSpec, String>,
    ) -> Result<Devices, String> {
        let one = |name: &str| {
            if name.contains(';') {
                return Err(format!(
                    "`{name}`: a device has no `;` in it, which stands between devices in SOFTNIC_DEV and SOFTNIC_BACKUP"
                ));
            }
            Ok((name.to_string(), parse(name)?))
        };
        names.map(one).collect::<Result<_, String>>().map(Devices)
    }

    /// Where none is named: an interface of this network namespace that a daemon shares; else the only one that is up, has an address that others
    /// can reach and may be used; else the network in memory that all processes of the user share. Says on stderr which, and why.
    pub(super) fn usual() -> Result<Devices, String> {
        let (device, why) = Devices::usual_name()?;
        say!("softnic: on {device}: {why}");
        Devices::parse([device.as_str()].into_iter())
    }

    fn usual_name() -> Result<(String, String), String> {
        if let [first, others @ ..] = &served_here()[..] {
            let others: String = others.iter().map(|name| format!("; shared:{name} is there, too")).collect();
            return Ok((format!("shared:{first}"), format!("an interface that `softnic share` serves{others}")));
        }
        let names = Interface::names().map_err(|e| e.to_string())?;
        let mut usable: Vec<String> = names.into_iter().filter(|name| is_usable(name)).collect();
        usable.sort();
        Ok(match &usable[..] {
            [only] => match AfXdp::check(&HostNetwork::open(only).map_err(|e| e.to_string())?.bottom().name) {
                Ok(()) => (format!("afxdp:{only}"), "the only interface that is up and has an address (one process at a time; for several on this host: --dev shm)".into()),
                Err(_) => ("shm".into(), format!("a network of your processes on this host; {only} takes root")),
            },
            [] => {
                ("shm".into(), "a network of your processes on this host; no interface is up and has an address".into())
            }
            _ => (
                "shm".into(),
                format!("a network of your processes on this host; or say --dev afxdp:{}", usable.join(", afxdp:")),
            ),
        })
    }

    /// What they are.
    pub(super) fn specs(&self) -> impl ExactSizeIterator<Item = &DeviceSpec> {
        self.0.iter().map(|(_, device)| device)
    }

    /// For SOFTNIC_DEV.
    pub(super) fn joined(&self) -> String {
        self.0.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(";")
    }

    /// Whether all can be opened, and have these faults, as far as can be told without doing it; with the options that they come from.
    pub(super) fn check(&self, faults: Option<&Spec>, [dev, fault]: [&str; 2]) -> Result<(), String> {
        let ends = |device: &DeviceSpec| if *device == DeviceSpec::Mem { 2 } else { 1 };
        let count = self.specs().map(ends).sum();
        faults.map_or(Ok(()), |spec| spec.check_devices(count)).map_err(|e| format!("{fault}: {e}"))?;
        let mut first = 0;
        for (i, (name, device)) in self.0.iter().enumerate() {
            if *device != DeviceSpec::Mem && self.0[..i].iter().any(|(_, earlier)| earlier == device) {
                return Err(format!("{dev} {name} is given twice"));
            }
            if let Some(spec) = faults {
                let spec = spec.clone().for_any_process();
                let fits = match device {
                    DeviceSpec::Mem => spec.for_wire_of(first).check_link(),
                    _ => spec.for_place(first).for_device().map(|_| ()),
                };
                fits.map_err(|e| format!("{fault}: {e}"))?;
            }
            first += ends(device);
            match device {
                DeviceSpec::Mem => {}
                DeviceSpec::Shm(spec) => spec.check().map_err(|e| e.to_string())?,
                DeviceSpec::Dgram { own, .. } if own.addresses.is_empty() => {
                    return Err(OpenError::NoAddress(device.to_string()).to_string());
                }
                DeviceSpec::Dgram { .. } => {}
                DeviceSpec::Dpdk(spec) => spec.check().map_err(|e| e.to_string())?,
                DeviceSpec::Shared { interface } => {
                    let host = HostNetwork::open(interface).map_err(|e| e.to_string())?;
                    served(interface).map_err(|e| e.to_string())?;
                    has_address(interface, &host)?;
                }
                DeviceSpec::AfXdp { interface, .. } if served_here().contains(interface) => {
                    return Err(OpenError::IsShared(interface.clone()).to_string());
                }
                DeviceSpec::AfXdp { interface, .. } => {
                    let host = HostNetwork::open(interface).map_err(|e| e.to_string())?;
                    host.port().map_err(|e| e.to_string())?;
                    AfXdp::check(&host.bottom().name).map_err(|e| e.to_string())?;
                    has_address(interface, &host)?;
                }
            }
        }
        Ok(())
    }
}

fn has_address(interface: &str, host: &HostNetwork) -> Result<(), String> {
    match host.addresses().is_empty() {
        true => Err(format!("{interface} has no address: give it one by `ip address add`")),
        false => Ok(()),
    }
}

/// Ethernet, up, with an address beyond the link.
fn is_usable(name: &str) -> bool {
    let reachable = |ip: &IpAddr| !matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
    let Ok(host) = HostNetwork::open(name) else { return false };
    host.interface().up && host.addresses().iter().any(reachable) && Device::find(&host.bottom().name).is_ok()
}
