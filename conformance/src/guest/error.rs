//! What goes wrong with guests.

use std::io;
use std::path::Path;

/// Why a run with guests ended early.
#[derive(Debug)]
pub enum Error {
    /// The machine lacks something that the guest is made with.
    Missing(String),
    /// Something went wrong.
    Failed(String),
    /// The agent in the guest refused a command.
    Refused(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (Error::Missing(why) | Error::Failed(why) | Error::Refused(why)) = self;
        f.write_str(why)
    }
}

/// Names the file or folder in an error.
pub(crate) fn failed(path: &Path) -> impl Fn(io::Error) -> Error {
    move |e| Error::Failed(format!("{}: {e}", path.display()))
}

pub(crate) fn create_folder(path: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(path).map_err(failed(path))
}

pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    std::fs::write(path, bytes).map_err(failed(path))
}
