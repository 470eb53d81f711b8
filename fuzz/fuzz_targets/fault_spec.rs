//! A SPEC of faults with a script, and a link made of it.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| softnic_fault_injector::fuzz::fault_spec(data));
