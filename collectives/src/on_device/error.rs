//! What keeps a group on a device from its work.

use crate::call::CallError;
use crate::fabric::Refused;
use crate::member::MemberError;

/// What keeps a group from its work.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// A rank says so.
    #[error("rank {rank}: {why}")]
    Member {
        /// Which.
        rank: usize,
        /// What.
        why: MemberError,
    },
    /// The group cannot make the call.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The NICs refused something.
    #[error("{0}")]
    Refused(String),
}

impl From<Refused> for DeviceError {
    fn from(refused: Refused) -> DeviceError {
        DeviceError::Refused(refused.0)
    }
}

pub(super) fn refused(why: impl std::fmt::Display) -> DeviceError {
    DeviceError::Refused(why.to_string())
}
