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

/// Further rows to ask for where so many are needed and there are so many: a margin for those that are lost on their way. `None` where rows
/// cannot repair it, or nothing is needed.
pub(super) fn rows_to_ask(needed: u32, spare: u32) -> Option<u32> {
    let margin = needed.isqrt() + u32::from(!is_square(needed)) + 1;
    (1..=spare).contains(&needed).then(|| (needed + margin).min(spare))
}

fn is_square(n: u32) -> bool {
    n.isqrt().pow(2) == n
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
    fn more_rows_are_asked_for_than_are_needed_but_no_more_than_there_are() {
        let asked = |spare| [0, 1, 2, 4, 5, 9].map(|needed| rows_to_ask(needed, spare));
        assert_eq!(asked(100), [None, Some(3), Some(5), Some(7), Some(9), Some(13)]);
        assert_eq!(asked(5), [None, Some(3), Some(5), Some(5), Some(5), None]);
        assert_eq!(asked(0), [None; 6]);
    }
}
