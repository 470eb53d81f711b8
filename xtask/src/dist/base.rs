//! What the parts of the chore share.

use std::path::Path;
use std::process::Command;

/// The oldest glibc that the package runs with: that of Debian 11 and Ubuntu 20.04.
pub(super) const GLIBC: (u32, u32) = (2, 31);
/// The version of the packages.
pub(super) fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// What a chore starts has to end well.
pub(super) fn succeed(command: &mut Command) -> Result<(), String> {
    let program = Path::new(command.get_program()).display().to_string();
    match command.stdin(std::process::Stdio::null()).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{program}: {status}")),
        Err(e) => Err(format!("{program} cannot be started: {e}")),
    }
}
