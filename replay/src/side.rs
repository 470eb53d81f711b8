//! The side file: what the packets of a capture do not tell.

use std::net::IpAddr;

use serde::Deserialize;
use softnic_nic::transports::memory::Access;
use softnic_wire::{PathMtu, Qpn};

/// What is known of a capture beside its packets.
///
/// ```
/// let side: softnic_replay::Side = "
///     [[qp]]
///     address = '10.0.0.2'
///     qp = 0x11
///     receives = [512, 64]           # bytes of each receive, in the order of the messages
///     rights = ['write', 'read']     # what the peer may do; without it: everything
///     initial_psn = 100
///     mtu = 1024
///     [[mr]]
///     address = '10.0.0.2'
///     rkey = 0x1234
///     start = 0x7f0000000000
///     length = 4096
///     rights = ['read']
///     volatile = true                # the program changes it at will: its content is not checked
/// "
/// .parse()?;
/// # Ok::<(), softnic_replay::SideError>(())
/// ```
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Side {
    #[serde(default)]
    qp: Vec<SideQp>,
    #[serde(default)]
    mr: Vec<SideMr>,
}

/// Why a side file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SideError {
    /// It is not TOML, or a field is unknown or of the wrong type.
    #[error("{0}")]
    Toml(String),
    /// A path MTU that does not exist.
    #[error("qp {qp:#x}: mtu = {mtu}: a path MTU is 256, 512, 1024, 2048 or 4096")]
    Mtu {
        /// The queue pair.
        qp: u32,
        /// What was given.
        mtu: u32,
    },
    /// A right that does not exist.
    #[error("'{0}' is not a right: write, read and atomic are")]
    Right(String),
    /// A number beyond 24 bits.
    #[error("{what} = {value:#x}: it is below 2^24")]
    Range {
        /// Which field.
        what: &'static str,
        /// What was given.
        value: u32,
    },
    /// A region that wraps around the end of the address space, or of more than 2 GiB.
    #[error("mr {rkey:#x}: start and length are not a range of at most 2 GiB")]
    Length {
        /// Its key.
        rkey: u32,
    },
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SideQp {
    address: IpAddr,
    qp: u32,
    pub(crate) receives: Option<Vec<u32>>,
    rights: Option<Vec<String>>,
    pub(crate) initial_psn: Option<u32>,
    mtu: Option<u32>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SideMr {
    address: IpAddr,
    rkey: u32,
    pub(crate) start: u64,
    pub(crate) length: u64,
    rights: Option<Vec<String>>,
    #[serde(default)]
    pub(crate) volatile: bool,
}

fn rights(names: Option<&[String]>) -> Result<Access, SideError> {
    let Some(names) = names else { return Ok(Access::REMOTE) };
    names.iter().try_fold(Access::NONE, |sum, name| {
        Ok(sum
            | match name.as_str() {
                "write" => Access::REMOTE_WRITE,
                "read" => Access::REMOTE_READ,
                "atomic" => Access::REMOTE_ATOMIC,
                _ => return Err(SideError::Right(name.clone())),
            })
    })
}

impl SideQp {
    pub(crate) fn mtu(&self) -> Option<PathMtu> {
        self.mtu.and_then(PathMtu::from_bytes)
    }

    /// What the peer may do, where the file says so.
    pub(crate) fn access(&self) -> Option<Access> {
        self.rights.as_deref().and_then(|names| rights(Some(names)).ok())
    }
}

impl SideMr {
    pub(crate) fn access(&self) -> Access {
        rights(self.rights.as_deref()).unwrap_or_default()
    }
}

impl std::str::FromStr for Side {
    type Err = SideError;

    fn from_str(text: &str) -> Result<Side, SideError> {
        let side: Side = toml::from_str(text).map_err(|e| SideError::Toml(e.to_string().trim_end().to_owned()))?;
        for qp in &side.qp {
            if let Some(mtu) = qp.mtu.filter(|&m| PathMtu::from_bytes(m).is_none()) {
                return Err(SideError::Mtu { qp: qp.qp, mtu });
            }
            for (what, value) in [("qp", Some(qp.qp)), ("initial_psn", qp.initial_psn)] {
                if let Some(value) = value.filter(|&v| v >= 1 << 24) {
                    return Err(SideError::Range { what, value });
                }
            }
            rights(qp.rights.as_deref())?;
        }
        for mr in &side.mr {
            rights(mr.rights.as_deref())?;
            if mr.length > 1 << 31 || mr.start.checked_add(mr.length).is_none() {
                return Err(SideError::Length { rkey: mr.rkey });
            }
        }
        Ok(side)
    }
}

impl Side {
    /// What is known of a queue pair.
    pub(crate) fn qp(&self, address: IpAddr, qp: Qpn) -> Option<&SideQp> {
        self.qp.iter().find(|s| s.address == address && s.qp == qp.value())
    }

    /// What is known of a region.
    pub(crate) fn mr(&self, address: IpAddr, rkey: u32) -> Option<&SideMr> {
        self.mr.iter().find(|s| s.address == address && s.rkey == rkey)
    }
}
