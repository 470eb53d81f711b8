//! `rdma_getaddrinfo`: names to addresses, by the C library's own resolver.

use std::net::SocketAddr;
use std::ptr::null_mut;

use super::addresses;
use crate::abi::*;
use crate::errno::Errno;

/// A result, followed by its addresses. A program has the address of `base`.
#[repr(C)]
pub(crate) struct Found {
    base: rdma_addrinfo,
    source: Storage,
    destination: Storage,
}

/// The default hints.
const NO_HINTS: rdma_addrinfo = rdma_addrinfo {
    ai_flags: 0,
    ai_family: 0,
    ai_qp_type: 0,
    ai_port_space: 0,
    ai_src_len: 0,
    ai_dst_len: 0,
    ai_src_addr: null_mut(),
    ai_dst_addr: null_mut(),
    ai_src_canonname: null_mut(),
    ai_dst_canonname: null_mut(),
    ai_route_len: 0,
    ai_route: null_mut(),
    ai_connect_len: 0,
    ai_connect: null_mut(),
    ai_next: null_mut(),
};

/// `rdma_getaddrinfo`. Results other than 0 and -1 are those of getaddrinfo(3).
///
/// # Safety
/// The names are strings or NULL, and the addresses in the hints have the stated lengths.
pub(crate) unsafe extern "C" fn get(
    node: *const c_char,
    service: *const c_char,
    hints: Option<&rdma_addrinfo>,
    out: &mut *mut rdma_addrinfo,
) -> c_int {
    // SAFETY: guaranteed by the contract.
    match unsafe { look(node, service, hints.unwrap_or(&NO_HINTS)) } {
        Ok(found) => {
            *out = Box::into_raw(found).cast();
            0
        }
        Err(LookupError::Errno(e)) => {
            e.set();
            -1
        }
        Err(LookupError::Resolver(code)) => {
            Errno(libc::EADDRNOTAVAIL).set();
            code
        }
    }
}

enum LookupError {
    Errno(Errno),
    Resolver(c_int),
}

impl From<Errno> for LookupError {
    fn from(e: Errno) -> LookupError {
        LookupError::Errno(e)
    }
}

/// # Safety
/// As [`get`].
unsafe fn look(node: *const c_char, service: *const c_char, hints: &rdma_addrinfo) -> Result<Box<Found>, LookupError> {
    let passive = hints.ai_flags & RAI_PASSIVE != 0;
    // SAFETY: the addresses in the hints have the stated lengths.
    let (hinted_source, hinted_destination) = unsafe {
        let of = |address, len| if len == 0 { Ok(None) } else { addresses::read(address).map(Some) };
        (of(hints.ai_src_addr, hints.ai_src_len)?, of(hints.ai_dst_addr, hints.ai_dst_len)?)
    };
    let named = match node.is_null() && service.is_null() {
        true => None,
        // SAFETY: strings, or NULL.
        false => Some(unsafe { resolve(node, service, hints) }?),
    };
    let (source, destination) = match passive {
        true => (named.or(hinted_source), None),
        false => (hinted_source, named.or(hinted_destination)),
    };
    let family = destination.or(source).ok_or(Errno::EINVAL)?;
    let (qp_type, space) = match (hints.ai_qp_type, hints.ai_port_space) {
        (0, RDMA_PS_UDP | RDMA_PS_IPOIB) => (IBV_QPT_UD, hints.ai_port_space),
        (0, 0) => (IBV_QPT_RC, RDMA_PS_TCP),
        (0, space) => (IBV_QPT_RC, space),
        (IBV_QPT_UD, 0) => (IBV_QPT_UD, RDMA_PS_UDP),
        (kind, 0) => (kind, RDMA_PS_TCP),
        both => both,
    };
    let write = |a: Option<SocketAddr>| a.map_or((Storage([0; 128]), 0), addresses::write);
    let ((source, source_len), (destination, destination_len)) = (write(source), write(destination));
    let base = rdma_addrinfo {
        ai_flags: hints.ai_flags,
        ai_family: if family.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 },
        ai_qp_type: qp_type,
        ai_port_space: space,
        ai_src_len: source_len,
        ai_dst_len: destination_len,
        ..NO_HINTS
    };
    let mut found = Box::new(Found { base, source, destination });
    if source_len > 0 {
        found.base.ai_src_addr = (&raw mut found.source).cast();
    }
    if destination_len > 0 {
        found.base.ai_dst_addr = (&raw mut found.destination).cast();
    }
    Ok(found)
}

/// The first address of a name.
///
/// # Safety
/// Strings, or NULL.
unsafe fn resolve(
    node: *const c_char,
    service: *const c_char,
    hints: &rdma_addrinfo,
) -> Result<SocketAddr, LookupError> {
    // SAFETY: zeros are hints that accept any address.
    let mut asked: libc::addrinfo = unsafe { std::mem::zeroed() };
    asked.ai_flags = if hints.ai_flags & RAI_PASSIVE != 0 { libc::AI_PASSIVE } else { 0 };
    if hints.ai_flags & RAI_NUMERICHOST != 0 {
        asked.ai_flags |= libc::AI_NUMERICHOST;
    }
    if hints.ai_flags & RAI_FAMILY != 0 {
        asked.ai_family = hints.ai_family;
    }
    asked.ai_socktype = if hints.ai_port_space == RDMA_PS_UDP { libc::SOCK_DGRAM } else { libc::SOCK_STREAM };
    let mut list: *mut libc::addrinfo = null_mut();
    // SAFETY: guaranteed by the contract; the list is freed once, after its last use.
    unsafe {
        match libc::getaddrinfo(node, service, &raw const asked, &raw mut list) {
            0 => {}
            libc::EAI_SYSTEM => return Err(Errno::last().into()),
            code => return Err(LookupError::Resolver(code)),
        }
        let first = if list.is_null() { Err(Errno::EINVAL) } else { addresses::read((*list).ai_addr) };
        libc::freeaddrinfo(list);
        Ok(first?)
    }
}

/// `rdma_freeaddrinfo`.
pub(crate) extern "C" fn free(found: *mut Found) {
    let mut next = found;
    while !next.is_null() {
        // SAFETY: the result is from `get`, and the program does not use it any more.
        let found = unsafe { Box::from_raw(next) };
        next = found.base.ai_next.cast();
    }
}
