//! The decoder of erasure codes: losses and parities of all kinds, wrong ones among them.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    softnic_codes::fuzz::fuzz_decode(data);
});
