//! The negotiation of extensions: a caller and a peer that do anything, byte by byte.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    softnic_transports::negotiation::fuzz_negotiation(data);
});
