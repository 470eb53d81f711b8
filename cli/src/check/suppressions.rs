//! Findings that somebody knows of: a file with a line for each, `KIND:PATTERN`.

use std::fs;
use std::path::PathBuf;

use softnic_check::Kind;

use super::findings::{Finding, Findings};

/// One line.
#[derive(Debug)]
struct Suppression {
    /// As it is told: file, number, text.
    line: String,
    /// All kinds if there is none.
    kind: Option<Kind>,
    pattern: String,
    used: bool,
}

/// Those of all files.
#[derive(Debug, Default)]
pub(super) struct Suppressions(Vec<Suppression>);

impl Suppressions {
    pub(super) fn read(files: &[PathBuf]) -> Result<Suppressions, String> {
        let mut all = Suppressions::default();
        for file in files {
            let text = fs::read_to_string(file).map_err(|e| format!("--suppress: {}: {e}", file.display()))?;
            all.parse(&file.display().to_string(), &text)?;
        }
        Ok(all)
    }

    fn parse(&mut self, file: &str, text: &str) -> Result<(), String> {
        for (i, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why: String| format!("--suppress: {file}: line {}: {why}", i + 1);
            let (kind, pattern) = line
                .split_once(':')
                .filter(|(_, pattern)| !pattern.trim().is_empty())
                .ok_or_else(|| wrong(format!("`{line}` is not KIND:PATTERN")))?;
            let kind = match kind.trim() {
                "*" => None,
                name => Some(Kind::named(name).ok_or_else(|| wrong(format!("there is no kind `{name}`")))?),
            };
            let told = format!("{file}:{}: {line}", i + 1);
            self.0.push(Suppression { line: told, kind, pattern: pattern.trim().into(), used: false });
        }
        Ok(())
    }

    /// The findings that are left, and how many are not.
    pub(super) fn split(&mut self, findings: Findings) -> (Findings, usize) {
        let before = findings.all.len();
        let is_left = |finding: &Finding| {
            let mut is_left = true;
            for suppression in self.0.iter_mut().filter(|suppression| suppression.is_for(finding)) {
                (suppression.used, is_left) = (true, false);
            }
            is_left
        };
        let all: Vec<Finding> = findings.all.into_iter().filter(is_left).collect();
        let suppressed = before - all.len();
        (Findings { all, ..findings }, suppressed)
    }

    /// Those that were for nothing.
    pub(super) fn unused(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|suppression| !suppression.used).map(|suppression| &suppression.line[..])
    }
}

impl Suppression {
    fn is_for(&self, finding: &Finding) -> bool {
        self.kind.is_none_or(|kind| kind == finding.kind) && texts(finding).any(|text| matches(&self.pattern, &text))
    }
}

/// What a pattern is held against: functions, modules and sources of all stacks, the queue pair and the work request.
fn texts(finding: &Finding) -> impl Iterator<Item = String> {
    let of_frames = finding.frames().flat_map(|frame| {
        let module = frame.module.as_ref().map(|module| module.display().to_string());
        let name = frame.module.as_ref().and_then(|module| module.file_name());
        let name = name.map(|name| name.to_string_lossy().into_owned());
        let source = frame.source.as_ref();
        let (file, line) = (source.map(|s| s.file.clone()), source.map(|s| format!("{}:{}", s.file, s.line)));
        [frame.function.clone(), module, name, file, line].into_iter().flatten()
    });
    let of_work = finding.wr_id.map(|wr_id| format!("wr_id={wr_id}"));
    let of_pair = finding.queue_pair.map(|(_, order)| format!("qp={order}"));
    of_frames.chain(of_work).chain(of_pair).chain([String::new()])
}

/// Whether a text is as a pattern has it, of which each `*` is anything.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('*').collect();
    // `split` has one part at least.
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::super::findings::tests;
    use super::*;

    #[test]
    fn a_star_is_anything() {
        for (pattern, text, is) in [
            ("post", "post", true),
            ("post", "post2", false),
            ("post*", "post2", true),
            ("*.so*", "libx.so.1", true),
            ("*a*b", "xaxbxb", true),
            ("*a*b", "xbxa", false),
            ("a*a", "a", false),
            ("*", "", true),
        ] {
            assert_eq!(matches(pattern, text), is, "{pattern} {text}");
        }
    }

    #[test]
    fn lines_are_for_kinds_and_places_and_those_that_were_for_nothing_are_told() {
        let mut all = Suppressions::default();
        let text = "# what we know of\n\nleak:libx*\n*:wr_id=8\nleak : qp=1\nstale-rkey:post\n";
        all.parse("s", text).unwrap();
        let found =
            tests::of(&[tests::line(1, "leak", "note"), tests::line(1, "send-buffer-changed", "error")].concat());
        let (left, suppressed) = all.split(found);
        assert_eq!((left.all.len(), suppressed), (1, 1));
        assert_eq!(all.unused().collect::<Vec<_>>(), ["s:4: *:wr_id=8", "s:6: stale-rkey:post"]);
    }

    #[test]
    fn a_bad_line_is_named() {
        let error = |text: &str| Suppressions::default().parse("s", text).unwrap_err();
        assert_eq!(error("leak:x\nleaks:x"), "--suppress: s: line 2: there is no kind `leaks`");
        assert_eq!(error("\nleak"), "--suppress: s: line 2: `leak` is not KIND:PATTERN");
        assert_eq!(error("leak: "), "--suppress: s: line 1: `leak:` is not KIND:PATTERN");
    }
}
