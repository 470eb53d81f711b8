//! The one error type of this crate: why some bytes are not the header they were taken for.

/// Why bytes could not be read as, or written into, a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes end before the header does.
    #[error("{what} is cut off: it takes {need} bytes and {have} are there")]
    Truncated {
        /// The header that does not fit.
        what: &'static str,
        /// Bytes the header takes.
        need: usize,
        /// Bytes that were there.
        have: usize,
    },
    /// A well-formed frame that carries something other than RoCE.
    #[error("not a RoCE frame: {0}")]
    NotRoce(NotRoce),
    /// An IP fragment: RoCE packets are never fragmented, and a part of one has no ICRC to check.
    #[error("an IP fragment, which RoCE does not allow")]
    Fragment,
    /// A version, length or reserved field holds a value that the header's own definition forbids.
    #[error("{what}: {why}")]
    Malformed {
        /// The header at fault.
        what: &'static str,
        /// The rule it breaks.
        why: &'static str,
    },
    /// The invariant CRC does not match the packet.
    #[error("ICRC is {found:#010x}, the packet's own is {expected:#010x}")]
    Icrc {
        /// The value at the end of the packet.
        found: u32,
        /// The value computed over the packet.
        expected: u32,
    },
}

/// What a frame is when it is not RoCE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotRoce {
    /// An Ethernet frame of another protocol.
    #[error("ethertype {0:#06x}")]
    EtherType(u16),
    /// An IP packet of another protocol than UDP.
    #[error("IP protocol {0}")]
    IpProtocol(u8),
    /// A UDP datagram to another port than 4791.
    #[error("UDP port {0}")]
    UdpPort(u16),
    /// Bytes that begin with neither an IPv4 nor an IPv6 header.
    #[error("IP version {0}")]
    IpVersion(u8),
}

impl Error {
    /// `Ok` when `have` bytes hold a header of `need` bytes called `what`.
    #[inline]
    pub(crate) const fn check_len(what: &'static str, need: usize, have: usize) -> Result<(), Error> {
        if have < need { Err(Error::Truncated { what, need, have }) } else { Ok(()) }
    }
}
