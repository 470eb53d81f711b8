//! What a peer has to know of a backup: its queue pair, the key of a region there; the same bytes in MADs and entries.

use core::fmt;
use core::net::Ipv6Addr;

use super::Status;
use crate::bytes::{array, be24, be32, be64, put24, put32, put64};
use crate::{PathMtu, Psn, Qpn};

/// The backup queue pair of a default one.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 16 | GID of the backup NIC |
/// | 16 | 8 | address of the control region |
/// | 24 | 4 | its rkey at the default NIC |
/// | 28 | 4 | its rkey at the backup NIC |
/// | 32 | 1 | path MTU, 1 … 5 for 256 … 4096 |
/// | 33 | 3 | QPN |
/// | 36 | 1 | reserved |
/// | 37 | 3 | first PSN that it sends |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BackupQp {
    /// GID of the backup NIC; on RoCEv2 its IP address, IPv4 mapped.
    pub gid: Ipv6Addr,
    /// Its number.
    pub qpn: Qpn,
    /// The first PSN that it sends.
    pub psn: Psn,
    /// Path MTU of the backup path.
    pub mtu: PathMtu,
    /// Address of the control region: the peer writes its status block there.
    pub control_addr: u64,
    /// The rkey of the control region at the default NIC, and at the backup NIC.
    pub control_keys: [u32; 2],
}

impl BackupQp {
    /// Bytes of one.
    pub const LEN: usize = 40;

    /// Reads the bytes; says which field is impossible.
    pub(crate) fn parse(b: &[u8; BackupQp::LEN]) -> Result<BackupQp, &'static str> {
        let backup = BackupQp {
            gid: Ipv6Addr::from(array::<16>(b, 0)),
            control_addr: be64(b, 16),
            control_keys: [be32(b, 24), be32(b, 28)],
            mtu: PathMtu::from_code(b[32]).ok_or("impossible path MTU of the backup")?,
            qpn: Qpn::new(be24(b, 33)),
            psn: Psn::new(be24(b, 37)),
        };
        if backup.gid.is_unspecified() || backup.gid.is_multicast() {
            return Err("impossible GID of the backup");
        }
        if matches!(backup.qpn, Qpn::QP0 | Qpn::GSI | Qpn::MULTICAST) {
            return Err("impossible QPN of the backup");
        }
        if backup.control_addr.checked_add(Status::LEN as u64).is_none() {
            return Err("impossible address of the control region");
        }
        Ok(backup)
    }

    /// Writes the bytes.
    pub(crate) fn emit(&self, b: &mut [u8; BackupQp::LEN]) {
        b[..16].copy_from_slice(&self.gid.octets());
        put64(b, 16, self.control_addr);
        put32(b, 24, self.control_keys[0]);
        put32(b, 28, self.control_keys[1]);
        b[32] = self.mtu.code();
        put24(b, 33, self.qpn.value());
        b[36] = 0;
        put24(b, 37, self.psn.value());
    }
}

impl fmt::Display for BackupQp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BackupQp { gid, qpn, psn, mtu, control_addr, control_keys: [at_default, at_backup] } = self;
        write!(f, "backup gid {gid} qpn {qpn} psn {psn} mtu {} ", mtu.bytes())?;
        write!(f, "control {control_addr:#x} rkeys {at_default:#010x},{at_backup:#010x}")
    }
}

/// What a region of the default NIC is at the backup NIC: the same memory under another key.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 8 | first address, the same at both NICs |
/// | 8 | 8 | length in bytes |
/// | 16 | 4 | rkey at the backup NIC |
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RegionAnswer {
    /// Its first address.
    pub addr: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Its rkey at the backup NIC.
    pub backup_rkey: u32,
}

impl RegionAnswer {
    /// Bytes of one.
    pub const LEN: usize = 20;

    /// Reads the bytes; says which field is impossible.
    pub(crate) fn parse(b: &[u8; RegionAnswer::LEN]) -> Result<RegionAnswer, &'static str> {
        let region = RegionAnswer { addr: be64(b, 0), len: be64(b, 8), backup_rkey: be32(b, 16) };
        match region.addr.checked_add(region.len) {
            Some(_) => Ok(region),
            None => Err("impossible length of the region"),
        }
    }

    /// Writes the bytes.
    pub(crate) fn emit(&self, b: &mut [u8; RegionAnswer::LEN]) {
        put64(b, 0, self.addr);
        put64(b, 8, self.len);
        put32(b, 16, self.backup_rkey);
    }
}

impl fmt::Display for RegionAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "addr {:#x} len {} backup rkey {:#010x}", self.addr, self.len, self.backup_rkey)
    }
}
