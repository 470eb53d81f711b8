//! What the parts of the chore share.

use std::path::Path;
use std::process::Command;

/// The oldest glibc that the package runs with: that of Debian 11 and Ubuntu 20.04.
pub(super) const GLIBC: (u32, u32) = (2, 31);
/// Where packages of Debian are fetched from, unless `SOFTNIC_MIRROR` says otherwise.
const MIRROR: &str = "http://deb.debian.org/debian";

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

/// A package of Debian that the chore needs, whatever the machine's own system is.
pub(super) struct Package {
    /// Its path on a mirror.
    pub(super) path: &'static str,
    pub(super) sha256: &'static str,
}

impl Package {
    /// Fetches it into `folder`, and unpacks it as if `root` were `/`.
    pub(super) fn unpack(&self, folder: &Path, root: &Path) -> Result<(), String> {
        let mirror = std::env::var("SOFTNIC_MIRROR").unwrap_or_else(|_| MIRROR.into());
        let address = format!("{mirror}/{}", self.path);
        let file = folder.join(Path::new(self.path).file_name().unwrap_or_default());
        println!("fetching {address}");
        // apt's own, because it knows the machine's proxies, and compares the sum.
        let mut fetch = Command::new("/usr/lib/apt/apt-helper");
        fetch.args(["-q", "-o", "APT::Sandbox::User=root", "download-file", &address]);
        succeed(fetch.arg(&file).arg(format!("SHA256:{}", self.sha256)))?;
        succeed(Command::new("dpkg-deb").arg("-x").arg(&file).arg(root))
    }
}
