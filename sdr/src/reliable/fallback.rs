//! What a receiver asks for when parity did not repair all of a message (SDR-RDMA §4.2.3).

use std::fmt;
use std::str::FromStr;

/// What is asked for of a submessage that parity did not repair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Fallback {
    /// The chunks that are missing.
    #[default]
    Missing,
    /// All its chunks, as the paper has it.
    Submessages,
    /// Further rows of parity, a few more than it takes: any of them stand in for any chunks, so one that is lost costs no round trip. Once;
    /// what they do not repair is asked for by chunks. Of `sdr-ec` alone, and both ends must have it.
    Rows,
}

/// A name that is none of a fallback.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is none of missing, submessages and rows")]
pub struct FallbackError(String);

impl Fallback {
    const NAMES: [(Fallback, &'static str); 3] =
        [(Fallback::Missing, "missing"), (Fallback::Submessages, "submessages"), (Fallback::Rows, "rows")];
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Fallback::NAMES.iter().find(|(fallback, _)| fallback == self);
        f.pad(name.map_or("", |(_, name)| name))
    }
}

impl FromStr for Fallback {
    type Err = FallbackError;

    fn from_str(s: &str) -> Result<Fallback, FallbackError> {
        let found = Fallback::NAMES.iter().find(|(_, name)| *name == s);
        found.map(|(fallback, _)| *fallback).ok_or_else(|| FallbackError(s.into()))
    }
}

/// Rows that are asked for beyond those that are needed and their square root. Reckoned, not measured: with independent losses of 0.05 to
/// 0.15 fewer WRITEs of 1024 submessages of (32, 8) need a second round than where missing chunks are asked for; with one row fewer, more do.
const MARGIN: u32 = 3;

/// Further rows to ask for of a group that needs so many, lacks so many chunks, and may have so many rows. `None` where its missing chunks
/// are the better choice: any of them serve as well as a row, and there are no fewer of them than rows.
pub(super) fn rows_to_ask(needed: u32, missing: u32, spare: u32) -> Option<u32> {
    let root = needed.isqrt();
    let wanted = needed + root + u32::from(root * root < needed) + MARGIN;
    let rows = wanted.min(spare);
    (needed > 0 && rows >= needed && (rows == wanted || rows > missing)).then_some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fallback_is_named_as_it_is_written() {
        for (fallback, name) in Fallback::NAMES {
            assert_eq!((fallback.to_string().as_str(), name.parse()), (name, Ok(fallback)));
        }
        assert_eq!(
            "row".parse::<Fallback>().unwrap_err().to_string(),
            "'row' is none of missing, submessages and rows"
        );
        assert_eq!(Fallback::default(), Fallback::Missing);
    }

    #[test]
    fn more_rows_are_asked_for_than_are_needed_or_chunks_where_there_are_more_of_them() {
        let asked = |missing: u32, spare| [0, 1, 2, 4, 5].map(|needed| rows_to_ask(needed, missing.max(needed), spare));
        assert_eq!(asked(9, 100), [None, Some(5), Some(7), Some(9), Some(11)]);
        assert_eq!(asked(9, 8), [None, Some(5), Some(7), None, None]);
        assert_eq!(asked(5, 8), [None, Some(5), Some(7), Some(8), Some(8)]);
        assert_eq!(asked(1, 2), [None, Some(2), None, None, None]);
        assert_eq!(asked(1, 0), [None; 5]);
    }
}
