//! Names for the addresses of a stack: functions by symbol tables, and lines of sources by `addr2line`, where it is installed and the program
//! has debug information.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::elf::Functions;

/// A file and a line of the program's source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) file: String,
    pub(super) line: u64,
}

/// What is known of the modules of a program.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    functions: BTreeMap<PathBuf, Functions>,
    sources: BTreeMap<(PathBuf, u64), Source>,
}

impl Symbols {
    /// Looks up all lines at once: reading debug information takes time.
    pub(super) fn prepare(&mut self, addresses: &BTreeMap<PathBuf, BTreeSet<u64>>) {
        for (module, offsets) in addresses {
            let offsets: Vec<u64> = offsets.iter().copied().collect();
            for (offset, source) in offsets.iter().zip(lines(module, &offsets)) {
                if let Some(source) = source {
                    self.sources.insert((module.clone(), *offset), source);
                }
            }
        }
    }

    /// The function that an address of a module is in.
    pub(super) fn function(&mut self, module: &Path, offset: u64) -> Option<String> {
        let functions = self.functions.entry(module.to_owned()).or_insert_with(|| Functions::read(module));
        functions.at(offset).map(str::to_owned)
    }

    /// The line that it is of.
    pub(super) fn source(&self, module: &Path, offset: u64) -> Option<Source> {
        self.sources.get(&(module.to_owned(), offset)).cloned()
    }
}

/// The lines of addresses of a module, by `addr2line`; none without it.
fn lines(module: &Path, offsets: &[u64]) -> Vec<Option<Source>> {
    let mut command = Command::new("addr2line");
    command.arg("-e").arg(module).args(offsets.iter().map(|offset| format!("{offset:#x}")));
    command.stdin(Stdio::null()).stderr(Stdio::null());
    match command.output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).lines().map(source).collect(),
        Err(_) => Vec::new(),
    }
}

/// A line that it prints: `FILE:LINE`, `FILE:LINE (discriminator 2)`, or `??:0`.
fn source(text: &str) -> Option<Source> {
    let (file, line) = text.split_once(" (").map_or(text, |(place, _)| place).rsplit_once(':')?;
    match line.parse() {
        Ok(line) if line > 0 && file != "??" => Some(Source { file: file.into(), line }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_addr2line_prints_is_a_place_or_none() {
        let found = |file: &str, line| Some(Source { file: file.into(), line });
        assert_eq!(source("/home/a b/x.c:17"), found("/home/a b/x.c", 17));
        assert_eq!(source("/x.c:17 (discriminator 3)"), found("/x.c", 17));
        assert_eq!((source("??:0"), source("??:?"), source("x.c:?"), source("")), (None, None, None, None));
    }
}
