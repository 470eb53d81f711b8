//! Findings as the library wrote them, with names for addresses; those that several processes have are one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use softnic_check::{ALL_WRITTEN, Kind, Severity};

use super::symbols::{Call, Source, Symbols};
use crate::plain::plain;

/// A call in a stack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) address: String,
    pub(crate) module: Option<PathBuf>,
    /// The address in the file of the module.
    pub(crate) offset: Option<u64>,
    pub(crate) function: Option<String>,
    pub(crate) source: Option<Source>,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) kind: Kind,
    pub(crate) severity: Severity,
    pub(crate) message: String,
    /// Processes that have it.
    pub(crate) processes: Vec<u64>,
    /// Number, and order of making.
    pub(crate) queue_pair: Option<(u64, u64)>,
    pub(crate) wr_id: Option<u64>,
    pub(crate) stack: Vec<Frame>,
    pub(crate) made: Vec<Frame>,
    pub(crate) related: Option<(String, Vec<Frame>)>,
}

/// All findings, the worst first.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) all: Vec<Finding>,
    /// Lines that are none, as of a process that was killed while it wrote.
    pub(crate) unreadable: usize,
    /// A process could not write some.
    pub(super) are_lost: bool,
}

/// How many there are of each severity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    pub(crate) errors: usize,
    pub(crate) warnings: usize,
    pub(crate) notes: usize,
}

impl Findings {
    /// Those in the files of a folder.
    pub(crate) fn read(folder: &Path, symbols: &mut Symbols) -> io::Result<Findings> {
        let mut findings = Findings::read_unnamed(folder)?;
        findings.name(symbols);
        findings.merge();
        Ok(findings)
    }

    /// The same without names for addresses, which take time; those of several processes are several.
    pub(crate) fn read_unnamed(folder: &Path) -> io::Result<Findings> {
        let mut findings = Findings { are_lost: !folder.join(ALL_WRITTEN).exists(), ..Findings::default() };
        let mut files = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
        files.sort_by_key(fs::DirEntry::file_name);
        for file in files.into_iter().filter(|file| file.file_name() != ALL_WRITTEN) {
            let text = fs::read(file.path())?;
            for line in String::from_utf8_lossy(&text).lines() {
                match serde_json::from_str(line).ok().and_then(|value| parse(&value)) {
                    Some(finding) => findings.all.push(finding),
                    None => findings.unreadable += 1,
                }
            }
        }
        Ok(findings)
    }

    /// A stack as the library writes it.
    pub(crate) fn stack_of(value: &Value) -> Vec<Frame> {
        value.as_array().into_iter().flatten().map(frame).collect()
    }

    /// Finds names for addresses.
    fn name(&mut self, symbols: &mut Symbols) {
        prepare(symbols, self.all.iter().flat_map(Finding::frames));
        self.all.iter_mut().flat_map(Finding::stacks_mut).for_each(|stack| name(stack, symbols));
    }

    /// Finds names for the addresses of a stack.
    pub(crate) fn name_stack(stack: &mut Vec<Frame>, symbols: &mut Symbols) {
        prepare(symbols, stack.iter());
        name(stack, symbols);
    }

    /// The same mistake of several processes is one finding: addresses in files are alike, those in memory are not.
    fn merge(&mut self) {
        let mut merged: Vec<Finding> = Vec::new();
        for finding in std::mem::take(&mut self.all) {
            match merged.iter_mut().find(|other| other.is_like(&finding)) {
                Some(other) => {
                    if !other.processes.contains(&finding.processes[0]) {
                        other.processes.extend(finding.processes);
                    }
                }
                None => merged.push(finding),
            }
        }
        merged.sort_by_key(|finding| finding.severity);
        self.all = merged;
    }

    /// Whether those that are here may not be all.
    pub(super) fn are_incomplete(&self) -> bool {
        self.are_lost || self.unreadable > 0
    }

    pub(crate) fn counts(&self) -> Counts {
        let count = |severity| self.all.iter().filter(|finding| finding.severity == severity).count();
        Counts { errors: count(Severity::Error), warnings: count(Severity::Warning), notes: count(Severity::Note) }
    }

    /// The fields are a contract.
    pub(crate) fn json(&self) -> Value {
        let finding = |f: &Finding| {
            json!({
                "kind": f.kind.name(), "severity": f.severity.name(), "message": f.message, "processes": f.processes,
                "queue_pair": f.queue_pair.map(|(number, order)| json!({ "number": number, "order": order })), "wr_id": f.wr_id,
                "stack": frames_json(&f.stack), "made": frames_json(&f.made),
                "related": f.related.as_ref().map(|(what, stack)| json!({ "what": what, "stack": frames_json(stack) }))
            })
        };
        self.all.iter().map(finding).collect()
    }
}

fn prepare<'a>(symbols: &mut Symbols, frames: impl Iterator<Item = &'a Frame>) {
    let mut addresses: BTreeMap<PathBuf, BTreeSet<u64>> = BTreeMap::new();
    for frame in frames {
        if let (Some(module), Some(offset)) = (&frame.module, frame.offset) {
            addresses.entry(module.clone()).or_default().insert(offset);
        }
    }
    symbols.prepare(&addresses);
}

fn name(stack: &mut Vec<Frame>, symbols: &mut Symbols) {
    *stack = std::mem::take(stack).into_iter().flat_map(|frame| frame.named(symbols)).collect();
    // What lies below main is the C library's.
    if let Some(main) = stack.iter().position(|frame| frame.function.as_deref() == Some("main")) {
        stack.truncate(main + 1);
    }
}

fn frames_json(frames: &[Frame]) -> Value {
    let frame = |frame: &Frame| {
        json!({
            "address": frame.address, "module": frame.module, "offset": frame.offset.map(|offset| format!("{offset:#x}")),
            "function": frame.function, "file": frame.source.as_ref().map(|s| &s.file), "line": frame.source.as_ref().map(|s| s.line)
        })
    };
    frames.iter().map(frame).collect()
}

impl Frame {
    /// The calls at its address, with their names.
    fn named(self, symbols: &mut Symbols) -> Vec<Frame> {
        let (Some(module), Some(offset)) = (&self.module, self.offset) else { return vec![self] };
        let calls = symbols.calls(module, offset);
        let named = calls.into_iter().map(|Call { function, source }| {
            let function = function.map(|name| plain(&name)).or_else(|| self.function.clone());
            let source = source.map(|Source { file, line }| Source { file: plain(&file), line });
            Frame { function, source, ..self.clone() }
        });
        named.collect()
    }
}

impl Finding {
    fn stacks_mut(&mut self) -> impl Iterator<Item = &mut Vec<Frame>> {
        let related = self.related.iter_mut().map(|(_, stack)| stack);
        [&mut self.stack, &mut self.made].into_iter().chain(related)
    }

    /// All calls that it has to do with.
    pub(crate) fn frames(&self) -> impl Iterator<Item = &Frame> {
        let related = self.related.iter().flat_map(|(_, stack)| stack);
        self.stack.iter().chain(&self.made).chain(related)
    }

    fn is_like(&self, other: &Finding) -> bool {
        let place = |finding: &Finding| {
            let stack = if finding.stack.is_empty() { &finding.made } else { &finding.stack };
            stack.iter().map(|frame| (frame.module.clone(), frame.offset)).collect::<Vec<_>>()
        };
        // Of a stack that nothing is known of nothing can be said.
        (self.kind, self.severity) == (other.kind, other.severity)
            && place(self) == place(other)
            && !place(self).is_empty()
            && self.processes != other.processes
    }

    /// Its kind, and the place by its address in a file: alike in every run.
    pub(crate) fn kind_and_place(&self) -> String {
        let place = self.place().and_then(|frame| Some((frame.module.as_ref()?.file_name()?.display(), frame.offset?)));
        let function = self.place().and_then(|frame| frame.function.as_deref());
        match (place, function) {
            (Some((module, offset)), Some(function)) => format!("{} at {function} ({module}+{offset:#x})", self.kind),
            (Some((module, offset)), None) => format!("{} at {module}+{offset:#x}", self.kind),
            (None, _) => self.kind.to_string(),
        }
    }

    /// The call to look at: that which is wrong, or else the one that made the object.
    pub(crate) fn place(&self) -> Option<&Frame> {
        self.stack.first().or(self.made.first())
    }
}

/// A line of the library. Its texts are another process's.
fn parse(line: &Value) -> Option<Finding> {
    let text = |name: &str| line[name].as_str().map(plain);
    let number = |value: &Value| value.as_u64();
    let frames = |value: &Value| value.as_array().into_iter().flatten().map(frame).collect::<Vec<_>>();
    let related = &line["related"];
    Some(Finding {
        kind: Kind::named(&text("kind")?)?,
        severity: Severity::named(&text("severity")?)?,
        message: text("message")?,
        processes: vec![number(&line["pid"])?],
        queue_pair: number(&line["queue_pair"]["number"]).zip(number(&line["queue_pair"]["order"])),
        wr_id: number(&line["wr_id"]),
        stack: frames(&line["stack"]),
        made: frames(&line["made"]),
        related: related["what"].as_str().map(|what| (plain(what), frames(&related["stack"]))),
    })
}

fn frame(value: &Value) -> Frame {
    let text = |name: &str| value[name].as_str().map(plain);
    let offset = text("offset").and_then(|hex| u64::from_str_radix(hex.strip_prefix("0x")?, 16).ok());
    Frame {
        address: text("address").unwrap_or_default(),
        module: text("module").map(PathBuf::from),
        offset,
        function: text("function"),
        source: None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A finding as the library writes it.
    pub(crate) fn line(pid: u64, kind: &str, severity: &str) -> String {
        format!(
            "{{\"pid\":{pid},\"kind\":\"{kind}\",\"severity\":\"{severity}\",\"message\":\"it is wrong <&>\",\"queue_pair\":\
             {{\"number\":17,\"order\":1}},\"wr_id\":7,\"stack\":[{{\"address\":\"0x5{pid}\",\"module\":\"/opt/libx.so\",\"offset\":\"0x10\",\
             \"function\":\"post\"}}],\"made\":[{{\"address\":\"0x60\"}}],\"related\":{{\"what\":\"deregistered\",\"stack\":[]}}}}\n"
        )
    }

    pub(crate) fn of(lines: &str) -> Findings {
        let folder = std::env::temp_dir().join(format!(
            "softnic-check-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("check-1.json"), lines).unwrap();
        fs::write(folder.join(ALL_WRITTEN), "").unwrap();
        let findings = Findings::read(&folder, &mut Symbols::default()).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        findings
    }

    #[test]
    fn findings_of_several_processes_are_one_and_the_worst_comes_first() {
        let found = of(&[
            line(1, "leak", "note"),
            line(1, "send-buffer-changed", "error"),
            line(2, "send-buffer-changed", "error"),
            "{\"pid\":3,\"kind\":\"lea".to_owned(),
        ]
        .concat());
        assert_eq!(found.counts(), Counts { errors: 1, warnings: 0, notes: 1 });
        assert_eq!((found.all[0].kind, &found.all[0].processes[..]), (Kind::SendBufferChanged, &[1, 2][..]));
        assert!(found.unreadable == 1 && !found.are_lost && found.are_incomplete());
        assert!(!of(&line(1, "leak", "note")).are_incomplete());
        let json = found.json();
        assert_eq!((&json[0]["wr_id"], &json[0]["stack"][0]["function"]), (&json!(7), &json!("post")));
        assert_eq!(json[0]["queue_pair"], json!({ "number": 17, "order": 1 }));
    }

    #[test]
    fn two_of_one_process_are_two() {
        let found = of(&[line(1, "leak", "note"), line(1, "leak", "note")].concat());
        assert_eq!(found.all.len(), 2);
    }
}
