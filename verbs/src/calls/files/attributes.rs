//! What is in the files of a device, as the kernel writes it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use softnic_runtime::api::DEFAULT_PKEY;

use crate::calls::query::{PORT_CAPABILITIES, gid_table_len};
use crate::gid::gid_of;
use crate::objects::device::Device;

/// A path, and the line in the file there.
pub(super) type Attribute = (String, String);

/// What a device's file in /dev/infiniband leads to: a character device. What goes there is lost: verbs do not go that way here.
pub(super) const DEVICE_FILE: &str = "/dev/null";
/// Its number, which `dev` in /sys has.
const DEVICE_NUMBER: &str = "1:3";
/// The versions of the kernel's interfaces. The library of rdma-core checks them.
const VERBS_ABI: &str = "6";
const DRIVER_ABI: &str = "1";
const MAD_ABI: &str = "5";
/// What hardware has its model for.
const MODEL: &str = "softnic";

/// The folder of the hardware, as far as there is any.
///
/// NCCL takes the last digits of a path for those of a PCI function, and two devices that differ there alone for two ports of one. So the name
/// ends like that of a function, and devices differ before that.
pub(super) fn node(device: &Device) -> String {
    format!("sys/devices/softnic/{}:00.0", device.name())
}

/// That of the verbs device.
fn device_folder(device: &Device) -> String {
    format!("{}/infiniband/{}", node(device), device.name())
}

/// That of its port.
pub(super) fn port_folder(device: &Device) -> String {
    format!("{}/ports/1", device_folder(device))
}

/// Groups of four hexadecimal digits.
fn hex(bytes: &[u8]) -> String {
    let groups: Vec<String> = bytes.chunks(2).map(|pair| pair.iter().map(|b| format!("{b:02x}")).collect()).collect();
    groups.join(":")
}

/// All that stays as it is.
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

/// Where links of a device lead that leave its files.
pub(super) struct Links {
    /// The hardware: that of the interface, or else a folder of ours.
    pub(super) device: PathBuf,
    /// The interface, by its name.
    pub(super) interface: Option<(String, PathBuf)>,
}

pub(super) fn links(device: &Device) -> Links {
    let interface = device.interface().map(|name| (name.to_string(), Path::new("/sys/class/net").join(name)));
    let hardware = interface.as_ref().and_then(|(_, interface)| interface.join("device").canonicalize().ok());
    Links { device: hardware.unwrap_or_else(|| "../..".into()), interface }
}

/// That of the interface's hardware; -1 is none.
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

/// What the port's link does.
pub(super) fn port_state(device: &Device) -> [(&'static str, String); 3] {
    let (state, physical) = match port(device).0 {
        true => ("4: ACTIVE", "5: LinkUp"),
        false => ("1: DOWN", "3: Disabled"),
    };
    [("state", state.into()), ("phys_state", physical.into()), ("rate", device.link_speed().text.into())]
}

/// The GID table with its attributes. Those of empty entries are no files: the kernel's cannot be read.
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
