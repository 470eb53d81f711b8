//! The list of transports: their names, their settings as text, and the kind of queue pair that a program sees.

use std::fmt;
use std::str::FromStr;

use softnic_wire::mad::vendor::Extensions;

use crate::lowar::{self, Code, CodeError};
use crate::qp::QpKind;
use crate::sr::{DEFAULT_WINDOW, MAX_WINDOW, MIN_WINDOW};
use crate::xp::{self, XpSettings, XpSettingsError};

/// The default coding blocks of LoWAR: one repair packet after 32 packets, three percent more on the wire.
const DEFAULT_CODE: Code = Code::new(32, 1).unwrap();

/// A transport with its settings. As text `rc`, `sr` or `sr:PACKETS`, `lowar` or `lowar:R,C`, `xp` or `xp:SETTINGS`, `uc`, `ud`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Transport {
    /// Reliable connection with the standard's Go-Back-N.
    #[default]
    Rc,
    /// Reliable connection with Selective Repeat if the peer supports it, else the standard.
    Sr {
        /// Maximum number of packets from the oldest missing one to the newest.
        window: u32,
    },
    /// Reliable connection with LoWAR if the peer supports it: repair packets after each block of a message, and the standard for losses
    /// that they cannot repair. The link MTU must be at least the path MTU plus 120 at both ends.
    Lowar(Code),
    /// Best effort with deadlines (OptiNIC) if the peer supports it, else the standard.
    Xp(XpSettings),
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

/// A transport in help texts.
struct Listed {
    name: &'static str,
    syntax: &'static str,
    about: &'static str,
}

const LIST: &[Listed] = &[
    Listed { name: "rc", syntax: "rc", about: "reliable connection (RC): Go-Back-N, standard" },
    Listed { name: "sr", syntax: "sr[:PACKETS]", about: "RC: Selective Repeat, window [default: 16384]" },
    Listed { name: "lowar", syntax: "lowar[:R,C]", about: "RC: C repair packets behind R [default: 32,1]" },
    Listed { name: "xp", syntax: "xp[:K=V,..]", about: "best effort with deadlines, see docs/xp.md" },
    Listed { name: "uc", syntax: "uc", about: "unreliable connection" },
    Listed { name: "ud", syntax: "ud", about: "unreliable datagram" },
];

impl Transport {
    /// Selective Repeat with its default window.
    pub const SR: Transport = Transport::Sr { window: DEFAULT_WINDOW };

    /// LoWAR with its default coding blocks.
    pub const LOWAR: Transport = Transport::Lowar(DEFAULT_CODE);

    /// XP with its default settings.
    pub const XP: Transport = Transport::Xp(XpSettings::DEFAULT);

    /// Every transport, with its default settings.
    pub fn all() -> impl Iterator<Item = Transport> {
        LIST.iter().filter_map(|l| l.name.parse().ok())
    }

    /// For help texts: the transports accepted by `included`, one per line, each with its settings.
    pub fn help(included: impl Fn(Transport) -> bool) -> String {
        let width = listed(&included).map(|l| l.syntax.len()).max().unwrap_or(0);
        let entry = |l: &Listed| format!("  {:width$}  {}", l.syntax, l.about);
        listed(&included).map(entry).collect::<Vec<_>>().join("\n")
    }

    /// For error texts: as [`Transport::help`], on one line, without descriptions.
    pub fn choices(included: impl Fn(Transport) -> bool) -> String {
        listed(included).map(|l| l.syntax).collect::<Vec<_>>().join(", ")
    }

    /// The name, without settings.
    pub fn name(self) -> &'static str {
        LIST[self.place()].name
    }

    fn place(self) -> usize {
        match self {
            Transport::Rc => 0,
            Transport::Sr { .. } => 1,
            Transport::Lowar(_) => 2,
            Transport::Xp(_) => 3,
            Transport::Uc => 4,
            Transport::Ud => 5,
        }
    }

    /// The standard's transport of a kind of queue pair.
    pub const fn standard(kind: QpKind) -> Transport {
        match kind {
            QpKind::Rc => Transport::Rc,
            QpKind::Uc => Transport::Uc,
            QpKind::Ud | QpKind::Gsi => Transport::Ud,
        }
    }

    /// The kind of queue pair that a program creates to use it.
    pub const fn kind(self) -> QpKind {
        match self {
            Transport::Rc | Transport::Sr { .. } | Transport::Lowar(_) => QpKind::Rc,
            Transport::Xp(settings) => settings.kind(),
            Transport::Uc => QpKind::Uc,
            Transport::Ud => QpKind::Ud,
        }
    }

    /// Whether it delivers every message or reports an error.
    pub const fn is_reliable(self) -> bool {
        matches!(self, Transport::Rc | Transport::Sr { .. } | Transport::Lowar(_))
    }

    /// The extension that the peer must agree to; [`Extensions::NONE`] for a transport of the standard.
    pub const fn extension(self) -> Extensions {
        match self {
            Transport::Sr { .. } => Extensions::SR,
            Transport::Lowar(_) => Extensions::LOWAR,
            Transport::Xp(_) => Extensions::XP,
            Transport::Rc | Transport::Uc | Transport::Ud => Extensions::NONE,
        }
    }

    /// Whether it supports RDMA WRITE; every transport supports SEND.
    pub const fn has_write(self) -> bool {
        self.kind().is_connected()
    }

    /// Whether it supports RDMA READ.
    pub const fn has_read(self) -> bool {
        matches!(self.kind(), QpKind::Rc)
    }

    /// Whether it supports atomics.
    pub const fn has_atomics(self) -> bool {
        self.is_reliable()
    }

    /// Whether work requests have deadlines, and may complete in part.
    pub const fn is_bounded(self) -> bool {
        matches!(self, Transport::Xp(_))
    }

    /// The variant of this transport for a queue pair of this kind, if there is one: XP exists for RC and UC.
    pub const fn for_kind(self, kind: QpKind) -> Transport {
        match (self, kind) {
            (Transport::Xp(settings), QpKind::Rc) => Transport::Xp(settings.with_uc(false)),
            (Transport::Xp(settings), QpKind::Uc) => Transport::Xp(settings.with_uc(true)),
            (_, QpKind::Rc) if matches!(self.kind(), QpKind::Rc) => self,
            _ => Transport::standard(kind),
        }
    }

    /// Whether congestion control determines its send rate.
    pub const fn has_congestion_control(self) -> bool {
        self.kind().is_connected()
    }

    /// Whether its packets can wait for credit of the receiver (EQDS). LoWAR's cannot: a credit packet does not fit into its blocks.
    pub const fn has_credit(self) -> bool {
        matches!(self, Transport::Rc | Transport::Sr { .. } | Transport::Xp(_))
    }

    /// Whether the last byte of a WRITE is placed only after all other bytes.
    pub const fn places_in_order(self) -> bool {
        !matches!(self, Transport::Sr { .. } | Transport::Xp(_))
    }

    /// The MTU that a link needs for this path MTU, if the transport's packets need more than those of the standard.
    pub const fn link_mtu(self, path_mtu: u32) -> Option<u32> {
        match self {
            Transport::Lowar(_) => Some(lowar::link_mtu(path_mtu)),
            Transport::Xp(_) => Some(xp::link_mtu(path_mtu)),
            _ => None,
        }
    }

    /// Parses a transport of RC queue pairs, for programs that choose among RC, UC and UD queue pairs by themselves.
    ///
    /// # Errors
    /// When the text names no transport, or one of UC or UD queue pairs.
    pub fn parse_rc(text: &str) -> Result<Transport, TransportError> {
        let transport: Transport = text.parse()?;
        match transport.kind() {
            QpKind::Rc => Ok(transport),
            _ => Err(TransportError::NotRc(transport)),
        }
    }

    /// Parses several transports separated by commas, each at most once; a name may contain a comma (`lowar:32,1`).
    pub fn parse_list(text: &str) -> Result<Vec<Transport>, TransportError> {
        let mut transports = Vec::new();
        let mut parts = text.split(',').map(str::trim).peekable();
        while let Some(part) = parts.next() {
            let mut name = part.to_owned();
            while let Some(more) = parts.next_if(|p| is_setting(p)) {
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

/// Whether a part of a list belongs to the name before it: it starts with a digit, or is a setting of xp.
fn is_setting(part: &str) -> bool {
    part.starts_with(|c: char| c.is_ascii_digit()) || part.contains('=') && !part.contains(':')
}

fn listed(included: impl Fn(Transport) -> bool) -> impl Iterator<Item = &'static Listed> {
    LIST.iter().filter(move |l| l.name.parse().is_ok_and(&included))
}

/// Why a text is not a transport.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// No transport has this name.
    #[error("there is no transport `{0}`: choose from {choices}", choices = Transport::choices(|_| true))]
    Unknown(String),
    /// The window of Selective Repeat is out of range.
    #[error("`{0}` is no window of sr: it must be a number of packets from {MIN_WINDOW} to {MAX_WINDOW}")]
    Window(String),
    /// The coding blocks of LoWAR are out of range.
    #[error(transparent)]
    Code(#[from] CodeError),
    /// A setting of XP is not valid.
    #[error(transparent)]
    Xp(#[from] XpSettingsError),
    /// The transport is one of UC or UD queue pairs, but one of RC queue pairs is required.
    #[error(
        "{0} is no transport of RC queue pairs, and the program itself chooses between RC, UC and UD: choose from {choices}",
        choices = Transport::choices(|t| t.kind() == QpKind::Rc)
    )]
    NotRc(Transport),
    /// A list names a transport more than once.
    #[error("{0} is there twice")]
    Twice(Transport),
}

impl FromStr for Transport {
    type Err = TransportError;

    /// Case-insensitive; `gbn`, for Go-Back-N, is another name of `rc`.
    fn from_str(text: &str) -> Result<Transport, TransportError> {
        let lower = text.to_ascii_lowercase();
        match lower.split_once(':') {
            None => match lower.as_str() {
                "rc" | "gbn" => Ok(Transport::Rc),
                "sr" => Ok(Transport::SR),
                "lowar" => Ok(Transport::LOWAR),
                "xp" => Ok(Transport::XP),
                "uc" => Ok(Transport::Uc),
                "ud" => Ok(Transport::Ud),
                _ => Err(TransportError::Unknown(text.into())),
            },
            Some(("sr", window)) => match window.parse() {
                Ok(window) if (MIN_WINDOW..=MAX_WINDOW).contains(&window) => Ok(Transport::Sr { window }),
                _ => Err(TransportError::Window(window.into())),
            },
            Some(("lowar", code)) => Ok(Transport::Lowar(code.parse()?)),
            Some(("xp", settings)) => Ok(Transport::Xp(settings.parse()?)),
            Some(_) => Err(TransportError::Unknown(text.into())),
        }
    }
}

/// The shortest text that parses to this transport.
impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transport::Sr { window } if *window != DEFAULT_WINDOW => write!(f, "sr:{window}"),
            Transport::Lowar(code) => write!(f, "lowar:{code}"),
            Transport::Xp(settings) if *settings != XpSettings::DEFAULT => write!(f, "xp:{settings}"),
            _ => f.write_str(self.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_is_read_back_from_its_text() {
        for text in [
            "rc",
            "sr",
            "sr:64",
            "sr:2097152",
            "lowar:32,1",
            "lowar:1,1",
            "lowar:255,64",
            "xp",
            "xp:uc,tail=2",
            "uc",
            "ud",
        ] {
            assert_eq!(text.parse::<Transport>().unwrap().to_string(), text);
        }
        assert_eq!("lowar".parse(), Ok(Transport::Lowar(Code::new(32, 1).unwrap())));
        assert_eq!("sr:16384".parse(), Ok(Transport::SR));
        assert_eq!(("gbn".parse(), "SR".parse()), (Ok(Transport::Rc), Ok(Transport::SR)));
        assert_eq!("LoWAR:32,1".parse(), "lowar".parse::<Transport>());
    }

    #[test]
    fn every_transport_is_listed_under_its_own_name() {
        for listed in LIST {
            let transport: Transport = listed.name.parse().unwrap();
            assert_eq!(transport.name(), listed.name);
            assert_eq!(listed.syntax.split('[').next(), Some(listed.name));
            assert!(Transport::help(|_| true).contains(listed.about));
        }
        assert_eq!(Transport::all().count(), LIST.len());
    }

    #[test]
    fn help_texts_have_a_short_line_for_each_transport() {
        let help = Transport::help(|_| true);
        assert_eq!(help.lines().count(), LIST.len());
        // clap assumes 100 columns if it does not know the terminal, and indents by up to 38.
        assert!(help.lines().all(|line| line.len() <= 62), "{help}");
        let reliable: Vec<String> = Transport::help(Transport::is_reliable).lines().map(str::to_owned).collect();
        assert_eq!(reliable.len(), 3);
        assert!(reliable[2].starts_with("  lowar[:R,C]   RC: "), "{}", reliable[2]);
        let (sr, lowar) = (format!("default: {DEFAULT_WINDOW}"), format!("default: {DEFAULT_CODE}"));
        assert!(reliable[1].contains(&sr) && reliable[2].contains(&lowar), "{help}");
    }

    #[test]
    fn a_program_that_chooses_the_kind_of_queue_pair_is_told_which_transports_rc_has() {
        assert_eq!(Transport::parse_rc("sr:64"), Ok(Transport::Sr { window: 64 }));
        assert_eq!(Transport::parse_rc("uc"), Err(TransportError::NotRc(Transport::Uc)));
        let error = Transport::parse_rc("ud").unwrap_err().to_string();
        assert!(error.starts_with("ud is no transport of RC queue pairs"), "{error}");
        assert!(error.ends_with("choose from rc, sr[:PACKETS], lowar[:R,C], xp[:K=V,..]"), "{error}");
    }

    #[test]
    fn a_text_that_names_no_transport_is_told_which_there_are() {
        for wrong in ["", "rc:5", "gbn:1", "lowars", "xq", "uc:1"] {
            let error = wrong.parse::<Transport>().unwrap_err();
            assert_eq!(error, TransportError::Unknown(wrong.into()));
            assert!(
                error.to_string().ends_with("choose from rc, sr[:PACKETS], lowar[:R,C], xp[:K=V,..], uc, ud"),
                "{error}"
            );
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
        let list = Transport::parse_list("xp,xp:active=1ms,tail=2,uc").unwrap();
        let xp = "xp:active=1ms,tail=2".parse().unwrap();
        assert_eq!(list, [Transport::XP, xp, Transport::Uc]);
        for (wrong, why) in [
            ("", "there is no transport ``"),
            ("rc,xq", "there is no transport `xq`"),
            ("xp:tail=0,rc", "from 1 to 16"),
            ("lowar:32", "`32` are no blocks of lowar"),
            ("lowar:32,sr", "`32` are no blocks of lowar"),
            ("rc,sr,rc", "rc is there twice"),
        ] {
            let error = Transport::parse_list(wrong).unwrap_err().to_string();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }
}
