//! A port that several processes share, each by a veth of its own: who gets what comes in, and who may send what.
//!
//! Programs in the kernel decide about every packet, by maps that the daemon fills.

#[allow(dead_code, reason = "the daemon that fills the maps comes with the command that starts it")]
mod maps;
#[allow(
    dead_code,
    unused_imports,
    reason = "the daemon that attaches the programs comes with the command that starts it"
)]
mod rules;
