//! The schemes of this crate by their names: how what is lost comes again.

use std::fmt;
use std::str::FromStr;

use softnic_codes::{Code, CodeError, Family};
use softnic_wire::sdr::SdrSettings;

/// How what is lost comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Selective Repeat by timeouts (SDR-RDMA §4.1.1): a chunk that is not acknowledged in time is sent again.
    Sr,
    /// The receiver asks for what is missing as soon as later chunks tell of it; timeouts stay behind that.
    Nack,
    /// Parity is sent along, and repairs most losses without asking (§4.1.2); the rest is sent again.
    Ec(Protection),
}

/// Parity of a message: each k chunks are a submessage with up to m chunks of parity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Protection {
    /// The kind of code.
    pub family: Family,
    /// Data chunks of a submessage.
    pub k: u8,
    /// Its parity chunks.
    pub m: u8,
    /// So many submessages together: each has parity of every so manieth chunk of them, so that a burst of losses falls on many. 1 is off.
    pub interleave: u8,
}

impl Protection {
    /// Parity by a code of this family, of k data and m parity chunks.
    pub fn new(family: Family, k: usize, m: usize) -> Result<Protection, CodeError> {
        Code::new(family, k, m)?;
        match (u8::try_from(k), u8::try_from(m)) {
            (Ok(k), Ok(m)) => Ok(Protection { family, k, m, interleave: 1 }),
            _ => Err(CodeError::TooMany { k, m }),
        }
    }

    /// Further rows of parity that a receiver may ask for of each submessage: as many again, as far as the code has them.
    pub(super) fn spare(&self) -> u32 {
        match self.family {
            Family::Xor => 0,
            Family::Mds => u32::from(self.m).min(256 - u32::from(self.k) - u32::from(self.m)),
        }
    }
}

/// A name that is none of a scheme.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemeError {
    /// There is no such scheme.
    #[error("'{0}' is none of sdr-sr, sdr-nack, sdr-ec:K,M[,I] and sdr-xor:K,M[,I]")]
    Name(String),
    /// The code cannot be.
    #[error("{0}: {1}")]
    Code(String, CodeError),
}

impl Scheme {
    /// What the negotiation says of it.
    pub fn settings(self) -> SdrSettings {
        let (scheme, parameters) = match self {
            Scheme::Sr => (1, [0; 3]),
            Scheme::Nack => (2, [0; 3]),
            Scheme::Ec(Protection { family: Family::Mds, k, m, interleave }) => (3, [k, m, interleave]),
            Scheme::Ec(Protection { family: Family::Xor, k, m, interleave }) => (4, [k, m, interleave]),
        };
        SdrSettings { scheme, parameters }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scheme::Sr => f.pad("sdr-sr"),
            Scheme::Nack => f.pad("sdr-nack"),
            Scheme::Ec(Protection { family, k, m, interleave }) => {
                let name = match family {
                    Family::Mds => "ec",
                    Family::Xor => "xor",
                };
                match interleave {
                    0 | 1 => f.pad(&format!("sdr-{name}:{k},{m}")),
                    _ => f.pad(&format!("sdr-{name}:{k},{m},{interleave}")),
                }
            }
        }
    }
}

impl FromStr for Scheme {
    type Err = SchemeError;

    fn from_str(s: &str) -> Result<Scheme, SchemeError> {
        let name = || SchemeError::Name(s.into());
        let (family, rest) = match s {
            "sdr-sr" => return Ok(Scheme::Sr),
            "sdr-nack" => return Ok(Scheme::Nack),
            _ => [("sdr-ec:", Family::Mds), ("sdr-xor:", Family::Xor)]
                .into_iter()
                .find_map(|(prefix, family)| Some((family, s.strip_prefix(prefix)?)))
                .ok_or_else(name)?,
        };
        let number = |text: &str| text.parse::<usize>().map_err(|_| name());
        let numbers = rest.split(',').map(number).collect::<Result<Vec<_>, _>>()?;
        let (k, m, interleave) = match numbers[..] {
            [k, m] => (k, m, 1),
            [k, m, interleave @ 1..=255] => (k, m, interleave as u8),
            _ => return Err(name()),
        };
        let protection = Protection::new(family, k, m).map_err(|error| SchemeError::Code(s.into(), error))?;
        Ok(Scheme::Ec(Protection { interleave, ..protection }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scheme_is_named_as_it_is_written() {
        for name in ["sdr-sr", "sdr-nack", "sdr-ec:32,8", "sdr-xor:1,0", "sdr-ec:255,1", "sdr-ec:32,8,4"] {
            assert_eq!(name.parse::<Scheme>().unwrap().to_string(), name);
        }
        assert_eq!(
            "sdr-xor:32,8".parse::<Scheme>().unwrap().settings(),
            SdrSettings { scheme: 4, parameters: [32, 8, 1] }
        );
        for wrong in [
            "sdr",
            "sdr-ec",
            "sdr-ec:32",
            "sdr-ec:a,b",
            "sdr-ec:32,8,0",
            "sdr-ec:32,8,256",
            "sdr-ec:1,2,3,4",
            "sdr-xor:-1,2",
        ] {
            assert!(matches!(wrong.parse::<Scheme>(), Err(SchemeError::Name(_))), "{wrong}");
        }
        for wrong in ["sdr-ec:0,8", "sdr-ec:200,57", "sdr-xor:256,0"] {
            assert!(matches!(wrong.parse::<Scheme>(), Err(SchemeError::Code(..))), "{wrong}");
        }
    }
}
