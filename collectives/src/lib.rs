//! Collectives over any transport: AllReduce, ReduceScatter, AllGather, AllToAll, Broadcast and Barrier.
//!
//! The core is sans-IO. [`plan::Plan`] says what one rank does, [`member::Member`] does it, step by step, over a [`fabric::Fabric`]: what
//! can post messages, says what became of them, and knows the time. Over a transport of best effort every message has a deadline, from a
//! budget that follows what the group needed before ([`timeouts`]); what did not come is zero, and is told as ranges ([`losses`]).
//!
//! Adapters stand above: [`endpoint`] is a fabric of any verbs, [`uc`] how messages go in fragments there; [`on_nic`] are the verbs of a NIC
//! in the same thread, [`simulated`] groups of hosts in virtual time, [`on_device`] ranks on the runtime.
#![forbid(unsafe_code)]

pub mod call;
pub mod control;
pub mod element;
pub mod endpoint;
pub mod fabric;
pub mod losses;
pub mod member;
pub mod model;
pub mod on_device;
pub mod on_nic;
pub mod plan;
pub mod report;
pub mod run;
pub mod simulated;
pub mod timeouts;
pub mod uc;
