//! A folder that only this run sees, with the libraries under the names that ld.so looks for.
//!
//! It is locked while it is used. A run that was ended by SIGKILL leaves one behind, and the next run removes it: nobody holds its lock.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};

use softnic_check::ALL_WRITTEN;

use super::library::{IBVERBS, Libraries, OTHER_NAMES, PRELOAD};

/// What the names of all these folders begin with.
const PREFIX: &str = "softnic-run-";
/// A folder in it, for the library.
const FILES: &str = "files";
/// Another one, for the counters of NICs.
const COUNTERS: &str = "counters";
/// And one for what `softnic check` finds.
const FINDINGS: &str = "findings";

/// Removed when it is dropped.
pub(crate) struct PrivateFolder {
    path: PathBuf,
    /// An open directory, locked.
    _lock: File,
}

impl PrivateFolder {
    /// A new one, for these libraries.
    pub(super) fn with(libraries: &Libraries) -> Result<PrivateFolder, String> {
        let parent = parent();
        remove_abandoned(&parent, PREFIX, remove);
        let failed = |e| format!("cannot make a folder in {}: {e}", parent.display());
        let (path, lock) = make_locked(&parent, PREFIX).map_err(failed)?;
        let folder = PrivateFolder { path, _lock: lock };
        let verbs = [IBVERBS].into_iter().chain(OTHER_NAMES).map(|name| (&libraries.verbs, name));
        let preload = libraries.preload.iter().map(|preload| (preload, PRELOAD));
        for (library, name) in verbs.chain(preload) {
            symlink(library, folder.path.join(name)).map_err(failed)?;
        }
        fs::create_dir(folder.files()).map_err(failed)?;
        Ok(folder)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the library puts files of its own. It opens the folder when the program lists devices, and not before.
    pub(super) fn files(&self) -> PathBuf {
        self.path.join(FILES)
    }

    /// Where the library puts counters of NICs.
    pub(super) fn counters(&self) -> PathBuf {
        self.path.join(COUNTERS)
    }

    /// Makes the folder of the counters.
    pub(super) fn make_counters(&self) -> Result<PathBuf, String> {
        make(self.counters())
    }

    /// Where the library puts what it finds wrong with the program.
    pub(crate) fn findings(&self) -> PathBuf {
        self.path.join(FINDINGS)
    }

    /// Makes the folder of the findings.
    pub(crate) fn make_findings(&self) -> Result<PathBuf, String> {
        let folder = make(self.findings())?;
        let all_written = folder.join(ALL_WRITTEN);
        File::create(&all_written).map_err(|e| format!("cannot make {}: {e}", all_written.display()))?;
        Ok(folder)
    }
}

/// A new folder, locked.
fn make_locked(parent: &Path, prefix: &str) -> io::Result<(PathBuf, File)> {
    loop {
        // Nobody else may look into it: whoever could write there would have code run.
        let path = nix::unistd::mkdtemp(&parent.join(format!("{prefix}XXXXXX")))?;
        match lock(&path)? {
            Some(lock) => return Ok((path, lock)),
            // Another run took it for an abandoned one in the moment before it was locked.
            None => continue,
        }
    }
}

/// A folder for many runs of one program, removed with all that is in it when it is dropped.
pub(crate) struct Scratch {
    path: PathBuf,
    _lock: File,
}

impl Scratch {
    /// A new one, whose name begins so.
    pub(crate) fn new(prefix: &str) -> Result<Scratch, String> {
        let parent = parent();
        let remove = |path: &Path| _ = fs::remove_dir_all(path);
        remove_abandoned(&parent, prefix, remove);
        let failed = |e| format!("cannot make a folder in {}: {e}", parent.display());
        let (path, lock) = make_locked(&parent, prefix).map_err(failed)?;
        Ok(Scratch { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

fn make(folder: PathBuf) -> Result<PathBuf, String> {
    fs::create_dir(&folder).map_err(|e| format!("cannot make {}: {e}", folder.display()))?;
    Ok(folder)
}

impl Drop for PrivateFolder {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Where temporary files go; ld.so would take some names for two.
fn parent() -> PathBuf {
    let usual = std::env::temp_dir();
    match usual.to_str().is_some_and(|name| !name.contains([':', ';', '$', ' '])) && usual.is_absolute() {
        true => usual,
        false => PathBuf::from("/tmp"),
    }
}

/// The lock of a folder; `None` if another has it, or it is there no more.
fn lock(path: &Path) -> io::Result<Option<File>> {
    let opened = match File::open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    match opened.try_lock() {
        Err(TryLockError::WouldBlock) => return Ok(None),
        Err(TryLockError::Error(e)) => return Err(e),
        Ok(()) => {}
    }
    // It may have been removed between being opened and being locked.
    let same = fs::symlink_metadata(path).is_ok_and(|now| opened.metadata().is_ok_and(|then| now.ino() == then.ino()));
    Ok(same.then_some(opened))
}

/// Removes what runs that were killed left behind.
fn remove_abandoned(parent: &Path, prefix: &str, remove: fn(&Path)) {
    let own = nix::unistd::geteuid().as_raw();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_one = entry.file_name().to_str().is_some_and(|name| name.starts_with(prefix));
        // Not through links: the folder of temporary files is everybody's.
        if is_one && fs::symlink_metadata(entry.path()).is_ok_and(|m| m.is_dir() && m.uid() == own) {
            // Held until it is removed.
            if let Ok(Some(_lock)) = lock(&entry.path()) {
                remove(&entry.path());
            }
        }
    }
}

/// Removes what was put there and nothing else. What cannot be removed stays: there is nobody to tell.
fn remove(path: &Path) {
    for name in [IBVERBS, PRELOAD].into_iter().chain(OTHER_NAMES) {
        let _ = fs::remove_file(path.join(name));
    }
    let _ = fs::remove_dir_all(path.join(FILES));
    let _ = fs::remove_dir_all(path.join(COUNTERS));
    let _ = fs::remove_dir_all(path.join(FINDINGS));
    let _ = fs::remove_dir(path);
}
