//! Socket addresses in C and in Rust form.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

use libc::{AF_INET, AF_INET6, sockaddr, sockaddr_in, sockaddr_in6};

use crate::abi::Storage;
use crate::errno::Errno;

/// Whether an address selects no device: the unspecified address, or a loopback address, which Linux treats alike.
pub(crate) fn is_any(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    ip.is_unspecified() || ip.is_loopback()
}

/// Reads an address written by a program.
///
/// # Safety
/// NULL, or an address of the length that its family implies.
pub(crate) unsafe fn read(address: *const sockaddr) -> Result<SocketAddr, Errno> {
    if address.is_null() {
        return Err(Errno::EINVAL);
    }
    // SAFETY: guaranteed by the contract, in each case; programs do not always align the address.
    unsafe {
        match c_family(address) {
            AF_INET => {
                let v4 = address.cast::<sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Ok(SocketAddrV4::new(ip, u16::from_be(v4.sin_port)).into())
            }
            AF_INET6 => {
                let v6 = address.cast::<sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                Ok(SocketAddrV6::new(ip, u16::from_be(v6.sin6_port), v6.sin6_flowinfo, v6.sin6_scope_id).into())
            }
            _ => Err(Errno(libc::EAFNOSUPPORT)),
        }
    }
}

/// # Safety
/// An address.
unsafe fn c_family(address: *const sockaddr) -> i32 {
    // SAFETY: every address starts with its family.
    unsafe { i32::from(address.cast::<u16>().read_unaligned()) }
}

/// An address in C form, and its length.
pub(crate) fn write(address: SocketAddr) -> (Storage, u32) {
    let mut storage = Storage([0; 128]);
    let len = match address {
        SocketAddr::V4(v4) => {
            // SAFETY: zeros are a valid address.
            let mut c: sockaddr_in = unsafe { std::mem::zeroed() };
            c.sin_family = AF_INET as u16;
            c.sin_port = v4.port().to_be();
            c.sin_addr.s_addr = u32::from(*v4.ip()).to_be();
            // SAFETY: the storage has room for every kind of address, and is aligned.
            unsafe { (&raw mut storage).cast::<sockaddr_in>().write(c) };
            size_of::<sockaddr_in>()
        }
        SocketAddr::V6(v6) => {
            // SAFETY: zeros are a valid address.
            let mut c: sockaddr_in6 = unsafe { std::mem::zeroed() };
            c.sin6_family = AF_INET6 as u16;
            c.sin6_port = v6.port().to_be();
            c.sin6_addr.s6_addr = v6.ip().octets();
            c.sin6_flowinfo = v6.flowinfo();
            c.sin6_scope_id = v6.scope_id();
            // SAFETY: as above.
            unsafe { (&raw mut storage).cast::<sockaddr_in6>().write(c) };
            size_of::<sockaddr_in6>()
        }
    };
    (storage, len as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loopback_address_names_no_device() {
        for ip in ["0.0.0.0", "::", "127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"] {
            assert!(is_any(ip.parse().unwrap()), "{ip}");
        }
        assert!(!is_any("10.0.0.1".parse().unwrap()) && !is_any("fe80::1".parse().unwrap()));
    }

    #[test]
    fn addresses_come_back_as_they_went() {
        for text in ["10.1.2.3:7174", "[fd00::1]:80", "[fe80::1%3]:1"] {
            let address: SocketAddr = text.parse().unwrap();
            let (storage, len) = write(address);
            assert_eq!(len, if address.is_ipv4() { 16 } else { 28 });
            // SAFETY: the address was written above.
            assert_eq!(unsafe { read((&raw const storage).cast()) }, Ok(address));
        }
        let odd = Storage([9; 128]);
        // SAFETY: NULL, and an address of an unknown family.
        unsafe {
            assert_eq!(read(std::ptr::null()), Err(Errno::EINVAL));
            assert_eq!(read((&raw const odd).cast()), Err(Errno(libc::EAFNOSUPPORT)));
        }
    }
}
