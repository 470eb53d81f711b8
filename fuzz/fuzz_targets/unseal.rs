//! Sealed frames of authenticated connections, changed and cut: nothing but the genuine one is taken, and that once.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    softnic_transports::fuzz_unseal(data);
});
