//! What DPDK could drive on this machine: the drivers in this build, and the NICs on the PCI bus.

use std::fs;

use super::pci::{is_for_dpdk, kernel_driver};

/// A NIC on the PCI bus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PciNic {
    /// The PCI address: `0000:01:00.0`.
    pub address: String,
    /// The vendor id and the device id.
    pub id: (u16, u16),
    /// The kernel driver that the NIC is bound to. DPDK needs vfio-pci or uio_pci_generic here.
    pub bound_to: Option<String>,
}

impl PciNic {
    /// Whether DPDK can open the NIC with its present driver.
    pub fn is_free(&self) -> bool {
        self.bound_to.as_deref().is_some_and(is_for_dpdk)
    }
}

/// The vendors whose NICs the drivers of this build support: Intel, Red Hat (virtio), VMware and Amazon.
const VENDORS: [u16; 4] = [0x8086, 0x1af4, 0x15ad, 0x1d0f];
/// The PCI class of Ethernet controllers.
const ETHERNET: &str = "0x0200";

/// The drivers in this build.
pub fn drivers() -> impl Iterator<Item = &'static str> {
    option_env!("SOFTNIC_DPDK_DRIVERS").unwrap_or_default().split_whitespace()
}

/// The NICs of these vendors, in the order of their addresses.
pub fn pci_nics() -> Vec<PciNic> {
    let devices = fs::read_dir("/sys/bus/pci/devices").into_iter().flatten().flatten();
    let nic = |entry: fs::DirEntry| {
        let read = |name: &str| fs::read_to_string(entry.path().join(name)).ok();
        let number = |name: &str| u16::from_str_radix(read(name)?.trim().strip_prefix("0x")?, 16).ok();
        read("class")?.starts_with(ETHERNET).then_some(())?;
        let id = (number("vendor")?, number("device")?);
        let address = entry.file_name().into_string().ok()?;
        let bound_to = kernel_driver(&address);
        VENDORS.contains(&id.0).then_some(PciNic { address, id, bound_to })
    };
    let mut all: Vec<PciNic> = devices.filter_map(nic).collect();
    all.sort_by(|a, b| a.address.cmp(&b.address));
    all
}
