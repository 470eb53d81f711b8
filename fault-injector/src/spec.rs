//! The fault SPEC of the command line: `loss=1e-4`.

use std::str::FromStr;

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fault {
    /// Each frame is lost with this probability, by itself.
    Loss(f64),
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
    #[error("there is no fault '{0}'; this version knows loss=P")]
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
        "loss" => match value.parse::<f64>() {
            Ok(p) if (0.0..=1.0).contains(&p) => Ok(Fault::Loss(p)),
            _ => Err(SpecError::BadValue {
                key: "loss",
                value: value.into(),
                why: "a probability from 0 to 1, e.g. 1e-4",
            }),
        },
        other => Err(SpecError::UnknownKey(other.into())),
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
        assert_eq!(error("los=1"), "there is no fault 'los'; this version knows loss=P");
        assert_eq!(error("loss=2"), "'2' is no value for loss: a probability from 0 to 1, e.g. 1e-4");
        assert!(error("loss=nan").contains("probability"));
    }
}
