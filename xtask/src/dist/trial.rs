//! The .deb in bare systems: made by debootstrap, entered by chroot, in a mount namespace that ends with each command.

use std::fs;
use std::path::Path;
use std::process::Command;

use softnic_conformance::project;
use softnic_conformance::setup::is_installed;

use super::base::{Package, succeed};

/// A system to try in.
struct System {
    name: &'static str,
    suite: &'static str,
    mirror: &'static str,
    components: &'static str,
    keyring: &'static str,
    /// Where the keyring is from, if Debian 12 has it not.
    keyring_package: Option<Package>,
}

const SYSTEMS: [System; 2] = [
    System {
        name: "Debian 12",
        suite: "bookworm",
        mirror: "http://deb.debian.org/debian",
        components: "main",
        keyring: "/usr/share/keyrings/debian-archive-keyring.gpg",
        keyring_package: None,
    },
    // With the oldest glibc that the package is for.
    System {
        name: "Ubuntu 20.04",
        suite: "focal",
        mirror: "http://archive.ubuntu.com/ubuntu",
        components: "main,universe",
        keyring: "/usr/share/keyrings/ubuntu-archive-keyring.gpg",
        // Of Debian 13.
        keyring_package: Some(Package {
            path: "pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1-0.2_all.deb",
            sha256: "b2e7ed48431bf9e7978ae810bbdaf253093570d6e3f864e575b7c13554b81174",
        }),
    },
];

/// What is done in each; the first that fails ends it.
const COMMANDS: &str = "set -e
dpkg -i /softnic.deb
softnic --version
softnic perf send_lat --size 64 --iters 200
softnic perf write_bw --size 64K --iters 500
softnic run --dev mem -- ibv_devinfo
softnic run --dev mem -- ibv_devinfo -d softnic0 | grep -q PORT_ACTIVE
LD_LIBRARY_PATH=/usr/lib/softnic SOFTNIC_DEV=mem ibv_devices | grep softnic1
bash -n /usr/share/bash-completion/completions/softnic
test -s /usr/share/man/man1/softnic-run.1.gz
grep -q ExecStart=/usr/bin/softnic /usr/lib/systemd/system/softnic-share@.service
dpkg -r softnic
test ! -e /usr/bin/softnic";

/// Installs the package in every system, runs it there, and removes it.
pub(super) fn run(deb: &Path) -> Result<(), String> {
    for (program, package) in [("debootstrap", "debootstrap"), ("unshare", "util-linux")] {
        if !is_installed(program) {
            succeed(Command::new("apt-get").args(["-q", "-y", "install", package]))?;
        }
    }
    for system in &SYSTEMS {
        println!("== {}", system.name);
        let root = made(system)?;
        fs::copy(deb, root.join("softnic.deb")).map_err(|e| format!("{}: {e}", root.display()))?;
        in_namespace(
            "mount -t proc proc \"$1/proc\" && mount -t tmpfs tmpfs \"$1/dev/shm\" && exec chroot \"$1\" /bin/bash -c \"$2\"",
            &[&root.display().to_string(), COMMANDS],
        )
        .map_err(|e| format!("{}: {e}", system.name))?;
    }
    Ok(())
}

/// A system with verbs programs and nothing else; kept for the next time.
fn made(system: &System) -> Result<std::path::PathBuf, String> {
    let folder = project::root().join("target/dist-try");
    let (root, done) = (folder.join(system.suite), folder.join(format!("{}.done", system.suite)));
    if done.exists() {
        return Ok(root);
    }
    if root.exists() {
        fs::remove_dir_all(&root).map_err(|e| format!("{}: {e}", root.display()))?;
    }
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let keyring = match &system.keyring_package {
        Some(package) if !Path::new(system.keyring).exists() => {
            let unpacked = folder.join("keyring");
            package.unpack(&folder, &unpacked)?;
            unpacked.join(system.keyring.trim_start_matches('/')).display().to_string()
        }
        _ => system.keyring.to_owned(),
    };
    // debootstrap mounts what its second stage needs.
    let arguments = [system.components, &keyring, system.suite, &root.display().to_string(), system.mirror];
    in_namespace(
        "exec debootstrap --variant=minbase --include=ibverbs-utils --components=\"$1\" --keyring=\"$2\" \"$3\" \"$4\" \"$5\"",
        &arguments,
    )
    .map_err(|e| format!("{}: {e}", system.name))?;
    fs::write(&done, "").map_err(|e| format!("{}: {e}", done.display()))?;
    Ok(root)
}

/// Runs a line of shell in a mount namespace of its own: whatever it mounts is gone when it ends, however it ends.
fn in_namespace(line: &str, arguments: &[&str]) -> Result<(), String> {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "sh", "-c", line, "sh"]);
    succeed(command.args(arguments))
}
