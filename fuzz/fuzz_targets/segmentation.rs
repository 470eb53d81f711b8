//! A message to cut and packets to put together.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| softnic_wire::fuzz::segmentation(data));
