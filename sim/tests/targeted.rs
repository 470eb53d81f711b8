//! Targeted events: one packet of an exchange is lost, doubled, damaged or late, and the whole reaction of both NICs is
//! compared packet by packet, wherever the PSNs begin.
//!
//! A line of a trace is a packet as it is put on the wire: `a> RDMA_WRITE_MIDDLE +1`, its PSN counted from the first one; ` A`
//! asks for an answer; ` x` was lost on the way, ` damaged` had a bit flipped, ` twice` was doubled, ` held` came behind later
//! ones. `...` is a silence of more than two round trips: somebody waits for a timer. Comments that begin with rxe say where
//! Linux Soft-RoCE, in the captures of `pcaps/corpus`, reacts in another way.

mod answers;
mod atomics;
mod damaged;
mod doubled;
mod late;
mod reads;
mod requests;
mod sweep;
mod world;
