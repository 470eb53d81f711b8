//! Failover as a whole: peers that lie or say nothing, and connections that end, or fail again, in each phase.

mod counts;
mod endings;
mod liar;
mod lies;
mod meetings;
mod traffic;
