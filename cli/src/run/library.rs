//! The libraries that programs are given: where they lie.

use std::path::{Path, PathBuf};

/// libibverbs and librdmacm in one, as cargo builds it.
const NAME: &str = "libsoftnic_verbs.so";
/// The name that programs linked with libibverbs know it by.
pub(crate) const IBVERBS: &str = "libibverbs.so.1";
/// Its other names. Programs that load a library themselves often ask for the name without a version first: NCCL does.
pub(crate) const OTHER_NAMES: [&str; 3] = ["librdmacm.so.1", "libibverbs.so", "librdmacm.so"];

/// The one that answers for device files: `preload/lib.rs`.
pub(crate) const PRELOAD: &str = "libsoftnic_preload.so";

/// Both, of this very build: beside the program, or in the `lib` beside its `bin`, where packages have a folder of their own.
pub(crate) struct Libraries {
    pub(crate) verbs: PathBuf,
    /// Few programs need it: without it the others run as well.
    pub(crate) preload: Option<PathBuf>,
}

/// Looks for them.
pub(crate) fn find() -> Result<Libraries, String> {
    let program = std::env::current_exe().map_err(|e| format!("cannot tell where this program lies: {e}"))?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let find = |name: &str| {
        let folders = [folder.to_owned(), folder.join("../lib/softnic"), folder.join("../lib")];
        folders.iter().find_map(|folder| folder.join(name).canonicalize().ok())
    };
    if let Some(verbs) = find(NAME) {
        return Ok(Libraries { verbs, preload: find(PRELOAD) });
    }
    let release = if folder.ends_with("debug") { "" } else { " --release" };
    Err(format!("{NAME} is not in {}: build it by `cargo build{release} -p softnic-verbs`", folder.display()))
}
