//! The fuzz body: a code, data, losses and parities as the input says, wrong ones among them, and a check of what the decoder makes of them.

use crate::{ChunkSet, Code, DecodeError, Family, Kernel};

/// What became of the losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The input says no code.
    NoCode,
    /// Nothing was lost.
    Whole,
    /// All came back.
    Recovered,
    /// More was lost than the parities can give back.
    TooManyLost,
    /// Data or parities were none of the code.
    Malformed,
}

/// Bytes of the input, then zeros.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> usize {
        let (&first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        first.into()
    }

    /// Below `n`.
    fn below(&mut self, n: usize) -> usize {
        (self.byte() << 8 | self.byte()) % n.max(1)
    }
}

/// Encodes, loses and decodes. Panics where something else comes out than went in, where an error changed the data, or where the error is
/// not the one that it should be.
pub fn fuzz_decode(input: &[u8]) -> Outcome {
    let mut input = Input(input);
    let family = if input.byte() % 2 == 0 { Family::Mds } else { Family::Xor };
    let kernel = Kernel::available().nth(input.byte() % 4).unwrap_or(Kernel::PORTABLE);
    let Ok(code) = Code::new(family, input.byte(), input.byte()) else { return Outcome::NoCode };
    let code = code.with_kernel(kernel);
    let chunk_len = 1 + input.below(300);
    // Now and then a chunk more than the code has.
    let bytes = input.below((code.k() + 1) * chunk_len + 1);
    let chunks = bytes.div_ceil(chunk_len);
    let data: Vec<u8> = (0..bytes).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();

    let mut present = ChunkSet::below(chunks.min(ChunkSet::CAPACITY));
    let mut received = data.clone();
    for _ in 0..input.byte() % 20 {
        let lost = input.below(chunks);
        present.remove(lost);
        received.iter_mut().skip(lost * chunk_len).take(chunk_len).for_each(|byte| *byte = !*byte);
    }
    let mut parities = Vec::new();
    for _ in 0..input.byte() % 20 {
        let what = input.byte();
        // Rows close to each other, so that some come twice; now and then one that is far off.
        let row = if what < 250 { input.below(code.m() + code.m() / 8) } else { input.below(1 << 16) };
        let mut parity = vec![0; if what % 50 == 49 { input.below(2 * chunk_len) } else { chunk_len }];
        if row < code.rows() && parity.len() == chunk_len && chunks <= code.k() {
            code.encode_rows(row, &data, chunk_len, &mut [&mut parity[..]]);
        }
        parities.push((row, parity));
    }

    let expected = expected(&code, chunks, chunk_len, &present, &parities);
    let before = received.clone();
    let decoded = code.decode(&mut received, chunk_len, &present, &parities);
    let matches = match expected {
        Outcome::Malformed => !matches!(decoded, Ok(_) | Err(DecodeError::TooManyLost { .. })),
        Outcome::TooManyLost => matches!(decoded, Err(DecodeError::TooManyLost { .. })),
        _ => decoded == Ok(chunks - present.len()),
    };
    assert!(matches, "{code:?}: {decoded:?}, where {expected:?} was expected");
    assert_eq!(received, if decoded.is_ok() { data } else { before }, "{code:?}: {decoded:?}");
    expected
}

/// What should come of it, by the definitions of the codes.
fn expected(code: &Code, chunks: usize, len: usize, present: &ChunkSet, parities: &[(usize, Vec<u8>)]) -> Outcome {
    let twice = |i: usize| parities[..i].iter().any(|(row, _)| *row == parities[i].0);
    let malformed = |i: usize| parities[i].0 >= code.rows() || parities[i].1.len() != len || twice(i);
    if chunks > code.k() || (0..parities.len()).any(malformed) {
        return Outcome::Malformed;
    }
    let lost: Vec<usize> = (0..chunks).filter(|&j| !present.contains(j)).collect();
    let recoverable = match code.family() {
        Family::Mds => lost.len() <= parities.len(),
        Family::Xor => lost.iter().all(|j| {
            let of_row = |row: usize| lost.iter().filter(|&other| other % code.m() == row).count();
            code.m() > 0 && of_row(j % code.m()) == 1 && parities.iter().any(|(row, _)| *row == j % code.m())
        }),
    };
    match recoverable {
        _ if lost.is_empty() => Outcome::Whole,
        true => Outcome::Recovered,
        false => Outcome::TooManyLost,
    }
}
