//! Benchmarks of softnic live in this crate's `benches/` folder; this library holds what they share.

pub mod frames;
pub mod pair;
pub mod rounds;
pub mod rows;
