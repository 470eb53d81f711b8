//! The list of transports: their names, their settings as text, and which kind of queue pair each is to a program.

use std::fmt;
use std::str::FromStr;

use softnic_wire::mad::vendor::Extensions;

use crate::lowar::{Code, CodeError};
use crate::qp::QpKind;
use crate::sr::{DEFAULT_WINDOW, MAX_WINDOW, MIN_WINDOW};

/// The coding blocks of LoWAR where nobody says which: one repair packet behind 32 packets, three percent more on the wire.
const DEFAULT_CODE: Code = Code::new(32, 1).unwrap();

/// A transport with its settings. As text `rc`, `sr` or `sr:PACKETS`, `lowar` or `lowar:R,C`, `uc`, `ud`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Transport {
    /// Reliable connection with the standard's Go-Back-N.
    #[default]
    Rc,
    /// Reliable connection with Selective Repeat where the peer has it, else the standard.
    Sr {
        /// Packets from the oldest missing one to the newest, at most.
        window: u32,
    },
    /// Reliable connection with LoWAR where the peer has it: repair packets behind each block of a message, and the standard for
    /// the losses that they do not repair. The link's MTU must be at least the path MTU and 120 more at both ends.
    Lowar(Code),
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

/// A transport as help texts show it.
struct Listed {
    name: &'static str,
    syntax: &'static str,
    about: &'static str,
}

const LIST: [Listed; 5] = [
    Listed { name: "rc", syntax: "rc", about: "reliable connection with Go-Back-N, the standard" },
    Listed {
        name: "sr",
        syntax: "sr[:PACKETS]",
        about: "reliable connection with Selective Repeat; PACKETS is its window, 16384 by default",
    },
    Listed {
        name: "lowar",
        syntax: "lowar[:R,C]",
        about: "reliable connection with forward error correction: C repair packets behind each block of R packets, 32,1 by default",
    },
    Listed { name: "uc", syntax: "uc", about: "unreliable connection" },
    Listed { name: "ud", syntax: "ud", about: "unreliable datagram" },
];

impl Transport {
    /// The names, for the value of an option.
    pub const SYNTAX: &str = "rc|sr|lowar:R,C|uc|ud";

    /// Selective Repeat with its default window.
    pub const SR: Transport = Transport::Sr { window: DEFAULT_WINDOW };

    /// One sentence that lists the transports which `included` takes, for help texts.
    pub fn help(included: impl Fn(Transport) -> bool) -> String {
        let entry = |l: &Listed| format!("{} ({})", l.syntax, l.about);
        listed(&included).map(entry).collect::<Vec<_>>().join(", ")
    }

    /// Its name, without its settings.
    pub fn name(self) -> &'static str {
        LIST[self.place()].name
    }

    fn place(self) -> usize {
        match self {
            Transport::Rc => 0,
            Transport::Sr { .. } => 1,
            Transport::Lowar(_) => 2,
            Transport::Uc => 3,
            Transport::Ud => 4,
        }
    }

    /// The kind of queue pair that a program asks for to get it.
    pub const fn kind(self) -> QpKind {
        match self {
            Transport::Rc | Transport::Sr { .. } | Transport::Lowar(_) => QpKind::Rc,
            Transport::Uc => QpKind::Uc,
            Transport::Ud => QpKind::Ud,
        }
    }

    /// Whether it delivers every message or reports an error.
    pub const fn is_reliable(self) -> bool {
        matches!(self.kind(), QpKind::Rc)
    }

    /// The extension that the peer has to agree to; [`Extensions::NONE`] for a transport of the standard.
    pub const fn extension(self) -> Extensions {
        match self {
            Transport::Sr { .. } => Extensions::SR,
            Transport::Lowar(_) => Extensions::LOWAR,
            Transport::Rc | Transport::Uc | Transport::Ud => Extensions::NONE,
        }
    }

    /// Several transports with commas between them, each at most once; a name may have a comma inside (`lowar:32,1`).
    pub fn parse_list(text: &str) -> Result<Vec<Transport>, TransportError> {
        let mut transports = Vec::new();
        let mut parts = text.split(',').map(str::trim).peekable();
        while let Some(part) = parts.next() {
            // A part that begins with a digit belongs to the settings before it.
            let mut name = part.to_owned();
            while let Some(more) = parts.next_if(|p| p.starts_with(|c: char| c.is_ascii_digit())) {
                name = format!("{name},{more}");
            }
            let transport = name.parse()?;
            if transports.contains(&transport) {
                return Err(TransportError::Twice(transport));
            }
            transports.push(transport);
        }
        Ok(transports)
    }
}

fn listed(included: impl Fn(Transport) -> bool) -> impl Iterator<Item = &'static Listed> {
    LIST.iter().filter(move |l| l.name.parse().is_ok_and(&included))
}

/// The syntax of every transport, for error texts.
fn choices() -> String {
    listed(|_| true).map(|l| l.syntax).collect::<Vec<_>>().join(", ")
}

/// FallbackReason a text names no transport.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// No transport has that name.
    #[error("there is no transport `{0}`: choose from {choices}", choices = choices())]
    Unknown(String),
    /// The window of Selective Repeat is out of range.
    #[error("`{0}` is no window of sr: it must be a number of packets from {MIN_WINDOW} to {MAX_WINDOW}")]
    Window(String),
    /// The coding blocks of LoWAR are out of range.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// A list names a transport more than once.
    #[error("{0} is there twice")]
    Twice(Transport),
}

impl FromStr for Transport {
    type Err = TransportError;

    fn from_str(text: &str) -> Result<Transport, TransportError> {
        match text.split_once(':') {
            None => match text {
                "rc" => Ok(Transport::Rc),
                "sr" => Ok(Transport::SR),
                "lowar" => Ok(Transport::Lowar(DEFAULT_CODE)),
                "uc" => Ok(Transport::Uc),
                "ud" => Ok(Transport::Ud),
                _ => Err(TransportError::Unknown(text.into())),
            },
            Some(("sr", window)) => match window.parse() {
                Ok(window) if (MIN_WINDOW..=MAX_WINDOW).contains(&window) => Ok(Transport::Sr { window }),
                _ => Err(TransportError::Window(window.into())),
            },
            Some(("lowar", code)) => Ok(Transport::Lowar(code.parse()?)),
            Some(_) => Err(TransportError::Unknown(text.into())),
        }
    }
}

/// The text that parses to the same transport, as short as it can be.
impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transport::Sr { window } if *window != DEFAULT_WINDOW => write!(f, "sr:{window}"),
            Transport::Lowar(code) => write!(f, "lowar:{code}"),
            _ => f.write_str(self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_is_read_back_from_its_text() {
        for text in ["rc", "sr", "sr:64", "sr:2097152", "lowar:32,1", "lowar:1,1", "lowar:255,64", "uc", "ud"] {
            assert_eq!(text.parse::<Transport>().unwrap().to_string(), text);
        }
        assert_eq!("lowar".parse(), Ok(Transport::Lowar(Code::new(32, 1).unwrap())));
        assert_eq!("sr:16384".parse(), Ok(Transport::SR));
    }

    #[test]
    fn every_transport_is_listed_under_its_own_name() {
        for listed in &LIST {
            let transport: Transport = listed.name.parse().unwrap();
            assert_eq!(transport.name(), listed.name);
            assert!(Transport::SYNTAX.split('|').any(|s| s.split(':').next() == Some(listed.name)), "{}", listed.name);
            assert!(Transport::help(|_| true).contains(listed.about));
        }
        let reliable = Transport::help(Transport::is_reliable);
        assert!(reliable.contains("lowar[:R,C]") && !reliable.contains("uc ("), "{reliable}");
    }

    #[test]
    fn a_text_that_names_no_transport_is_told_which_there_are() {
        for wrong in ["", "SR", "rc:5", "lowars", "xp", "uc:1"] {
            let error = wrong.parse::<Transport>().unwrap_err();
            assert_eq!(error, TransportError::Unknown(wrong.into()));
            assert!(error.to_string().ends_with("choose from rc, sr[:PACKETS], lowar[:R,C], uc, ud"), "{error}");
        }
        for wrong in ["", "0,1", "8,0", "8,9", "256,1", "255,65", "x", "8", "8,2,1", "-8,2"] {
            let error = format!("lowar:{wrong}").parse::<Transport>().unwrap_err();
            assert!(error.to_string().starts_with(&format!("`{wrong}` are no blocks of lowar")), "{error}");
        }
        for wrong in ["", "63", "2097153", "many", "-5"] {
            assert_eq!(format!("sr:{wrong}").parse::<Transport>(), Err(TransportError::Window(wrong.into())));
        }
    }

    #[test]
    fn a_list_is_read_with_the_comma_inside_of_a_name() {
        let lowar = |r, c| Transport::Lowar(Code::new(r, c).unwrap());
        let list = Transport::parse_list("rc,lowar:32,1, sr,lowar:64,8").unwrap();
        assert_eq!(list, [Transport::Rc, lowar(32, 1), Transport::SR, lowar(64, 8)]);
        for (wrong, why) in [
            ("", "there is no transport ``"),
            ("rc,xp", "there is no transport `xp`"),
            ("lowar:32", "`32` are no blocks of lowar"),
            ("lowar:32,sr", "`32` are no blocks of lowar"),
            ("rc,sr,rc", "rc is there twice"),
        ] {
            let error = Transport::parse_list(wrong).unwrap_err().to_string();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }
}
