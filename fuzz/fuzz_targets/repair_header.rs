//! The Repair Header of LoWAR.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| softnic_wire::fuzz::repair_header(data));
