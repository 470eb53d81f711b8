//! A frame as it comes off the wire.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| softnic_wire::fuzz::frame(data));
