//! Binding an AF_XDP socket to a queue of a device: with copies or without, and what a refusal means.

use std::io;

use super::device::Device;
use super::drivers;
use super::error::AfXdpError;
use super::holder::Holder;
use super::mode::CopyMode;
use super::socket::Socket;

/// Binds to a queue; says whether frames of two chunks are possible.
pub(super) fn bind(
    socket: &Socket,
    device: &Device,
    queue: u32,
    mode: CopyMode,
    fragments: bool,
) -> Result<bool, AfXdpError> {
    let flags = libc::XDP_USE_NEED_WAKEUP | mode.flag();
    let failed = |e: io::Error| match e.raw_os_error() {
        // EINVAL: virtio_net, where QEMU lets it use memory as it is.
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

/// Zero-copy was asked for in vain.
pub(super) fn no_zero_copy(device: &Device) -> AfXdpError {
    AfXdpError::NoZeroCopy { interface: device.name.clone(), why: drivers::refusal(device) }
}

fn bind_error(device: &Device, queue: u32, error: io::Error) -> AfXdpError {
    match error.raw_os_error() {
        Some(libc::EBUSY) => {
            AfXdpError::QueueBusy { interface: device.name.clone(), queue, holder: Holder::of(device.ifindex) }
        }
        _ => AfXdpError::new("bind an AF_XDP socket", error),
    }
}
