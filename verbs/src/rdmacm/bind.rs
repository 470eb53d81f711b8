//! `rdma_bind_addr`: assigns a local address to an id, and with it a device.

use std::net::SocketAddr;

use super::addresses;
use super::devices;
use super::id::{Id, Stage, on};
use super::ports;
use crate::abi::*;
use crate::errno::Errno;

/// `rdma_bind_addr`. Port 0 selects any free port. The unspecified address means all devices, and so does a loopback address that no device
/// has.
///
/// # Safety
/// The address has the length that its family implies.
pub(crate) unsafe extern "C" fn bind(id: &Id, address: *const libc::sockaddr) -> c_int {
    on(id, || {
        // SAFETY: guaranteed by the contract.
        let address = unsafe { addresses::read(address) }?;
        bind_to(id, address)
    })
}

pub(crate) fn bind_to(id: &Id, address: SocketAddr) -> Result<(), Errno> {
    let reuse = {
        let inner = id.inner();
        if inner.stage != Stage::Idle {
            return Err(Errno::EINVAL);
        }
        inner.reuse
    };
    let ip = address.ip().to_canonical();
    // Opened now, so that a peer which finds the port in use soon finds a listener there.
    let device = match devices::with_address(ip) {
        Ok(device) => Some(device),
        Err(Errno(libc::EADDRNOTAVAIL)) if addresses::is_any(ip) => None,
        Err(e) => return Err(e),
    };
    let port = ports::take(id.space, address.ip(), device.is_none(), address.port(), reuse)?;
    let mut source = address;
    source.set_port(port.number);
    {
        let mut inner = id.inner();
        (inner.stage, inner.device, inner.source) = (Stage::Bound, device, Some(source));
        inner.port = Some(port);
    }
    if let Some(device) = device {
        id.show_device(device);
    }
    id.show_addresses(Some(source), None);
    Ok(())
}

/// The port of an address, in network byte order; 0 if there is no address.
fn port(address: Option<SocketAddr>) -> u16 {
    address.map_or(0, |a| a.port().to_be())
}

/// `rdma_get_src_port`.
pub(crate) extern "C" fn source_port(id: &Id) -> u16 {
    port(id.inner().source)
}

/// `rdma_get_dst_port`.
pub(crate) extern "C" fn destination_port(id: &Id) -> u16 {
    port(id.inner().destination)
}
