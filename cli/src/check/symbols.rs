//! Names for the addresses of a stack: functions by symbol tables, and lines of sources by `addr2line`, where it is installed and the program
//! has debug information.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::elf::Functions;

/// A file and a line of the program's source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) file: String,
    pub(crate) line: u64,
}

/// A call at an address: several are there where functions were inlined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Call {
    pub(crate) function: Option<String>,
    pub(crate) source: Option<Source>,
}

/// What is known of the modules of a program.
#[derive(Debug, Default)]
pub(crate) struct Symbols {
    functions: BTreeMap<PathBuf, Functions>,
    calls: BTreeMap<(PathBuf, u64), Vec<Call>>,
}

impl Symbols {
    /// Looks up all lines at once: reading debug information takes time.
    pub(crate) fn prepare(&mut self, addresses: &BTreeMap<PathBuf, BTreeSet<u64>>) {
        for (module, offsets) in addresses {
            for (offset, calls) in lines(module, offsets) {
                self.calls.insert((module.clone(), offset), calls);
            }
        }
    }

    /// The calls at an address of a module, the innermost first; the verbs that headers have inline are left out.
    pub(crate) fn calls(&mut self, module: &Path, offset: u64) -> Vec<Call> {
        let functions = self.functions.entry(module.to_owned()).or_insert_with(|| Functions::read(module));
        let outermost = functions.at(offset).map(str::to_owned);
        let mut calls = self.calls.get(&(module.to_owned(), offset)).cloned().unwrap_or_default();
        let of_header =
            |call: &Call| call.source.as_ref().is_some_and(|source| source.file.contains("/infiniband/verbs.h"));
        let skipped = calls.iter().take_while(|call| of_header(call)).count();
        if skipped < calls.len() {
            calls.drain(..skipped);
        }
        match calls.last_mut() {
            Some(last) => last.function = last.function.take().or(outermost),
            None => calls.push(Call { function: outermost, source: None }),
        }
        calls
    }
}

/// The calls at addresses of a module, by `addr2line`; none without it.
fn lines(module: &Path, offsets: &BTreeSet<u64>) -> Vec<(u64, Vec<Call>)> {
    let mut command = Command::new("addr2line");
    command.args(["-a", "-f", "-i", "-C", "-e"]).arg(module).args(offsets.iter().map(|offset| format!("{offset:#x}")));
    command.stdin(Stdio::null()).stderr(Stdio::null());
    match command.output() {
        Ok(output) => parse(&String::from_utf8_lossy(&output.stdout)),
        Err(_) => Vec::new(),
    }
}

/// What it prints: for each address a line with it, and then a function and a place for each call.
fn parse(text: &str) -> Vec<(u64, Vec<Call>)> {
    let mut all: Vec<(u64, Vec<Call>)> = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(offset) = line.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok()) {
            all.push((offset, Vec::new()));
            continue;
        }
        let call =
            Call { function: Some(line.to_owned()).filter(|name| name != "??"), source: lines.next().and_then(source) };
        if let Some((_, calls)) = all.last_mut()
            && call != (Call { function: None, source: None })
        {
            calls.push(call);
        }
    }
    all
}

/// A place that it prints: `FILE:LINE`, `FILE:LINE (discriminator 2)`, or `??:0`.
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

    #[test]
    fn inlined_calls_are_each_a_call_and_verbs_of_the_header_are_none() {
        let text = "0x0000000000001234\nibv_post_send\n/usr/include/infiniband/verbs.h:3342\npost\n/x.c:7 (discriminator 1)\n\
                    0x0000000000000010\n??\n??:0\n";
        let call = |name: &str, file: &str, line| Call {
            function: Some(name.into()),
            source: Some(Source { file: file.into(), line }),
        };
        let found = parse(text);
        let inline = call("ibv_post_send", "/usr/include/infiniband/verbs.h", 3342);
        assert_eq!(found, [(0x1234, vec![inline, call("post", "/x.c", 7)]), (0x10, vec![])]);
        let module = PathBuf::from("/nonexistent");
        let mut symbols = Symbols::default();
        symbols.calls.extend(found.into_iter().map(|(offset, calls)| ((module.clone(), offset), calls)));
        assert_eq!(symbols.calls(&module, 0x1234), [call("post", "/x.c", 7)]);
        assert_eq!(symbols.calls(&module, 0x10), [Call { function: None, source: None }]);
    }
}
