//! How RC queue pairs recover from loss, as programs wish it: by the standard, or by what the peer has to agree to.

use std::fmt;
use std::str::FromStr;

use softnic_nic::transports::lowar::{Code, CodeError};
use softnic_nic::transports::sr::{MAX_WINDOW, SrConfig};

/// The shortest window of Selective Repeat, in packets.
const MIN_WINDOW: u32 = 64;

/// The blocks of LoWAR where nobody says which: one repair packet behind 32 packets, three percent more on the wire.
const USUAL_CODE: Code = Code::new(32, 1).unwrap();

/// What RC queue pairs recover from loss by. As text `rc`, `sr`, or `sr:PACKETS` with a window; `lowar:R,C`, or `lowar` for 32,1.
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
    /// LoWAR where the peer has it: repair packets behind the blocks of each message, and the standard for what they do not repair. Its
    /// packets are longer: the link's MTU must be at least the path MTU and 120 more at both ends.
    Lowar(Code),
}

impl Transport {
    /// Its name, without what is chosen of it.
    pub fn name(self) -> &'static str {
        match self {
            Transport::Rc => "rc",
            Transport::Sr { .. } => "sr",
            Transport::Lowar(_) => "lowar",
        }
    }

    /// Selective Repeat as the NIC's queue pairs are made with it, on a line of this rate in bits a second.
    pub(super) fn sr(self, rate: u64) -> Option<SrConfig> {
        match self {
            Transport::Sr { window } => Some(SrConfig { window: window.unwrap_or(SrConfig::default().window), rate }),
            Transport::Rc | Transport::Lowar(_) => None,
        }
    }

    /// LoWAR as they are made with it.
    pub(super) fn lowar(self) -> Option<Code> {
        match self {
            Transport::Lowar(code) => Some(code),
            Transport::Rc | Transport::Sr { .. } => None,
        }
    }
}

/// Why a text names no transport.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// None has that name.
    #[error("there is no transport `{0}`: it must be rc, sr, sr:PACKETS or lowar:R,C")]
    Unknown(String),
    /// The window is none.
    #[error("`{0}` is no window of sr: it must be a number of packets from {MIN_WINDOW} to {MAX_WINDOW}")]
    Window(String),
    /// The blocks are none.
    #[error(transparent)]
    Code(#[from] CodeError),
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
            None if text == "lowar" => Ok(Transport::Lowar(USUAL_CODE)),
            Some(("lowar", code)) => Ok(Transport::Lowar(code.parse()?)),
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
            Transport::Lowar(code) => write!(f, "lowar:{code}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transports_as_text() {
        for text in ["rc", "sr", "sr:64", "sr:2097152", "lowar:32,1", "lowar:1,1", "lowar:255,64"] {
            assert_eq!(text.parse::<Transport>().unwrap().to_string(), text);
        }
        for wrong in ["", "uc", "SR", "rc:5", "lowars", "xp"] {
            assert_eq!(wrong.parse::<Transport>(), Err(TransportError::Unknown(wrong.into())));
        }
        assert_eq!("lowar".parse(), Ok(Transport::Lowar(Code::new(32, 1).unwrap())));
        for wrong in ["", "0,1", "8,0", "8,9", "256,1", "255,65", "x", "8", "8,2,1", "-8,2"] {
            let error = format!("lowar:{wrong}").parse::<Transport>().unwrap_err();
            assert!(matches!(error, TransportError::Code(_)), "{wrong}: {error}");
            assert!(error.to_string().starts_with(&format!("`{wrong}` are no blocks of lowar")), "{error}");
        }
        for wrong in ["", "63", "2097153", "many", "-5"] {
            assert_eq!(format!("sr:{wrong}").parse::<Transport>(), Err(TransportError::Window(wrong.into())));
        }
    }
}
