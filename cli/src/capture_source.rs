//! Captures as people keep them: plain, or packed by gzip or zstd, which their first bytes tell.

use std::fs::File;
use std::io::{self, Chain, Cursor, Read};

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

/// Opens a capture.
pub(crate) fn open(path: &str) -> Result<Box<dyn Read>, String> {
    let file = File::open(path).map_err(|e| format!("{path}: {e}"))?;
    if file.metadata().is_ok_and(|m| m.is_dir()) {
        return Err(format!("{path}: is a directory, not a capture"));
    }
    unpacked(file).map_err(|e| format!("{path}: {e}"))
}

/// What is in a file.
fn unpacked(mut file: impl Read + 'static) -> io::Result<Box<dyn Read>> {
    let mut begin = Vec::new();
    file.by_ref().take(4).read_to_end(&mut begin)?;
    let is = |magic: &[u8]| begin.starts_with(magic);
    let (gzip, zstd) = (is(&GZIP), is(&ZSTD));
    let whole: Chain<Cursor<Vec<u8>>, _> = Cursor::new(begin).chain(file);
    Ok(match () {
        _ if gzip => Box::new(flate2::read::MultiGzDecoder::new(whole)),
        _ if zstd => Box::new(ruzstd::decoding::StreamingDecoder::new(whole).map_err(io::Error::other)?),
        _ => Box::new(whole),
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(bytes: Vec<u8>) -> Vec<u8> {
        let mut all = Vec::new();
        unpacked(Cursor::new(bytes)).unwrap().read_to_end(&mut all).unwrap();
        all
    }

    #[test]
    fn what_is_packed_is_unpacked_and_the_rest_is_as_it_is() {
        let plain: Vec<u8> = (0..50_000u32).flat_map(|n| (n / 7).to_le_bytes()).collect();
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(&plain).unwrap();
        let gzip = gzip.finish().unwrap();
        let zstd = ruzstd::encoding::compress_to_vec(&plain[..], ruzstd::encoding::CompressionLevel::Fastest);
        assert!(gzip.len() < plain.len() && zstd.len() < plain.len());
        // Files that were packed one by one and joined are one capture.
        assert_eq!(read([gzip.clone(), gzip.clone()].concat()), [plain.clone(), plain.clone()].concat());
        for packed in [gzip, zstd, plain.clone()] {
            assert!(read(packed) == plain);
        }
        for short in [&b""[..], b"\x1f", b"abc"] {
            assert_eq!(read(short.to_vec()), short);
        }
    }
}
