//! The contents of a device's files, in the kernel's format.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use softnic_runtime::api::DEFAULT_PKEY;

use crate::calls::query::{PORT_CAPABILITIES, gid_table_len};
use crate::gid::gid_of;
use crate::objects::device::Device;

/// A path, and the line in that file.
pub(super) type Attribute = (String, String);

/// The target of a device's file in /dev/infiniband: a character device. It discards writes, because this library does not use the file.
pub(super) const DEVICE_FILE: &str = "/dev/null";
/// The number of that device, for `dev` in /sys.
const DEVICE_NUMBER: &str = "1:3";
/// The versions of the kernel's interfaces, which the library of rdma-core checks.
const VERBS_ABI: &str = "6";
const DRIVER_ABI: &str = "1";
const MAD_ABI: &str = "5";
/// The model name, in place of that of hardware.
const MODEL: &str = "softnic";

/// The folder that represents the hardware.
///
/// NCCL takes the last digits of a path for those of a PCI function, and treats two devices that differ only there as two ports of one. So
/// the name ends like that of a function, and devices differ before that.
pub(super) fn node(device: &Device) -> String {
    format!("sys/devices/softnic/{}:00.0", device.name())
}

/// The folder of the verbs device.
fn device_folder(device: &Device) -> String {
    format!("{}/infiniband/{}", node(device), device.name())
}

/// The folder of its port.
pub(super) fn port_folder(device: &Device) -> String {
    format!("{}/ports/1", device_folder(device))
}

/// Groups of four hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    let groups: Vec<String> = bytes.chunks(2).map(|pair| pair.iter().map(|b| format!("{b:02x}")).collect()).collect();
    groups.join(":")
}

/// All files that do not change.
pub(super) fn constant(device: &Device) -> Vec<Attribute> {
    let (node, name, file) = (node(device), device.name(), device.file_name());
    let guid = hex(&device.guid.to_be_bytes());
    let numa = numa_node(device);
    let of_device = [
        ("node_type", "1: CA"),
        ("node_guid", &guid),
        ("sys_image_guid", &guid),
        ("node_desc", name),
        ("fw_ver", env!("CARGO_PKG_VERSION")),
        ("hw_rev", "0"),
        ("hca_type", MODEL),
        ("board_id", MODEL),
    ];
    let (capabilities, pkey) = (format!("0x{PORT_CAPABILITIES:08x}"), format!("0x{DEFAULT_PKEY:04x}"));
    let of_port = [
        ("lid", "0x0"),
        ("lid_mask_count", "0"),
        ("sm_lid", "0x0"),
        ("sm_sl", "0"),
        ("cap_mask", &capabilities),
        ("link_layer", "Ethernet"),
        ("pkeys/0", &pkey),
    ];
    let of_file = [("ibdev", name), ("dev", DEVICE_NUMBER), ("abi_version", DRIVER_ABI)];
    let (device_folder, port_folder) = (device_folder(device), port_folder(device));
    let file_folder = format!("{node}/infiniband_verbs/{file}");
    let in_folder = |folder: String| move |(name, text): (&str, &str)| (format!("{folder}/{name}"), text.to_string());
    let mut all = vec![
        (format!("{node}/numa_node"), numa),
        ("sys/class/infiniband_verbs/abi_version".into(), VERBS_ABI.into()),
        ("sys/class/infiniband_mad/abi_version".into(), MAD_ABI.into()),
    ];
    all.extend(of_device.into_iter().map(in_folder(device_folder)));
    all.extend(of_port.into_iter().map(in_folder(port_folder)));
    all.extend(of_file.into_iter().map(in_folder(file_folder)));
    all
}

/// The targets of a device's links that point outside its files.
pub(super) struct Links {
    /// The hardware: that of the interface, or else a folder of this module.
    pub(super) device: PathBuf,
    /// The interface, by its name.
    pub(super) interface: Option<(String, PathBuf)>,
}

pub(super) fn links(device: &Device) -> Links {
    let interface = device.interface().map(|name| (name.to_string(), Path::new("/sys/class/net").join(name)));
    let hardware = interface.as_ref().and_then(|(_, interface)| interface.join("device").canonicalize().ok());
    Links { device: hardware.unwrap_or_else(|| "../..".into()), interface }
}

/// The NUMA node of the interface's hardware; -1 for none.
fn numa_node(device: &Device) -> String {
    let read = |name| std::fs::read_to_string(format!("/sys/class/net/{name}/device/numa_node")).ok();
    device.interface().and_then(read).map_or("-1".into(), |text| text.trim().into())
}

/// Whether the port is up, and its addresses.
fn port(device: &Device) -> (bool, Vec<IpAddr>) {
    match device.opened() {
        Some(nics) => {
            let runtime = &device.nic(&nics).runtime;
            (runtime.is_up(), runtime.addresses())
        }
        None => device.closed_port(),
    }
}

/// The state of the port's link.
pub(super) fn port_state(device: &Device) -> [(&'static str, String); 3] {
    let (state, physical) = match port(device).0 {
        true => ("4: ACTIVE", "5: LinkUp"),
        false => ("1: DOWN", "3: Disabled"),
    };
    [("state", state.into()), ("phys_state", physical.into()), ("rate", device.link_speed().text.into())]
}

/// The GID table with its attributes. The attributes of empty entries have no files, because the kernel's cannot be read.
pub(super) fn gids(device: &Device) -> Vec<(String, Option<String>)> {
    let addresses = port(device).1;
    let entry = |i: usize| {
        let address = addresses.get(i).copied();
        let gid = address.map_or([0; 16], |address| gid_of(address).raw);
        let interface = address.and_then(|_| device.interface()).map(str::to_string);
        [
            (format!("gids/{i}"), Some(hex(&gid))),
            (format!("gid_attrs/types/{i}"), address.map(|_| "RoCE v2".into())),
            (format!("gid_attrs/ndevs/{i}"), interface),
        ]
    };
    (0..gid_table_len(&addresses)).flat_map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guids_and_gids_are_written_in_groups() {
        assert_eq!(hex(&[0, 0, 0x0a, 0xff, 0xfe, 0, 0, 1]), "0000:0aff:fe00:0001");
        let gid = gid_of("10.0.0.1".parse().unwrap()).raw;
        assert_eq!(hex(&gid), "0000:0000:0000:0000:0000:ffff:0a00:0001");
    }
}
