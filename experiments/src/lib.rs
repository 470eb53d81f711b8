//! Evaluations of papers, races of transports, and charts of what they come to: `softnic experiment`, `race` and `plot`.

mod chart;
mod experiment;
pub mod plot;
mod results;

pub use experiment::{Args, grid, run};
