//! A topology with its flows.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| softnic_sim::topology::fuzz_topology(data));
