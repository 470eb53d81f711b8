//! IP addresses in connection requests: the RDMA-CM service ids and private data header (IBA annex A11).
//!
//! An RDMA-CM connects to an IP address and port over the InfiniBand CM: protocol and port make the service id, the
//! addresses lie in the first [`IpCm::LEN`] bytes of the private data of a REQ or SIDR_REQ:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 1 | major version (high nibble, 0), minor version (low nibble, 0) |
//! | 1 | 1 | IP version (high nibble, 4 or 6), reserved |
//! | 2 | 2 | source port |
//! | 4 | 16 | source address; IPv4 in the last four bytes behind zeros |
//! | 20 | 16 | destination address, the same |

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::Error;
use crate::bytes::{array, be16, put16};

/// A 64-bit CM service id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// IP protocol number of TCP: RDMA-CM's port space for connected QPs.
    pub const TCP: u8 = 0x06;
    /// IP protocol number of UDP: RDMA-CM's port space for UD.
    pub const UDP: u8 = 0x11;

    /// What the five bytes above protocol and port hold in the RDMA-CM's range.
    const IP_PREFIX: u64 = 0x01;

    /// The service id of a port of an IP protocol.
    pub const fn ip(protocol: u8, port: u16) -> ServiceId {
        ServiceId((Self::IP_PREFIX << 24) | ((protocol as u64) << 16) | port as u64)
    }

    /// IP protocol and port, if this service id is of the RDMA-CM's range.
    pub const fn as_ip(self) -> Option<(u8, u16)> {
        if self.0 >> 24 == Self::IP_PREFIX { Some(((self.0 >> 16) as u8, self.0 as u16)) } else { None }
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

/// Source and destination: always of one IP version, for one nibble tells both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Addresses {
    /// IPv4.
    V4 {
        /// Who asks.
        source: Ipv4Addr,
        /// Who is asked.
        destination: Ipv4Addr,
    },
    /// IPv6.
    V6 {
        /// Who asks.
        source: Ipv6Addr,
        /// Who is asked.
        destination: Ipv6Addr,
    },
}

/// The RDMA-CM's header at the front of the private data of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IpCm {
    /// Minor version, four bits; later ones only add to what is known.
    pub minor_version: u8,
    /// Port of who asks.
    pub source_port: u16,
    /// The two ends.
    pub addresses: Addresses,
}

const WHAT: &str = "RDMA-CM private data";
const MINOR: usize = 0;
const IP_VERSION: usize = 1;
const SOURCE_PORT: usize = 2;
const SOURCE: usize = 4;
const DESTINATION: usize = 20;
/// Where an IPv4 address begins inside a 16-byte address field.
const V4: usize = 12;

impl IpCm {
    /// Bytes of the header; the consumer's private data follows.
    pub const LEN: usize = 36;

    /// A header for a connection from `source` to `destination`, which must be of one IP version.
    pub fn new(source: SocketAddr, destination: IpAddr) -> Result<IpCm, Error> {
        let addresses = match (source.ip(), destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4 { source, destination },
            (IpAddr::V6(source), IpAddr::V6(destination)) => Addresses::V6 { source, destination },
            _ => return Err(Error::Malformed { what: WHAT, why: "the two addresses are of different IP versions" }),
        };
        Ok(IpCm { minor_version: 0, source_port: source.port(), addresses })
    }

    /// Reads the front of a request's private data.
    pub fn parse(private_data: &[u8]) -> Result<IpCm, Error> {
        Error::check_len(WHAT, Self::LEN, private_data.len())?;
        let b = private_data;
        if b[MINOR] >> 4 != 0 {
            return Err(Error::Malformed { what: WHAT, why: "the major version is not 0" });
        }
        let addresses = match b[IP_VERSION] >> 4 {
            4 => Addresses::V4 {
                source: Ipv4Addr::from(array::<4>(b, SOURCE + V4)),
                destination: Ipv4Addr::from(array::<4>(b, DESTINATION + V4)),
            },
            6 => Addresses::V6 {
                source: Ipv6Addr::from(array::<16>(b, SOURCE)),
                destination: Ipv6Addr::from(array::<16>(b, DESTINATION)),
            },
            _ => return Err(Error::Malformed { what: WHAT, why: "the IP version is neither 4 nor 6" }),
        };
        Ok(IpCm { minor_version: b[MINOR] & 0x0f, source_port: be16(b, SOURCE_PORT), addresses })
    }

    /// Writes the header to the front of a request's private data.
    ///
    /// # Panics
    /// When `private_data` is shorter than [`IpCm::LEN`].
    pub fn emit(&self, private_data: &mut [u8]) {
        let b = &mut private_data[..Self::LEN];
        b.fill(0);
        b[MINOR] = self.minor_version & 0x0f;
        put16(b, SOURCE_PORT, self.source_port);
        match self.addresses {
            Addresses::V4 { source, destination } => {
                b[IP_VERSION] = 4 << 4;
                b[SOURCE + V4..][..4].copy_from_slice(&source.octets());
                b[DESTINATION + V4..][..4].copy_from_slice(&destination.octets());
            }
            Addresses::V6 { source, destination } => {
                b[IP_VERSION] = 6 << 4;
                b[SOURCE..][..16].copy_from_slice(&source.octets());
                b[DESTINATION..][..16].copy_from_slice(&destination.octets());
            }
        }
    }

    /// What is left of a request's private data for the program behind the RDMA-CM.
    pub fn consumer_data(private_data: &[u8]) -> &[u8] {
        private_data.get(Self::LEN..).unwrap_or(&[])
    }

    /// Who asks.
    pub const fn source(&self) -> SocketAddr {
        let ip = match self.addresses {
            Addresses::V4 { source, .. } => IpAddr::V4(source),
            Addresses::V6 { source, .. } => IpAddr::V6(source),
        };
        SocketAddr::new(ip, self.source_port)
    }

    /// Who is asked; the port is in the service id.
    pub const fn destination(&self) -> IpAddr {
        match self.addresses {
            Addresses::V4 { destination, .. } => IpAddr::V4(destination),
            Addresses::V6 { destination, .. } => IpAddr::V6(destination),
        }
    }
}

impl fmt::Display for IpCm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} > {}", self.source(), self.destination())
    }
}
