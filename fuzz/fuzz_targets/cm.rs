//! The communication manager: what its program and its peers do, byte by byte.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| drop(softnic_cm::fuzz::fuzz_cm(data)));
