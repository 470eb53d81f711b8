//! The licences of all crates that are in the binaries, from what cargo knows and from files of the crates.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use softnic_conformance::project;

/// The packages that are shipped.
const SHIPPED: [&str; 2] = ["softnic", "softnic-verbs"];
/// Beginnings of names of files that hold a licence or belong to one.
const FILES: [&str; 5] = ["LICENSE", "LICENCE", "COPYING", "NOTICE", "UNLICENSE"];

/// A crate of somebody else's.
struct Foreign {
    title: String,
    terms: String,
    files: BTreeMap<String, String>,
}

/// One text of all of them: first the list, then each different text once.
pub(super) fn text() -> Result<String, String> {
    let crates = foreign(&metadata()?)?;
    let mut out = String::from(
        "softnic is MIT OR Apache-2.0: the files LICENSE-MIT and LICENSE-APACHE beside this one.\n\n\
         In its binaries are these crates, under the terms behind their names, and the standard library of Rust\n\
         (MIT OR Apache-2.0). The texts are below.\n\n",
    );
    let mut texts: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for one in &crates {
        let _ = writeln!(out, "{}: {}", one.title, one.terms);
        for text in one.files.values() {
            texts.entry(text).or_default().insert(&one.title);
        }
        // Whose terms are ours, and who brings no text: ours stands beside this file.
        let known = ["MIT", "Apache-2.0"].iter().any(|name| one.terms.contains(name));
        if one.files.is_empty() && !known {
            return Err(format!("{} ({}) brings no text of its licence", one.title, one.terms));
        }
    }
    for (text, titles) in texts {
        let titles: Vec<&str> = titles.into_iter().collect();
        let _ = write!(out, "\n{}\n{}\n\n{}\n", "-".repeat(80), titles.join(", "), text.trim_end());
    }
    Ok(out)
}

fn metadata() -> Result<Value, String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"]);
    // As packages are built.
    cargo.args(["--features", "softnic/png"]);
    let out = cargo.current_dir(project::root()).output().map_err(|e| format!("cargo metadata: {e}"))?;
    match out.status.success() {
        true => serde_json::from_slice(&out.stdout).map_err(|e| format!("cargo metadata: {e}")),
        false => Err(format!("cargo metadata: {}", String::from_utf8_lossy(&out.stderr).trim_end())),
    }
}

/// Everything that the shipped packages are linked with, but for the workspace's own, by name.
fn foreign(metadata: &Value) -> Result<Vec<Foreign>, String> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|package| (text(&package["id"]), package)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|node| (text(&node["id"]), node)).collect();
    let shipped = packages.iter().filter(|(_, p)| p["source"].is_null() && SHIPPED.contains(&&*text(&p["name"])));
    let mut open: Vec<String> = shipped.map(|(id, _)| id.clone()).collect();
    if open.len() != SHIPPED.len() {
        return Err(format!("cargo knows {} of the shipped packages, not {}", open.len(), SHIPPED.len()));
    }
    let mut seen: BTreeSet<String> = open.iter().cloned().collect();
    while let Some(id) = open.pop() {
        for dependency in nodes.get(&id).map(|node| list(&node["deps"])).unwrap_or_default() {
            // Neither for tests nor for build scripts.
            let linked = list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null());
            let id = text(&dependency["pkg"]);
            if linked && seen.insert(id.clone()) {
                open.push(id);
            }
        }
    }
    let mut crates = Vec::new();
    for package in seen.iter().filter_map(|id| packages.get(id)).filter(|p| !p["source"].is_null()) {
        let title = format!("{} {}", text(&package["name"]), text(&package["version"]));
        let terms = text(&package["license"]);
        if terms.is_empty() {
            return Err(format!("{title} does not say its licence"));
        }
        let manifest = text(&package["manifest_path"]);
        let folder = Path::new(&manifest).parent().unwrap_or(Path::new("/"));
        crates.push(Foreign { title, terms, files: licence_files(folder)? });
    }
    crates.sort_by(|a, b| a.title.cmp(&b.title));
    Ok(crates)
}

fn licence_files(folder: &Path) -> Result<BTreeMap<String, String>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_file() && FILES.iter().any(|begin| name.to_uppercase().starts_with(begin)) {
            files.insert(name, fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?);
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_those_of_linked_crates_alone() {
        let text = text().unwrap();
        for linked in ["\nclap ", "\nlibc ", "\ngraviola ", "\nresvg "] {
            assert!(text.contains(linked), "{linked}");
        }
        // A crate of tests, one that runs in the compiler, and one of our own.
        for absent in ["\nproptest ", "\ncriterion ", "\nsoftnic-nic "] {
            assert!(!text.contains(absent), "{absent}");
        }
        assert!(text.contains("Permission is hereby granted") && text.contains("Apache License"));
    }
}
