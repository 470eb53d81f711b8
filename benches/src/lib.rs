//! Benchmarks of softnic live in this crate's `benches/` folder; this library holds what they share.

pub mod pair;
pub mod rounds;
