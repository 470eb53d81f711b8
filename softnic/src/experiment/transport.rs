//! The transports that an experiment races, and how a list of them is written.

use std::fmt;
use std::str::FromStr;

use softnic_sim::Options;
use softnic_transports::lowar::Code;

use crate::perf::plan;

/// A reliable transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Go-Back-N, the standard.
    Rc,
    /// Selective Repeat.
    Sr,
    /// Forward error correction: packets of a coding block, and repair packets for it.
    Lowar(u8, u8),
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Transport::Rc => f.write_str("rc"),
            Transport::Sr => f.write_str("sr"),
            Transport::Lowar(r, c) => write!(f, "lowar:{r},{c}"),
        }
    }
}

impl Transport {
    /// The same run over this transport.
    pub(super) fn on(self, options: Options) -> Result<Options, String> {
        match self {
            Transport::Rc => Ok(options),
            Transport::Sr => Ok(options.over_wide_sr()),
            Transport::Lowar(r, c) => match Code::new(r, c) {
                Some(code) => Ok(Options { transport: softnic_transports::Transport::Lowar(code), ..options }),
                None => Err(format!("there is no {self}")),
            },
        }
    }

    /// What `softnic perf` calls it, and its blocks.
    pub(super) fn for_perf(self) -> (plan::Transport, Option<(u8, u8)>) {
        match self {
            Transport::Rc => (plan::Transport::Rc, None),
            Transport::Sr => (plan::Transport::Sr, None),
            Transport::Lowar(r, c) => (plan::Transport::Lowar, Some((r, c))),
        }
    }
}

/// Transports in the order given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Transports(pub(super) Vec<Transport>);

impl FromStr for Transports {
    type Err = String;

    /// Names with commas between them; `lowar:R,C` has one inside.
    fn from_str(s: &str) -> Result<Transports, String> {
        let mut parts = s.split(',').map(str::trim).peekable();
        let mut transports = Vec::new();
        while let Some(part) = parts.next() {
            let transport = match (part, part.strip_prefix("lowar:")) {
                ("rc", _) => Transport::Rc,
                ("sr", _) => Transport::Sr,
                ("lowar", _) => Transport::Lowar(32, 1),
                (_, Some(r)) => {
                    let c = parts.next().unwrap_or_default();
                    lowar(r, c).ok_or_else(|| format!("'{part},{c}' is no lowar:R,C, as in lowar:32,1"))?
                }
                _ => return Err(format!("there is no transport '{part}': choose from rc, sr, lowar:R,C")),
            };
            if transports.contains(&transport) {
                return Err(format!("{transport} is there twice"));
            }
            transports.push(transport);
        }
        Ok(Transports(transports))
    }
}

fn lowar(r: &str, c: &str) -> Option<Transport> {
    let (r, c) = (r.parse().ok()?, c.parse().ok()?);
    Code::new(r, c).map(|code| Transport::Lowar(code.r(), code.c()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_with_the_comma_inside_of_a_name() {
        let list: Transports = "rc,lowar:32,1, sr,lowar:64,8".parse().unwrap();
        assert_eq!(list.0, [Transport::Rc, Transport::Lowar(32, 1), Transport::Sr, Transport::Lowar(64, 8)]);
        assert_eq!(list.0[3].to_string(), "lowar:64,8");
        assert_eq!("lowar".parse::<Transports>().unwrap().0, [Transport::Lowar(32, 1)], "as elsewhere");
    }

    #[test]
    fn what_is_no_transport_is_named() {
        for (list, why) in [
            ("rc,ud", "there is no transport 'ud'"),
            ("", "there is no transport ''"),
            ("lowar:32", "'lowar:32,' is no lowar:R,C"),
            ("lowar:32,sr", "'lowar:32,sr' is no lowar:R,C"),
            ("lowar:4,5", "'lowar:4,5' is no lowar:R,C"),
            ("lowar:0,0", "'lowar:0,0' is no lowar:R,C"),
            ("rc,sr,rc", "rc is there twice"),
        ] {
            let said = list.parse::<Transports>().unwrap_err();
            assert!(said.contains(why), "{list}: {said}");
        }
    }
}
