//! What ends a group's work: each in a line that says who and what.

use std::fmt;
use std::time::Duration;

use crate::call::{Call, CallError};
use crate::fabric::Refused;

/// Why a member takes part in nothing more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MemberError {
    /// The group cannot make the call.
    #[error("{0}")]
    Call(CallError),
    /// A collective is under way.
    #[error("a collective is under way")]
    Busy,
    /// The fabric refused something.
    #[error("{0}")]
    Refused(Refused),
    /// Ranks that did not come.
    #[error("{} did not come to collective {number} within {waited:?}", Ranks(.ranks))]
    Absent {
        /// Who.
        ranks: Vec<usize>,
        /// Which collective, from 0.
        number: u64,
        /// How long they were waited for.
        waited: Duration,
    },
    /// Ranks of which nothing came.
    #[error("collective {number} stands still: nothing from {} for {waited:?}", Ranks(.ranks))]
    Silent {
        /// Who.
        ranks: Vec<usize>,
        /// Which collective, from 0.
        number: u64,
        /// For how long.
        waited: Duration,
    },
    /// A rank calls something else.
    #[error("rank {rank} calls {} in a group of {}, rank {own} {} in one of {}", .theirs.0, .theirs.1, .ours.0, .ours.1)]
    Disagree {
        /// Who.
        rank: usize,
        /// What, and the ranks of its group.
        theirs: (Call, u32),
        /// This rank.
        own: usize,
        /// What this rank calls, and the ranks of its group.
        ours: (Call, u32),
    },
    /// Messages with a rank ended.
    #[error("messages with rank {rank} ended: {why}")]
    Failed {
        /// Which.
        rank: usize,
        /// How.
        why: String,
    },
    /// A rank gave up.
    #[error("rank {rank} gave up, on account of rank {culprit}")]
    Aborted {
        /// Who says so.
        rank: usize,
        /// Who is to blame.
        culprit: usize,
    },
}

impl MemberError {
    /// The rank that is to blame, where another one is.
    pub(super) fn culprit(&self) -> Option<usize> {
        match self {
            MemberError::Absent { ranks, .. } | MemberError::Silent { ranks, .. } => ranks.first().copied(),
            MemberError::Disagree { rank, .. } | MemberError::Failed { rank, .. } => Some(*rank),
            MemberError::Aborted { culprit, .. } => Some(*culprit),
            MemberError::Call(_) | MemberError::Busy | MemberError::Refused(_) => None,
        }
    }
}

/// Ranks in words.
struct Ranks<'r>(&'r [usize]);

impl fmt::Display for Ranks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            [one] => write!(f, "rank {one}"),
            [first, others @ ..] => {
                write!(f, "ranks {first}")?;
                others.iter().try_for_each(|rank| write!(f, ", {rank}"))
            }
            [] => f.write_str("nobody"),
        }
    }
}
