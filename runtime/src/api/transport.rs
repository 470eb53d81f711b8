//! How RC queue pairs recover from loss, as programs wish it: by the standard, or by what the peer has to agree to.

use std::fmt;
use std::str::FromStr;

use softnic_nic::transports::sr::{MAX_WINDOW, SrConfig};

/// The shortest window of Selective Repeat, in packets.
const MIN_WINDOW: u32 = 64;

/// What RC queue pairs recover from loss by. As text `rc`, `sr`, or `sr:PACKETS` with a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// The standard's Go-Back-N.
    #[default]
    Rc,
    /// Selective Repeat where the peer has it, else the standard ([`super::QueuePair::choice`]).
    Sr {
        /// Packets from the oldest missing one to the newest, at most; 16384 by default.
        window: Option<u32>,
    },
}

impl Transport {
    /// What the NIC's queue pairs are made with, on a line of this rate in bits a second.
    pub(super) fn config(self, rate: u64) -> Option<SrConfig> {
        match self {
            Transport::Rc => None,
            Transport::Sr { window } => Some(SrConfig { window: window.unwrap_or(SrConfig::default().window), rate }),
        }
    }
}

/// Why a text names no transport.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// None has that name.
    #[error("there is no transport `{0}`: it must be rc, sr or sr:PACKETS")]
    Unknown(String),
    /// The window is none.
    #[error("`{0}` is no window of sr: it must be a number of packets from {MIN_WINDOW} to {MAX_WINDOW}")]
    Window(String),
}

impl FromStr for Transport {
    type Err = TransportError;

    fn from_str(text: &str) -> Result<Transport, TransportError> {
        match text.split_once(':') {
            None if text == "rc" => Ok(Transport::Rc),
            None if text == "sr" => Ok(Transport::Sr { window: None }),
            Some(("sr", window)) => match window.parse() {
                Ok(packets) if (MIN_WINDOW..=MAX_WINDOW).contains(&packets) => {
                    Ok(Transport::Sr { window: Some(packets) })
                }
                _ => Err(TransportError::Window(window.into())),
            },
            _ => Err(TransportError::Unknown(text.into())),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transport::Rc => f.write_str("rc"),
            Transport::Sr { window: None } => f.write_str("sr"),
            Transport::Sr { window: Some(packets) } => write!(f, "sr:{packets}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_as_text() {
        for text in ["rc", "sr", "sr:64", "sr:2097152"] {
            assert_eq!(text.parse::<Transport>().unwrap().to_string(), text);
        }
        for wrong in ["", "uc", "SR", "rc:5"] {
            assert_eq!(wrong.parse::<Transport>(), Err(TransportError::Unknown(wrong.into())));
        }
        for wrong in ["", "63", "2097153", "many", "-5"] {
            assert_eq!(format!("sr:{wrong}").parse::<Transport>(), Err(TransportError::Window(wrong.into())));
        }
    }
}
