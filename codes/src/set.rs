//! A set of chunks or of parity rows, by their numbers.

/// Which chunks, or which parity rows, are there: numbers below 256, a bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct ChunkSet {
    words: [u64; ChunkSet::CAPACITY / 64],
}

impl ChunkSet {
    /// All numbers are below this one.
    pub const CAPACITY: usize = 256;

    /// None.
    pub const EMPTY: ChunkSet = ChunkSet { words: [0; ChunkSet::CAPACITY / 64] };

    /// The numbers below `n`, which is at most [`ChunkSet::CAPACITY`].
    pub fn below(n: usize) -> ChunkSet {
        let mut set = ChunkSet::EMPTY;
        for (i, word) in set.words.iter_mut().enumerate() {
            *word = match n.saturating_sub(i * 64) {
                0 => 0,
                bits @ 1..64 => (1 << bits) - 1,
                _ => !0,
            };
        }
        set
    }

    /// The bits of words, lowest first, as a bitmap has them: those of the first four words.
    pub fn from_words(words: impl IntoIterator<Item = u64>) -> ChunkSet {
        let mut set = ChunkSet::EMPTY;
        set.words.iter_mut().zip(words).for_each(|(to, from)| *to = from);
        set
    }

    /// Puts a number in.
    ///
    /// # Panics
    /// When the number is [`ChunkSet::CAPACITY`] or more.
    pub fn insert(&mut self, i: usize) {
        self.words[i / 64] |= 1 << (i % 64);
    }

    /// Takes a number out.
    pub fn remove(&mut self, i: usize) {
        if let Some(word) = self.words.get_mut(i / 64) {
            *word &= !(1 << (i % 64));
        }
    }

    /// Whether a number is in.
    pub fn contains(&self, i: usize) -> bool {
        self.words.get(i / 64).is_some_and(|word| word >> (i % 64) & 1 == 1)
    }

    /// How many are in.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether none is in.
    pub fn is_empty(&self) -> bool {
        self.words == [0; ChunkSet::CAPACITY / 64]
    }

    /// Those that are in this set and not in the other.
    pub fn without(&self, other: &ChunkSet) -> ChunkSet {
        let mut set = *self;
        set.words.iter_mut().zip(other.words).for_each(|(a, b)| *a &= !b);
        set
    }

    /// Those that are in both.
    pub fn and(&self, other: &ChunkSet) -> ChunkSet {
        let mut set = *self;
        set.words.iter_mut().zip(other.words).for_each(|(a, b)| *a &= b);
        set
    }

    /// The numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + use<> {
        self.words.into_iter().enumerate().flat_map(|(i, mut word)| {
            std::iter::from_fn(move || {
                let bit = (word != 0).then(|| word.trailing_zeros() as usize)?;
                word &= word - 1;
                Some(i * 64 + bit)
            })
        })
    }
}

impl FromIterator<usize> for ChunkSet {
    /// # Panics
    /// When a number is [`ChunkSet::CAPACITY`] or more.
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> ChunkSet {
        let mut set = ChunkSet::EMPTY;
        numbers.into_iter().for_each(|i| set.insert(i));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_put_in_comes_out_in_order() {
        let set: ChunkSet = [200, 3, 64, 63, 255, 0].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 3, 63, 64, 200, 255]);
        assert_eq!((set.len(), set.contains(64), set.contains(65), set.contains(1000)), (6, true, false, false));
        let mut fewer = set;
        fewer.remove(64);
        fewer.remove(9999);
        assert_eq!(set.without(&fewer).iter().collect::<Vec<_>>(), [64]);
        assert_eq!(set.and(&fewer), fewer);
    }

    #[test]
    fn the_numbers_below_one() {
        for n in 0..=256 {
            assert_eq!(ChunkSet::below(n), (0..n).collect());
            assert_eq!(ChunkSet::below(n).is_empty(), n == 0);
        }
        assert_eq!(ChunkSet::from_words([!0, 1]), ChunkSet::below(65));
        assert_eq!(ChunkSet::from_words([0, 0, 0, 1 << 63, !0]).iter().collect::<Vec<_>>(), [255]);
    }
}
