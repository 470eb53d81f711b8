//! `cargo xtask dist`: a tar.gz and a .deb that run on every x86-64 Linux with glibc 2.31.

mod archive;
mod base;
mod elf;
mod files;
mod licences;
mod sysroot;
mod trial;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use softnic_conformance::project;
use softnic_conformance::steps::Outcome;

use base::GLIBC;
use files::Kind;

/// What each of the two packages may be, at most.
const MAX_BYTES: u64 = 10_000_000;
/// Below the folder `target`.
const OUT: &str = "target/dist-packages";

/// Options of the chore.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Install the .deb in a bare Debian 12 and a bare Ubuntu 20.04, made by debootstrap, and run it there. Needs root
    #[arg(long = "try")]
    trial: bool,
    /// Package what `cargo build` makes, in seconds: for looking at the package, and not for anybody to install
    #[arg(long, conflicts_with = "trial")]
    dev: bool,
}

/// The programs and libraries of a build.
struct Built {
    folder: PathBuf,
    /// Whether this is what people get: stripped, small, and for an old glibc.
    shipped: bool,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let built = build(!options.dev)?;
    let [tarball, deb] = package(&built)?;
    if options.trial {
        trial::run(&deb)?;
    }
    for file in [tarball, deb] {
        let bytes = fs::metadata(&file).map_err(|e| format!("{}: {e}", file.display()))?.len();
        println!("{} ({:.1} MB)", file.display(), bytes as f64 / 1e6);
    }
    Ok(())
}

/// The list of files of a package, from a build that other layers need as well: a layer of tests.
pub(crate) fn run_as_layer() -> Outcome {
    let checked = build(false).and_then(|built| package(&built)).and_then(|[tarball, deb]| {
        let expected = files::expected();
        for (file, prefix) in [(&tarball, archive::TARBALL_PREFIX), (&deb, archive::DEB_PREFIX)] {
            let names = archive::names(file, prefix)?;
            if let Some(missing) = expected.iter().find(|name| !names.contains(*name)) {
                return Err(format!("{} lacks {missing}", file.display()));
            }
        }
        Ok(expected.len())
    });
    match checked {
        Ok(n) => Outcome::Passed(format!("{n} files")),
        Err(why) => Outcome::Failed(why),
    }
}

/// Builds the program and its libraries.
fn build(shipped: bool) -> Result<Built, String> {
    let root = project::root();
    let mut cargo = Command::new("cargo");
    cargo.current_dir(root).args(["build", "--locked", "-p", "softnic", "-p", "softnic-verbs"]);
    let folder = match shipped {
        false => root.join("target/debug"),
        true => {
            let old = sysroot::make(&root.join("target/dist-sysroot"))?;
            let home = std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| home + "/.cargo"));
            // The same bytes wherever it is built.
            let mut flags = old.linker_arguments();
            // By the compiler's own flag: CARGO_PROFILE_DIST_STRIP left the symbols in.
            flags.push("-Cstrip=symbols".into());
            flags.push(format!("--remap-path-prefix={}=.", root.display()));
            flags.extend(home.ok().map(|home| format!("--remap-path-prefix={home}=cargo")));
            cargo
                .args(["--profile", "dist", "--features", "softnic/png"])
                .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\u{1f}"));
            cargo.env("CARGO_TARGET_DIR", root.join("target/dist-build"));
            cargo.env("CARGO_PROFILE_DIST_DEBUG", "0");
            root.join("target/dist-build/dist")
        }
    };
    match cargo.status() {
        Ok(status) if status.success() => Ok(Built { folder, shipped }),
        Ok(status) => Err(format!("cargo build: {status}")),
        Err(e) => Err(format!("cargo cannot be started: {e}")),
    }
}

/// Checks what was built, and writes both packages.
fn package(built: &Built) -> Result<[PathBuf; 2], String> {
    let out = project::root().join(if built.shipped { OUT } else { "target/dist-dev" });
    fs::create_dir_all(&out).map_err(|e| format!("{}: {e}", out.display()))?;
    let entries = files::all(&built.folder)?;
    if built.shipped {
        for entry in &entries {
            let Kind::File { content, .. } = &entry.kind else { continue };
            if content.starts_with(b"\x7fELF") {
                check_glibc(&entry.path, content)?;
            }
        }
    }
    let packages = archive::write(&entries, &out, built.shipped)?;
    for file in &packages {
        let bytes = fs::metadata(file).map_err(|e| format!("{}: {e}", file.display()))?.len();
        if built.shipped && bytes > MAX_BYTES {
            return Err(format!("{} has {bytes} bytes, and {MAX_BYTES} is the most", file.display()));
        }
    }
    Ok(packages)
}

/// Refuses what needs a newer glibc.
fn check_glibc(name: &str, content: &[u8]) -> Result<(), String> {
    let newest = elf::glibc_needed(content).map_err(|e| format!("{name}: {e}"))?;
    println!("{name} needs glibc {}.{}", newest.0, newest.1);
    match newest <= GLIBC {
        true => Ok(()),
        false => Err(format!(
            "{name} needs glibc {}.{}, and {}.{} must do: `objdump -T` shows which symbol",
            newest.0, newest.1, GLIBC.0, GLIBC.1
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of one table of the workspace's manifest.
    fn table(manifest: &str, name: &str) -> Vec<String> {
        let lines = manifest.lines().skip_while(|line| *line != format!("[{name}]")).skip(1);
        let lines = lines.take_while(|line| !line.starts_with('['));
        lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
    }

    /// `dist` inherits what `release` says of single crates: one that is optimized less there would be packaged so.
    #[test]
    fn every_crate_of_the_package_is_fully_optimized() {
        let manifest = fs::read_to_string(project::root().join("Cargo.toml")).unwrap();
        for profile in ["profile.dist", "profile.bench"] {
            assert!(table(&manifest, profile).contains(&"opt-level = 3".to_owned()), "{profile}");
        }
        let crates = table(&manifest, "profile.release.package");
        assert!(crates.iter().any(|line| line.starts_with("softnic-nic ")), "{crates:?}");
        let raised = table(&manifest, "profile.dist.package");
        for line in crates.into_iter().filter(|line| !line.ends_with(" = { opt-level = 3 }")) {
            let (name, _) = line.split_once(' ').unwrap();
            assert!(raised.contains(&format!("{name} = {{ opt-level = 3 }}")), "{line}");
        }
        assert!(!manifest.contains("[profile.release.package."), "one table for all of them");
    }
}
