//! A hash of everything that happened in a run, to tell two runs apart.

/// A running hash over 64-bit words. It finds differences; it does not resist an adversary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digest(u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(0x6a09_e667_f3bc_c908)
    }
}

impl Digest {
    /// Takes in a word.
    #[inline]
    pub(crate) fn word(&mut self, w: u64) {
        self.0 = (self.0 ^ w).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 ^= self.0 >> 32;
    }

    /// Takes in bytes.
    #[inline]
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for w in words {
            self.word(u64::from_le_bytes(*w));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        self.word(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    /// The hash so far.
    pub(crate) fn value(self) -> u64 {
        self.0
    }
}
