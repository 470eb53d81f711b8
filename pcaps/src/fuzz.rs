//! The body of a fuzz test of the reader: a plain function, for tests and fuzzers alike.

use std::io::{self, Read};

use crate::{Reader, Timestamp, link};

/// Reads `data` as a capture to its end or its fault, whole and then byte by byte; panics where the two differ.
pub fn fuzz_reader(data: &[u8]) {
    assert_eq!(read_all(data), read_all(OneByte(data)), "the reader depends on how the bytes come in");
}

/// Number, time, captured and original length of every packet, then how it ended.
fn read_all(source: impl Read) -> (Vec<(u64, Timestamp, usize, u32)>, String) {
    let mut frames = Vec::new();
    let mut reader = match Reader::new(source) {
        Ok(reader) => reader,
        Err(e) => return (frames, e.to_string()),
    };
    loop {
        match reader.next_frame() {
            Ok(Some(f)) => {
                let _ = link::payload(f.link, f.data);
                frames.push((f.number, f.time, f.data.len(), f.original_len));
            }
            Ok(None) => return (frames, String::new()),
            Err(e) => {
                assert!(matches!(reader.next_frame(), Ok(None)), "something was read beyond the fault");
                return (frames, e.to_string());
            }
        }
    }
}

/// The slowest pipe there is.
struct OneByte<'a>(&'a [u8]);

impl Read for OneByte<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let n = out.len().min(1);
        self.0.read(&mut out[..n])
    }
}
