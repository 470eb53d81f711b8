//! Runs of the program, and what is in its files.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

pub(crate) fn softnic(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softnic"));
    command.arg("experiment").args(args);
    command
}

pub(crate) fn experiment(args: &[&str]) -> Output {
    softnic(args).output().expect("softnic runs")
}

/// A folder of its own, gone with the test.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("softnic-experiment-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("made");
        Folder(path)
    }

    pub(crate) fn path(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }

    pub(crate) fn read(&self, file: &str) -> String {
        fs::read_to_string(self.0.join(file)).unwrap_or_else(|e| panic!("{file}: {e}"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A run with `--quick`, its files in a folder; what it printed.
pub(crate) fn quick(folder: &Folder, name: &str, args: &[&str]) -> String {
    let out = experiment(&[&[name, "--quick", "--out", folder.path()], args].concat());
    assert!(out.status.success(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("UTF-8")
}

/// The rows of a CSV file by the names of their columns.
pub(crate) fn csv(text: &str) -> Vec<HashMap<String, String>> {
    let mut lines = text.lines().map(fields);
    let names = lines.next().expect("names");
    let row = |fields: Vec<String>| {
        assert_eq!(fields.len(), names.len(), "{fields:?}");
        names.iter().cloned().zip(fields).collect()
    };
    lines.map(row).collect()
}

pub(crate) fn fields(line: &str) -> Vec<String> {
    let (mut all, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => all.push(String::new()),
            c => all.last_mut().expect("one").push(c),
        }
    }
    assert!(!quoted, "{line}");
    all
}

pub(crate) fn number(row: &HashMap<String, String>, column: &str) -> f64 {
    row[column].parse().unwrap_or_else(|_| panic!("{column} is no number: {row:?}"))
}

/// Every element must be closed in its turn, every attribute quoted, and there must be one root.
pub(crate) fn assert_well_formed(svg: &str) {
    let (mut open, mut roots) = (Vec::new(), 0);
    for part in svg.split('<').skip(1) {
        let (tag, text) = part.split_once('>').expect("a tag ends");
        assert!(tag.matches('"').count().is_multiple_of(2), "{tag}");
        assert!(!text.contains('&') || text.split('&').skip(1).all(|e| e.contains(';')), "{text}");
        let name = tag.trim_start_matches('/').split_whitespace().next().expect("a name").trim_end_matches('/');
        match (tag.starts_with('/'), tag.ends_with('/')) {
            _ if tag.starts_with(['?', '!']) => {}
            (true, _) => assert_eq!(open.pop(), Some(name), "{tag}"),
            (false, closed) => {
                roots += usize::from(open.is_empty());
                if !closed {
                    open.push(name);
                }
            }
        }
    }
    assert!(open.is_empty() && roots == 1, "{open:?}, {roots} roots");
}

/// A figure of the row that has these in its columns.
pub(crate) fn figure(rows: &[HashMap<String, String>], keys: &[(&str, &str)], column: &str) -> f64 {
    let row = rows.iter().find(|row| keys.iter().all(|(name, value)| row[*name] == *value));
    number(row.unwrap_or_else(|| panic!("no row has {keys:?}")), column)
}

/// A run that is over before a second is; all its files, with what was in them.
pub(crate) fn all_files(folder: &Folder) -> Vec<(String, Vec<u8>)> {
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.expect("readable").path();
        (path.file_name().expect("a name").to_string_lossy().into_owned(), fs::read(&path).expect("readable"))
    };
    let mut files: Vec<_> = fs::read_dir(&folder.0).expect("there").map(read).collect();
    files.sort();
    files
}
