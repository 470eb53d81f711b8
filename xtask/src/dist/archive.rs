//! The two archives: a tar.gz, and a .deb, which is an `ar` of two of them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use flate2::read::GzDecoder;
use flate2::{Compression, GzBuilder};
use softnic_conformance::project;
use tar::{Builder, EntryType, Header};

use super::base::version;
use super::files::{Entry, Kind, control};

/// What stands before the names of files in the tar.gz.
pub(super) const TARBALL_PREFIX: &str = "softnic-";
/// The same in the .deb.
pub(super) const DEB_PREFIX: &str = "./usr/";

/// Writes both; small where they are shipped, else at once.
pub(super) fn write(entries: &[Entry], out: &Path, small: bool) -> Result<[PathBuf; 2], String> {
    let (tarball, deb) = (
        out.join(format!("softnic-{}-x86_64-linux.tar.gz", version())),
        out.join(format!("softnic_{}_amd64.deb", version())),
    );
    let level = if small { Compression::best() } else { Compression::none() };
    let time = source_time();
    let failed = |path: &Path| {
        let path = path.display().to_string();
        move |e: std::io::Error| format!("{path}: {e}")
    };
    let prefix = format!("softnic-{}/", version());
    let bytes = tree(entries, &prefix, time, level).map_err(failed(&tarball))?;
    fs::write(&tarball, bytes).map_err(failed(&tarball))?;
    let package = || -> std::io::Result<Vec<u8>> {
        let data = tree(entries, DEB_PREFIX, time, level)?;
        let text = control(entries).into_bytes();
        let about = Entry { path: "control".into(), kind: Kind::File { content: text, executable: false } };
        let mut ar = b"!<arch>\n".to_vec();
        member(&mut ar, "debian-binary", time, b"2.0\n")?;
        member(&mut ar, "control.tar.gz", time, &tree(&[about], "./", time, level)?)?;
        member(&mut ar, "data.tar.gz", time, &data)?;
        Ok(ar)
    };
    fs::write(&deb, package().map_err(failed(&deb))?).map_err(failed(&deb))?;
    Ok([tarball, deb])
}

/// The time of all files: of `SOURCE_DATE_EPOCH`, or of the last commit.
fn source_time() -> u64 {
    let given = std::env::var("SOURCE_DATE_EPOCH").ok();
    let commit = || {
        let mut git = Command::new("git");
        let out = git.args(["log", "-1", "--format=%ct"]).current_dir(project::root()).output().ok()?;
        String::from_utf8(out.stdout).ok()
    };
    given.or_else(commit).and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Entries and the folders above them, sorted, of root.
fn tree(entries: &[Entry], prefix: &str, time: u64, level: Compression) -> std::io::Result<Vec<u8>> {
    let mut builder = Builder::new(GzBuilder::new().write(Vec::new(), level));
    let mut folders = BTreeSet::new();
    for entry in entries {
        let path = format!("{prefix}{}", entry.path);
        for (at, _) in path.match_indices('/') {
            folders.insert(path[..=at].to_owned());
        }
    }
    let header = |kind, mode, size: usize| {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size as u64);
        header.set_mtime(time);
        header.set_uid(0);
        header.set_gid(0);
        header
    };
    for folder in &folders {
        // The crate would leave out the `./` that dpkg expects.
        let mut header = header(EntryType::Directory, 0o755, 0);
        set_name(&mut header, folder)?;
        header.set_cksum();
        builder.append(&header, &[][..])?;
    }
    for entry in entries {
        let path = format!("{prefix}{}", entry.path);
        match &entry.kind {
            Kind::File { content, executable } => {
                let mut header = header(EntryType::Regular, if *executable { 0o755 } else { 0o644 }, content.len());
                set_name(&mut header, &path)?;
                header.set_cksum();
                builder.append(&header, &content[..])?;
            }
            Kind::Link { to } => {
                let mut header = header(EntryType::Symlink, 0o777, 0);
                set_name(&mut header, &path)?;
                header.set_link_name_literal(to)?;
                header.set_cksum();
                builder.append(&header, &[][..])?;
            }
        }
    }
    builder.into_inner()?.finish()
}

/// A name as it is.
fn set_name(header: &mut Header, name: &str) -> std::io::Result<()> {
    let Some(place) = header.as_old_mut().name.get_mut(..name.len()) else {
        return Err(std::io::Error::other(format!("{name} is too long for a header of tar")));
    };
    place.copy_from_slice(name.as_bytes());
    Ok(())
}

/// One file of an `ar`.
fn member(ar: &mut Vec<u8>, name: &str, time: u64, content: &[u8]) -> std::io::Result<()> {
    writeln!(ar, "{name:<16}{time:<12}{:<6}{:<6}{:<8}{:<10}`", 0, 0, 100_644, content.len())?;
    ar.write_all(content)?;
    if content.len() % 2 == 1 {
        ar.push(b'\n');
    }
    Ok(())
}

/// Names of files and links in an archive, without what stands before them.
pub(super) fn names(file: &Path, prefix: &str) -> Result<BTreeSet<String>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", file.display());
    let mut bytes = Vec::new();
    File::open(file).and_then(|mut f| f.read_to_end(&mut bytes)).map_err(failed)?;
    let data = match file.extension().is_some_and(|e| e == "deb") {
        true => last_member(&bytes).ok_or_else(|| format!("{} is no .deb", file.display()))?,
        false => &bytes[..],
    };
    let mut names = BTreeSet::new();
    for entry in tar::Archive::new(GzDecoder::new(data)).entries().map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let Some(rest) = name.strip_prefix(prefix) else { continue };
        // In the tar.gz the version stands behind it.
        let rest = if prefix == TARBALL_PREFIX { rest.split_once('/').map_or("", |(_, rest)| rest) } else { rest };
        if !rest.is_empty() && !rest.ends_with('/') {
            names.insert(rest.to_owned());
        }
    }
    Ok(names)
}

/// The content of the last file of an `ar`.
fn last_member(ar: &[u8]) -> Option<&[u8]> {
    let mut rest = ar.strip_prefix(b"!<arch>\n")?;
    loop {
        let size: usize = std::str::from_utf8(rest.get(48..58)?).ok()?.trim().parse().ok()?;
        let content = rest.get(60..60 + size)?;
        rest = rest.get(60 + size + size % 2..).unwrap_or_default();
        if rest.is_empty() {
            return Some(content);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries() -> Vec<Entry> {
        let file = |path: &str, content: &[u8], executable| Entry {
            path: path.into(),
            kind: Kind::File { content: content.to_vec(), executable },
        };
        vec![
            file("bin/softnic", b"program", true),
            Entry { path: "lib/softnic/libibverbs.so.1".into(), kind: Kind::Link { to: "libsoftnic_verbs.so" } },
            file("lib/softnic/libsoftnic_verbs.so", b"library", false),
        ]
    }

    fn folder(name: &str) -> PathBuf {
        let folder = project::root().join("target").join(name);
        fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn the_same_files_give_the_same_archives_and_are_read_back() {
        let [first, second] =
            ["dist-test-a", "dist-test-b"].map(|name| write(&entries(), &folder(name), true).unwrap());
        for ((a, b), prefix) in first.iter().zip(&second).zip([TARBALL_PREFIX, DEB_PREFIX]) {
            assert_eq!(fs::read(a).unwrap(), fs::read(b).unwrap());
            let wanted: BTreeSet<String> = entries().into_iter().map(|e| e.path).collect();
            assert_eq!(names(a, prefix).unwrap(), wanted);
        }
    }

    /// Where there is dpkg, it reads the package as we meant it.
    #[test]
    fn dpkg_reads_the_package() {
        let [_, deb] = write(&entries(), &folder("dist-test-c"), true).unwrap();
        let ask = |option: &str| Command::new("dpkg-deb").arg(option).arg(&deb).output();
        let Ok(info) = ask("--info") else {
            eprintln!("LEFT OUT: there is no dpkg-deb");
            return;
        };
        let text = String::from_utf8(info.stdout).unwrap();
        assert!(info.status.success() && text.contains("Depends: libc6 (>= 2.31)"), "{text}");
        let list = String::from_utf8(ask("--contents").unwrap().stdout).unwrap();
        assert!(list.contains("-rwxr-xr-x root/root") || list.contains("-rwxr-xr-x 0/0"), "{list}");
        assert!(list.contains("./usr/lib/softnic/libibverbs.so.1 -> libsoftnic_verbs.so"), "{list}");
    }
}
