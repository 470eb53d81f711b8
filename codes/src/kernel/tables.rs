//! What instructions multiply by an element with: a matrix of bits, or the products of all half bytes.

use crate::field::product;

/// For each element the matrix of bits that multiplies by it, as GF2P8AFFINEQB takes matrices: byte 7 - i says which bits of a byte are
/// added up for bit i of the product.
pub(super) static MATRICES: [u64; 256] = {
    let mut matrices = [0; 256];
    let mut element = 0;
    while element < 256 {
        let mut bit = 0;
        while bit < 8 {
            let of_bit = product(element as u8, 1 << bit);
            let mut i = 0;
            while i < 8 {
                matrices[element] |= ((of_bit >> i & 1) as u64) << ((7 - i) * 8 + bit);
                i += 1;
            }
            bit += 1;
        }
        element += 1;
    }
    matrices
};

/// The products of one element with the sixteen lower halves of a byte, and with the sixteen upper ones.
#[derive(Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct Halves {
    pub(super) lower: [u8; 16],
    pub(super) upper: [u8; 16],
}

/// For each element.
pub(super) static HALVES: [Halves; 256] = {
    let mut all = [Halves { lower: [0; 16], upper: [0; 16] }; 256];
    let mut element = 0;
    while element < 256 {
        let mut half = 0;
        while half < 16 {
            all[element].lower[half] = product(element as u8, half as u8);
            all[element].upper[half] = product(element as u8, (half as u8) << 4);
            half += 1;
        }
        element += 1;
    }
    all
};
