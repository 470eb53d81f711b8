//! What a collective is, in plain words: no steps, no messages.

use softnic_collectives::call::{Algorithm, Call, Element, Operation, Reduction};
use softnic_collectives::element::{bf16_to_f32, f16_to_f32, f32_to_bf16, f32_to_f16, reduce};

use super::world::Random;

/// Buffers of random elements, such that sums of halves stay in their range.
pub(crate) fn draw(call: &Call, ranks: usize, random: &mut Random) -> Vec<Vec<u8>> {
    let element = |random: &mut Random| -> Vec<u8> {
        let n = random.below(1 << 20) as i64 - (1 << 19);
        let small = n as f32 / 1000.0;
        match call.element {
            Element::I32 => (random.below(1 << 31) as i32).wrapping_mul(5).to_le_bytes().to_vec(),
            Element::F32 => (small * 1.1).to_le_bytes().to_vec(),
            Element::F16 => f32_to_f16(small).to_le_bytes().to_vec(),
            Element::Bf16 => f32_to_bf16(small).to_le_bytes().to_vec(),
        }
    };
    let buffer = |random: &mut Random| (0..call.bytes / call.element.size()).flat_map(|_| element(random)).collect();
    (0..ranks).map(|_| buffer(random)).collect()
}

/// The bytes of a range, reduced in an order: `order[0]` first, each further rank adds what there is so far to its own.
fn nested(call: &Call, inputs: &[Vec<u8>], order: &[usize]) -> Vec<u8> {
    let mut sum = inputs[order[0]].clone();
    for rank in &order[1..] {
        let mut own = inputs[*rank].clone();
        reduce(call.element, call.reduction, &mut own, &sum);
        sum = own;
    }
    sum
}

/// The reduction of all buffers, in the order that the algorithm says.
fn reduced(call: &Call, inputs: &[Vec<u8>]) -> Vec<u8> {
    let n = inputs.len();
    let all = |of: &dyn Fn(usize) -> Vec<u8>| {
        let mut out = vec![0; call.bytes as usize];
        for block in 0..n {
            let range = call.blocks(n, block..block + 1);
            let range = range.start as usize..range.end as usize;
            out[range.clone()].copy_from_slice(&of(block)[range]);
        }
        out
    };
    match call.algorithm {
        // Block c begins at the rank behind c and comes to c at last.
        Algorithm::Ring => all(&|c| nested(call, inputs, &(1..=n).map(|k| (c + k) % n).collect::<Vec<_>>())),
        Algorithm::Bcube => all(&|c| grid(call, inputs, c)),
        Algorithm::Tree => {
            let pieces = pieces(call);
            let mut out = vec![0; call.bytes as usize];
            for piece in 0..2 * pieces {
                let range = call.blocks(2 * pieces, piece..piece + 1);
                let range = range.start as usize..range.end as usize;
                let order: Vec<usize> = match (piece < pieces, n.is_multiple_of(2)) {
                    (true, _) => (0..n).collect(),
                    (false, true) => (0..n).rev().collect(),
                    (false, false) => (0..n).map(|label| (label + n - 1) % n).collect(),
                };
                out[range.clone()].copy_from_slice(&tree(call, inputs, &order)[range]);
            }
            out
        }
    }
}

/// Pieces of each half.
fn pieces(call: &Call) -> usize {
    let elements = call.bytes / call.element.size();
    (call.bytes / 2 / (64 << 10)).clamp(1, 64).min(elements.div_ceil(2).max(1)) as usize
}

/// The sum of ranks in the order of a tree's labels: the one that the most twos divide, with what is left of it, with what is right.
fn tree(call: &Call, inputs: &[Vec<u8>], labels: &[usize]) -> Vec<u8> {
    let top = (1 << labels.len().ilog2()) - 1;
    let mut sum = inputs[labels[top]].clone();
    for half in [&labels[..top], &labels[top + 1..]] {
        if !half.is_empty() {
            reduce(call.element, call.reduction, &mut sum, &tree(call, inputs, half));
        }
    }
    sum
}

/// The sum of a block in a grid: first along the widest dimension, then along the next, at the block's rank.
fn grid(call: &Call, inputs: &[Vec<u8>], block: usize) -> Vec<u8> {
    let n = inputs.len();
    let (mut factors, mut left) = (Vec::new(), n);
    for factor in 2..=n {
        while left.is_multiple_of(factor) {
            factors.insert(0, factor);
            left /= factor;
        }
    }
    let mut sums = inputs.to_vec();
    let mut apart = n;
    for factor in factors {
        apart /= factor;
        let before = sums.clone();
        for (rank, sum) in sums.iter_mut().enumerate() {
            let corner = rank / apart % factor;
            for other in (0..factor).filter(|other| *other != corner) {
                reduce(call.element, call.reduction, sum, &before[rank - corner * apart + other * apart]);
            }
        }
    }
    sums[block].clone()
}

/// The buffers of all ranks afterwards.
pub(crate) fn expected(call: &Call, inputs: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let n = inputs.len();
    let block = |buffer: &[u8], r: std::ops::Range<u64>| buffer[r.start as usize..r.end as usize].to_vec();
    match call.operation {
        Operation::AllReduce | Operation::ReduceScatter => vec![reduced(call, inputs); n],
        Operation::AllGather => {
            let all = (0..n).flat_map(|rank| block(&inputs[rank], call.blocks(n, rank..rank + 1)));
            vec![all.collect(); n]
        }
        Operation::AllToAll => {
            let row = |rank: usize| {
                let mut out: Vec<u8> =
                    (0..n).flat_map(|from| block(&inputs[from], call.equal_block(n, rank))).collect();
                out.extend(&inputs[rank][out.len()..]);
                out
            };
            (0..n).map(row).collect()
        }
        Operation::Broadcast { root } => vec![inputs[root].clone(); n],
        Operation::Barrier => inputs.to_vec(),
    }
}

/// Elements as numbers.
pub(crate) fn numbers(call: &Call, bytes: &[u8]) -> Vec<f64> {
    match call.element {
        Element::F32 => bytes.as_chunks().0.iter().map(|b| f64::from(f32::from_le_bytes(*b))).collect(),
        Element::I32 => bytes.as_chunks().0.iter().map(|b| f64::from(i32::from_le_bytes(*b))).collect(),
        Element::F16 => bytes.as_chunks().0.iter().map(|b| f64::from(f16_to_f32(u16::from_le_bytes(*b)))).collect(),
        Element::Bf16 => bytes.as_chunks().0.iter().map(|b| f64::from(bf16_to_f32(u16::from_le_bytes(*b)))).collect(),
    }
}

/// The sum, least or greatest of the numbers, without any order and with twice the digits.
pub(crate) fn plainly(call: &Call, inputs: &[Vec<u8>]) -> Vec<f64> {
    let rows: Vec<Vec<f64>> = inputs.iter().map(|bytes| numbers(call, bytes)).collect();
    let column = |i: usize| rows.iter().map(move |row| row[i]);
    let of = |i: usize| match call.reduction {
        Reduction::Sum if call.element == Element::I32 => {
            let sum: i64 = column(i).map(|x| x as i64).sum();
            f64::from(sum as i32)
        }
        Reduction::Sum => column(i).sum(),
        Reduction::Min => column(i).fold(f64::INFINITY, f64::min),
        Reduction::Max => column(i).fold(f64::NEG_INFINITY, f64::max),
    };
    (0..rows[0].len()).map(of).collect()
}

/// How far a sum of so many may be from the exact one.
pub(crate) fn tolerance(call: &Call, ranks: usize) -> f64 {
    let unit = match (call.reduction, call.element) {
        (Reduction::Min | Reduction::Max, _) | (_, Element::I32) => 0.0,
        (_, Element::F32) => 2f64.powi(-24),
        (_, Element::F16) => 2f64.powi(-11),
        (_, Element::Bf16) => 2f64.powi(-8),
    };
    // Elements are below 600.
    unit * 600.0 * (ranks * ranks) as f64
}
