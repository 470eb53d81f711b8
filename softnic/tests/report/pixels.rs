//! Pixels of a screenshot: just enough of PNG for what chromium writes.

use std::io::Read;

/// A picture of 8 bits a channel.
pub(crate) struct Picture {
    pub(crate) width: usize,
    pub(crate) height: usize,
    channels: usize,
    bytes: Vec<u8>,
}

impl Picture {
    /// Reads a PNG without interlacing, in RGB or RGBA.
    pub(crate) fn read(png: &[u8]) -> Picture {
        assert_eq!(png.get(..8), Some(&b"\x89PNG\r\n\x1a\n"[..]));
        let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
        let (width, height) = (number(16), number(20));
        let channels = match (png[24], png[25], png[28]) {
            (8, 2, 0) => 3,
            (8, 6, 0) => 4,
            other => panic!("a PNG of another kind: {other:?}"),
        };
        let (mut packed, mut at) = (Vec::new(), 8);
        while at < png.len() {
            let (len, kind) = (number(at), &png[at + 4..at + 8]);
            if kind == b"IDAT" {
                packed.extend_from_slice(&png[at + 8..at + 8 + len]);
            }
            at += len + 12;
        }
        let mut lines = Vec::new();
        flate2::read::ZlibDecoder::new(&packed[..]).read_to_end(&mut lines).unwrap();
        Picture { width, height, channels, bytes: unfiltered(&lines, width * channels, channels) }
    }

    fn colour(&self, x: usize, y: usize) -> [u8; 3] {
        let at = (y * self.width + x) * self.channels;
        self.bytes[at..at + 3].try_into().unwrap()
    }

    /// How many pixels of a box (left, top, width, height) have a colour, as in `0072b2`.
    pub(crate) fn count(&self, [left, top, width, height]: [usize; 4], colour: &str) -> usize {
        let wanted = u32::from_str_radix(colour, 16).unwrap().to_be_bytes();
        let (right, bottom) = ((left + width).min(self.width), (top + height).min(self.height));
        let all = (top..bottom).flat_map(|y| (left..right).map(move |x| (x, y)));
        all.filter(|&(x, y)| self.colour(x, y) == wanted[1..]).count()
    }
}

/// Undoes the filters of lines of `len` bytes, each behind a byte that names its filter.
fn unfiltered(lines: &[u8], len: usize, step: usize) -> Vec<u8> {
    let mut out: Vec<u8> = Vec::with_capacity(lines.len());
    for line in lines.chunks(len + 1) {
        let begin = out.len();
        for (i, &byte) in line[1..].iter().enumerate() {
            let left = if i >= step { out[begin + i - step] } else { 0 };
            let above = if begin > 0 { out[begin + i - len] } else { 0 };
            let corner = if begin > 0 && i >= step { out[begin + i - len - step] } else { 0 };
            out.push(byte.wrapping_add(match line[0] {
                0 => 0,
                1 => left,
                2 => above,
                3 => ((u16::from(left) + u16::from(above)) / 2) as u8,
                _ => paeth(left, above, corner),
            }));
        }
    }
    out
}

fn paeth(left: u8, above: u8, corner: u8) -> u8 {
    let guess = i16::from(left) + i16::from(above) - i16::from(corner);
    [left, above, corner].into_iter().min_by_key(|&b| (guess - i16::from(b)).abs()).unwrap_or(0)
}
