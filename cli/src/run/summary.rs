//! The counters of all processes that a program consisted of, and what they mean for the exit code.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::Path;

use serde_json::{Value, json};
use softnic_runtime::api::CountersByName;

use super::condition::Condition;
use crate::metrics::NicSample;
use crate::plain::plain;

/// What all processes counted on each device.
#[derive(Debug, Default)]
pub(crate) struct Summary {
    pub(crate) devices: BTreeMap<String, Counted>,
}

/// What they counted on one.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    pub(crate) description: String,
    /// Processes that opened it, in no order; each once.
    pub(crate) processes: Vec<u64>,
    pub(crate) counters: CountersByName,
}

impl Summary {
    /// Adds the files that the library wrote.
    pub(crate) fn read(folder: &Path) -> io::Result<Summary> {
        let mut summary = Summary::default();
        for entry in fs::read_dir(folder)? {
            // A process may have been killed before its first line.
            let text = fs::read_to_string(entry?.path())?;
            if let Some(Ok(value)) = text.lines().next().map(serde_json::from_str::<Value>) {
                summary.add(&value);
            }
        }
        Ok(summary)
    }

    fn add(&mut self, line: &Value) {
        let text = |name: &str| line[name].as_str().map(plain).unwrap_or_default();
        let counted = self.devices.entry(text("device")).or_default();
        counted.description = text("description");
        let pid = line["pid"].as_u64().unwrap_or(0);
        if !counted.processes.contains(&pid) {
            counted.processes.push(pid);
        }
        for (name, count) in line["counters"].as_object().into_iter().flatten() {
            *counted.counters.entry(plain(name)).or_default() += count.as_u64().unwrap_or(0);
        }
    }

    /// The devices as metrics.
    pub(crate) fn samples(self) -> Vec<NicSample> {
        let sample = |(device, counted): (String, Counted)| NicSample {
            device,
            description: counted.description,
            counters: counted.counters,
            processes: Some(counted.processes.len() as u64),
            ..NicSample::default()
        };
        self.devices.into_iter().map(sample).collect()
    }

    /// Those of the conditions that hold for the sum of all devices, with the value that the counter has.
    pub(crate) fn failures<'a>(&self, conditions: &'a [Condition]) -> Vec<(&'a Condition, u64)> {
        let mut sum = CountersByName::new();
        for (name, count) in self.devices.values().flat_map(|counted| &counted.counters) {
            *sum.entry(name.clone()).or_default() += count;
        }
        conditions.iter().filter_map(|condition| Some((condition, condition.holds(&sum)?))).collect()
    }

    /// Counters that are not 0, for people: on stderr, because stdout is the program's.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        if self.devices.is_empty() {
            out += "softnic: no process opened a device\n";
        }
        for (device, counted) in &self.devices {
            let processes = match counted.processes.len() {
                1 => "1 process".into(),
                n => format!("{n} processes"),
            };
            // Writing to a string does not fail.
            let _ = writeln!(out, "softnic: {device} ({}), {processes}", counted.description);
            let counters: Vec<_> = counted.counters.iter().filter(|(_, n)| **n > 0).collect();
            let name_width = counters.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
            let width = counters.iter().map(|(_, n)| n.to_string().len()).max().unwrap_or(0);
            for (name, n) in counters {
                let _ = writeln!(out, "  {name:<name_width$}  {n:>width$}");
            }
        }
        out
    }

    /// All counters: the fields are a contract.
    fn json(&self, failures: &[(&Condition, u64)]) -> Value {
        let device = |(name, counted): (&String, &Counted)| {
            json!({
                "device": name, "description": counted.description, "processes": counted.processes, "counters": counted.counters
            })
        };
        let failed =
            |(condition, value): &(&Condition, u64)| json!({ "condition": condition.to_string(), "value": value });
        json!({
            "devices": self.devices.iter().map(device).collect::<Vec<_>>(),
            "failed": failures.iter().map(failed).collect::<Vec<_>>()
        })
    }

    /// Prints it: text to stderr, JSON as the last line of stdout. Nobody may be there to read it.
    pub(crate) fn print(&self, failures: &[(&Condition, u64)], as_json: bool) {
        let _ = match as_json {
            true => writeln!(io::stdout(), "{}", self.json(failures)),
            false => io::stderr().write_all(self.text().as_bytes()),
        };
    }
}
