//! Columns of numbers in a page: differences as variable-length integers, packed by gzip, as base64.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use serde::Serialize;

/// One column, as the page reads it (`data.js`).
#[derive(Debug, Serialize)]
pub(super) struct Column {
    name: &'static str,
    /// Each number is the difference to the one before it.
    delta: bool,
    data: String,
}

impl Column {
    /// Numbers that are near the ones before them, as times and PSNs are.
    pub(super) fn delta(name: &'static str, numbers: impl Iterator<Item = i64>) -> Column {
        let mut last = 0i64;
        let differences = numbers.map(|n| n.wrapping_sub(std::mem::replace(&mut last, n)));
        Column { name, delta: true, data: packed(differences) }
    }

    /// Numbers as they are.
    pub(super) fn plain(name: &'static str, numbers: impl Iterator<Item = i64>) -> Column {
        Column { name, delta: false, data: packed(numbers) }
    }
}

fn packed(numbers: impl Iterator<Item = i64>) -> String {
    let mut bytes = Vec::new();
    numbers.for_each(|n| put(&mut bytes, n));
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    let _ = gzip.write_all(&bytes);
    base64(&gzip.finish().unwrap_or_default())
}

/// Small numbers of either sign take one byte: the sign is the lowest bit, and each byte has seven bits, the lowest first.
fn put(out: &mut Vec<u8>, number: i64) {
    let mut left = (number << 1 ^ number >> 63) as u64;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().enumerate().fold(0u32, |bits, (i, &b)| bits | u32::from(b) << (16 - 8 * i));
        for digit in 0..4 {
            out.push(match digit <= group.len() {
                true => char::from(DIGITS[(bits >> (18 - 6 * digit) & 63) as usize]),
                false => '=',
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_as_rfc_4648_has_it() {
        let cases = [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("~~~", "fn5+")];
        cases.iter().for_each(|(plain, coded)| assert_eq!(base64(plain.as_bytes()), *coded));
    }

    #[test]
    fn numbers_of_either_sign_and_any_size() {
        let bytes = |n| {
            let mut out = Vec::new();
            put(&mut out, n);
            out
        };
        assert_eq!([bytes(0), bytes(-1), bytes(1), bytes(63)], [[0], [1], [2], [126]]);
        assert_eq!(bytes(64), [0x80, 1]);
        assert_eq!(bytes(i64::MIN).len(), 10);
    }
}
