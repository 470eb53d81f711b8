//! ARP, NDP and echo requests.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| softnic_runtime::fuzz_neighbours(data));
