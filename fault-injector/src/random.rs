//! The one random generator of simulations and fault models.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// A seeded generator: fast, and the same on every machine.
#[derive(Debug, Clone)]
pub struct Random(Xoshiro256PlusPlus);

impl Random {
    /// From a seed.
    pub fn new(seed: u64) -> Random {
        Random(Xoshiro256PlusPlus::seed_from_u64(seed))
    }

    /// From a seed and the name of a stream: streams of one seed are independent of each other.
    pub fn stream(seed: u64, stream: u64) -> Random {
        Random::new(seed ^ stream.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
    }

    /// A uniform 64-bit number.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A uniform 32-bit number.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        (self.next_u64() >> 32) as u32
    }

    /// A uniform number below `n`; 0 when `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        // The bias of the high product is below 2^-32 for every n that occurs here.
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.next_u64() < threshold(p)
    }
}

/// The number below which a uniform 64-bit number lies with probability `p`.
pub(crate) fn threshold(p: f64) -> u64 {
    (p * 2f64.powi(64)) as u64 // saturates at the top: a chance of 1
}
