//! A NIC with queue pairs of every kind: what its program and its peers do, byte by byte.
#![no_main]

#[path = "../../nic/tests/common/mod.rs"]
mod common;
#[path = "../../nic/tests/victims/mod.rs"]
mod victims;

libfuzzer_sys::fuzz_target!(|data: &[u8]| victims::fuzz(data));
