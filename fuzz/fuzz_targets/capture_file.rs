//! Capture files, whole and byte by byte.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| softnic_pcaps::fuzz::fuzz_reader(data));
