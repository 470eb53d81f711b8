//! MACs of status blocks and entries: SipHash-2-4 with 128 bits, made for short input, on any CPU.

use core::fmt;
use core::hash::Hasher;

use siphasher::sip128::{Hasher128, SipHasher24};

pub(super) const LEN: usize = 16;

/// A MAC in the making.
pub(super) struct Mac(SipHasher24);

impl Mac {
    pub(super) fn new(key: &[u8; 16]) -> Mac {
        Mac(SipHasher24::new_with_key(key))
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    pub(super) fn finish(self) -> [u8; LEN] {
        let hash = self.0.finish128();
        (u128::from(hash.h2) << 64 | u128::from(hash.h1)).to_le_bytes()
    }
}

/// Takes text as its bytes.
impl fmt::Write for Mac {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.update(text.as_bytes());
        Ok(())
    }
}

/// Whether two MACs are the same, in a time that does not depend on where they differ.
pub(super) fn are_equal(a: &[u8; LEN], b: &[u8; LEN]) -> bool {
    a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}
