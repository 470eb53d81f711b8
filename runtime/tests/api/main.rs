//! The API as a program uses it: two NICs over the wire in memory.

mod memory;
mod traffic;
mod world;
