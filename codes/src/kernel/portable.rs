//! Products in plain Rust, in a form that compilers make vector instructions of, whichever there are.
//!
//! The product of a byte and a coefficient is the sum of the byte's doubles, one for each bit that the coefficient has. Bytes are doubled once
//! for all destinations.

use super::{DESTINATIONS, Step, common_length};

/// Bytes at a time: some vector registers of most processors.
const BLOCK: usize = 32;

type Block = [u8; BLOCK];

/// [`super::Kernel::multiply`].
pub(super) fn multiply(step: &Step, sources: &[&[u8]], destinations: &mut [&mut [u8]]) {
    multiply_from(0, step, sources, destinations);
}

/// The same from byte `at` on: what is left of blocks that other instructions did.
pub(super) fn multiply_from(at: usize, step: &Step, sources: &[&[u8]], destinations: &mut [&mut [u8]]) {
    let len = common_length(sources, destinations);
    for (s, source) in sources.iter().enumerate() {
        let add = step.add || s > 0;
        let masks: [[u8; 8]; DESTINATIONS] =
            std::array::from_fn(|d| std::array::from_fn(|bit| ones_if(step.coefficients[d][s] >> bit & 1 == 1)));
        let mut from = at;
        while let Some(whole) = source[from..].first_chunk() {
            let doubles = doubles(*whole);
            for (destination, masks) in destinations.iter_mut().zip(&masks) {
                if let Some(destination) = destination[from..].first_chunk_mut() {
                    add_product(destination, &doubles, masks, add);
                }
            }
            from += BLOCK;
        }
        if from < len {
            let doubles = doubles(filled_up(&source[from..]));
            for (destination, masks) in destinations.iter_mut().zip(&masks) {
                let mut block = filled_up(&destination[from..]);
                add_product(&mut block, &doubles, masks, add);
                destination[from..].copy_from_slice(&block[..len - from]);
            }
        }
    }
}

fn ones_if(bit: bool) -> u8 {
    if bit { 0xff } else { 0 }
}

/// Less than a block, with zeros behind it.
fn filled_up(bytes: &[u8]) -> Block {
    let mut block = [0; BLOCK];
    block[..bytes.len()].copy_from_slice(bytes);
    block
}

/// The bytes times 1, 2, 4 and so on to 128.
#[inline(always)]
fn doubles(bytes: Block) -> [Block; 8] {
    let mut doubles = [bytes; 8];
    for i in 1..8 {
        // The polynomial without its highest term, for bytes that have the highest bit.
        doubles[i] = doubles[i - 1].map(|byte| byte << 1 ^ ones_if(byte & 0x80 != 0) & 0x1d);
    }
    doubles
}

#[inline(always)]
fn add_product(to: &mut Block, doubles: &[Block; 8], masks: &[u8; 8], add: bool) {
    let mut sum = if add { *to } else { [0; BLOCK] };
    for (double, mask) in doubles.iter().zip(masks) {
        for i in 0..BLOCK {
            sum[i] ^= double[i] & mask;
        }
    }
    *to = sum;
}
