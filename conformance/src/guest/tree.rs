//! Programs that run from their unpacked packages, by their own loader and with their own libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::Error;

/// Packages unpacked into one folder.
pub(super) struct Tree(pub(super) PathBuf);

impl Tree {
    /// The first of `names` that is there.
    pub(super) fn first_of(&self, names: &[&str]) -> Result<PathBuf, Error> {
        let found = names.iter().map(|n| self.0.join(n)).find(|p| p.exists());
        found.ok_or_else(|| Error::Failed(format!("the packages hold no {}", names[0])))
    }

    /// A program of the tree, to be started.
    pub(super) fn command(&self, program: &str) -> Result<Command, Error> {
        let loader = self.first_of(&["lib64/ld-linux-x86-64.so.2", "usr/lib64/ld-linux-x86-64.so.2"])?;
        let libraries = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];
        let libraries = libraries.map(|l| self.0.join(l).display().to_string()).join(":");
        let mut c = Command::new(loader);
        c.arg("--library-path").arg(libraries).arg(self.first_of(&[program])?);
        Ok(c)
    }

    pub(super) fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }
}
