//! Failover as a whole: peers that lie or say nothing, and connections that end, or fail again, in each phase.

mod attributes;
mod costs;
mod counts;
mod endings;
mod liar;
mod lies;
mod many;
mod meetings;
mod queues;
mod stores;
mod succession;
mod traffic;
