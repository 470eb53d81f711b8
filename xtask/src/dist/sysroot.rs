//! The C library of Debian 11 to link with: a program that is linked with a newer one does not start with an older one.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::base::Package;

/// The packages, with glibc 2.31.
const PACKAGES: [Package; 3] = [
    Package {
        path: "pool/main/g/glibc/libc6_2.31-13+deb11u11_amd64.deb",
        sha256: "05f7264da867b37f4c5ce49266b558ea1e81e05a9464f623152fca70f3550282",
    },
    Package {
        path: "pool/main/g/glibc/libc6-dev_2.31-13+deb11u11_amd64.deb",
        sha256: "e7f7b45d9c5cfcf37609f0b6efd3c645272c812144703af89dfd32218fcb0fd3",
    },
    Package {
        path: "pool/main/g/gcc-10/libgcc-s1_10.2.1-6_amd64.deb",
        sha256: "e478f2709d8474165bb664de42e16950c391f30eaa55bc9b3573281d83a29daf",
    },
];
/// Where the libraries lie below the root.
const LIBRARIES: [&str; 2] = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];

/// A folder with the libraries, as if it were `/`.
pub(super) struct Sysroot(PathBuf);

/// Fetches and unpacks the packages, unless they are there.
pub(super) fn make(folder: &Path) -> Result<Sysroot, String> {
    let root = folder.join("root");
    let done = folder.join("done");
    if done.exists() {
        return Ok(Sysroot(root));
    }
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(failed)?;
    }
    fs::create_dir_all(&root).map_err(failed)?;
    for package in &PACKAGES {
        package.unpack(folder, &root)?;
    }
    move_links(&root, &root).map_err(failed)?;
    fs::write(done, "").map_err(failed)?;
    Ok(Sysroot(root))
}

/// Links to whole paths point to this machine's libraries: they are turned to those of the folder.
fn move_links(folder: &Path, root: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_symlink() {
            if let Ok(inside) = fs::read_link(&path)?.strip_prefix("/") {
                fs::remove_file(&path)?;
                symlink(root.join(inside), &path)?;
            }
        } else if path.is_dir() {
            move_links(&path, root)?;
        }
    }
    Ok(())
}

impl Sysroot {
    /// What rustc is told, so that the linker takes everything of C from here.
    pub(super) fn linker_arguments(&self) -> Vec<String> {
        let [first, second] = LIBRARIES.map(|name| self.0.join(name));
        let arguments = [
            format!("--sysroot={}", self.0.display()),
            format!("-B{}", first.display()),
            format!("-L{}", second.display()),
        ];
        arguments.iter().map(|argument| format!("-Clink-arg={argument}")).collect()
    }
}
