//! A switch with groups: its tables and the frames that come, byte by byte.
#![no_main]

#[path = "../../switch/tests/drawn/mod.rs"]
mod drawn;
#[path = "../../switch/tests/hostile/mod.rs"]
mod hostile;

libfuzzer_sys::fuzz_target!(|data: &[u8]| drawn::fuzz(data));
