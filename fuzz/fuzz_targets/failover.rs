//! Failover: MADs about backups, status blocks, entries of a store.
#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| softnic_wire::failover::fuzz_failover(data));
