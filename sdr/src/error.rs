//! Why a call of the SDK fails.

use softnic_nic::transports::negotiation::FallbackReason;
use softnic_nic::transports::{PostError, Status};
use softnic_nic::{ModifyError, MrError, ObjectError};

use softnic_wire::sdr::SdrSettings;

use crate::attr::AttrError;
use crate::info::InfoError;

/// Why a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SdrError {
    /// Attributes do not fit together.
    #[error(transparent)]
    Attr(#[from] AttrError),
    /// The information about the peer cannot be read.
    #[error(transparent)]
    Info(#[from] InfoError),
    /// The two ends have different path MTUs, or numbers of queue pairs.
    #[error("the peer has another {0}: {1} there, {2} here")]
    Differs(&'static str, u64, u64),
    /// The two ends make messages reliable in different ways.
    #[error("the peer has another scheme: {0} there, {1} here")]
    Scheme(SdrSettings, SdrSettings),
    /// There is no peer yet.
    #[error("the queue pair is not connected")]
    NotConnected,
    /// There is a peer already.
    #[error("the queue pair is connected")]
    Connected,
    /// The peer was asked, and does not speak SDR, or has not answered.
    #[error("the peer {}", why(.0))]
    Declined(FallbackReason),
    /// As many receives are posted as can be: one must be completed before.
    #[error("all {0} receives are posted, and the oldest is not completed")]
    Full(u32),
    /// A message is longer than the receiver's longest.
    #[error("a message of {0} bytes is longer than the receiver takes, {1}")]
    TooLong(u64, u64),
    /// A part of a message does not begin at a packet, does not end at one, or is outside of it.
    #[error("a part of {0} bytes at {1} is no part of whole packets of a message of {2} bytes")]
    Part(u64, u64, u64),
    /// The division of immediates leaves no bits for the user's.
    #[error("the peer's division of immediates has no bits for one of the user's")]
    NoImmediate,
    /// There is no such message, or not any more.
    #[error("no such message")]
    NoSuchMessage,
    /// A send that is no stream, or is ended.
    #[error("the message takes no more parts")]
    Ended,
    /// The NIC has software on it already.
    #[error("the NIC has software on it already")]
    Layered,
    /// There is no such queue pair.
    #[error("no such queue pair")]
    NoSuchQp,
    /// The device of the NIC failed: nothing more leaves or comes.
    #[error("the device failed")]
    Device,
    /// A packet could not be sent.
    #[error("a message could not be sent: {0}")]
    Send(Status),
    /// The NIC refused an object.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The NIC refused a key.
    #[error(transparent)]
    Key(#[from] MrError),
    /// The NIC refused to connect.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// The NIC refused a work request.
    #[error(transparent)]
    Post(#[from] PostError),
}

/// Why a peer does not speak SDR.
fn why(reason: &FallbackReason) -> &'static str {
    match reason {
        FallbackReason::Refused => "knows nothing of such negotiations",
        FallbackReason::NothingInCommon => "does not offer SDR with this scheme",
        FallbackReason::Silent | FallbackReason::KnownSilent => "does not answer",
        FallbackReason::LinkMtu(_) => "cannot be asked over this link",
        FallbackReason::Unauthenticated => "has no secret, or another one",
    }
}
