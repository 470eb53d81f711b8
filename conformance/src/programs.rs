//! Programs that cargo builds for a chore.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;

use crate::steps::command;

/// The crates that have tests, named the same way in every layer: with other crates others of their dependencies' features would be on, and
/// most of the workspace would be built again for the layer. The benchmarks have none; clippy looks at them.
pub const TESTED: [&str; 4] = ["--workspace", "--exclude", "softnic-benches", "--locked"];

/// Runs cargo with these words, which must build something; where it put each program, by name.
pub(crate) fn build(words: &[&str]) -> Result<BTreeMap<String, PathBuf>, String> {
    println!("$ cargo {}", words.join(" "));
    let words = [&["cargo"], words, &["--message-format", "json-render-diagnostics"]].concat();
    let output = command(&words).stderr(Stdio::inherit()).output();
    let output = output.map_err(|e| format!("`cargo` cannot be started: {e}"))?;
    if !output.status.success() {
        return Err(format!("cargo did not build what is needed: {}", output.status));
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let messages = messages.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let programs = messages.filter_map(|message| {
        let name = message["target"]["name"].as_str()?.to_owned();
        Some((name, PathBuf::from(message["executable"].as_str()?)))
    });
    Ok(programs.collect())
}

/// Builds one program; where it is.
pub fn build_one(name: &str, words: &[&str]) -> Result<PathBuf, String> {
    build(words)?.remove(name).ok_or_else(|| format!("cargo does not say where it put {name}"))
}

/// The libraries that a program needs beside those of every program, with their names in a guest of the same suite: what `ldd` says.
pub(crate) fn libraries(program: &Path) -> Result<Vec<(String, PathBuf)>, String> {
    const USUAL: [&str; 4] = ["libc.so", "libm.so", "libgcc_s.so", "ld-linux"];
    let output = command(&["ldd"]).arg(program).output().map_err(|e| format!("`ldd` cannot be started: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let of_line = |line: &str| {
        let (name, path) = line.trim().split_once(" => ")?;
        let path = PathBuf::from(path.split(" (").next()?);
        let is_usual = USUAL.iter().any(|usual| name.starts_with(usual));
        (!is_usual && path.is_absolute()).then(|| (format!("usr/lib/x86_64-linux-gnu/{name}"), path))
    };
    Ok(text.lines().filter_map(of_line).collect())
}

/// The program without what only a debugger reads, which would fill a guest's memory; as it is where there is no `strip`.
pub(crate) fn stripped(program: &Path, folder: &Path) -> PathBuf {
    let small = folder.join(program.file_name().unwrap_or_default());
    let mut strip = command(&["strip", "--strip-debug", "-o"]);
    match strip.arg(&small).arg(program).status() {
        Ok(status) if status.success() => small,
        _ => program.to_owned(),
    }
}
