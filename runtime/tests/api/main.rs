//! The API as a program uses it: two NICs over the wire in memory.

mod cm;
mod completions;
mod congestion;
mod context;
mod layers;
mod lowar;
mod memory;
mod reliable;
mod sdr;
mod shm;
mod sinks;
mod sr;
mod strangers;
mod traffic;
mod world;
