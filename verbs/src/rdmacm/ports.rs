//! Ports: each is used by one program at a time, in a network namespace. As in Linux they are not ports of TCP or UDP, so those stay free.
//!
//! An abstract socket with the port in its name represents the port: the system assigns a name once per network namespace, and releases it
//! when the process ends, in whatever way.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use softnic_runtime::api::cm::PortSpace;
use softnic_runtime::forked::Kept;
use softnic_runtime::{Generator, OsRandom};

use crate::errno::Errno;

/// The range of ports that are assigned automatically, as in Linux.
const FIRST: u16 = 32_768;
const COUNT: u32 = 28_232;
/// Maximum number of random draws of a port.
const TRIES: usize = 1000;

/// A port that is in use while this value lives.
#[derive(Debug)]
pub(crate) struct Port {
    /// `None` if the port is shared with another holder. The child of a fork closes the socket.
    _holder: Option<Kept<UnixDatagram>>,
    pub(crate) number: u16,
}

/// Takes a port of an address, which may be that of all devices; 0 selects any port. With `reuse` the port may be in use already.
///
/// # Errors
/// As in Linux, EADDRINUSE if the port is in use at the same address. If one of the two uses it at all addresses, the error is
/// EADDRNOTAVAIL. Here, only the second caller detects that: it requests the port at one address, or again at all addresses.
pub(crate) fn take(
    space: PortSpace,
    address: IpAddr,
    of_all_devices: bool,
    port: u16,
    reuse: bool,
) -> Result<Port, Errno> {
    if port != 0 {
        let everywhere = |any: IpAddr| any != address && matches!(hold(space, any, port), Err(Errno(libc::EADDRINUSE)));
        if !reuse && [IpAddr::from([0; 4]), IpAddr::from([0u16; 8])].into_iter().any(everywhere) {
            return Err(Errno(libc::EADDRNOTAVAIL));
        }
        return match hold(space, address, port) {
            Ok(holder) => Ok(Port { _holder: Some(holder), number: port }),
            Err(Errno(libc::EADDRINUSE)) if reuse => Ok(Port { _holder: None, number: port }),
            Err(Errno(libc::EADDRINUSE)) if of_all_devices => Err(Errno(libc::EADDRNOTAVAIL)),
            Err(e) => Err(e),
        };
    }
    let mut random = OsRandom::new()?;
    for _ in 0..TRIES {
        let number = FIRST + (random.next_u32() % COUNT) as u16;
        match hold(space, address, number) {
            Ok(holder) => return Ok(Port { _holder: Some(holder), number }),
            Err(Errno(libc::EADDRINUSE)) => {}
            Err(e) => return Err(e),
        }
    }
    Err(Errno(libc::EADDRNOTAVAIL))
}

fn hold(space: PortSpace, address: IpAddr, port: u16) -> Result<Kept<UnixDatagram>, Errno> {
    let name = SocketAddr::from_abstract_name(format!("softnic-port/{space:?}/{address}/{port}"))?;
    UnixDatagram::bind_addr(&name).map(Kept::new).map_err(|e| match e.kind() {
        ErrorKind::AddrInUse => Errno(libc::EADDRINUSE),
        _ => e.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_given_once_and_again_when_it_is_free() {
        let address = IpAddr::from([10, 9, 8, 7]);
        let port = take(PortSpace::Tcp, address, false, 0, false).unwrap();
        assert!(port.number >= FIRST);
        let again = |space, reuse| take(space, address, false, port.number, reuse).map(|p| p.number);
        assert_eq!(again(PortSpace::Tcp, false), Err(Errno(libc::EADDRINUSE)));
        assert_eq!(again(PortSpace::Tcp, true), Ok(port.number));
        assert_eq!(again(PortSpace::Udp, false), Ok(port.number), "the other space has its own");
        let number = port.number;
        drop(port);
        assert_eq!(take(PortSpace::Tcp, address, false, number, false).map(|p| p.number), Ok(number));
    }

    #[test]
    fn a_port_of_all_addresses_is_not_available_to_others() {
        let (any, address) = (IpAddr::from([0; 4]), IpAddr::from([10, 9, 8, 6]));
        let port = take(PortSpace::Tcp, any, true, 0, false).unwrap();
        for second in [any, address, IpAddr::from([0u16; 8])] {
            let refused = take(PortSpace::Tcp, second, second != address, port.number, false).map(|_| ());
            assert_eq!(refused, Err(Errno(libc::EADDRNOTAVAIL)), "{second}");
            assert!(take(PortSpace::Tcp, second, second != address, port.number, true).is_ok(), "{second}");
        }
    }
}
