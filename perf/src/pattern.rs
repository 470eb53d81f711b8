//! Bytes that differ from message to message, for `--verify`.

use std::ops::Range;

use softnic_runtime::api::MemoryRegion;

/// The bytes of message `number` on queue pair `qp`; tools/perf_peer.py makes the same.
fn fill(out: &mut [u8], qp: usize, number: u64) {
    let mut word = (number ^ (qp as u64) << 40).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for chunk in out.chunks_mut(8) {
        word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let bytes = (word ^ word >> 29).to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
}

/// Writes and compares messages.
pub(crate) struct Pattern {
    expected: Vec<u8>,
    found: Vec<u8>,
}

impl Pattern {
    pub(crate) fn new() -> Pattern {
        Pattern { expected: Vec::new(), found: Vec::new() }
    }

    /// Writes a message of `len` bytes at `offset`.
    pub(crate) fn write(&mut self, mr: &MemoryRegion, offset: usize, len: usize, qp: usize, number: u64) {
        self.expected.resize(len, 0);
        fill(&mut self.expected, qp, number);
        mr.write_at(offset, &self.expected);
    }

    /// Compares a message of `len` bytes at `offset` with what it must be.
    pub(crate) fn compare(
        &mut self,
        mr: &MemoryRegion,
        offset: usize,
        len: usize,
        qp: usize,
        number: u64,
    ) -> Result<(), String> {
        self.compare_but(mr, offset, len, (qp, number), &[])
    }

    /// The same without these bytes of it, which did not come.
    pub(crate) fn compare_but(
        &mut self,
        mr: &MemoryRegion,
        offset: usize,
        len: usize,
        (qp, number): (usize, u64),
        missing: &[Range<u32>],
    ) -> Result<(), String> {
        self.expected.resize(len, 0);
        self.found.resize(len, 0);
        fill(&mut self.expected, qp, number);
        mr.read_at(offset, &mut self.found);
        for range in missing {
            let range = range.start as usize..range.end as usize;
            self.found[range.clone()].copy_from_slice(&self.expected[range]);
        }
        match self.expected.iter().zip(&self.found).position(|(a, b)| a != b) {
            None => Ok(()),
            Some(at) => Err(format!(
                "message {number} of queue pair {qp} is wrong: byte {at} of {len} is {:#04x}, not {:#04x}",
                self.found[at], self.expected[at]
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Pattern, fill};
    use softnic_nic::transports::memory::Access;
    use softnic_runtime::api::{Context, OpenOptions};

    #[test]
    fn one_wrong_byte_is_found_and_so_is_another_message() {
        let options = OpenOptions::default();
        let [nic, _other] = Context::open_pair([&options, &options]).expect("a wire");
        let mr = nic.alloc_pd().alloc_mr(256, Access::LOCAL_WRITE).expect("memory");
        let mut pattern = Pattern::new();
        pattern.write(&mr, 64, 101, 3, 17);
        assert_eq!(pattern.compare(&mr, 64, 101, 3, 17), Ok(()));
        assert!(pattern.compare(&mr, 64, 101, 3, 18).is_err(), "the next message");
        assert!(pattern.compare(&mr, 64, 101, 2, 17).is_err(), "another queue pair's");
        let last = mr.load_byte(64 + 100);
        mr.write_at(64 + 100, &[!last]);
        let told = pattern.compare(&mr, 64, 101, 3, 17).expect_err("a wrong byte");
        assert!(told.contains("message 17") && told.contains("byte 100 of 101"), "{told}");
    }

    #[test]
    fn messages_differ() {
        let bytes = |qp, number| {
            let mut out = [0; 37];
            fill(&mut out, qp, number);
            out
        };
        assert_eq!(bytes(1, 2), bytes(1, 2));
        assert_ne!(bytes(1, 2), bytes(1, 3));
        assert_ne!(bytes(1, 2), bytes(0, 2));
    }
}
