//! The interface of queue pairs to registered memory.

use std::ops::BitOr;

use softnic_wire::Qpn;
use softnic_wire::icrc::Icrc;

/// Names a protection domain to the NIC that owns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PdId(pub u32);

/// Rights to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Access(u8);

impl Access {
    /// The NIC may read it for its own program: every region.
    pub const NONE: Access = Access(0);
    /// The NIC may write it for its own program.
    pub const LOCAL_WRITE: Access = Access(1);
    /// The peer may write it.
    pub const REMOTE_WRITE: Access = Access(2);
    /// The peer may read it.
    pub const REMOTE_READ: Access = Access(4);
    /// The peer may do atomics on it.
    pub const REMOTE_ATOMIC: Access = Access(8);
    /// Memory windows may be bound to it.
    pub const MW_BIND: Access = Access(16);
    /// All that a peer can be allowed to do.
    pub const REMOTE: Access = Access(2 | 4 | 8);

    /// Whether all of `other` is granted.
    #[inline]
    pub const fn allows(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is granted.
    #[inline]
    pub const fn intersects(self, other: Access) -> bool {
        self.0 & other.0 != 0
    }
}

impl BitOr for Access {
    type Output = Access;
    fn bitor(self, o: Access) -> Access {
        Access(self.0 | o.0)
    }
}

/// A stretch of registered memory and what is to be done with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The queue pair that asks.
    pub qpn: Qpn,
    /// Its protection domain.
    pub pd: PdId,
    /// The key: an lkey for local, an rkey for remote access.
    pub key: u32,
    /// First address.
    pub addr: u64,
    /// The right that is needed.
    pub access: Access,
}

/// Why memory may not be touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// No region has this key.
    #[error("no memory region has this key")]
    Key,
    /// The region belongs to another protection domain.
    #[error("the memory region belongs to another protection domain")]
    Domain,
    /// The range is not inside the region.
    #[error("the range is not inside the memory region")]
    Bounds,
    /// The region does not grant the right.
    #[error("the memory region does not grant the right")]
    Right,
    /// The window is bound already, or is of a type that is not bound or invalidated by work requests of this kind.
    #[error("the memory window is bound, or not of the right type")]
    Window,
}

/// A memory window laid over part of a memory region (IBA 10.6.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bind {
    /// The window, by the key that it has now.
    pub window: u32,
    /// The key that it will have, by the low eight bits; the others stay.
    pub rkey: u32,
    /// The region's local key.
    pub lkey: u32,
    /// The first address, as the region counts.
    pub addr: u64,
    /// Bytes; 0 takes the window off again.
    pub len: u64,
    /// Access rights of the peer.
    pub access: Access,
    /// The peer counts its addresses from 0.
    pub zero_based: bool,
}

/// An atomic operation on eight bytes of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicOp {
    /// Becomes `swap` if it is `compare`.
    CompareSwap {
        /// The value that it must have.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// `add` is added, wrapping.
    FetchAdd {
        /// The number that is added.
        add: u64,
    },
}

/// Stretches of memory of equal length, equally far apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runs {
    /// Bytes of each.
    pub run: u32,
    /// Bytes from the beginning of one to that of the next.
    pub step: u32,
    /// How many there are.
    pub count: u32,
}

impl Runs {
    /// Bytes from the first to behind the last.
    pub const fn span(&self) -> u64 {
        (self.count as u64).saturating_sub(1) * self.step as u64 + self.run as u64
    }
}

/// Registered memory: every access passes key, domain, bounds and rights.
pub trait Memory {
    /// Whether `len` bytes may be accessed. No key is looked at when `len` is 0 (IBA 9.7.4.1.5: o9-49).
    fn check(&self, region: Region, len: u64) -> Result<(), AccessError>;

    /// Copies out of memory.
    fn read(&self, region: Region, out: &mut [u8]) -> Result<(), AccessError>;

    /// Copies out of memory, and continues a CRC by `head` and the bytes that were copied, whatever the program writes there meanwhile.
    fn read_summed(&self, region: Region, crc: Icrc, head: &[u8], out: &mut [u8]) -> Result<Icrc, AccessError> {
        let mut crc = crc;
        self.read(region, out)?;
        crc.update(head);
        crc.update(out);
        Ok(crc)
    }

    /// Copies into memory; the last byte is stored last, because programs poll for it.
    fn write(&self, region: Region, bytes: &[u8]) -> Result<(), AccessError>;

    /// Copies runs out of memory, one behind the other; the region begins with the first.
    fn read_runs(&self, region: Region, runs: Runs, out: &mut [u8]) -> Result<(), AccessError>;

    /// Copies bytes into runs of memory, from the first to the last; the region begins with the first.
    fn write_runs(&self, region: Region, runs: Runs, bytes: &[u8]) -> Result<(), AccessError>;

    /// Changes eight bytes in one step, also against the program's own atomics; what they were before.
    fn atomic(&self, region: Region, op: AtomicOp) -> Result<u64, AccessError>;

    /// Binds a memory window, by a work request of the queue pair `qpn`.
    fn bind(&mut self, qpn: Qpn, pd: PdId, bind: &Bind) -> Result<(), AccessError>;

    /// Makes a key invalid, by a work request of the queue pair `qpn` or of its peer.
    fn invalidate(&mut self, qpn: Qpn, pd: PdId, key: u32) -> Result<(), AccessError>;
}
