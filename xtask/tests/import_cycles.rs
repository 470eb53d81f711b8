//! Files of a crate import each other in one direction: no file imports, by way of others, itself. Where files of one folder still do,
//! no circle leaves the folder.
//!
//! Read are `use` declarations and paths that begin with `crate`, `super` or `self`. An item that a module re-exports belongs to the file
//! that it comes from, so a re-export is no import. Unit tests at the end of a file are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Crates without a cycle. More may follow.
const WITHOUT_CYCLES: [&str; 8] = [
    "check/src",
    "codes/src",
    "collectives/src",
    "crc/src",
    "fault-injector/src",
    "sync/src",
    "verbs/src",
    "xtask/src",
];

/// Crates whose cycles are each inside one folder.
const WITHIN_FOLDERS: [&str; 14] = [
    "cli/src",
    "cm/src",
    "conformance/src",
    "experiments/src",
    "nic/src",
    "pcaps/src",
    "perf/src",
    "replay/src",
    "runtime/src",
    "sim/src",
    "softnic/src",
    "swarm/src",
    "transports/src",
    "wire/src",
];

/// A path of modules below the crate's root.
type Module = Vec<String>;

/// A path in a source: `crate::a::b` is `["crate", "a", "b"]`; a glob ends with `*`.
type Found = Vec<String>;

/// A file of a crate.
#[derive(Default)]
struct File {
    paths: Vec<Found>,
    /// What is re-exported from children, by its name here; `*` for all of a child.
    reexports: Vec<(String, Found)>,
}

#[test]
fn no_file_imports_itself_by_way_of_others() {
    for src in WITHOUT_CYCLES {
        let cycles = import_cycles(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(src));
        assert!(cycles.is_empty(), "{src}: these files import each other in a circle: {cycles:#?}");
    }
}

#[test]
fn no_circle_of_imports_leaves_its_folder() {
    for src in WITHIN_FOLDERS {
        let cycles = import_cycles(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(src));
        let crossing: Vec<_> = cycles.iter().filter(|cycle| !is_in_one_folder(cycle)).collect();
        assert!(
            crossing.is_empty(),
            "{src}: these files of several folders import each other in a circle: {crossing:#?}"
        );
    }
}

#[test]
fn the_file_of_a_folder_is_in_it_and_beside_its_neighbours() {
    let in_one = |modules: &[&str]| is_in_one_folder(&modules.iter().map(|&m| m.to_owned()).collect::<Vec<_>>());
    assert!(in_one(&["a", "b"]) && in_one(&["a", "a::b"]) && in_one(&["a::b", "a::c"]));
    assert!(!in_one(&["a", "b::c"]) && !in_one(&["a", "a::b", "c"]) && !in_one(&["a", "a::b::c"]));
}

#[test]
fn a_cycle_is_found_through_groups_and_reexports_but_not_in_comments_and_tests() {
    let files = |b: &str| {
        [
            ("", "mod a; mod b;"),
            ("a", "mod part; pub(crate) use part::{Part, Other as Else}; use crate::b::{self, x::{Y}};"),
            ("a::part", "use super::super::c;\nstruct Part;"),
            ("b", b),
            ("c", ""),
        ]
        .into_iter()
        .map(|(module, text)| (module.split("::").filter(|m| !m.is_empty()).map(Into::into).collect(), text.to_owned()))
        .collect()
    };
    assert_eq!(cycles(&files("fn f(x: &crate::a::Thing) {}")), [["a", "b"]]);
    assert_eq!(cycles(&files("use crate::{c, a::*};")), [["a", "b"]]);
    for harmless in
        ["use crate::a::{Part, Else};", "// crate::a::Thing", "#[cfg(test)]\nmod tests { use crate::a::Thing; }"]
    {
        assert!(cycles(&files(harmless)).is_empty(), "{harmless}");
    }
}

/// Whether the modules of a circle are files of one folder, with the file that has the folder's name or without it.
fn is_in_one_folder(cycle: &[String]) -> bool {
    let parent = |module: &str| module.rsplit_once("::").map_or(String::new(), |(parent, _)| parent.to_owned());
    let folders = [parent(&cycle[0]), cycle[0].clone()];
    folders.iter().any(|folder| cycle.iter().all(|module| module == folder || parent(module) == *folder))
}

/// Groups of files below `src` that import each other in a circle.
fn import_cycles(src: &Path) -> Vec<Vec<String>> {
    fn read(folder: &Path, at: &[String], files: &mut BTreeMap<Module, String>) {
        for entry in fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap().to_str().unwrap();
            let below = [at, &[name.to_owned()]].concat();
            if path.is_dir() {
                read(&path, &below, files);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let module = if ["lib", "main", "mod"].contains(&name) { at.to_vec() } else { below };
                files.insert(module, fs::read_to_string(&path).unwrap());
            }
        }
    }
    let mut files = BTreeMap::new();
    read(src, &[], &mut files);
    assert!(files.len() > 1, "{} has no sources", src.display());
    cycles(&files)
}

fn cycles(sources: &BTreeMap<Module, String>) -> Vec<Vec<String>> {
    let modules: BTreeSet<&Module> = sources.keys().collect();
    let files: BTreeMap<&Module, File> =
        sources.iter().map(|(module, text)| (module, parse(module, text, &modules))).collect();
    let imports: BTreeMap<&Module, BTreeSet<Module>> = files
        .iter()
        .map(|(module, file)| {
            let mut to = BTreeSet::new();
            file.paths.iter().for_each(|path| resolve(path, &files, &mut to));
            to.remove(*module);
            (*module, to)
        })
        .collect();
    let reached: BTreeMap<&Module, BTreeSet<Module>> =
        imports.keys().map(|module| (*module, reach(module, &imports))).collect();
    let mut groups: BTreeSet<Vec<String>> = BTreeSet::new();
    for (module, reaches) in reached.iter().filter(|(module, reaches)| reaches.contains(**module)) {
        let group = reaches.iter().filter(|other| reached[other].contains(*module));
        groups.insert(group.map(|m| m.join("::")).collect());
    }
    groups.into_iter().collect()
}

/// All modules that a module imports, by way of others too.
fn reach(from: &Module, imports: &BTreeMap<&Module, BTreeSet<Module>>) -> BTreeSet<Module> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&Module> = vec![from];
    while let Some(module) = next.pop() {
        next.extend(imports[module].iter().filter(|to| reached.insert((*to).clone())));
    }
    reached
}

/// The files that an absolute path leads to.
fn resolve(path: &[String], files: &BTreeMap<&Module, File>, to: &mut BTreeSet<Module>) {
    let Some(len) = (0..=path.len()).rev().find(|&len| files.contains_key(&path[..len].to_vec())) else { return };
    let (module, rest) = (path[..len].to_vec(), &path[len..]);
    let file = &files[&module];
    if let Some((_, from)) = file.reexports.iter().find(|(name, _)| name != "*" && rest.first() == Some(name)) {
        return resolve(from, files, to);
    }
    // A name that is not re-exported by itself may be from a glob; a glob takes all that is re-exported.
    let takes_all = rest.first().is_some_and(|name| name == "*");
    for (_, from) in file.reexports.iter().filter(|(name, _)| takes_all || name == "*") {
        resolve(&from[..from.len() - 1], files, to);
    }
    to.insert(module);
}

/// Reads the paths of a file, made absolute.
fn parse(module: &Module, text: &str, modules: &BTreeSet<&Module>) -> File {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let code: String = text.lines().map(|line| line.split("//").next().unwrap_or_default().to_owned() + "\n").collect();
    let tokens = tokens(&code);
    let mut file = File::default();
    let mut i = 0;
    while i < tokens.len() {
        let is_use = tokens[i] == "use";
        let begins = ["crate", "super", "self"].contains(&tokens[i]) && tokens.get(i + 1) == Some(&"::");
        if !is_use && !begins {
            i += 1;
            continue;
        }
        let public = is_use && i > 0 && [")", "pub"].contains(&tokens[i - 1]);
        let mut found = Vec::new();
        i = tree(&tokens, i + usize::from(is_use), &[], is_use, &mut found);
        for (path, name) in found {
            let child = [module.as_slice(), &path[..1]].concat();
            let absolute: Found = match path[0].as_str() {
                "crate" => path[1..].to_vec(),
                "super" | "self" => {
                    let ups = path.iter().take_while(|p| *p == "super").count();
                    let rest = path[ups..].iter().filter(|p| *p != "self").cloned();
                    module[..module.len().saturating_sub(ups)].iter().cloned().chain(rest).collect()
                }
                _ if is_use && modules.contains(&child) => module.iter().cloned().chain(path).collect(),
                _ => continue,
            };
            match public && absolute.starts_with(module) {
                true => file.reexports.push((name, absolute)),
                false => file.paths.push(absolute),
            }
        }
    }
    file
}

/// Reads one path, or a tree of them: each with the name that it gets. Returns where it ends.
fn tree(tokens: &[&str], mut i: usize, prefix: &[String], groups: bool, found: &mut Vec<(Found, String)>) -> usize {
    let mut path = prefix.to_vec();
    while let Some(&token) = tokens.get(i) {
        match token {
            "{" if groups => {
                i += 1;
                while tokens.get(i).is_some_and(|t| *t != "}") {
                    i = tree(tokens, i, &path, true, found);
                    i += usize::from(tokens.get(i) == Some(&","));
                }
                return i + 1;
            }
            "::" => i += 1,
            word if word == "*" && groups || word.starts_with(|c: char| c.is_alphanumeric() || c == '_') => {
                path.push(word.to_owned());
                i += 1;
                if tokens.get(i) != Some(&"::") {
                    break;
                }
            }
            _ => break,
        }
    }
    if path.is_empty() {
        return i + 1;
    }
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    let mut name = path[path.len() - 1].clone();
    if tokens.get(i) == Some(&"as") {
        name = tokens[i + 1].to_owned();
        i += 2;
    }
    found.push((path, name));
    i
}

/// Words, `::`, and single characters.
fn tokens(code: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let len = match first {
            c if word(c) => rest.find(|c| !word(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            c => c.len_utf8(),
        };
        tokens.push(&rest[..len]);
        rest = rest[len..].trim_start();
    }
    tokens
}
