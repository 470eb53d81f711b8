//! The arithmetic over many bytes at a time, by the instructions that the processor has; all unsafe code of the crate is in this module.
//!
//! What codes are made of is one step: up to four destinations get the sum of some sources, each source times a coefficient. There are as
//! many of both as fit into registers with their coefficients. A byte of a source is loaded once for all destinations of the step, and a byte
//! of a destination is loaded and stored once for all sources.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod gfni256;
#[cfg(target_arch = "x86_64")]
mod gfni512;
mod portable;
mod sum;
#[cfg(target_arch = "x86_64")]
mod tables;
#[cfg(test)]
mod tests;

use std::fmt;

pub use sum::{xor, xor_all};

/// The most sources of a step, if the destinations are few: [`sources_for`].
pub(crate) const SOURCES: usize = 8;
/// The most destinations of a step.
pub(crate) const DESTINATIONS: usize = 4;

/// The most sources of a step with so many destinations.
pub(crate) const fn sources_for(destinations: usize) -> usize {
    if destinations <= 2 { SOURCES } else { SOURCES / 2 }
}

/// The most sources of a sum without coefficients.
pub(crate) const SUMMANDS: usize = 8;

/// What each source is multiplied by for each destination.
pub(crate) type Coefficients = [[u8; SOURCES]; DESTINATIONS];

/// What is done in a step.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Step {
    pub(crate) coefficients: Coefficients,
    /// Destinations keep what they have, and the products are added.
    pub(crate) add: bool,
}

/// Instructions that the processor has: a value is the proof that it has them. All kernels come to the same bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Kernel(Instructions);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Instructions {
    #[cfg(target_arch = "x86_64")]
    Gfni512,
    #[cfg(target_arch = "x86_64")]
    Gfni256,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    Portable,
}

/// Calls a function by how many destinations and sources there are, which it has as constants.
#[cfg(target_arch = "x86_64")]
macro_rules! by_shape {
    ($function:ident, $step:expr, $sources:expr, $destinations:expr) => {
        by_shape!(@arms $function, $step, $sources, $destinations,
            [1 1, 1 2, 1 3, 1 4, 1 5, 1 6, 1 7, 1 8, 2 1, 2 2, 2 3, 2 4, 2 5, 2 6, 2 7, 2 8,
             3 1, 3 2, 3 3, 3 4, 4 1, 4 2, 4 3, 4 4])
    };
    (@arms $function:ident, $step:expr, $sources:expr, $destinations:expr, [$($d:literal $s:literal),*]) => {
        match ($destinations.len(), $sources.len()) {
            $(($d, $s) => {
                let sources: &[&[u8]; $s] = $sources.try_into().expect("as many");
                let destinations: &mut [&mut [u8]; $d] = $destinations.try_into().expect("as many");
                $function::<$d, $s>($step, sources, destinations)
            })*
            (d, s) => unreachable!("{d} destinations and {s} sources"),
        }
    };
}
#[cfg(target_arch = "x86_64")]
use by_shape;

impl Kernel {
    /// What every processor has.
    pub const PORTABLE: Kernel = Kernel(Instructions::Portable);

    /// All that this processor has, the fastest first.
    pub fn available() -> impl Iterator<Item = Kernel> {
        let all = [
            #[cfg(target_arch = "x86_64")]
            Instructions::Gfni512,
            #[cfg(target_arch = "x86_64")]
            Instructions::Gfni256,
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2,
            Instructions::Portable,
        ];
        all.into_iter().filter(|instructions| instructions.are_there()).map(Kernel)
    }

    /// The fastest that this processor has.
    pub fn best() -> Kernel {
        Kernel::available().next().unwrap_or(Kernel::PORTABLE)
    }

    /// The one of this name, if the processor has it: `gfni512`, `gfni256`, `avx2` or `portable`.
    pub fn named(name: &str) -> Option<Kernel> {
        Kernel::available().find(|kernel| kernel.name() == name)
    }

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Instructions::Gfni512 => "gfni512",
            #[cfg(target_arch = "x86_64")]
            Instructions::Gfni256 => "gfni256",
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => "avx2",
            Instructions::Portable => "portable",
        }
    }

    /// Each destination gets the sum of the sources, each times its coefficient. There are one to
    /// [`DESTINATIONS`] destinations and one to [`sources_for`] these sources, all of one length.
    pub(crate) fn multiply(self, step: &Step, sources: &[&[u8]], destinations: &mut [&mut [u8]]) {
        match self.0 {
            // SAFETY: a `Kernel` proves that the processor has the instructions.
            #[cfg(target_arch = "x86_64")]
            Instructions::Gfni512 => unsafe { gfni512::multiply(step, sources, destinations) },
            // SAFETY: the same.
            #[cfg(target_arch = "x86_64")]
            Instructions::Gfni256 => unsafe { gfni256::multiply(step, sources, destinations) },
            // SAFETY: the same.
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => unsafe { avx2::multiply(step, sources, destinations) },
            Instructions::Portable => portable::multiply(step, sources, destinations),
        }
    }

    /// The destination gets the sum of the sources, and keeps what it had if that is to be added. There are one to eight sources, all as
    /// long as the destination.
    pub(crate) fn sum(self, sources: &[&[u8]], destination: &mut [u8], add: bool) {
        match self.0 {
            // SAFETY: a `Kernel` proves that the processor has the instructions.
            #[cfg(target_arch = "x86_64")]
            Instructions::Gfni512 => unsafe { sum::by_64(sources, destination, add) },
            // SAFETY: the same.
            #[cfg(target_arch = "x86_64")]
            Instructions::Gfni256 | Instructions::Avx2 => unsafe { sum::by_32(sources, destination, add) },
            Instructions::Portable => sum::portable(sources, destination, add),
        }
    }
}

impl Instructions {
    fn are_there(self) -> bool {
        match self {
            #[cfg(target_arch = "x86_64")]
            Instructions::Gfni512 => {
                is_x86_feature_detected!("avx512f")
                    && is_x86_feature_detected!("avx512bw")
                    && is_x86_feature_detected!("gfni")
            }
            #[cfg(target_arch = "x86_64")]
            Instructions::Gfni256 => is_x86_feature_detected!("avx2") && is_x86_feature_detected!("gfni"),
            #[cfg(target_arch = "x86_64")]
            Instructions::Avx2 => is_x86_feature_detected!("avx2"),
            Instructions::Portable => true,
        }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The length that all have.
///
/// # Panics
/// When they have not: what follows reads and writes by pointers.
#[inline]
fn common_length(sources: &[&[u8]], destinations: &[&mut [u8]]) -> usize {
    let len = sources[0].len();
    assert!(sources.iter().all(|source| source.len() == len), "a source has another length");
    assert!(destinations.iter().all(|destination| destination.len() == len), "a destination has another length");
    len
}
