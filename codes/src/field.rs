//! The field GF(2^8) with the polynomial 0x11d: a sum is an exclusive or, a product is looked up.

/// x^8 + x^4 + x^3 + x^2 + 1, for which 2 generates all elements but zero.
const POLYNOMIAL: u16 = 0x11d;

/// How many powers of 2 there are.
const ORDER: usize = 255;

const fn powers() -> [u8; ORDER] {
    let mut powers = [0; ORDER];
    let (mut x, mut i) = (1u16, 0);
    while i < ORDER {
        powers[i] = x as u8;
        x <<= 1;
        if x > 0xff {
            x ^= POLYNOMIAL;
        }
        i += 1;
    }
    powers
}

const fn logarithms() -> [u8; 256] {
    let powers = powers();
    let mut logarithms = [0; 256];
    let mut i = 0;
    while i < ORDER {
        logarithms[powers[i] as usize] = i as u8;
        i += 1;
    }
    logarithms
}

const fn inverses() -> [u8; 256] {
    let powers = powers();
    let mut inverses = [0; 256];
    let mut i = 0;
    while i < ORDER {
        inverses[powers[i] as usize] = powers[(ORDER - i) % ORDER];
        i += 1;
    }
    inverses
}

static POWERS: [u8; ORDER] = powers();
static LOGARITHMS: [u8; 256] = logarithms();
static INVERSES: [u8; 256] = inverses();

/// The product of two elements, for tables that are made when this is compiled.
pub(crate) const fn product(a: u8, b: u8) -> u8 {
    let (mut product, mut shifted, mut bit) = (0u16, a as u16, 0);
    while bit < 8 {
        if b >> bit & 1 == 1 {
            product ^= shifted;
        }
        shifted <<= 1;
        if shifted > 0xff {
            shifted ^= POLYNOMIAL;
        }
        bit += 1;
    }
    product as u8
}

/// `1 / x`, where `x` is not zero.
pub(crate) fn inverse(x: u8) -> u8 {
    debug_assert_ne!(x, 0);
    INVERSES[usize::from(x)]
}

/// An element that is not zero, as the power of 2 that it is: products and quotients are sums and differences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Log(u8);

impl Log {
    /// The element 1.
    pub(crate) const ONE: Log = Log(0);

    /// Of an element that is not zero.
    pub(crate) fn of(x: u8) -> Log {
        debug_assert_ne!(x, 0);
        Log(LOGARITHMS[usize::from(x)])
    }

    pub(crate) fn times(self, other: Log) -> Log {
        let sum = usize::from(self.0) + usize::from(other.0);
        Log(if sum >= ORDER { sum - ORDER } else { sum } as u8)
    }

    pub(crate) fn over(self, other: Log) -> Log {
        self.times(other.inverse())
    }

    pub(crate) fn inverse(self) -> Log {
        Log(if self.0 == 0 { 0 } else { ORDER as u8 - self.0 })
    }

    pub(crate) fn element(self) -> u8 {
        POWERS[usize::from(self.0)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithms_multiply_as_polynomials_do() {
        for a in (1..=255).step_by(if cfg!(miri) { 25 } else { 1 }) {
            for b in 1..=255 {
                assert_eq!(Log::of(a).times(Log::of(b)).element(), product(a, b), "{a} and {b}");
                assert_eq!(product(Log::of(a).over(Log::of(b)).element(), b), a, "{a} over {b}");
            }
            assert_eq!(product(a, inverse(a)), 1);
            assert_eq!((product(a, 0), product(0, a)), (0, 0));
        }
    }
}
