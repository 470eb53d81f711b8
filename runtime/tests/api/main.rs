//! The API as a program uses it: two NICs over the wire in memory.

mod cm;
mod completions;
mod context;
mod lowar;
mod memory;
mod sr;
mod traffic;
mod world;
