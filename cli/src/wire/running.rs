//! Wires that run: `softnic wire list`, `softnic wire set`.

use std::io::{self, Write};
use std::path::Path;

use serde_json::{Value, json};
use softnic_fault_injector::Spec;
use softnic_runtime::api::RunningNic;
use softnic_runtime::bump::RunningWire;

use crate::plain::plain;

/// A wire that answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) pid: u32,
    pub(crate) a: String,
    pub(crate) b: String,
    pub(crate) fault: String,
}

impl Listed {
    /// The wire whose status this is; `None` for that of a NIC.
    pub(crate) fn of(status: &Value) -> Option<Listed> {
        let text = |name: &str| status[name].as_str().map(plain);
        let pid = u32::try_from(status["pid"].as_u64()?).ok()?;
        Some(Listed { pid, a: text("a")?, b: text("b")?, fault: text("fault")? })
    }

    /// All wires of this network namespace that answer to this user.
    pub(crate) fn all() -> Result<Vec<Listed>, String> {
        let all = RunningNic::all().map_err(|e| format!("cannot read /proc/net/unix: {e}"))?;
        let statuses = all.into_iter().filter_map(|nic| nic.ask().ok());
        Ok(statuses.filter_map(|status| Listed::of(&serde_json::from_str(&status).ok()?)).collect())
    }
}

/// Shows them.
pub(super) fn list(as_json: bool) -> Result<(), String> {
    let wires = Listed::all()?;
    let mut out = String::new();
    for Listed { pid, a, b, fault } in &wires {
        out += &match as_json {
            true => format!("{}\n", json!({ "pid": pid, "a": a, "b": b, "fault": fault })),
            false => format!("{pid:>8}  {a} <-> {b}  {}\n", if fault.is_empty() { "no faults" } else { fault }),
        };
    }
    if wires.is_empty() && !as_json {
        return Err("no wire runs in this network namespace, or none of this user's".into());
    }
    match io::stdout().write_all(out.as_bytes()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot write the output: {e}")),
        _ => Ok(()),
    }
}

/// Gives a wire other faults: that of a process, or the only one there is.
pub(crate) fn set(pid: Option<u32>, spec: &str) -> Result<(), String> {
    // Said here, where the SPEC was written, and not by another process.
    let parsed: Spec = spec.parse().map_err(|e| format!("{e}"))?;
    parsed.check_link().map_err(|e| e.to_string())?;
    let wires = Listed::all()?;
    let named: Vec<&Listed> = wires.iter().filter(|wire| pid.is_none_or(|pid| pid == wire.pid)).collect();
    match (&named[..], pid) {
        ([wire], _) => RunningWire::of(wire.pid).set_faults(&absolute(spec)?).map_err(|e| e.to_string()),
        ([], Some(pid)) => Err(format!("process {pid} has no wire in this network namespace")),
        ([], None) => Err("no wire runs in this network namespace, or none of this user's".into()),
        (several, _) => {
            let all: Vec<String> = several.iter().map(|w| format!("{} ({} <-> {})", w.pid, w.a, w.b)).collect();
            Err(format!("several wires run: say --pid, one of {}", all.join(", ")))
        }
    }
}

/// The SPEC with whole names of its scripts: the wire was started in another folder.
pub(crate) fn absolute(spec: &str) -> Result<String, String> {
    let item = |item: &str| match item.trim().strip_prefix('@') {
        Some(file) => {
            let whole = std::path::absolute(Path::new(file)).map_err(|e| format!("{file}: {e}"))?;
            Ok(format!("@{}", whole.display()))
        }
        None => Ok(item.to_string()),
    };
    spec.split(',').map(item).collect::<Result<Vec<_>, String>>().map(|items| items.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_scripts_are_whole_for_a_wire_of_another_folder() {
        let here = std::env::current_dir().unwrap();
        assert_eq!(absolute("loss=1e-3,ba.delay=5ms").unwrap(), "loss=1e-3,ba.delay=5ms");
        let expected = format!("loss=0,@{}/drop.toml,@/etc/x.toml", here.display());
        assert_eq!(absolute("loss=0,@drop.toml,@/etc/x.toml").unwrap(), expected);
    }

    #[test]
    fn a_status_with_two_ends_is_a_wire() {
        let wire = json!({ "pid": 7, "nic": 0, "a": "eth1", "b": "e\u{1b}", "fault": "loss=1", "counters": {} });
        let expected = Listed { pid: 7, a: "eth1".into(), b: "e\\u001b".into(), fault: "loss=1".into() };
        assert_eq!(Listed::of(&wire), Some(expected));
        assert_eq!(Listed::of(&json!({ "pid": 7, "nic": 0, "counters": {} })), None);
    }
}
