//! Known properties of drivers: the largest MTU at which each supports AF_XDP in zero-copy. docs/afxdp-nics.md says how each row was found.

use super::device::Device;
use crate::host_network::path_mtu;

/// A driver that was tested.
struct Driver {
    name: &'static str,
    /// The largest MTU at which zero-copy works; `None` if it works at none.
    longest: Option<usize>,
    /// The requirements of zero-copy besides the MTU.
    needs: &'static str,
}

const DRIVERS: &[Driver] = &[
    // Frames must fit a receive buffer of 3072 bytes, with the Ethernet header, two tags and the checksum.
    Driver { name: "igb", longest: Some(3046), needs: "Linux 6.14" },
    // A page minus the headroom, the kernel's `skb_shared_info` and the Ethernet header.
    Driver {
        name: "virtio_net",
        longest: Some(3506),
        needs: "a kernel later than 6.12, and iommu_platform=on of QEMU",
    },
    Driver { name: "e1000e", longest: None, needs: "" },
    Driver { name: "vmxnet3", longest: None, needs: "" },
    Driver { name: "veth", longest: None, needs: "" },
    Driver { name: "tun", longest: None, needs: "" },
];

/// The MTU to suggest for a driver that is not in the table: it permits a path MTU of 2048, and a frame fits a buffer of 3072 bytes.
const WORTH_A_TRY: usize = 3000;

fn of(device: &Device) -> Option<&'static Driver> {
    let name = device.driver.as_deref()?;
    DRIVERS.iter().find(|driver| driver.name == name)
}

/// Whether the device is known to keep its link when a program is attached or detached, because there is no NIC that could be reset.
pub(super) fn keeps_link(device: &Device) -> bool {
    matches!(device.driver.as_deref(), Some("veth" | "tun"))
}

/// Why a device has no zero-copy, and what to do about it, in one line.
pub(super) fn refusal(device: &Device) -> String {
    let Device { name: interface, mtu, .. } = device;
    let driver = device.driver.as_deref().unwrap_or("unknown");
    let otherwise = "or mode=auto, which copies";
    match of(device) {
        Some(Driver { longest: None, .. }) => {
            format!("its driver {driver} has none at any MTU (it is {mtu}): take another NIC, {otherwise}")
        }
        Some(Driver { longest: Some(longest), .. }) if mtu > longest => {
            format!("its driver {driver} has none at MTU {mtu}: {}, {otherwise}", set_mtu(interface, *longest))
        }
        Some(Driver { longest: Some(longest), needs, .. }) => {
            format!("its driver {driver} has it up to MTU {longest} (it is {mtu}), but needs {needs}; {otherwise}")
        }
        None if *mtu > WORTH_A_TRY => {
            let set = set_mtu(interface, WORTH_A_TRY);
            format!("its driver {driver} refuses it at MTU {mtu}: perhaps {set}, {otherwise}")
        }
        None => format!("its driver {driver} refuses it at MTU {mtu}, and a lower one does not help; {otherwise}"),
    }
}

/// The explanation for a device that accepts no socket at all, in one line: the kernel gives no reason.
pub(super) fn no_socket(device: &Device) -> String {
    let driver = device.driver.as_deref().unwrap_or("unknown");
    let longest = of(device).map_or(Some(WORTH_A_TRY), |driver| driver.longest);
    let perhaps = match longest.filter(|&longest| device.mtu > longest) {
        Some(longest) => format!("{}, or mode=copy", set_mtu(&device.name, longest)),
        None => "mode=copy".into(),
    };
    format!("its driver is {driver}, its MTU {}; perhaps {perhaps}", device.mtu)
}

/// The requirements of zero-copy on a device that copies; `None` if it has no zero-copy, or if the driver is not in the table.
pub(super) fn advice(device: &Device) -> Option<String> {
    let Driver { longest: Some(longest), needs, name } = of(device)? else { return None };
    match device.mtu > *longest {
        true => Some(set_mtu(&device.name, *longest)),
        false => Some(format!("{name} needs {needs}")),
    }
}

/// The command that sets an MTU, and the path MTU that results.
fn set_mtu(interface: &str, mtu: usize) -> String {
    let path = path_mtu(mtu as u32).map_or(0, |path| path.bytes());
    format!("`ip link set dev {interface} mtu {mtu}` (path MTU {path})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(driver: &str, mtu: usize) -> Device {
        Device {
            name: "eth7".into(),
            ifindex: 7,
            mac: softnic_wire::MacAddr([2, 0, 0, 0, 0, 7]),
            mtu,
            rx_queues: 1,
            rx_places: None,
            rate: None,
            driver: Some(driver.into()),
        }
    }

    #[test]
    fn a_refusal_names_driver_and_mtu_and_the_mtu_at_which_it_would_go() {
        for (driver, mtu, named) in [
            ("igb", 4200, "mtu 3046`"),
            ("virtio_net", 4200, "mtu 3506`"),
            ("some_nic", 9000, "mtu 3000`"),
            ("some_nic", 1500, "a lower one does not help"),
            ("igb", 1500, "Linux 6.14"),
            ("veth", 1500, "at any MTU"),
        ] {
            let line = refusal(&device(driver, mtu));
            for part in [driver, &mtu.to_string(), named, "mode=auto"] {
                assert!(line.contains(part), "`{part}` is not in: {line}");
            }
            assert!(!line.contains('\n'), "{line}");
        }
    }

    #[test]
    fn advice_is_given_where_a_driver_is_known_to_have_zero_copy() {
        assert_eq!(advice(&device("igb", 4200)).as_deref(), Some("`ip link set dev eth7 mtu 3046` (path MTU 2048)"));
        assert_eq!(advice(&device("igb", 3046)).as_deref(), Some("igb needs Linux 6.14"));
        assert_eq!(advice(&device("veth", 4200)), None);
        assert_eq!(advice(&device("some_nic", 9000)), None);
    }
}
