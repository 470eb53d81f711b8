//! The core, over a fabric in memory: every algorithm against a plain sum, losses, and what goes wrong.

mod allocations;
mod goals;
mod losses;
mod plain;
mod processes;
mod reference;
mod simulated;
mod timeouts;
mod trouble;
mod uc;
mod world;
