//! Misuse of verbs, found: a model of the objects of one process, which is told of its calls and says what is wrong with them.
//!
//! The model ([`Model`]) has no clock, no IO and no threads. Whoever drives it, which is `verbs/` under `softnic check`, tells it of each call
//! before or after the verb is carried out, and takes findings ([`Finding`]) from it. Each is told once for each kind and place in the program
//! ([`Place`]). Memory of the program is read by a trait ([`Memory`]), for checksums alone.
//!
//! **No false reports.** What the model does not know it does not judge: work on an object that it was not told of is ignored. Severities say
//! how sure a finding is: [`Severity::Error`] is misuse by the rules of verbs, whatever the NIC; [`Severity::Warning`] works here and may not
//! elsewhere; [`Severity::Note`] is what is left at the end.
//!
//! Files, from the top: `model` and its parts, one for each kind of call; `queue_pair`, `regions`, `spans`: what the model remembers; `calls`:
//! what it is told; `finding`: what it says; `memory`, `hash`.
#![forbid(unsafe_code)]

mod calls;
mod finding;
mod hash;
mod memory;
mod model;
mod queue_pair;
mod regions;
mod spans;

pub use calls::{
    Access, Capacity, Change, Completed, CompletionQueue, Mask, NicId, ObjectId, ObjectKind, Outcome, QpState, QpType,
    QueuePair, ReceiveQueue, ReceiveWork, Refusal, Region, SendOp, SendWork, Sge, Tickets,
};
pub use finding::{Finding, Kind, Place, QueuePairName, Severity, Stack};
pub use memory::Memory;
pub use model::{Model, Wait};

/// A file in a folder of findings that whoever cannot write a finding removes: on a full disk that is still possible.
pub const ALL_WRITTEN: &str = "all-written";
