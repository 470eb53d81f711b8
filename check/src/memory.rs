//! The program's memory, read for checksums.

/// Memory of the program that the model may look at.
pub trait Memory {
    /// Copies the bytes from `address` on into `into`; false where they cannot be read (any more), and then nothing is said of them.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;

    /// The same of several stretches, each an address and a length, one behind the other.
    fn read_all(&self, spans: &[(u64, u64)], into: &mut [u8]) -> bool {
        let mut rest = into;
        spans.iter().all(|&(address, len)| {
            let (piece, behind) = std::mem::take(&mut rest).split_at_mut(len as usize);
            rest = behind;
            self.read(address, piece)
        })
    }
}

/// Up to so many bytes of a buffer all of them count; of longer ones samples: a program takes at most twice its time.
const WHOLE: u64 = 4 << 10;
/// At both ends of a long buffer so many bytes count.
const EDGE: u64 = 512;
/// How many places in between.
const SAMPLES: u64 = 32;
/// How many bytes at each.
const SAMPLE: u64 = 64;

/// Room for what is read, which is used again and again.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    spans: Vec<(u64, u64)>,
    bytes: Vec<u8>,
}

impl Scratch {
    /// A checksum of a buffer in several pieces, each an address and a length; `None` where it cannot be read. Where samples are taken `draw`
    /// says: with another number for each message every byte has its turn.
    pub(crate) fn digest(
        &mut self,
        memory: &(impl Memory + ?Sized),
        pieces: impl Iterator<Item = (u64, u64)>,
        draw: u64,
    ) -> Option<u64> {
        let mut sum = Sum::default();
        for (address, len) in pieces {
            self.spans.clear();
            match len <= WHOLE {
                true => self.spans.push((address, len)),
                false => self.spans.extend(samples(address, len, draw)),
            }
            let bytes = self.spans.iter().map(|(_, len)| *len as usize).sum();
            if self.bytes.len() < bytes {
                self.bytes.resize(bytes, 0);
            }
            let room = &mut self.bytes[..bytes];
            memory.read_all(&self.spans, room).then_some(())?;
            sum.take(room);
            sum.len += len;
        }
        Some(sum.finish())
    }
}

/// The places of a long buffer that count.
fn samples(address: u64, len: u64, draw: u64) -> impl Iterator<Item = (u64, u64)> {
    let stride = (len - 2 * EDGE) / SAMPLES;
    // Those that begin near the end of their stretch reach into the next one, and the last one into what counts anyway.
    let first = EDGE + mix(mix(1, draw), draw) % stride;
    let between = (0..SAMPLES).map(move |sample| (address + first + sample * stride, SAMPLE));
    let last = len - EDGE - SAMPLES * stride;
    [(address, EDGE + SAMPLE)].into_iter().chain(between).chain([(address + len - last, last)])
}

/// Four sums side by side: a multiplication has not to wait for the one before it.
#[derive(Default)]
struct Sum {
    lanes: [u64; 4],
    len: u64,
}

impl Sum {
    fn take(&mut self, bytes: &[u8]) {
        let (blocks, rest) = bytes.as_chunks::<32>();
        for block in blocks {
            let (words, _) = block.as_chunks::<8>();
            for (i, word) in words.iter().enumerate() {
                self.lanes[i] = mix(self.lanes[i], u64::from_le_bytes(*word));
            }
        }
        for word in rest.chunks(8) {
            let mut whole = [0; 8];
            whole[..word.len()].copy_from_slice(word);
            self.lanes[0] = mix(self.lanes[0], u64::from_le_bytes(whole));
        }
    }

    fn finish(&self) -> u64 {
        self.lanes.iter().fold(self.len, |sum, &lane| mix(sum, lane))
    }
}

/// Each step can be undone, so that no change of a single word is lost.
fn mix(sum: u64, word: u64) -> u64 {
    (sum.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bytes(Vec<u8>);

    impl Memory for Bytes {
        fn read(&self, address: u64, into: &mut [u8]) -> bool {
            let from = address as usize;
            self.0.get(from..from + into.len()).is_some_and(|bytes| {
                into.copy_from_slice(bytes);
                true
            })
        }
    }

    #[test]
    fn every_byte_of_a_short_buffer_counts() {
        for len in [1, 7, 8, 31, 32, 33, 4095, 4096] {
            let mut bytes = Bytes((0..len).map(|i| i as u8).collect());
            let before = Scratch::default().digest(&bytes, [(0, len as u64)].into_iter(), 0);
            for i in [0, len / 2, len - 1] {
                bytes.0[i] ^= 0x40;
                assert_ne!(
                    Scratch::default().digest(&bytes, [(0, len as u64)].into_iter(), 0),
                    before,
                    "byte {i} of {len}"
                );
                bytes.0[i] ^= 0x40;
            }
            assert_eq!(Scratch::default().digest(&bytes, [(0, len as u64)].into_iter(), 0), before);
        }
    }

    #[test]
    fn of_a_long_buffer_both_ends_and_samples_count() {
        let len = 1 << 20;
        let mut bytes = Bytes(vec![7; len]);
        let before = Scratch::default().digest(&bytes, [(0, len as u64)].into_iter(), 0);
        for i in [0, 511, len - 512, len - 1] {
            bytes.0[i] ^= 1;
            let after = Scratch::default().digest(&bytes, [(0, len as u64)].into_iter(), 0);
            bytes.0[i] ^= 1;
            assert_ne!(after, before, "byte {i}");
        }
        // What lies between the samples of one message lies in one of another.
        for i in [600, 5000, len / 2, len - 600] {
            let mut is_seen = |draw| {
                let span = [(0, len as u64)];
                let before = Scratch::default().digest(&bytes, span.into_iter(), draw);
                bytes.0[i] ^= 1;
                let after = Scratch::default().digest(&bytes, span.into_iter(), draw);
                bytes.0[i] ^= 1;
                before != after
            };
            let seen = (0..10_000).map(&mut is_seen).filter(|seen| *seen).count();
            assert!((5..500).contains(&seen), "byte {i} is seen in {seen} of 10000 messages");
        }
        let whole: Vec<u8> = vec![8; len];
        assert_ne!(Scratch::default().digest(&Bytes(whole), [(0, len as u64)].into_iter(), 0), before);
    }

    #[test]
    fn memory_that_cannot_be_read_has_no_checksum() {
        assert_eq!(Scratch::default().digest(&Bytes(vec![0; 8]), [(4, 8)].into_iter(), 0), None);
    }
}
