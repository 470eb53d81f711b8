//! Arithmetic modulo the polynomial, bits reflected: products, and powers of x for distances in bytes.

/// The polynomial, bits reflected, without its highest term.
pub(crate) const POLYNOMIAL: u32 = 0xedb8_8320;

/// The polynomial 1, bits reflected.
pub(crate) const ONE: u32 = 1 << 31;

/// `r`, multiplied by x^`n` modulo the polynomial, reflected.
pub(crate) const fn shifted(mut r: u32, n: u32) -> u32 {
    let mut i = 0;
    while i < n {
        r = (r >> 1) ^ if r & 1 != 0 { POLYNOMIAL } else { 0 };
        i += 1;
    }
    r
}

/// Distances below this come from [`WORDS`], if they are a multiple of four: all that fields of a RoCE packet have from its end.
const NEAR: usize = 1 << NEAR_BITS;
const NEAR_BITS: u32 = 14;

/// x^(32 n): the fields of a packet's headers have neighbouring entries, so that one or two cache lines serve all.
static WORDS: [u32; NEAR / 4] = {
    let mut t = [ONE; NEAR / 4];
    let mut i = 1;
    while i < t.len() {
        t[i] = shifted(t[i - 1], 32);
        i += 1;
    }
    t
};

/// x^(8 * 2^i), each the square of the one before.
static SQUARES: [u32; usize::BITS as usize] = {
    let mut t = [shifted(ONE, 8); usize::BITS as usize];
    let mut i = 1;
    while i < t.len() {
        t[i] = reduced(product(t[i - 1], t[i - 1]));
        i += 1;
    }
    t
};

/// x^(8n) modulo the polynomial.
#[inline]
pub(crate) fn power(n: usize) -> u32 {
    if n < NEAR && n.is_multiple_of(4) { WORDS[n / 4] } else { power_of_any(n) }
}

/// [`power`] for distances that the table has no entry for: a multiplication for each bit that the table leaves out.
#[cold]
fn power_of_any(n: usize) -> u32 {
    let mut p = WORDS[n % NEAR / 4];
    for (i, &square) in SQUARES.iter().enumerate() {
        let in_table = (2..NEAR_BITS as usize).contains(&i);
        if !in_table && n >> i & 1 != 0 {
            p = reduced(product(p, square));
        }
    }
    p
}

/// The product of two reflected polynomials of 32 terms: one of 64, whose lowest bit is the highest term.
pub(crate) const fn product(a: u32, b: u32) -> u64 {
    let (a, mut sum) = ((a as u64) << 1, 0);
    let mut i = 0;
    while i < 32 {
        // All ones where the bit is set: a branch would be guessed wrong every other time.
        sum ^= (a << i) & (b as u64 >> i & 1).wrapping_neg();
        i += 1;
    }
    sum
}

/// What is left of 64 terms modulo the polynomial.
pub(crate) const fn reduced(sum: u64) -> u32 {
    (sum >> 32) as u32 ^ shifted(sum as u32, 32)
}

/// A distance from the end of a message, as [`crate::change_of`] takes it: for who changes several messages at the same places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Distance(pub(crate) u32);

impl Distance {
    /// Of so many bytes.
    #[inline]
    pub fn new(bytes: usize) -> Distance {
        Distance(power(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_what_shifts_make_of_one() {
        let mut expected = ONE;
        for n in 0..3 * NEAR {
            assert_eq!(power(n), expected, "{n}");
            expected = shifted(expected, 8);
        }
    }
}
