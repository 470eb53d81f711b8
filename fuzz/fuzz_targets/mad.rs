//! Management datagrams.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| softnic_wire::mad::fuzz_mad(data));
