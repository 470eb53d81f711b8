//! The guest: QEMU, kernel and user land out of Debian packages, built once and kept in the user's cache.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::apt::{self, Apt};
use super::cpio::Cpio;
use super::kernel;
use super::recipe::Recipe;
use super::tree::Tree;
use super::{Error, create_folder, failed, write};

/// Packages that only matter to a package manager.
const SKIPPED_PACKAGES: &[&str] =
    &["perl", "libperl", "dpkg_", "tar_", "debconf", "passwd_", "libpam", "media-types", "libdb5", "libsqlite3"];
/// Files that the guest does not use, by the beginning of their names; they would cost memory and time at boot.
const SKIPPED_FILES: &[&str] = &[
    "usr/share/",
    "usr/include/",
    "var/",
    "usr/lib/x86_64-linux-gnu/gconv/",
    "usr/lib/x86_64-linux-gnu/perl",
    "usr/lib/systemd/",
    "lib/systemd/",
    "lib/udev/",
    "etc/",
];
/// Files that it does use, although the list above has them.
const KEPT_FILES: &[&str] = &["etc/libibverbs.d/rxe"];
/// Parts of Python that the guest does not use.
const SKIPPED_PYTHON: &[&str] =
    &["test", "idlelib", "lib2to3", "ensurepip", "distutils", "pydoc_data", "unittest", "tkinter", "turtledemo"];
const INIT: &str = include_str!("init.sh");
/// Changes when what this file does with all of the above does.
const VERSION: u32 = 2;

/// A guest ready to boot.
pub(crate) struct Image {
    folder: PathBuf,
}

impl Image {
    pub(super) fn kernel(&self) -> PathBuf {
        self.folder.join("vmlinux")
    }

    /// The guest's files, and these programs with them: in a file of its own in `folder`, where there are any.
    pub(super) fn initrd_with(&self, programs: &[(String, PathBuf)], folder: &Path) -> Result<PathBuf, Error> {
        let ours = self.folder.join("initrd");
        if programs.is_empty() {
            return Ok(ours);
        }
        let mut more = Cpio::default();
        for (name, from) in programs {
            more.file(name, &fs::read(from).map_err(failed(from))?, true);
        }
        // The kernel unpacks one archive after the other.
        let mut bytes = fs::read(&ours).map_err(failed(&ours))?;
        bytes.extend(more.finish());
        let path = folder.join("initrd");
        write(&path, &bytes)?;
        Ok(path)
    }

    /// The tree that QEMU was unpacked to.
    pub(super) fn host_tree(&self) -> Tree {
        Tree(self.folder.join("host"))
    }

    /// The cached image of a recipe; built where there is none.
    pub(crate) fn of(recipe: &Recipe) -> Result<Image, Error> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return Err(Error::Missing("the guest is made for Linux on x86-64".into()));
        }
        let cache = cache_folder()?;
        let mut key = DefaultHasher::new();
        recipe.hash(&mut key);
        (SKIPPED_PACKAGES, SKIPPED_FILES, KEPT_FILES, SKIPPED_PYTHON, INIT, VERSION).hash(&mut key);
        let image = Image { folder: cache.join(format!("guest-{:016x}", key.finish())) };
        // Layers of tests run side by side, and a build has a folder for each process: whoever comes second takes what the first has made.
        static BUILDING: Mutex<()> = Mutex::new(());
        let _building = BUILDING.lock().unwrap_or_else(PoisonError::into_inner);
        if image.folder.is_dir() {
            image.mark_as_used();
            return Ok(image);
        }
        let build = Build::new(&cache)?;
        build.run(recipe)?;
        remove_unused(&cache);
        // In one step, so that a build that is cut short leaves no half image behind; one made meanwhile is as good.
        let done = build.folder.join("image");
        match fs::rename(&done, &image.folder) {
            Err(_) if image.folder.is_dir() => Ok(image),
            Err(e) => Err(failed(&image.folder)(e)),
            Ok(()) => {
                image.mark_as_used();
                Ok(image)
            }
        }
    }

    /// Only what this file is for depends on it: that an image which nobody uses is removed some day.
    fn mark_as_used(&self) {
        let _ = fs::write(self.folder.join(USED), "");
    }
}

/// A file in an image; its time is that of the last use.
const USED: &str = "used";
/// An image that was not used for so long is of an earlier version of this file.
const KEPT: Duration = Duration::from_secs(14 * 24 * 3600);

fn remove_unused(cache: &Path) {
    for entry in fs::read_dir(cache).into_iter().flatten().flatten() {
        let is_image = entry.file_name().to_string_lossy().starts_with("guest-");
        let used = fs::metadata(entry.path().join(USED)).and_then(|m| m.modified());
        if is_image && used.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > KEPT)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn cache_folder() -> Result<PathBuf, Error> {
    let named = |name: &str| env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let base = named("XDG_CACHE_HOME").or_else(|| named("HOME").map(|h| h.join(".cache")));
    let base =
        base.ok_or_else(|| Error::Failed("neither XDG_CACHE_HOME nor HOME says where to keep the guest".into()))?;
    let folder = base.join("softnic");
    create_folder(&folder)?;
    Ok(folder)
}

/// A build under way, in a folder that goes with it.
struct Build {
    folder: PathBuf,
    begin: Instant,
}

impl Drop for Build {
    fn drop(&mut self) {
        // What stays behind is removed by the next build.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

impl Build {
    fn new(cache: &Path) -> Result<Build, Error> {
        // Builds of processes that were killed.
        for entry in fs::read_dir(cache).map_err(failed(cache))?.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let pid = name.strip_prefix("build-");
            if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        let folder = cache.join(format!("build-{}", std::process::id()));
        create_folder(&folder)?;
        Ok(Build { folder, begin: Instant::now() })
    }

    fn say(&self, what: &str) {
        println!("guest: {:5.1} s  {what}", self.begin.elapsed().as_secs_f64());
    }

    fn run(&self, recipe: &Recipe) -> Result<(), Error> {
        let image = self.folder.join("image");
        create_folder(&image)?;
        // Programs that are built on this machine run in the guest, so its C library is from the machine's own suites.
        let mut apt = Apt::new(&self.folder)?;
        let mut newer = match recipe.suites {
            [] => None,
            suites => Some(Apt::of_suites(&self.folder.join("newer"), suites)?),
        };
        self.say("fetching the guest's packages");
        let guest_debs = apt.fetch("guest", recipe.guest_packages)?;
        let apt = newer.as_mut().unwrap_or(&mut apt);
        self.say("fetching the kernel");
        let kernel_debs = apt.fetch_kernel(recipe.kernel_package, recipe.kernel_parts)?;
        self.say("fetching QEMU");
        let host_debs = apt.fetch("host", recipe.host_packages)?;
        self.say("unpacking");
        let (guest, kernel) = (self.folder.join("guest"), Tree(self.folder.join("kernel")));
        let host = Tree(image.join("host"));
        apt::unpack(&guest_debs, &guest, SKIPPED_PACKAGES)?;
        apt::unpack(&kernel_debs, &kernel.0, &[])?;
        apt::unpack(&host_debs, &host.0, SKIPPED_PACKAGES)?;
        self.say("making the image");
        let modules = entry_of(&kernel.first_of(&["lib/modules", "usr/lib/modules"])?, "")?;
        // Newer packages have the kernel among its modules.
        let bz_image = match modules.join("vmlinuz") {
            beside if beside.exists() => beside,
            _ => entry_of(&kernel.path("boot"), "vmlinuz-")?,
        };
        write(&image.join("vmlinux"), &kernel::vmlinux(&bz_image, &host, &self.folder)?)?;
        let modules = kernel::modules(&modules, recipe.modules, &host)?;
        write(&image.join("initrd"), &initrd(&guest, &modules)?)?;
        self.say("the guest is made");
        Ok(())
    }
}

/// The one entry of a folder whose name begins with `prefix`.
fn entry_of(folder: &Path, prefix: &str) -> Result<PathBuf, Error> {
    let mut entries = fs::read_dir(folder).map_err(failed(folder))?.flatten().map(|e| e.path());
    let found = entries.find(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with(prefix)));
    found.ok_or_else(|| Error::Failed(format!("{} holds no {prefix}…", folder.display())))
}

fn initrd(guest: &Path, modules: &[kernel::Module]) -> Result<Vec<u8>, Error> {
    let mut archive = Cpio::default();
    for folder in ["proc", "sys", "dev", "tmp", "run", "root", "etc"] {
        archive.folder(folder);
    }
    archive.device("dev/console", 5, 1);
    archive.file("init", INIT.as_bytes(), true);
    // Where the packages know only /usr, the old names are links.
    for name in ["bin", "sbin", "lib", "lib64"] {
        if !guest.join(name).exists() && guest.join("usr").join(name).exists() {
            archive.link(name, &format!("usr/{name}"));
        }
    }
    add_tree(&mut archive, guest, "")?;
    let mut order = String::new();
    for module in modules {
        let name = format!("modules/{}.ko", module.name);
        archive.file(&name, &module.data, false);
        order += &format!("/{name}\n");
    }
    archive.file("modules/order", order.as_bytes(), false);
    Ok(archive.finish())
}

fn is_skipped(name: &str) -> bool {
    let python = |p: &str| name.starts_with("usr/lib/python3.") && name.split('/').nth(3) == Some(p);
    let provider = name.contains("/libibverbs/lib") && !name.contains("/librxe");
    let skipped = SKIPPED_FILES.iter().any(|s| name.starts_with(s)) || SKIPPED_PYTHON.iter().any(|p| python(p));
    (skipped || provider) && !KEPT_FILES.iter().any(|k| name.starts_with(k))
}

fn add_tree(archive: &mut Cpio, tree: &Path, below: &str) -> Result<(), Error> {
    let folder = tree.join(below);
    let mut entries: Vec<_> = fs::read_dir(&folder).map_err(failed(&folder))?.flatten().collect();
    entries.sort_by_key(std::fs::DirEntry::file_name);
    for entry in entries {
        let file = entry.file_name().to_string_lossy().into_owned();
        let name = if below.is_empty() { file } else { format!("{below}/{file}") };
        let path = entry.path();
        let kind = entry.file_type().map_err(failed(&path))?;
        if kind.is_dir() {
            add_tree(archive, tree, &name)?;
            continue;
        }
        if is_skipped(&name) {
            continue;
        }
        if kind.is_symlink() {
            let to = fs::read_link(&path).map_err(failed(&path))?;
            archive.link(&name, &to.to_string_lossy());
        } else if kind.is_file() {
            use std::os::unix::fs::PermissionsExt;
            let mode = entry.metadata().map_err(failed(&path))?.permissions().mode();
            archive.file(&name, &fs::read(&path).map_err(failed(&path))?, mode & 0o111 != 0);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_guest_gets() {
        for kept in [
            "bin/busybox",
            "etc/libibverbs.d/rxe.driver",
            "usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so",
            "usr/lib/python3.11/json/decoder.py",
            "usr/lib/python3/dist-packages/pyverbs/qp.so",
        ] {
            assert!(!is_skipped(kept), "{kept}");
        }
        for skipped in [
            "etc/libibverbs.d/mlx5.driver",
            "usr/lib/x86_64-linux-gnu/libibverbs/libmlx5-rdmav34.so",
            "usr/lib/python3.11/test/x.py",
            "usr/share/doc/libc6/copyright",
        ] {
            assert!(is_skipped(skipped), "{skipped}");
        }
    }
}
