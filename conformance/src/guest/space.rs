//! A network namespace of our own, with taps that guests are attached to. All of it is gone when it is dropped.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{Error, failed};

/// Where `ip netns` keeps namespaces by their names.
const NAMES: &str = "/run/netns";

/// A network namespace, called `sn-PURPOSE-PID`.
pub struct Space {
    name: String,
}

impl Space {
    /// Makes it. [`Error::Missing`] where that is not permitted.
    pub fn new(purpose: &str) -> Result<Space, Error> {
        remove_abandoned(purpose);
        let name = format!("sn-{purpose}-{}", std::process::id());
        ip(&format!("netns add {name}")).map_err(|why| {
            Error::Missing(format!("a network namespace needs root (CAP_SYS_ADMIN and CAP_NET_ADMIN): {why}"))
        })?;
        let space = Space { name };
        space.ip("link set lo up")?;
        Ok(space)
    }

    /// What `ip netns` calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs `ip` in it.
    pub fn ip(&self, arguments: &str) -> Result<(), Error> {
        ip(&format!("-n {} {arguments}", self.name)).map_err(Error::Failed)
    }

    /// Makes a tap for a guest: what the guest sends comes in here. Our end of it has this MAC address and these IP addresses.
    pub(crate) fn add_tap(&self, tap: &str, mac: &str, mtu: u32, addresses: &[&str]) -> Result<(), Error> {
        self.ip(&format!("tuntap add dev {tap} mode tap"))?;
        self.ip(&format!("link set {tap} address {mac} mtu {mtu}"))?;
        for address in addresses {
            // Usable at once: nobody else on the link could have it.
            let nodad = if address.contains(':') { "nodad" } else { "" };
            self.ip(&format!("address add {address} dev {tap} {nodad}"))?;
        }
        self.ip(&format!("link set {tap} up"))
    }

    /// Calls `work` in it, on a thread of its own.
    pub(crate) fn inside<T: Send>(&self, work: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
        let path = Path::new(NAMES).join(&self.name);
        let namespace = File::open(&path).map_err(failed(&path))?;
        let enter = move || move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network));
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                enter().map_err(|e| failed(&path)(e.into()))?;
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }
}

impl Drop for Space {
    fn drop(&mut self) {
        // With it go the taps. That it is gone already is just as well.
        let _ = ip(&format!("netns delete {}", self.name));
    }
}

/// Those of processes that were killed.
fn remove_abandoned(purpose: &str) {
    let prefix = format!("sn-{purpose}-");
    for entry in fs::read_dir(NAMES).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pid = name.strip_prefix(&prefix).filter(|pid| pid.parse::<u32>().is_ok());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = ip(&format!("netns delete {name}"));
        }
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output();
    let output = output.map_err(|e| format!("`ip` does not run (it is in the package iproute2): {e}"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}
