//! Where things lie: the repository, its documents, its captures, and those of real hardware.

use std::path::{Path, PathBuf};
use std::{env, fs};

/// The environment variable that names the folder with captures of real hardware.
pub const CAPTURES_VARIABLE: &str = "SOFTNIC_CAPTURES";

/// The root of the repository.
pub fn root() -> &'static Path {
    // This crate lies one folder below it, wherever the command was started.
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}

/// Our own captures.
pub(crate) fn corpus() -> PathBuf {
    root().join("pcaps/corpus")
}

/// The folder with captures of real hardware; the error says why there is none.
pub fn hardware_captures() -> Result<PathBuf, String> {
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
pub fn captures_in(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).filter(|p| is_capture(p)).collect();
    files.sort();
    Ok(files)
}

fn is_capture(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "pcap" || e == "pcapng")
}

/// Puts `middle` between two marks of one of the repository's documents.
pub fn write_between_marks(file: &str, begin: &str, end: &str, middle: &str) -> Result<(), String> {
    let path = root().join(file);
    let text = fs::read_to_string(&path).map_err(|e| format!("{file}: {e}"))?;
    let text = replace_between(&text, begin, end, middle).ok_or_else(|| format!("{file} has lost its marks"))?;
    fs::write(&path, text).map_err(|e| format!("{file}: {e}"))
}

/// `text` with `middle` between the two marks; `None` where they are missing.
pub fn replace_between(text: &str, begin: &str, end: &str, middle: &str) -> Option<String> {
    let (before, rest) = text.split_once(begin)?;
    let (_, after) = rest.split_once(end)?;
    Some(format!("{before}{begin}{middle}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_between_the_marks_is_replaced() {
        assert_eq!(replace_between("a<old>b", "<", ">", "new").as_deref(), Some("a<new>b"));
        assert_eq!(replace_between("a old b", "<", ">", "new"), None);
    }
}
