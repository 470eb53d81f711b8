//! A bitmap indexed by packet number: a ring of the window's length.

/// One bit for each of the last `len` numbers; the index of a number is its value modulo the length.
#[derive(Debug)]
pub(super) struct Bitmap {
    words: Box<[u64]>,
}

impl Bitmap {
    /// Creates room for at least `len` numbers.
    pub(super) fn new(len: u32) -> Bitmap {
        Bitmap { words: vec![0; Bitmap::size(len) as usize / 64].into() }
    }

    /// The number of bits of a bitmap for `len` numbers.
    pub(super) fn size(len: u32) -> u32 {
        len.max(64).next_power_of_two()
    }

    #[inline]
    fn place(&self, n: u64) -> (usize, u64) {
        ((n / 64) as usize & (self.words.len() - 1), 1 << (n % 64))
    }

    #[inline]
    pub(super) fn get(&self, n: u64) -> bool {
        let (word, bit) = self.place(n);
        self.words[word] & bit != 0
    }

    #[inline]
    pub(super) fn set(&mut self, n: u64) {
        let (word, bit) = self.place(n);
        self.words[word] |= bit;
    }

    /// Clears a bit; returns whether it was set.
    #[inline]
    pub(super) fn take(&mut self, n: u64) -> bool {
        let (word, bit) = self.place(n);
        let there = self.words[word] & bit != 0;
        self.words[word] &= !bit;
        there
    }

    /// The bits of `n` and the following 63 numbers, with that of `n` lowest.
    #[inline]
    pub(super) fn word_at(&self, n: u64) -> u64 {
        let (word, shift) = ((n / 64) as usize & (self.words.len() - 1), n % 64);
        let low = self.words[word] >> shift;
        match shift {
            0 => low,
            _ => low | self.words[(word + 1) & (self.words.len() - 1)] << (64 - shift),
        }
    }

    /// The first number from `from` up to, but not including, `to` whose bit is set.
    pub(super) fn first_set(&self, from: u64, to: u64) -> Option<u64> {
        let mut n = from;
        while n < to {
            match self.word_at(n) {
                0 => n += 64,
                word => return Some(n + u64::from(word.trailing_zeros())).filter(|&n| n < to),
            }
        }
        None
    }

    /// The first number from `from` up to, but not including, `to` whose bit is clear.
    pub(super) fn first_clear(&self, from: u64, to: u64) -> Option<u64> {
        let mut n = from;
        while n < to {
            match !self.word_at(n) {
                0 => n += 64,
                word => return Some(n + u64::from(word.trailing_zeros())).filter(|&n| n < to),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_bit_is_found_again_across_the_ring_s_end() {
        let mut bits = Bitmap::new(100);
        for n in [0, 63, 64, 127, 1000, 1001] {
            assert!(!bits.get(n));
            bits.set(n);
            assert!(bits.get(n) && bits.get(n + 128));
            assert_eq!(bits.first_set(n, n + 1), Some(n));
            assert!(bits.take(n) && !bits.take(n));
        }
    }

    proptest! {
        /// Compared with a plain list.
        #[test]
        fn searches_find_what_a_list_would(base in 0u64..1000, set in prop::collection::btree_set(0u64..192, 0..40), from in 0u64..192, to in 0u64..192) {
            let mut bits = Bitmap::new(256);
            set.iter().for_each(|&n| bits.set(base + n));
            let range = || from..to;
            let want = |there| range().find(|n| set.contains(n) == there).map(|n| base + n);
            prop_assert_eq!(bits.first_set(base + from, base + to), want(true));
            prop_assert_eq!(bits.first_clear(base + from, base + to), want(false));
            let word = bits.word_at(base + from);
            prop_assert!((0..64).all(|i| (word >> i & 1 == 1) == set.contains(&(from + i))));
        }
    }
}
