//! Debian packages without installing them: fetched with apt, unpacked into folders of our own.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::Error;

/// Fetches packages into a folder of its own; nothing on the machine changes, so no root is needed.
pub(super) struct Apt {
    folder: PathBuf,
    /// Lists of packages of our own, because the machine has none or old ones.
    own_lists: bool,
    /// Sources of our own, where the packages are not in the machine's suites.
    own_sources: bool,
}

/// What Debian signs its suites with, where the package debian-archive-keyring is installed.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

impl Apt {
    /// The machine's apt, working in `folder`.
    pub(super) fn new(folder: &Path) -> Result<Apt, Error> {
        if !crate::steps::succeeds(&["apt-get", "--version"]) || !crate::steps::succeeds(&["dpkg-deb", "--version"]) {
            return Err(Error::Missing("there is no apt-get or no dpkg-deb, which the guest is made with".into()));
        }
        for sub in ["lists/partial", "debs"] {
            super::create_folder(&folder.join(sub))?;
        }
        // As if nothing were installed: then everything that a package needs is fetched.
        super::write(&folder.join("status"), b"")?;
        Ok(Apt { folder: folder.to_owned(), own_lists: false, own_sources: false })
    }

    /// With these suites of the mirror that the machine's apt uses, instead of the machine's own.
    pub(super) fn of_suites(folder: &Path, suites: &[&str]) -> Result<Apt, Error> {
        let machine = Apt::new(folder)?;
        let sites = output(machine.command("apt-get").args(["indextargets", "--format", "$(SITE)"]));
        let sites = sites.map_err(Error::Missing)?;
        // Other archives of Debian, and of others, have other names: debian-security.
        let mirror = sites.lines().find(|site| site.trim_end_matches('/').ends_with("/debian"));
        let mirror = mirror.ok_or_else(|| Error::Missing("apt has no mirror of Debian among its sources".into()))?;
        let signed_by = if Path::new(KEYRING).exists() { format!("[signed-by={KEYRING}] ") } else { String::new() };
        let lines: String = suites.iter().map(|suite| format!("deb {signed_by}{mirror} {suite} main\n")).collect();
        super::write(&folder.join("sources.list"), lines.as_bytes())?;
        let apt = Apt { own_lists: true, own_sources: true, ..machine };
        output(apt.command("apt-get").args(["-q", "update"])).map_err(Error::Missing)?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut c = Command::new(program);
        c.env("DEBIAN_FRONTEND", "noninteractive").env("LC_ALL", "C").stdin(std::process::Stdio::null());
        let mut option = |name: &str, value: &Path| {
            c.arg("-o").arg(format!("{name}={}", value.display()));
        };
        option("Dir::State::status", &self.folder.join("status"));
        option("Dir::Cache::pkgcache", Path::new(""));
        option("Dir::Cache::srcpkgcache", Path::new(""));
        option("APT::Install-Recommends", Path::new("false"));
        // Locks, and the user that apt fetches as, belong to the machine's own folders.
        option("Debug::NoLocking", Path::new("true"));
        option("APT::Sandbox::User", Path::new("root"));
        if self.own_lists {
            option("Dir::State::lists", &self.folder.join("lists"));
        }
        if self.own_sources {
            option("Dir::Etc::sourcelist", &self.folder.join("sources.list"));
            option("Dir::Etc::sourceparts", Path::new("/dev/null"));
        }
        c
    }

    /// Everything that `packages` need, themselves included.
    pub(super) fn fetch(&mut self, name: &str, packages: &[&str]) -> Result<Vec<PathBuf>, Error> {
        let to = self.folder.join("debs").join(name);
        super::create_folder(&to.join("partial"))?;
        self.with_lists(|apt| {
            let mut c = apt.command("apt-get");
            c.arg("-o").arg(format!("Dir::Cache::archives={}", to.display()));
            c.args(["-q", "-y", "--download-only", "install"]).args(packages);
            output(&mut c)
        })?;
        debs_in(&to)
    }

    /// The kernel that `package` stands for: those of its packages whose names are one of `parts` and its version.
    pub(super) fn fetch_kernel(&mut self, package: &str, parts: &[&str]) -> Result<Vec<PathBuf>, Error> {
        const IMAGE: &str = "linux-image-";
        let depends = self.with_lists(|apt| output(apt.command("apt-cache").args(["depends", package])))?;
        let mut named = depends.lines().filter_map(|l| l.trim().strip_prefix("Depends: "));
        let Some(version) = named.find_map(|n| n.trim().strip_prefix(IMAGE)) else {
            return Err(Error::Missing(format!("apt's package {package} depends on no {IMAGE}…")));
        };
        let packages: Vec<String> = parts.iter().map(|part| format!("{part}{version}")).collect();
        let to = self.folder.join("debs").join("kernel");
        super::create_folder(&to)?;
        self.with_lists(|apt| {
            output(apt.command("apt-get").args(["-q", "download"]).args(&packages).current_dir(&to))
        })?;
        debs_in(&to)
    }

    /// Tries with the machine's lists of packages, and if that fails with new ones of our own.
    fn with_lists<T>(&mut self, run: impl Fn(&Apt) -> Result<T, String>) -> Result<T, Error> {
        match run(self) {
            Ok(done) => return Ok(done),
            Err(why) if self.own_lists => return Err(Error::Missing(why)),
            Err(why) => println!("guest: {why}; trying with new package lists"),
        }
        self.own_lists = true;
        output(self.command("apt-get").args(["-q", "update"])).map_err(Error::Missing)?;
        run(self).map_err(Error::Missing)
    }
}

/// Unpacks packages into one tree, but for those whose names begin with one of `skip`.
pub(super) fn unpack(debs: &[PathBuf], tree: &Path, skip: &[&str]) -> Result<(), Error> {
    super::create_folder(tree)?;
    for deb in debs {
        let name = deb.file_name().unwrap_or_default().to_string_lossy();
        if !skip.iter().any(|s| name.starts_with(s)) {
            output(Command::new("dpkg-deb").arg("-x").arg(deb).arg(tree)).map_err(Error::Failed)?;
        }
    }
    Ok(())
}

fn debs_in(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(folder).map_err(|e| Error::Failed(format!("{}: {e}", folder.display())))?;
    let mut debs: Vec<_> =
        entries.filter_map(|e| Some(e.ok()?.path())).filter(|p| p.extension().is_some_and(|e| e == "deb")).collect();
    debs.sort();
    Ok(debs)
}

/// What a command prints; the error is one line.
fn output(c: &mut Command) -> Result<String, String> {
    let program = c.get_program().to_string_lossy().into_owned();
    let out = c.output().map_err(|e| format!("{program} cannot be started: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if out.status.success() {
        return Ok(text(&out.stdout));
    }
    let all = text(&out.stdout) + &text(&out.stderr);
    // The first names the cause, those behind it what did not work because of it.
    let mut errors = all.lines().filter(|l| l.starts_with("E: ") || l.starts_with("dpkg-deb: error"));
    let why = errors.next().or(all.lines().next_back()).unwrap_or("no reason given");
    Err(format!("{program}: {why}"))
}
