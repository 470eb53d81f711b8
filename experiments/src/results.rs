//! What runs leave for later: files that are whole or not there, and charts that can be drawn again, with what they were made by.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::chart::Chart;

/// A file of results.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Results {
    pub(crate) made_by: MadeBy,
    pub(crate) chart: Chart,
}

/// What results come from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct MadeBy {
    /// The version of this program.
    pub(crate) softnic: String,
    pub(crate) name: String,
    /// What was run, in words.
    pub(crate) what: String,
    pub(crate) seeds: Vec<u64>,
    /// Fewer points and shorter runs than the whole.
    pub(crate) quick: bool,
    /// Runs that were made, of those that were to be: fewer where it was interrupted.
    pub(crate) runs: usize,
    pub(crate) of: usize,
}

impl Results {
    pub(crate) fn read(path: &Path) -> Result<Results, String> {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        serde_json::from_str(&text).map_err(|e| {
            format!("{} is no file of results that `softnic race` or `experiment` wrote: {e}", path.display())
        })
    }

    pub(crate) fn json(&self) -> Result<Vec<u8>, String> {
        let mut bytes = serde_json::to_vec(self).map_err(|e| e.to_string())?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}

/// Writes files into a folder; their paths. All are written aside first, so that what lies there stays as it is if one cannot be.
pub(crate) fn write_all(folder: &Path, files: Vec<(String, Vec<u8>)>) -> Result<Vec<PathBuf>, String> {
    let aside = |name: &str| folder.join(format!(".{name}.{}", std::process::id()));
    let result = put(folder, &files, &aside);
    if result.is_err() {
        for (name, _) in &files {
            let _ = fs::remove_file(aside(name));
        }
    }
    result
}

fn put(folder: &Path, files: &[(String, Vec<u8>)], aside: &dyn Fn(&str) -> PathBuf) -> Result<Vec<PathBuf>, String> {
    let failed = |path: &Path, e: io::Error| format!("{}: {e}", path.display());
    for (name, bytes) in files {
        let path = aside(name);
        let written = fs::File::create(&path).and_then(|mut file| file.write_all(bytes));
        written.map_err(|e| failed(&folder.join(name), e))?;
    }
    let rename = |(name, _): &(String, Vec<u8>)| {
        let path = folder.join(name);
        fs::rename(aside(name), &path).map(|()| path.clone()).map_err(|e| failed(&path, e))
    };
    files.iter().map(rename).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_whole_and_nothing_stays_behind_where_one_cannot_be() {
        let folder = std::env::temp_dir().join(format!("softnic-results-{}", std::process::id()));
        fs::create_dir_all(folder.join("taken.csv")).unwrap();
        fs::write(folder.join("a.csv"), "old").unwrap();
        let file = |name: &str| (name.to_string(), b"new".to_vec());
        assert_eq!(write_all(&folder, vec![file("a.csv")]), Ok(vec![folder.join("a.csv")]));
        assert_eq!(fs::read(folder.join("a.csv")).unwrap(), b"new");
        let said = write_all(&folder, vec![file("taken.csv"), file("b.csv")]).unwrap_err();
        assert!(said.contains("taken.csv"), "{said}");
        let left: Vec<_> = fs::read_dir(&folder).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "{left:?}");
        fs::remove_dir_all(folder).unwrap();
    }
}
