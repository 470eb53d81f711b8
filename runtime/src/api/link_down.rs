//! What becomes of packets while the local link is down.

use std::str::FromStr;

/// What becomes of packets while the local link is down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LinkDown {
    /// They are lost, as hardware loses them: retries are counted, and a work request ends with `RetryExcErr` when they are used up.
    #[default]
    Lose,
    /// They wait for the link, and no retry is counted meanwhile.
    Wait,
}

impl FromStr for LinkDown {
    type Err = String;

    fn from_str(s: &str) -> Result<LinkDown, String> {
        match s {
            "lose" => Ok(LinkDown::Lose),
            "wait" => Ok(LinkDown::Wait),
            _ => Err(format!("`{s}` is neither `lose` nor `wait`")),
        }
    }
}
