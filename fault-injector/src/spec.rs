//! The fault SPEC of the command line: `loss=1e-4,reorder=1e-3:3`.

use std::str::FromStr;

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// Each frame is lost with this probability, by itself.
    Loss(f64),
    /// Each frame comes twice with this probability.
    Duplicate(f64),
    /// A bit of each frame is flipped with this probability.
    Corrupt(f64),
    /// Each frame is held with this probability until later ones have passed.
    Reorder {
        /// The probability.
        chance: f64,
        /// How many later ones.
        behind: u32,
    },
}

impl Fault {
    /// The probability that it happens to a frame.
    pub const fn chance(&self) -> f64 {
        match *self {
            Fault::Loss(p) | Fault::Duplicate(p) | Fault::Corrupt(p) | Fault::Reorder { chance: p, .. } => p,
        }
    }
}

/// A list of faults.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Spec {
    /// In the order given.
    pub faults: Vec<Fault>,
}

/// Why a SPEC was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Something without `=`.
    #[error("'{0}' is no fault: write KEY=VALUE, e.g. loss=1e-4")]
    NoValue(String),
    /// A key that no fault has.
    #[error("there is no fault '{0}'; this version knows loss=P, dup=P, corrupt=P and reorder=P:N")]
    UnknownKey(String),
    /// A value that the key does not take.
    #[error("'{value}' is no value for {key}: {why}")]
    BadValue {
        /// The key.
        key: &'static str,
        /// What was given.
        value: String,
        /// What it takes.
        why: &'static str,
    },
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(s: &str) -> Result<Spec, SpecError> {
        let parts = s.split(',').map(str::trim).filter(|p| !p.is_empty());
        Ok(Spec { faults: parts.map(parse_fault).collect::<Result<_, _>>()? })
    }
}

fn parse_fault(part: &str) -> Result<Fault, SpecError> {
    let (key, value) = part.split_once('=').ok_or_else(|| SpecError::NoValue(part.into()))?;
    match key {
        "loss" => Ok(Fault::Loss(chance("loss", value)?)),
        "dup" => Ok(Fault::Duplicate(chance("dup", value)?)),
        "corrupt" => Ok(Fault::Corrupt(chance("corrupt", value)?)),
        "reorder" => {
            let why = "a probability and a number of frames, e.g. 1e-3:3";
            let bad = || SpecError::BadValue { key: "reorder", value: value.into(), why };
            let (p, behind) = value.split_once(':').ok_or_else(bad)?;
            let behind = behind.parse().ok().filter(|n| (1..=1000).contains(n)).ok_or_else(bad)?;
            Ok(Fault::Reorder { chance: chance("reorder", p)?, behind })
        }
        other => Err(SpecError::UnknownKey(other.into())),
    }
}

fn chance(key: &'static str, value: &str) -> Result<f64, SpecError> {
    match value.parse::<f64>() {
        Ok(p) if (0.0..=1.0).contains(&p) => Ok(p),
        _ => Err(SpecError::BadValue { key, value: value.into(), why: "a probability from 0 to 1, e.g. 1e-4" }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_read_or_refused_with_a_reason() {
        assert_eq!("loss=1e-4".parse(), Ok(Spec { faults: vec![Fault::Loss(1e-4)] }));
        assert_eq!("".parse(), Ok(Spec::default()));
        let error = |s: &str| s.parse::<Spec>().unwrap_err().to_string();
        assert_eq!(error("loss"), "'loss' is no fault: write KEY=VALUE, e.g. loss=1e-4");
        let all = "loss=1e-4,dup=0.5,corrupt=0,reorder=1e-3:3".parse::<Spec>().unwrap();
        assert_eq!(
            all.faults[1..],
            [Fault::Duplicate(0.5), Fault::Corrupt(0.0), Fault::Reorder { chance: 1e-3, behind: 3 }]
        );
        assert!(error("los=1").starts_with("there is no fault 'los'; this version knows loss=P"));
        assert!(error("reorder=0.1").contains("e.g. 1e-3:3") && error("reorder=0.1:0").contains("1e-3:3"));
        assert_eq!(error("loss=2"), "'2' is no value for loss: a probability from 0 to 1, e.g. 1e-4");
        assert!(error("loss=nan").contains("probability"));
    }
}
