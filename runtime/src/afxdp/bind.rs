//! Binds an AF_XDP socket to a queue of a device, in zero-copy or copy mode, and interprets a refusal.

use std::io;

use super::device::Device;
use super::drivers;
use super::error::AfXdpError;
use super::holder::Holder;
use super::mode::CopyMode;
use super::socket::Socket;

/// Binds the socket to a queue; returns whether frames may span two chunks.
pub(super) fn bind(
    socket: &Socket,
    device: &Device,
    queue: u32,
    mode: CopyMode,
    fragments: bool,
) -> Result<bool, AfXdpError> {
    let flags = libc::XDP_USE_NEED_WAKEUP | mode.flag();
    let failed = |e: io::Error| match e.raw_os_error() {
        // EINVAL comes from virtio_net, where QEMU lets the device use memory directly.
        Some(libc::EOPNOTSUPP | libc::EINVAL) if mode == CopyMode::ZeroCopy => no_zero_copy(device),
        _ => bind_error(device, queue, e),
    };
    if fragments {
        match socket.bind(device.ifindex, queue, flags | libc::XDP_USE_SG) {
            // Kernels before 6.6 do not know the flag.
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) && mode != CopyMode::ZeroCopy => {}
            bound => return bound.map(|()| true).map_err(failed),
        }
    }
    socket.bind(device.ifindex, queue, flags).map(|()| false).map_err(failed)
}

/// The error for a device that does not support the requested zero-copy.
pub(super) fn no_zero_copy(device: &Device) -> AfXdpError {
    AfXdpError::NoZeroCopy { interface: device.name.clone(), why: drivers::refusal(device) }
}

fn bind_error(device: &Device, queue: u32, error: io::Error) -> AfXdpError {
    match error.raw_os_error() {
        Some(libc::EBUSY) => {
            AfXdpError::QueueBusy { interface: device.name.clone(), queue, holder: Holder::of(device.ifindex) }
        }
        Some(libc::EINVAL | libc::EOPNOTSUPP) => {
            let (interface, why) = (device.name.clone(), drivers::no_socket(device));
            AfXdpError::BindRefused { interface, queue, error, why }
        }
        _ => AfXdpError::new("bind an AF_XDP socket", error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_without_a_reason_names_driver_and_mtu_and_the_mtu_at_which_it_would_go() {
        let mac = softnic_wire::MacAddr([2, 0, 0, 0, 0, 7]);
        let (name, driver) = ("eth7".into(), Some("igb".into()));
        let device = Device { name, ifindex: 7, mac, mtu: 4200, rx_queues: 2, rx_places: None, rate: None, driver };
        let line = bind_error(&device, 1, io::Error::from_raw_os_error(libc::EINVAL)).to_string();
        assert_eq!(
            line,
            "cannot bind an AF_XDP socket to queue 1 of eth7: Invalid argument (os error 22): its driver is igb, its MTU 4200; \
             perhaps `ip link set dev eth7 mtu 3046` (path MTU 2048), or mode=copy"
        );
    }
}
