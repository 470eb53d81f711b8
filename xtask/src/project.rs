//! Where things lie: the repository, its captures, and those of real hardware.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The environment variable that names the folder with captures of real hardware.
pub(crate) const CAPTURES_VARIABLE: &str = "SOFTNIC_CAPTURES";

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    // This crate lies one folder below it, wherever the command was started.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Our own captures.
pub(crate) fn corpus() -> PathBuf {
    root().join("pcaps/corpus")
}

/// The folder with captures of real hardware; the error says why there is none.
pub(crate) fn hardware_captures() -> Result<PathBuf, String> {
    match env::var_os(CAPTURES_VARIABLE).filter(|v| !v.is_empty()) {
        Some(folder) => {
            // The tests run in folders of their own, so a relative path must become one that holds everywhere.
            fs::canonicalize(&folder).map_err(|e| format!("{CAPTURES_VARIABLE} is {}: {e}", folder.display()))
        }
        None => fs::canonicalize(root().join("../shared/captures"))
            .map_err(|_| format!("no captures of real hardware: {CAPTURES_VARIABLE} is not set")),
    }
}

/// The captures in a folder, in order of their names.
pub(crate) fn captures_in(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).filter(|p| is_capture(p)).collect();
    files.sort();
    Ok(files)
}

fn is_capture(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "pcap" || e == "pcapng")
}
