//! `rdma_resolve_addr` and `rdma_resolve_route`: the device and the route for an address.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use softnic_runtime::api::cm::PortSpace;
use softnic_runtime::api::{PeerPath, spawn_own};

use super::addresses;
use super::devices::{self, CmDevice};
use super::event::complete;
use super::id::{Id, Stage, on};
use super::pending::{IdEvent, Resolved};
use super::ports;
use crate::abi::*;
use crate::codes::mtu_code;
use crate::errno::Errno;

/// `rdma_resolve_addr`. It returns at once; a thread of the library waits for the peer's MAC address. The thread gives up when the kernel,
/// or the NIC's own resolver, does, whatever the program's time limit is.
///
/// # Safety
/// The addresses have the lengths that their families imply; the source may be NULL.
pub(crate) unsafe extern "C" fn address(
    id: &Id,
    source: *const libc::sockaddr,
    destination: *const libc::sockaddr,
    _timeout_ms: c_int,
) -> c_int {
    on(id, || {
        // SAFETY: guaranteed by the contract.
        let (source, destination) = unsafe {
            let source = if source.is_null() { None } else { Some(addresses::read(source)?) };
            (source, addresses::read(destination)?)
        };
        find(id, source, destination)?;
        complete(id)
    })
}

pub(crate) fn find(id: &Id, source: Option<SocketAddr>, destination: SocketAddr) -> Result<(), Errno> {
    let begin = {
        let mut inner = id.inner();
        let (bound, device) = match inner.stage {
            Stage::Idle => (source, None),
            // The bound address is kept.
            Stage::Bound => (inner.source, inner.device),
            _ => return Err(Errno::EINVAL),
        };
        let begin = Begin { bound, device, has_port: inner.port.is_some(), space: id.space, reuse: inner.reuse };
        inner.stage = Stage::Resolving;
        inner.destination = Some(destination);
        begin
    };
    let shared = Arc::clone(&id.shared);
    let look = move || {
        shared.push(IdEvent::Address(begin.look(destination)));
    };
    spawn_own("softnic-resolve", look)?;
    Ok(())
}

/// The input of the resolution.
struct Begin {
    bound: Option<SocketAddr>,
    device: Option<&'static CmDevice>,
    has_port: bool,
    space: PortSpace,
    reuse: bool,
}

impl Begin {
    fn look(&self, destination: SocketAddr) -> Result<Resolved, Errno> {
        let peer = destination.ip().to_canonical();
        let from = self.bound.map(|s| s.ip().to_canonical()).filter(|&ip| !addresses::is_any(ip));
        let candidates = match (self.device, from) {
            (Some(device), _) => vec![device],
            (None, Some(from)) => vec![devices::with_address(from)?],
            (None, None) => devices::all()?,
        };
        let mut why = Errno(libc::ENETUNREACH);
        for device in candidates {
            let peer = if addresses::is_any(peer) { own_address(device, from, peer) } else { Some(peer) };
            let Some(peer) = peer else { continue };
            match path(device, from, peer) {
                Ok(path) => return self.found(device, path, SocketAddr::new(peer, destination.port())),
                Err(e) => why = e,
            }
        }
        Err(why)
    }

    fn found(&self, device: &'static CmDevice, path: PeerPath, to: SocketAddr) -> Result<Resolved, Errno> {
        let addresses = device.context().nic().runtime.addresses();
        let &own = addresses.get(path.attr.sgid_index).ok_or(Errno(libc::EADDRNOTAVAIL))?;
        let wanted = self.bound.map_or(0, |s| s.port());
        let (port, number) = match self.has_port {
            true => (None, wanted),
            false => {
                let port = ports::take(self.space, own, false, wanted, self.reuse)?;
                let number = port.number;
                (Some(port), number)
            }
        };
        Ok(Resolved { device, source: SocketAddr::new(own, number), destination: to, port })
    }
}

/// The target of a loopback address: the device itself, by the address that the id has, or by the first one of the same family.
fn own_address(device: &CmDevice, from: Option<IpAddr>, loopback: IpAddr) -> Option<IpAddr> {
    let addresses = device.context().nic().runtime.addresses();
    let alike = || addresses.iter().find(|own| own.is_ipv4() == loopback.is_ipv4());
    from.or_else(|| alike().or_else(|| addresses.first()).copied())
}

fn path(device: &CmDevice, from: Option<IpAddr>, to: IpAddr) -> Result<PeerPath, Errno> {
    let context = device.context();
    let runtime = &context.nic().runtime;
    Ok(match from {
        None => runtime.path_to(to, 0)?,
        Some(from) => {
            let index = device.gid_index(from).ok_or(Errno(libc::EADDRNOTAVAIL))?;
            runtime.path_from(index, to, 0)?
        }
    })
}

/// `rdma_resolve_route`: RoCE has no subnet manager to ask; the path is looked up again.
pub(crate) extern "C" fn route(id: &Id, _timeout_ms: c_int) -> c_int {
    on(id, || {
        find_route(id)?;
        complete(id)
    })
}

pub(crate) fn find_route(id: &Id) -> Result<(), Errno> {
    let (device, route) = {
        let mut inner = id.inner();
        if inner.stage != Stage::AddressResolved {
            return Err(Errno::EINVAL);
        }
        inner.stage = Stage::Resolving;
        (inner.device.ok_or(Errno::EINVAL)?, inner.route.ok_or(Errno::EINVAL)?)
    };
    let shared = Arc::clone(&id.shared);
    let look = move || {
        let found = path(device, Some(route.local), route.remote);
        shared.push(IdEvent::Route(found.map(|path| mtu_code(path.mtu) as u8)));
    };
    spawn_own("softnic-resolve", look)?;
    Ok(())
}
