//! Bugs that are planted on purpose, to see that the swarm finds them (`cargo xtask soak --self-test`).
//!
//! Without the feature `planted-bugs`, which no build has that anybody uses, `planted` is `false` and all of it compiles to nothing.
//! A switch knows no transport, so its bugs are a list of their own beside that of `softnic-transports`.

#[cfg(feature = "planted-bugs")]
use std::sync::atomic::{AtomicU8, Ordering};

/// A bug, by what it does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The sender is told what the first member has.
    MaximumForMinimum,
    /// Who has least is found by comparing PSNs as integers.
    WrapAsIntegers,
    /// A sequence NAK reaches the sender as its member sent it.
    NakAsItCame,
    /// A merged acknowledgement has the MSN of the member that has most.
    MsnOfAnother,
    /// A merged acknowledgement has the credits of the member that spoke last.
    CreditsOfAnother,
    /// An acknowledgement that moves nothing is never passed on.
    AckNotRepeated,
    /// The address of a WRITE is one byte behind the right one.
    RethOffByOne,
    /// A SEND with invalidate keeps the sender's key.
    IethUnchanged,
    /// A damaged packet leaves with a right ICRC.
    IcrcMadeRight,
    /// A congestion notification keeps its member's address.
    CnpFromMember,
    /// A copy leaves by another port as well.
    CopyToAnother,
}

impl Bug {
    /// All of them.
    pub const ALL: &[Bug] = &[
        Bug::MaximumForMinimum,
        Bug::WrapAsIntegers,
        Bug::NakAsItCame,
        Bug::MsnOfAnother,
        Bug::CreditsOfAnother,
        Bug::AckNotRepeated,
        Bug::RethOffByOne,
        Bug::IethUnchanged,
        Bug::IcrcMadeRight,
        Bug::CnpFromMember,
        Bug::CopyToAnother,
    ];

    /// The name of the bug in `soak --self-test`.
    pub const fn name(self) -> &'static str {
        match self {
            Bug::MaximumForMinimum => "mc-maximum-for-minimum",
            Bug::WrapAsIntegers => "mc-wrap-as-integers",
            Bug::NakAsItCame => "mc-nak-as-it-came",
            Bug::MsnOfAnother => "mc-msn-of-another",
            Bug::CreditsOfAnother => "mc-credits-of-another",
            Bug::AckNotRepeated => "mc-ack-not-repeated",
            Bug::RethOffByOne => "mc-reth-off-by-one",
            Bug::IethUnchanged => "mc-ieth-unchanged",
            Bug::IcrcMadeRight => "mc-icrc-made-right",
            Bug::CnpFromMember => "mc-cnp-from-member",
            Bug::CopyToAnother => "mc-copy-to-another",
        }
    }
}

/// The bug that is planted, by its place in [`Bug::ALL`] plus one.
#[cfg(feature = "planted-bugs")]
static PLANTED: AtomicU8 = AtomicU8::new(0);

/// Plants a bug in this process, or none.
#[cfg(feature = "planted-bugs")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.store(bug.map_or(0, |b| b as u8 + 1), Ordering::Relaxed);
}

/// Whether this bug is planted.
#[cfg(feature = "planted-bugs")]
#[inline]
pub(crate) fn planted(bug: Bug) -> bool {
    PLANTED.load(Ordering::Relaxed) == bug as u8 + 1
}

/// Whether this bug is planted: never.
#[cfg(not(feature = "planted-bugs"))]
#[inline(always)]
pub(crate) const fn planted(_bug: Bug) -> bool {
    false
}
