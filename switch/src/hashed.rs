//! Tables that are looked into for every packet: a hash in a few instructions, with a seed.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;

/// A table whose order is never looked at.
pub(crate) type Table<K, V> = HashMap<K, V, Seeded>;

/// Makes hashers. Addresses that are learned from packets are anybody's choice, so a switch on a wire draws the seed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seeded(pub(crate) u64);

impl BuildHasher for Seeded {
    type Hasher = Mix;

    #[inline]
    fn build_hasher(&self) -> Mix {
        Mix(self.0)
    }
}

/// One multiplication a word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, n: u8) {
        self.write_u64(n.into());
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }

    fn write_isize(&mut self, n: isize) {
        self.write_u64(n as u64);
    }

    #[inline]
    fn write_u64(&mut self, n: u64) {
        let product = u128::from(self.0 ^ n ^ 0x9e37_79b9_7f4a_7c15) * 0xa076_1d64_78bd_642f;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Numbers by an address and another number. Short keys, so that a large table is small: most addresses are of IPv4.
#[derive(Debug, Default)]
pub(crate) struct ByAddress {
    v4: Table<u64, u32>,
    v6: Table<(u64, u64, u32), u32>,
}

/// A key of [`ByAddress`].
enum Key {
    V4(u64),
    V6((u64, u64, u32)),
}

impl Key {
    #[inline]
    fn new(address: IpAddr, number: u32) -> Key {
        match address {
            IpAddr::V4(a) => Key::V4(u64::from(a.to_bits()) << 32 | u64::from(number)),
            IpAddr::V6(a) => Key::V6(((a.to_bits() >> 64) as u64, a.to_bits() as u64, number)),
        }
    }
}

impl ByAddress {
    #[inline]
    pub(crate) fn get(&self, address: IpAddr, number: u32) -> Option<u32> {
        match Key::new(address, number) {
            Key::V4(key) => self.v4.get(&key).copied(),
            Key::V6(key) => self.v6.get(&key).copied(),
        }
    }

    pub(crate) fn insert(&mut self, address: IpAddr, number: u32, value: u32) {
        match Key::new(address, number) {
            Key::V4(key) => self.v4.insert(key, value),
            Key::V6(key) => self.v6.insert(key, value),
        };
    }

    pub(crate) fn remove(&mut self, address: IpAddr, number: u32) -> Option<u32> {
        match Key::new(address, number) {
            Key::V4(key) => self.v4.remove(&key),
            Key::V6(key) => self.v6.remove(&key),
        }
    }
}
