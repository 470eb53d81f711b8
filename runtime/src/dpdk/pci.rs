//! Checks of a PCI device before DPDK opens it: which kernel driver it is bound to, and whether this process may use it.

use std::fs::{self, OpenOptions};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::error::DpdkError;
use crate::capabilities::may_lock_memory;

const DEVICES: &str = "/sys/bus/pci/devices";

/// The kernel driver of a device.
pub(super) fn kernel_driver(address: &str) -> Option<String> {
    name_behind(&format!("{DEVICES}/{address}/driver"))
}

/// Whether a kernel driver leaves its devices to DPDK.
pub(super) fn is_for_dpdk(driver: &str) -> bool {
    matches!(driver, "vfio-pci" | "uio_pci_generic" | "igb_uio")
}

/// Whether an IOMMU translates for the device, so that any page of the process can be used. vfio marks groups without an IOMMU by name.
pub(super) fn is_behind_iommu(address: &str) -> bool {
    let kind = fs::read_to_string(format!("{DEVICES}/{address}/iommu_group/name")).unwrap_or_default();
    kernel_driver(address).as_deref() == Some("vfio-pci") && kind.trim() != "vfio-noiommu"
}

/// Checks that the device exists, is bound to a driver for DPDK, can be used by this process, and is not how the machine is reached.
pub(super) fn check(address: &str, force: bool) -> Result<(), DpdkError> {
    let folder = format!("{DEVICES}/{address}");
    if fs::metadata(&folder).is_err() {
        return Err(DpdkError::NoSuchPci(address.into()));
    }
    let Some(driver) = kernel_driver(address) else {
        return Err(DpdkError::NoDriver { address: address.into(), command: bind_command(address, None) });
    };
    if !is_for_dpdk(&driver) {
        let mut interfaces = names_in(&format!("{folder}/net"));
        return Err(match interfaces.find(|name| has_default_route(name)) {
            Some(interface) if !force => DpdkError::DefaultRoute { address: address.into(), interface },
            _ => {
                let command = bind_command(address, Some(&driver));
                DpdkError::KernelDriver { address: address.into(), driver, command }
            }
        });
    }
    let Some(path) = node(&folder, &driver) else { return Ok(()) };
    // The file can be open only once, so this check closes it at once.
    match OpenOptions::new().read(true).write(true).open(&path) {
        Err(e) if Errno::from_io_error(&e) == Some(Errno::BUSY) => {
            Err(DpdkError::InUse { address: address.into(), path })
        }
        Err(e) if e.kind() == ErrorKind::PermissionDenied => Err(DpdkError::Access { address: address.into(), path }),
        // DPDK reports all other errors.
        _ => Ok(()),
    }
}

/// Checks the limit on locked memory, which applies to unprivileged processes. Behind an IOMMU the device's memory is locked.
pub(super) fn check_limit(device: &str, needed_mib: u32) -> Result<(), DpdkError> {
    let limit = getrlimit(Resource::Memlock).current;
    match limit {
        Some(limit) if limit < u64::from(needed_mib) << 20 && !may_lock_memory() => {
            Err(DpdkError::LockedMemory { device: device.into(), limit_kib: limit >> 10, needed_mib })
        }
        _ => Ok(()),
    }
}

/// Checks that the memory to be locked is available. Otherwise the kernel would kill the process without a message.
pub(super) fn check_available(device: &str, needed_mib: u32, queues: u32) -> Result<(), DpdkError> {
    match fs::read_to_string("/proc/meminfo").ok().and_then(|meminfo| available_mib(&meminfo)) {
        Some(available_mib) if available_mib < u64::from(needed_mib) => {
            Err(DpdkError::Memory { device: device.into(), available_mib, needed_mib, queues })
        }
        _ => Ok(()),
    }
}

fn available_mib(meminfo: &str) -> Option<u64> {
    let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(kib.trim().strip_suffix(" kB")?.parse::<u64>().ok()? >> 10)
}

/// Checks that enough huge pages are free, for a device without an IOMMU.
pub(super) fn check_huge_pages(device: &str, needed_mib: u32) -> Result<(), DpdkError> {
    const PAGES: &str = "/sys/kernel/mm/hugepages";
    let of_size = |name: String| {
        let kib: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let free: u64 = fs::read_to_string(format!("{PAGES}/{name}/free_hugepages")).ok()?.trim().parse().ok()?;
        Some((kib * free) >> 10)
    };
    let free_mib: u64 = names_in(PAGES).filter_map(of_size).sum();
    match free_mib < u64::from(needed_mib) {
        true => Err(DpdkError::HugePages { device: device.into(), free_mib, needed_mib }),
        false => Ok(()),
    }
}

/// The file through which a process uses the device.
fn node(folder: &str, driver: &str) -> Option<PathBuf> {
    match driver {
        "vfio-pci" => Some(Path::new("/dev/vfio").join(name_behind(&format!("{folder}/iommu_group"))?)),
        _ => Some(Path::new("/dev").join(names_in(&format!("{folder}/uio")).next()?)),
    }
}

/// The command that binds a device to a driver for DPDK. Without an IOMMU, vfio-pci of the kernel accepts no device.
fn bind_command(address: &str, bound_to: Option<&str>) -> String {
    let driver = if names_in("/sys/class/iommu").next().is_some() { "vfio-pci" } else { "uio_pci_generic" };
    let unbind = bound_to.map(|other| format!("echo {address} > /sys/bus/pci/drivers/{other}/unbind; "));
    format!(
        "modprobe {driver}; echo {driver} > {DEVICES}/{address}/driver_override; {}echo {address} > /sys/bus/pci/drivers_probe",
        unbind.unwrap_or_default()
    )
}

fn has_default_route(interface: &str) -> bool {
    let v4 = fs::read_to_string("/proc/net/route").unwrap_or_default();
    let v6 = fs::read_to_string("/proc/net/ipv6_route").unwrap_or_default();
    is_default_in_v4(&v4, interface) || is_default_in_v6(&v6, interface)
}

/// The columns are interface, destination, and others.
fn is_default_in_v4(routes: &str, interface: &str) -> bool {
    routes.lines().skip(1).any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some(interface) && words.next() == Some("00000000")
    })
}

/// The columns are destination, prefix length, others, flags, interface. The flag 0x200 marks reject routes.
fn is_default_in_v6(routes: &str, interface: &str) -> bool {
    routes.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "00", .., flags, name] = words[..] else { return false };
        name == interface && u32::from_str_radix(flags, 16).is_ok_and(|flags| flags & 0x200 == 0)
    })
}

fn names_in(folder: &str) -> impl Iterator<Item = String> + use<> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok())
}

/// The file name of a link's target.
fn name_behind(link: &str) -> Option<String> {
    fs::read_link(link).ok()?.file_name()?.to_str().map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_available_is_read_where_the_kernel_tells() {
        let meminfo = "MemTotal:        2014640 kB\nMemFree:          812344 kB\nMemAvailable:    1434624 kB\n";
        assert_eq!(available_mib(meminfo), Some(1401));
        assert_eq!(available_mib("MemTotal:        2014640 kB\n"), None);
    }

    #[test]
    fn the_default_route_is_found_by_either_ip_version() {
        let v4 = "Iface\tDestination\tGateway\neth0\t00000000\t0100000A\neth1\t0000000A\t00000000\n";
        assert!(is_default_in_v4(v4, "eth0") && !is_default_in_v4(v4, "eth1"));
        let zeros = "00000000000000000000000000000000";
        let route = |len: &str, flags: &str, name: &str| {
            format!("{zeros} {len} {zeros} 00 {zeros} 00000400 00000000 00000000 {flags} {name}\n")
        };
        let v6 = route("00", "00000003", "eth1") + &route("40", "00000001", "eth0") + &route("00", "00200200", "lo");
        assert!(is_default_in_v6(&v6, "eth1") && !is_default_in_v6(&v6, "eth0") && !is_default_in_v6(&v6, "lo"));
    }
}
