//! What is in a package: every file, where it lies below the prefix, and with which mode.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use softnic_conformance::project;

use super::base::{GLIBC, version};
use super::licences;

/// A file or a link.
pub(super) struct Entry {
    /// Below the prefix, as in `bin/softnic`.
    pub(super) path: String,
    pub(super) kind: Kind,
}

/// What an entry is.
pub(super) enum Kind {
    File { content: Vec<u8>, executable: bool },
    Link { to: &'static str },
}

/// The folder of the libraries, below the prefix: where `softnic run` looks for them.
const LIBRARIES: &str = "lib/softnic";
/// The library, under the names of those whose place it takes.
const VERBS: &str = "libsoftnic_verbs.so";
const NAMES_OF_VERBS: [&str; 4] = ["libibverbs.so.1", "librdmacm.so.1", "libibverbs.so", "librdmacm.so"];
const PRELOAD: &str = "libsoftnic_preload.so";

const PROGRAM: &str = "bin/softnic";
const HEADERS: [(&str, &str); 2] = [
    ("include/infiniband/softnicdv.h", "verbs/include/softnicdv.h"),
    ("include/infiniband/softnic_sdr.h", "verbs/include/softnic_sdr.h"),
];
const UNIT: &str = "lib/systemd/system/softnic-share@.service";
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/softnic"),
    ("zsh", "share/zsh/vendor-completions/_softnic"),
    ("fish", "share/fish/vendor_completions.d/softnic.fish"),
];
const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"];
/// Captures that README and the tutorials read, by paths as in the repository.
const CAPTURES: [&str; 3] = ["bad_rkey_write_softnic", "loss_rxe", "retry_exceeded_softnic"];
/// Where all of these lie.
const DOCUMENT_FOLDER: &str = "share/doc/softnic";
/// Of all crates that are in the binaries.
const LICENCES: &str = "share/doc/softnic/LICENSES";

/// All entries, by name.
pub(super) fn all(build: &Path) -> Result<Vec<Entry>, String> {
    let root = project::root();
    let program = build.join("softnic");
    let mut entries = vec![
        file(PROGRAM, read(&program)?, true),
        file(&format!("{LIBRARIES}/{VERBS}"), read(&build.join(VERBS))?, false),
        file(&format!("{LIBRARIES}/{PRELOAD}"), read(&build.join(PRELOAD))?, false),
        file(UNIT, unit(&read(&root.join("tools/softnic-share@.service"))?)?, false),
        file(LICENCES, licences::text()?.into_bytes(), false),
    ];
    for (path, source) in HEADERS {
        entries.push(file(path, read(&root.join(source))?, false));
    }
    for name in NAMES_OF_VERBS {
        entries.push(Entry { path: format!("{LIBRARIES}/{name}"), kind: Kind::Link { to: VERBS } });
    }
    for name in documents(root)? {
        entries.push(file(&format!("{DOCUMENT_FOLDER}/{name}"), read(&root.join(&name))?, false));
    }
    for (shell, path) in COMPLETIONS {
        entries.push(file(path, output(Command::new(&program).args(["completions", shell]))?, false));
    }
    let pages = build.join("dist-man");
    if pages.exists() {
        fs::remove_dir_all(&pages).map_err(|e| format!("{}: {e}", pages.display()))?;
    }
    output(Command::new(&program).arg("man").arg(&pages))?;
    for page in fs::read_dir(&pages).map_err(|e| format!("{}: {e}", pages.display()))? {
        let page = page.map_err(|e| format!("{}: {e}", pages.display()))?.path();
        let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
        entries.push(file(&format!("share/man/man1/{name}.gz"), zipped(&read(&page)?)?, false));
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(entries)
}

/// Names that every package must have; pages and completions of commands come beside them.
pub(super) fn expected() -> Vec<String> {
    let libraries = [VERBS, PRELOAD].into_iter().chain(NAMES_OF_VERBS).map(|name| format!("{LIBRARIES}/{name}"));
    let tutorials = ["docs/README.md", "docs/tutorial-ci.md", "docs/tutorial-race.md", "docs/tutorial-debug.md"];
    let pictures = ["docs/demo.png", "docs/experiments/race.svg"];
    let names = DOCUMENTS.into_iter().chain(tutorials).chain(pictures).map(str::to_owned).chain(captures());
    let documents = names.map(|name| format!("{DOCUMENT_FOLDER}/{name}"));
    let pages =
        ["softnic", "softnic-run", "softnic-perf", "softnic-share"].map(|name| format!("share/man/man1/{name}.1.gz"));
    let others = [PROGRAM, UNIT, LICENCES].into_iter().chain(HEADERS.map(|(path, _)| path)).map(str::to_owned);
    let completions = COMPLETIONS.map(|(_, path)| path.to_owned());
    libraries.chain(documents).chain(pages).chain(others).chain(completions).collect()
}

/// What there is to read, by its paths in the repository: links between documents lead where they lead there.
fn documents(root: &Path) -> Result<Vec<String>, String> {
    let mut names: Vec<String> = DOCUMENTS.into_iter().map(str::to_owned).chain(captures()).collect();
    for folder in ["docs", "docs/experiments"] {
        let path = root.join(folder);
        for document in fs::read_dir(&path).map_err(|e| format!("{}: {e}", path.display()))? {
            let document = document.map_err(|e| format!("{}: {e}", path.display()))?.path();
            // With the pictures that they show.
            if document.extension().is_some_and(|extension| ["md", "png", "svg"].iter().any(|kind| extension == *kind))
            {
                names.push(format!("{folder}/{}", document.file_name().unwrap_or_default().display()));
            }
        }
    }
    Ok(names)
}

fn captures() -> impl Iterator<Item = String> {
    CAPTURES.into_iter().map(|name| format!("pcaps/corpus/interop_{name}.pcap"))
}

fn file(path: &str, content: Vec<u8>, executable: bool) -> Entry {
    Entry { path: path.into(), kind: Kind::File { content, executable } }
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    fs::read(path).map_err(|e| format!("{}: {e}", path.display()))
}

/// The unit names the program where a package has it.
fn unit(text: &[u8]) -> Result<Vec<u8>, String> {
    let text = String::from_utf8_lossy(text);
    let moved = text.replace("/usr/local/bin/softnic", "/usr/bin/softnic");
    match moved == text {
        true => Err("the unit of `softnic share` does not name /usr/local/bin/softnic any more".into()),
        false => Ok(moved.into_bytes()),
    }
}

fn output(command: &mut Command) -> Result<Vec<u8>, String> {
    let out = command.output().map_err(|e| format!("{:?}: {e}", command.get_program()))?;
    match out.status.success() {
        true => Ok(out.stdout),
        false => Err(format!("{command:?}: {}", String::from_utf8_lossy(&out.stderr).trim_end())),
    }
}

/// Without a name and a time, so that the same text gives the same bytes.
fn zipped(content: &[u8]) -> Result<Vec<u8>, String> {
    let mut out: GzEncoder<Vec<u8>> = GzBuilder::new().write(Vec::new(), Compression::best());
    out.write_all(content).and_then(|()| out.finish()).map_err(|e| e.to_string())
}

/// `control` of the .deb.
pub(super) fn control(entries: &[Entry]) -> String {
    let bytes: usize =
        entries.iter().map(|e| if let Kind::File { content, .. } = &e.kind { content.len() } else { 0 }).sum();
    let (major, minor) = GLIBC;
    format!(
        "Package: softnic\nVersion: {}\nArchitecture: amd64\nMaintainer: The softnic authors <softnic@localhost>\n\
         Installed-Size: {}\nDepends: libc6 (>= {major}.{minor}), libgcc-s1\nSuggests: ibverbs-utils, perftest, rdmacm-utils\n\
         Section: net\nPriority: optional\nDescription: RDMA NIC in software\n \
         RoCEv2 from user space: verbs programs run as they are, on any interface or on none.\n \
         `softnic run -- PROGRAM` gives a program RDMA devices, `softnic perf` measures,\n \
         `softnic sim` and `softnic race` compare transports in virtual time, and\n \
         `softnic inspect`, `replay` and `wire` look into traffic of other NICs.\n",
        version(),
        bytes.div_ceil(1024)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Who has only the package follows README and the tutorials in it.
    #[test]
    fn documents_pictures_and_captures_that_tutorials_name_are_in_the_package() {
        let root = project::root();
        let there = documents(root).unwrap();
        for page in ["README.md", "docs/tutorial-ci.md", "docs/tutorial-race.md", "docs/tutorial-debug.md"] {
            let text = fs::read_to_string(root.join(page)).unwrap();
            let folder = Path::new(page).parent().unwrap();
            let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
            let links = links.filter(|link| [".md", ".png", ".svg"].iter().any(|kind| link.ends_with(kind)));
            let links = links.map(|link| folder.join(link).display().to_string());
            let captures = text.split_whitespace().filter(|word| word.starts_with("pcaps/")).map(str::to_owned);
            let named: Vec<String> = links.chain(captures).collect();
            assert!(!named.is_empty(), "{page}");
            for name in named.iter().filter(|name| *name != "CONTRIBUTING.md") {
                assert!(there.contains(name), "{page}: {name}");
            }
        }
    }
}
