//! What is kept of an exploration: a line of JSON for each run, so that one that was ended by whatever can go on.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::judge::Outcome;

/// What a results file begins with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The command and its arguments.
    pub test: Vec<String>,
    /// Where it ran.
    pub folder: String,
    /// What else says how a run is made: options of the device, judge, seed, in their order.
    pub options: Vec<(String, String)>,
}

/// A run, or what several runs of one fault came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name of its faults.
    pub fault: String,
    /// The row of the table.
    pub family: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it fails.
    pub why: Option<String>,
    /// The exit code; `None` for one that did not end.
    pub exit: Option<i32>,
    /// How long it took, in milliseconds.
    pub ms: u64,
    /// Its folder among the failures.
    pub failure: Option<usize>,
    /// The folder of an earlier failure that is alike.
    pub like: Option<usize>,
    /// What failures that are alike have in common, of those with a folder.
    pub kind: Option<String>,
    /// In how many of how many runs it failed.
    pub times: Option<(usize, usize)>,
    /// The script, of failures.
    pub script: Option<String>,
}

impl Settings {
    /// The first line.
    pub fn line(&self) -> String {
        json!({ "softnic_explore": 1, "test": self.test, "folder": self.folder, "options": self.options }).to_string()
    }

    /// What a first line says.
    pub fn parse(line: &str) -> Option<Settings> {
        let value: Value = serde_json::from_str(line).ok()?;
        if value["softnic_explore"] != 1 {
            return None;
        }
        let texts = |value: &Value| -> Option<Vec<String>> {
            value.as_array()?.iter().map(|text| text.as_str().map(str::to_owned)).collect()
        };
        let pair = |value: &Value| match &texts(value)?[..] {
            [name, value] => Some((name.clone(), value.clone())),
            _ => None,
        };
        Some(Settings {
            test: texts(&value["test"])?,
            folder: value["folder"].as_str()?.to_owned(),
            options: value["options"].as_array()?.iter().map(pair).collect::<Option<_>>()?,
        })
    }
}

impl Entry {
    /// As JSON.
    pub fn json(&self) -> Value {
        json!({
            "fault": self.fault, "family": self.family, "outcome": self.outcome.name(), "why": self.why, "exit_code": self.exit,
            "ms": self.ms, "failure": self.failure, "like": self.like, "kind": self.kind,
            "times": self.times.map(|(failed, of)| [failed, of]), "script": self.script
        })
    }

    /// What a line says; `None` for one that was cut off.
    pub fn parse(line: &str) -> Option<Entry> {
        let value: Value = serde_json::from_str(line).ok()?;
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let number = |value: &Value| value.as_u64().map(|n| n as usize);
        Some(Entry {
            fault: text("fault")?,
            family: text("family")?,
            outcome: Outcome::named(value["outcome"].as_str()?)?,
            why: text("why"),
            exit: value["exit_code"].as_i64().map(|exit| exit as i32),
            ms: value["ms"].as_u64()?,
            failure: number(&value["failure"]),
            like: number(&value["like"]),
            kind: text("kind"),
            times: number(&value["times"][0]).zip(number(&value["times"][1])),
            script: text("script"),
        })
    }
}

/// A results file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journal {
    /// Its first line.
    pub settings: Settings,
    /// What became of each fault: the last line about it.
    pub entries: BTreeMap<String, Entry>,
}

impl Journal {
    /// Reads a file; lines that were cut off are left out. `None` for a file of something else.
    pub fn parse(text: &str) -> Option<Journal> {
        let mut lines = text.lines();
        let settings = Settings::parse(lines.next()?)?;
        let entries = lines.filter_map(Entry::parse).map(|entry| (entry.fault.clone(), entry)).collect();
        Some(Journal { settings, entries })
    }

    /// The number of the next failure.
    pub fn next_failure(&self) -> usize {
        self.entries.values().filter_map(|entry| entry.failure).max().unwrap_or(0) + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(fault: &str, outcome: Outcome) -> Entry {
        Entry {
            fault: fault.into(),
            family: "loss".into(),
            outcome,
            why: Some("a\nb".into()),
            exit: None,
            ms: 17,
            failure: Some(3),
            like: None,
            kind: Some("hang of it".into()),
            times: Some((2, 3)),
            script: Some("[[event]]\n".into()),
        }
    }

    #[test]
    fn a_file_that_was_cut_off_is_read_as_far_as_it_goes() {
        let settings = Settings {
            test: vec!["./x".into(), "a b".into()],
            folder: "/tmp".into(),
            options: vec![("--dev".into(), "mem".into())],
        };
        let (first, second) = (entry("one", Outcome::Hang), entry("two", Outcome::Same));
        let again = Entry { times: Some((3, 3)), ..first.clone() };
        let text =
            [settings.line(), first.json().to_string(), second.json().to_string(), again.json().to_string()].join("\n");
        let journal = Journal::parse(&text).unwrap();
        assert_eq!((&journal.settings, journal.next_failure()), (&settings, 4));
        assert_eq!(journal.entries["one"], again, "the last line counts");
        assert_eq!(Journal::parse(&text[..text.len() - 5]).unwrap().entries["one"], first);
        assert_eq!(Journal::parse("{}"), None);
        assert_eq!(Journal::parse(""), None);
    }
}
