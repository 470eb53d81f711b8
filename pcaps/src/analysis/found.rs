//! Packets that show something: the first few by number, all by count.

use crate::PacketNumber;

/// How many packets are named.
const NAMED: usize = 8;

/// Packets of a capture: how many, and the numbers of the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Packets {
    first: [u64; NAMED],
    count: u64,
}

impl Packets {
    pub(super) fn push(&mut self, number: u64) {
        if let Some(place) = self.first.get_mut(self.count as usize) {
            *place = number;
        }
        self.count += 1;
    }

    /// Both together, in the order of the capture.
    pub(super) fn with(&self, other: &Packets) -> Packets {
        let mut named: Vec<u64> = self.first().iter().chain(other.first()).copied().collect();
        named.sort_unstable();
        let mut all: Packets = named.into_iter().collect();
        all.count = self.count + other.count;
        all
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The numbers of the first few.
    pub fn first(&self) -> &[u64] {
        &self.first[..NAMED.min(self.count as usize)]
    }
}

impl FromIterator<u64> for Packets {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Packets {
        let mut all = Packets::default();
        numbers.into_iter().for_each(|n| all.push(n));
        all
    }
}

/// As in `packets 4, 9 and 120 more`.
impl std::fmt::Display for Packets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if self.count == 1 { "packet" } else { "packets" })?;
        for (i, n) in self.first().iter().enumerate() {
            write!(f, "{} {}", if i > 0 { "," } else { "" }, PacketNumber(*n))?;
        }
        match self.count - self.first().len() as u64 {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}
