//! The 40 bytes in front of a UD message.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| softnic_wire::fuzz::grh(data));
