//! The API as a program uses it: two NICs over the wire in memory.

mod completions;
mod context;
mod memory;
mod traffic;
mod world;
