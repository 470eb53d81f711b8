//! A Reed-Solomon code with a Cauchy matrix: any e parity rows give back any e lost chunks.
//!
//! Data chunk j stands at the point j of GF(2^8), parity row r at the point k + r, and the coefficient of chunk j in row r is 1 / (x + y) for
//! their points x and y. That is a Cauchy matrix: all points differ, so each square part of it is invertible. Its inverse has a closed form,
//! and so have the coefficients that give a lost chunk from what is there (`Solution`): decoding needs no elimination, and a code no tables.

use crate::chunks::{Chunks, Part, Rows};
use crate::field::{Log, inverse};
use crate::kernel::{Coefficients, DESTINATIONS, Kernel, SOURCES, Step, sources_for};
use crate::set::ChunkSet;

/// Bytes of each chunk that are worked on at a time.
const BLOCK: usize = 8192;

/// Writes parity rows, or adds to them.
pub(crate) fn encode(kernel: Kernel, k: usize, part: Part, data: &[u8], chunks: Chunks, rows: &mut impl Rows) {
    let count = rows.count();
    let width = sources_for(count);
    for block in chunks.blocks(BLOCK) {
        if block.chunks == 0 && !part.add {
            (0..count).for_each(|r| rows.slices(r, block.within.clone())[0].fill(0));
        }
        for j in (0..block.chunks).step_by(width) {
            let numbers = j..block.chunks.min(j + width);
            let sources: [&[u8]; SOURCES] =
                std::array::from_fn(|s| if s < numbers.len() { &data[block.of(j + s)] } else { Default::default() });
            for r in (0..count).step_by(DESTINATIONS) {
                let some = r..count.min(r + DESTINATIONS);
                let step = Step {
                    coefficients: coefficients(k, part.first_row + r, some.len(), part.first_chunk + j, numbers.len()),
                    add: part.add || j > 0,
                };
                let mut destinations = rows.slices(r, block.within.clone());
                kernel.multiply(&step, &sources[..numbers.len()], &mut destinations[..some.len()]);
            }
        }
    }
}

/// The coefficients of so many data chunks from `j` on in so many rows from `row` on.
fn coefficients(k: usize, row: usize, rows: usize, j: usize, chunks: usize) -> Coefficients {
    let mut coefficients = Coefficients::default();
    for (d, of_row) in coefficients[..rows].iter_mut().enumerate() {
        for (s, coefficient) in of_row[..chunks].iter_mut().enumerate() {
            *coefficient = inverse((k + row + d) as u8 ^ (j + s) as u8);
        }
    }
    coefficients
}

/// Computes the lost chunks in place, from all others and as many parity rows, which `parity` has the bytes of.
pub(crate) fn decode<'p>(
    kernel: Kernel,
    k: usize,
    data: &mut [u8],
    chunks: Chunks,
    lost: &ChunkSet,
    rows: &ChunkSet,
    parity: impl Fn(usize) -> &'p [u8],
) {
    let solution = Solution::new(k, chunks.count(), lost, rows);
    for block in chunks.blocks(BLOCK) {
        // Only the last chunk may end before the block, and with it the last of either list.
        let have_bytes = |points: &[u8]| points.partition_point(|&j| usize::from(j) < block.chunks);
        let lost = &solution.lost.points()[..have_bytes(solution.lost.points())];
        let present = &solution.present.points()[..have_bytes(solution.present.points())];
        for lost in lost.chunks(DESTINATIONS) {
            let mut add = false;
            for present in present.chunks(sources_for(lost.len())) {
                // Destinations, then sources; those that there are not are empty.
                let ranges = std::array::from_fn::<_, { DESTINATIONS + SOURCES }, _>(|i| {
                    let point = if i < DESTINATIONS { lost.get(i) } else { present.get(i - DESTINATIONS) };
                    point.map_or(0..0, |&j| block.of(j.into()))
                });
                let slices = data.get_disjoint_mut(ranges).expect("chunks do not overlap");
                let [a, b, c, d, sources @ ..] = slices;
                let sources = sources.map(|source| &*source);
                let step = Step { coefficients: solution.coefficients(lost, present), add };
                kernel.multiply(&step, &sources[..present.len()], &mut [a, b, c, d][..lost.len()]);
                add = true;
            }
            for rows in solution.rows.points().chunks(sources_for(lost.len())) {
                let sources: [&[u8]; SOURCES] = std::array::from_fn(|s| {
                    rows.get(s).map_or(Default::default(), |&x| &parity(usize::from(x) - k)[block.within.clone()])
                });
                let ranges =
                    std::array::from_fn::<_, DESTINATIONS, _>(|i| lost.get(i).map_or(0..0, |&j| block.of(j.into())));
                let mut slices = data.get_disjoint_mut(ranges).expect("chunks do not overlap");
                let step = Step { coefficients: solution.coefficients(lost, rows), add };
                kernel.multiply(&step, &sources[..rows.len()], &mut slices[..lost.len()]);
                add = true;
            }
        }
    }
}

/// Points of the field, at most 256, ascending.
struct Points {
    points: [u8; 256],
    len: usize,
}

impl Points {
    fn new(numbers: impl Iterator<Item = usize>) -> Points {
        let mut all = Points { points: [0; 256], len: 0 };
        for number in numbers {
            all.points[all.len] = number as u8;
            all.len += 1;
        }
        all
    }

    fn points(&self) -> &[u8] {
        &self.points[..self.len]
    }
}

/// What the lost chunks are of what is there.
///
/// A code word is a polynomial f of degree below k at all points, times a factor for each point: with N(x) the product of (x + j) over all
/// data points j, and N'(j) without the factor for j itself, chunk j is f(j) / N'(j) and the row at x is f(x) / N(x), for by Lagrange
/// f(x) = N(x) * sum of f(j) / (N'(j) (x + j)). The same formula with the k points that are there, in place of the data points, says what f is
/// at a lost point y. Most factors cancel, and the coefficient of what is at s is a(y) b(s) / (y + s) with
///
/// - a(y) = product of (y + x) over the rows / product of (y + l) over the other lost points,
/// - b(s) = product of (s + l) over the lost points / product of (s + x) over the rows other than s.
struct Solution {
    lost: Points,
    present: Points,
    rows: Points,
    /// a(y) or b(s), by the point.
    factors: [Log; 256],
}

impl Solution {
    fn new(k: usize, chunks: usize, lost: &ChunkSet, rows: &ChunkSet) -> Solution {
        let present = Points::new(ChunkSet::below(chunks).without(lost).iter());
        let (lost, rows) = (Points::new(lost.iter()), Points::new(rows.iter().map(|row| k + row)));
        let mut factors = [Log::ONE; 256];
        let product = |s: u8, points: &Points| {
            let others = points.points().iter().filter(|&&point| point != s);
            others.fold(Log::ONE, |product, point| product.times(Log::of(s ^ point)))
        };
        for &y in lost.points() {
            factors[usize::from(y)] = product(y, &rows).over(product(y, &lost));
        }
        for &s in present.points().iter().chain(rows.points()) {
            factors[usize::from(s)] = product(s, &lost).over(product(s, &rows));
        }
        Solution { lost, present, rows, factors }
    }

    fn coefficients(&self, lost: &[u8], sources: &[u8]) -> Coefficients {
        let mut coefficients = Coefficients::default();
        for (of_lost, &y) in coefficients.iter_mut().zip(lost) {
            for (coefficient, &s) in of_lost.iter_mut().zip(sources) {
                let factor = self.factors[usize::from(y)].times(self.factors[usize::from(s)]);
                *coefficient = factor.over(Log::of(y ^ s)).element();
            }
        }
        coefficients
    }
}
