//! A folder of files with paths as in /sys, in the temporary folder of `softnic run` or in a temporary folder of the process.

use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::environment::files;

/// The naming scheme of `softnic run`, which removes folders that are not locked, with the folder of files in them.
const TEMPLATE: &str = "softnic-run-XXXXXX";
const FILES: &str = "files";

/// The folder. Paths in it have no leading slash.
pub(super) struct Folder(PathBuf);

impl Folder {
    /// The folder of `softnic run`, or one that is removed with this process; `None` if neither can be written.
    pub(super) fn new() -> Option<Folder> {
        match files() {
            Some(path) => path.is_dir().then_some(Folder(path)),
            None => own().map(Folder),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file with a line of text.
    pub(super) fn put(&self, path: &str, text: &str) -> io::Result<()> {
        let (place, line) = (self.0.join(path), format!("{text}\n"));
        match fs::read(&place) {
            Ok(old) if old == line.as_bytes() => Ok(()),
            _ => self.replace(&place, |new| fs::write(new, &line)),
        }
    }

    /// Creates a symbolic link.
    pub(super) fn link(&self, path: &str, target: &Path) -> io::Result<()> {
        let place = self.0.join(path);
        match fs::read_link(&place) {
            Ok(old) if old == target => Ok(()),
            _ => self.replace(&place, |new| symlink(target, new)),
        }
    }

    /// Removes a file.
    pub(super) fn remove(&self, path: &str) -> io::Result<()> {
        match fs::remove_file(self.0.join(path)) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(e),
            _ => Ok(()),
        }
    }

    /// Replaces a path atomically, and creates the parent folders.
    fn replace(&self, place: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // Next to `sys` and `dev`, where no program looks.
        let (process, n) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let new = self.0.join(format!("new-{process}-{n}"));
        if !self.0.is_dir() {
            // `softnic run` has ended, and removed the folder.
            return Err(ErrorKind::NotFound.into());
        }
        if let Some(parent) = place.parent() {
            fs::create_dir_all(parent)?;
        }
        make(&new)?;
        fs::rename(&new, place)
    }
}

/// A folder that is removed at the end of this process.
fn own() -> Option<PathBuf> {
    static OWN: OnceLock<(PathBuf, u32)> = OnceLock::new();
    extern "C" fn remove() {
        // The child of a fork must not remove the parent's folder.
        if let Some((path, _)) = OWN.get().filter(|(_, process)| *process == std::process::id()) {
            let _ = fs::remove_dir_all(path);
        }
    }
    let template = CString::new(std::env::temp_dir().join(TEMPLATE).as_os_str().as_bytes()).ok()?;
    let mut name = template.into_bytes_with_nul();
    // SAFETY: a string that ends with the letters to be replaced.
    if unsafe { libc::mkdtemp(name.as_mut_ptr().cast()) }.is_null() {
        return None;
    }
    name.pop();
    let path = PathBuf::from(OsString::from_vec(name));
    let lock = File::open(&path).ok()?;
    lock.try_lock().ok()?;
    // Locked as long as the process lives.
    let _ = lock.into_raw_fd();
    OWN.set((path.clone(), std::process::id())).ok()?;
    // SAFETY: a function of this library, which is never unloaded.
    unsafe { libc::atexit(remove) };
    let files = path.join(FILES);
    fs::create_dir(&files).ok()?;
    Some(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_links_are_replaced_and_nothing_else_is_left() {
        let folder = Folder(own().unwrap());
        folder.put("sys/a/b", "one").unwrap();
        folder.put("sys/a/b", "two").unwrap();
        folder.link("sys/c", Path::new("a/b")).unwrap();
        folder.link("sys/c", Path::new("a/b")).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("sys/c")).unwrap(), "two\n");
        folder.link("sys/c", Path::new("a")).unwrap();
        assert_eq!(fs::read_link(folder.path().join("sys/c")).unwrap(), Path::new("a"));
        folder.remove("sys/c").unwrap();
        folder.remove("sys/c").unwrap();
        let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left, ["sys"]);
        fs::remove_dir_all(folder.path()).unwrap();
        assert_eq!(folder.put("sys/a/b", "three").unwrap_err().kind(), ErrorKind::NotFound);
        assert!(!folder.path().exists(), "it is not made again");
    }
}
