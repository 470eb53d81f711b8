//! An opcode and the bytes behind the BTH.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| softnic_wire::fuzz::ext_headers(data));
