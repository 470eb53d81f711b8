//! LoWAR without a NIC: a sender's shim, a wire that loses, and a receiver's shim above which stands no more than a counter of PSNs.

mod blocks;
mod ends;
mod liars;
mod linearity;
mod loss;
mod messages;
