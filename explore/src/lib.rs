//! Every single fault of a verbs program: what a run was seen to do, which faults could befall it, and what became of it.
//!
//! Nothing here starts processes, reads clocks or opens files: `cli/src/explore` does, and `verbs/` writes what is seen ([`record`]).
#![forbid(unsafe_code)]

pub mod actor;
pub mod candidates;
mod errnos;
pub mod expected;
pub mod fault;
pub mod journal;
pub mod judge;
pub mod output;
pub mod pairs;
pub mod plan;
pub mod record;
pub mod table;
pub mod thing;
