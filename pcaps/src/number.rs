//! The number of a packet among captures that are read together.

use std::fmt;

/// Where the file begins in a number.
const FILE: u32 = 48;

/// A packet's number in its capture, and which capture of several that is: one number, so that what is said of packets of one capture is said of
/// packets of many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketNumber(pub u64);

impl PacketNumber {
    /// The packet with a number in a file; the first file is 1.
    pub fn in_file(file: u16, number: u64) -> PacketNumber {
        PacketNumber(u64::from(file) << FILE | number & ((1 << FILE) - 1))
    }

    /// The file; `None` where there is one alone.
    pub fn file(self) -> Option<u16> {
        Some((self.0 >> FILE) as u16).filter(|file| *file > 0)
    }

    /// The number in the file.
    pub fn within(self) -> u64 {
        self.0 & ((1 << FILE) - 1)
    }
}

/// As in `17`, and `2:17` where there are several files.
impl fmt::Display for PacketNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.file() {
            Some(file) => f.pad(&format!("{file}:{}", self.within())),
            None => self.0.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_one_capture_are_as_they_were() {
        assert_eq!((PacketNumber(17).to_string(), PacketNumber(17).file()), ("17".into(), None));
        let second = PacketNumber::in_file(2, 17);
        assert_eq!((second.to_string(), format!("{second:>6}"), second.within()), ("2:17".into(), "  2:17".into(), 17));
        assert_eq!(format!("{:>5}", PacketNumber(17)), "   17");
    }
}
