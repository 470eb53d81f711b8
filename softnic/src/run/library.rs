//! The library that is libibverbs and librdmacm in one: where it lies.

use std::path::{Path, PathBuf};

/// Its name, as cargo builds it.
const NAME: &str = "libsoftnic_verbs.so";
/// The names that programs know it by.
pub(crate) const IBVERBS: &str = "libibverbs.so.1";
pub(crate) const RDMACM: &str = "librdmacm.so.1";

/// The library of this very build: beside the program, or in the `lib` beside its `bin`.
pub(crate) fn find() -> Result<PathBuf, String> {
    let program = std::env::current_exe().map_err(|e| format!("cannot tell where this program lies: {e}"))?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let places = [folder.join(NAME), folder.join("../lib").join(NAME)];
    if let Some(library) = places.iter().find_map(|place| place.canonicalize().ok()) {
        return Ok(library);
    }
    let release = if folder.ends_with("debug") { "" } else { " --release" };
    Err(format!("{NAME} is not in {}: build it by `cargo build{release} -p softnic-verbs`", folder.display()))
}
