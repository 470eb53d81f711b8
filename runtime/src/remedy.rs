//! What to do where the system refuses something because a limit is reached.

use std::io;

/// What follows a system's error in a line for the user: nothing where there is nothing to advise.
pub(crate) fn remedy(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::EMFILE) => "; raise the limit of open files (`ulimit -n`)",
        Some(libc::ENFILE) => "; raise the limit of open files of this host (`sysctl fs.file-max`)",
        _ => "",
    }
}

/// Whether the system has no descriptor left: whatever was to be opened is not to blame.
pub(crate) fn no_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}
