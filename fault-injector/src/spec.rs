//! The fault SPEC of the command line: `loss=1e-4,reorder=1e-3:3,@script.toml`.

use std::fs::File;
use std::io::Read;
use std::str::FromStr;

use crate::script::{Script, ScriptError};

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
    /// Random faults, in the order given.
    pub faults: Vec<Fault>,
    /// Targeted events: those of all files, in the order given.
    pub script: Script,
}

/// Bytes that a script may have: who names a capture or a device by mistake is told so at once.
const MAX_SCRIPT: u64 = 1 << 20;

/// Why a SPEC was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SpecError {
    /// Something without `=`.
    #[error("'{0}' is no fault: write KEY=VALUE, e.g. loss=1e-4, or @FILE for a script")]
    NoValue(String),
    /// A key that no fault has.
    #[error("there is no fault '{0}'; this version knows loss=P, dup=P, corrupt=P, reorder=P:N and @FILE")]
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
    /// A script that cannot be read.
    #[error("{file}: {why}")]
    Unreadable {
        /// Its name.
        file: String,
        /// What the system says.
        why: String,
    },
    /// A script that is not understood.
    #[error("{file}: {why}")]
    Script {
        /// Its name.
        file: String,
        /// Where and why.
        why: ScriptError,
    },
}

/// From what a person wrote; files that it names are read.
impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(s: &str) -> Result<Spec, SpecError> {
        let mut spec = Spec::default();
        for part in s.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            match part.strip_prefix('@') {
                Some(file) => spec.script.events.extend(read_script(file)?.events),
                None => spec.faults.push(parse_fault(part)?),
            }
        }
        Ok(spec)
    }
}

fn read_script(file: &str) -> Result<Script, SpecError> {
    if file.is_empty() {
        return Err(SpecError::NoValue("@".into()));
    }
    let unreadable = |why: String| SpecError::Unreadable { file: file.into(), why };
    let mut text = String::new();
    let read = File::open(file).and_then(|f| f.take(MAX_SCRIPT + 1).read_to_string(&mut text));
    if read.map_err(|e| unreadable(e.to_string()))? as u64 > MAX_SCRIPT {
        return Err(unreadable("more than 1 MiB is no script".into()));
    }
    Script::parse(&text).map_err(|why| SpecError::Script { file: file.into(), why })
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
        assert_eq!("loss=1e-4".parse(), Ok(Spec { faults: vec![Fault::Loss(1e-4)], ..Spec::default() }));
        assert_eq!("".parse(), Ok(Spec::default()));
        let error = |s: &str| s.parse::<Spec>().unwrap_err().to_string();
        assert_eq!(error("loss"), "'loss' is no fault: write KEY=VALUE, e.g. loss=1e-4, or @FILE for a script");
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
    #[test]
    fn scripts_are_read_from_files_beside_other_faults() {
        let path = |name: &str| std::env::temp_dir().join(format!("softnic-spec-{}-{name}", std::process::id()));
        let write = |name: &str, text: &str| {
            std::fs::write(path(name), text).unwrap();
            path(name).to_str().unwrap().to_owned()
        };
        let drop = write("drop.toml", "[[event]]\naction = \"drop\"\nnth = 3");
        let dup = write("dup.toml", "[[event]]\naction = \"duplicate\"");
        let wrong = write("wrong.toml", "[[event]]\naction = \"drop\"\nnth = 0");
        let large = write("large.toml", &"#\n".repeat(1 << 20));
        let spec: Spec = format!("@{drop}, loss=0.5 ,@{dup}").parse().unwrap();
        assert_eq!(spec.faults, [Fault::Loss(0.5)]);
        let events = [&drop, &dup].map(|f| Script::parse(&std::fs::read_to_string(f).unwrap()).unwrap().events);
        assert_eq!(spec.script.events, events.concat());
        let error = |s: String| s.parse::<Spec>().unwrap_err().to_string();
        assert_eq!(
            error(format!("@{wrong}")),
            format!("{wrong}: event 1: nth: it cannot be 0: write a whole number, at least 1")
        );
        assert_eq!(error(format!("loss=0.1,@{large}")), format!("{large}: more than 1 MiB is no script"));
        assert!(error("@/no/such.toml".into()).starts_with("/no/such.toml: No such file"));
        assert!(error("@".into()).starts_with("'@' is no fault"));
        for file in [drop, dup, wrong, large] {
            std::fs::remove_file(file).unwrap();
        }
    }
}
