//! How fast parities of a large buffer are computed, on one core and on several at once.

use std::sync::Barrier;
use std::time::Instant;

use softnic_codes::{Code, Family};
use softnic_isal::Isal;

/// Bytes of a page: what memory that programs register is aligned to.
const PAGE: usize = 4096;

/// Bytes that begin with a page.
struct Pages {
    room: Vec<u8>,
    start: usize,
}

impl Pages {
    fn new(len: usize) -> Pages {
        let room: Vec<u8> = (0..len + PAGE).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 11) as u8).collect();
        Pages { start: room.as_ptr().align_offset(PAGE), room }
    }

    fn bytes(&self) -> &[u8] {
        &self.room[self.start..][..self.room.len() - PAGE]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        let len = self.room.len() - PAGE;
        &mut self.room[self.start..][..len]
    }
}

/// Who encodes.
#[derive(Debug, Clone)]
pub(super) enum Encoder {
    Ours(Code),
    /// One sum for each parity row.
    IsalXor(Isal, usize),
    IsalMds(softnic_isal::Encoder),
}

impl Encoder {
    /// Ours, and ISA-L's where it is there; each family with its own.
    pub(super) fn all(codes: &[Code], isal: Option<&Isal>) -> Vec<Encoder> {
        let theirs = |code: &Code, isal: &Isal| match code.family() {
            Family::Xor => Encoder::IsalXor(*isal, code.m()),
            Family::Mds => Encoder::IsalMds(isal.encoder(code.k(), code.m())),
        };
        codes
            .iter()
            .flat_map(|code| [Some(Encoder::Ours(*code)), isal.map(|isal| theirs(code, isal))])
            .flatten()
            .collect()
    }

    pub(super) fn name(&self) -> String {
        match self {
            Encoder::Ours(code) => code.family().to_string(),
            Encoder::IsalXor(..) => "ISA-L xor_gen".into(),
            Encoder::IsalMds(_) => "ISA-L ec_encode_data".into(),
        }
    }

    pub(super) fn family(&self) -> Family {
        match self {
            Encoder::Ours(code) => code.family(),
            Encoder::IsalXor(..) => Family::Xor,
            Encoder::IsalMds(_) => Family::Mds,
        }
    }

    pub(super) fn is_ours(&self) -> bool {
        matches!(self, Encoder::Ours(_))
    }

    /// The parities of one submessage.
    fn encode(&mut self, data: &[u8], chunk: usize, parity: &mut [u8]) {
        match self {
            Encoder::Ours(code) => code.encode_in_one_piece(0, data, chunk, parity),
            Encoder::IsalXor(isal, m) => {
                for (row, sum) in parity.chunks_mut(chunk).enumerate() {
                    let group: Vec<&[u8]> = data.chunks(chunk).skip(row).step_by(*m).collect();
                    isal.xor(&group, sum);
                }
            }
            Encoder::IsalMds(encoder) => {
                let chunks: Vec<&[u8]> = data.chunks(chunk).collect();
                let mut rows: Vec<&mut [u8]> = parity.chunks_mut(chunk).collect();
                encoder.encode(&chunks, &mut rows);
            }
        }
    }
}

/// A buffer of whole submessages, and room for all its parities.
pub(super) struct Work {
    k: usize,
    m: usize,
    chunk: usize,
    data: Pages,
    parity: Pages,
}

impl Work {
    pub(super) fn new(bytes: usize, k: usize, m: usize, chunk: usize) -> Work {
        let submessages = bytes / (k * chunk);
        Work { k, m, chunk, data: Pages::new(submessages * k * chunk), parity: Pages::new(submessages * m * chunk) }
    }

    /// Computes all parities, each core those of its part; bytes of data a nanosecond, which are GB/s, of all cores together.
    pub(super) fn rate(&mut self, encoder: &Encoder, cores: usize) -> f64 {
        let Work { k, m, chunk, .. } = *self;
        let data = self.data.bytes();
        let submessages = data.len() / (k * chunk);
        let part = submessages.div_ceil(cores);
        let parts = data.chunks(part * k * chunk).zip(self.parity.bytes_mut().chunks_mut(part * m * chunk));
        let start = Barrier::new(parts.len());
        let one = |(data, parity): (&[u8], &mut [u8])| {
            let mut encoder = encoder.clone();
            start.wait();
            let began = Instant::now();
            for (data, parity) in data.chunks(k * chunk).zip(parity.chunks_mut(m * chunk)) {
                encoder.encode(data, chunk, parity);
            }
            (began, Instant::now())
        };
        let times: Vec<(Instant, Instant)> = std::thread::scope(|scope| {
            let threads: Vec<_> = parts.map(|part| scope.spawn(|| one(part))).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
        });
        let (began, ended) = (times.iter().map(|t| t.0).min(), times.iter().map(|t| t.1).max());
        let took = began.zip(ended).map_or(0, |(began, ended)| (ended - began).as_nanos());
        data.len() as f64 / took.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many cores, and whoever encodes: the parities are those of the code.
    #[test]
    fn all_parities_are_computed() {
        let codes = [Code::xor(4, 2).unwrap(), Code::mds(4, 2).unwrap()];
        let isal = Isal::load().map_err(|why| eprintln!("{why}")).ok();
        for encoder in Encoder::all(&codes, isal.as_ref()) {
            for cores in [1, 2, 3] {
                let mut work = Work::new(7 * 4 * 64 + 100, 4, 2, 64);
                work.parity.bytes_mut().fill(0);
                assert!(work.rate(&encoder, cores) > 0.0);
                let code = codes.iter().find(|code| code.family() == encoder.family()).unwrap();
                let submessages = work.data.bytes().chunks(4 * 64).zip(work.parity.bytes().chunks(2 * 64));
                assert_eq!(submessages.len(), 7);
                for (data, parity) in submessages {
                    let mut expected = [0; 2 * 64];
                    code.encode_in_one_piece(0, data, 64, &mut expected);
                    assert_eq!(parity, expected, "{} on {cores}", encoder.name());
                }
            }
        }
    }
}
