//! Changes to a frame that passes through a switch, and the frame.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| softnic_wire::rewrite::fuzz_rewrite(data));
