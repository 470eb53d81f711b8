//! The interface of queue pairs to registered memory.

use std::ops::BitOr;

use softnic_wire::Qpn;
use softnic_wire::icrc::Icrc;

/// The name of a protection domain at its NIC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PdId(pub u32);

/// Access rights to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Access(u8);

impl Access {
    /// The NIC may read it for the local program: granted by every region.
    pub const NONE: Access = Access(0);
    /// The NIC may write it for the local program.
    pub const LOCAL_WRITE: Access = Access(1);
    /// The peer may write it.
    pub const REMOTE_WRITE: Access = Access(2);
    /// The peer may read it.
    pub const REMOTE_READ: Access = Access(4);
    /// The peer may execute atomics on it.
    pub const REMOTE_ATOMIC: Access = Access(8);
    /// Memory windows may be bound to it.
    pub const MW_BIND: Access = Access(16);
    /// All rights that a peer can have.
    pub const REMOTE: Access = Access(2 | 4 | 8);

    /// Whether all rights of `other` are granted.
    #[inline]
    pub const fn allows(self, other: Access) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any right of `other` is granted.
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

/// A range of registered memory and the requested access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The queue pair that accesses the memory.
    pub qpn: Qpn,
    /// Its protection domain.
    pub pd: PdId,
    /// The key: an lkey for local, an rkey for remote access.
    pub key: u32,
    /// The first address.
    pub addr: u64,
    /// The required right.
    pub access: Access,
}

/// Why an access was refused.
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
    /// The window is bound already, or is of a type that this kind of work request cannot bind or invalidate.
    #[error("the memory window is bound, or not of the right type")]
    Window,
}

/// The binding of a memory window to a part of a memory region (IBA 10.6.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bind {
    /// The window, by its current key.
    pub window: u32,
    /// The new key: only the low eight bits are used.
    pub rkey: u32,
    /// The region's local key.
    pub lkey: u32,
    /// The first address, in the region's addresses.
    pub addr: u64,
    /// Number of bytes; 0 unbinds the window.
    pub len: u64,
    /// Access rights of the peer.
    pub access: Access,
    /// The peer's addresses start at 0.
    pub zero_based: bool,
}

/// An atomic operation on eight bytes of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AtomicOp {
    /// Sets the value to `swap` if it is `compare`.
    CompareSwap {
        /// The value compared with.
        compare: u64,
        /// The new value.
        swap: u64,
    },
    /// Adds `add`, wrapping around.
    FetchAdd {
        /// The number to add.
        add: u64,
    },
}

/// Runs of memory of equal length, at equal distances.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runs {
    /// Length of a run in bytes.
    pub run: u32,
    /// Distance in bytes between the starts of two consecutive runs.
    pub step: u32,
    /// Number of runs.
    pub count: u32,
}

impl Runs {
    /// Number of bytes from the start of the first run to the end of the last.
    pub const fn span(&self) -> u64 {
        (self.count as u64).saturating_sub(1) * self.step as u64 + self.run as u64
    }
}

/// Registered memory: every access is checked for key, domain, bounds and rights.
pub trait Memory {
    /// Whether `len` bytes may be accessed. The key is not checked if `len` is 0 (IBA 9.7.4.1.5: o9-49).
    fn check(&self, region: Region, len: u64) -> Result<(), AccessError>;

    /// Copies out of memory.
    fn read(&self, region: Region, out: &mut [u8]) -> Result<(), AccessError>;

    /// Copies out of memory, and continues a CRC over `head` and the bytes that were copied, whatever the program writes there meanwhile.
    fn read_summed(&self, region: Region, crc: Icrc, head: &[u8], out: &mut [u8]) -> Result<Icrc, AccessError> {
        let mut crc = crc;
        self.read(region, out)?;
        crc.update(head);
        crc.update(out);
        Ok(crc)
    }

    /// Copies into memory; the last byte is stored last, because programs poll for it.
    fn write(&self, region: Region, bytes: &[u8]) -> Result<(), AccessError>;

    /// Copies runs out of memory into consecutive parts of `out`; the region starts with the first run.
    fn read_runs(&self, region: Region, runs: Runs, out: &mut [u8]) -> Result<(), AccessError>;

    /// Copies bytes into runs of memory, from the first to the last; the region starts with the first run.
    fn write_runs(&self, region: Region, runs: Runs, bytes: &[u8]) -> Result<(), AccessError>;

    /// Changes eight bytes atomically, also with respect to the program's own atomics; returns the previous value.
    fn atomic(&self, region: Region, op: AtomicOp) -> Result<u64, AccessError>;

    /// Binds a memory window, by a work request of the queue pair `qpn`.
    fn bind(&mut self, qpn: Qpn, pd: PdId, bind: &Bind) -> Result<(), AccessError>;

    /// Invalidates a key, by a work request of the queue pair `qpn` or of its peer.
    fn invalidate(&mut self, qpn: Qpn, pd: PdId, key: u32) -> Result<(), AccessError>;
}
