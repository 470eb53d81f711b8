//! Network namespaces of a test, gone with it. Without root or `ip` the test is left out, and stderr says so.

use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Namespaces of one test; each has a name of its own among them.
pub(crate) struct Namespaces {
    prefix: String,
    names: &'static [&'static str],
}

impl Namespaces {
    /// Makes the namespaces, and what the commands of `ip` say; in these `@a` is the namespace `a`.
    pub(crate) fn new(names: &'static [&'static str], commands: &[&str]) -> Option<Namespaces> {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let made = Namespaces { prefix: format!("sn-{}-{number}-", std::process::id()), names };
        let add = names.iter().try_for_each(|name| made.ip(&format!("netns add @{name}")));
        match add.and_then(|()| commands.iter().try_for_each(|command| made.ip(command))) {
            Ok(()) => Some(made),
            Err(why) => {
                let test = std::thread::current().name().unwrap_or("a test").to_string();
                let _ = writeln!(std::io::stderr(), "LEFT OUT: {test}: {why}");
                None
            }
        }
    }

    /// The name that the kernel knows a namespace by.
    pub(crate) fn name(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }

    pub(crate) fn ip(&self, arguments: &str) -> Result<(), String> {
        let arguments = arguments.replace('@', &self.prefix);
        let output = Command::new("ip").args(arguments.split_whitespace()).output().map_err(|e| format!("ip: {e}"))?;
        match output.status.success() {
            true => Ok(()),
            false => Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        }
    }

    /// A command in one of the namespaces.
    pub(crate) fn inside(&self, name: &str, program: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name(name), program]);
        command
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in self.names {
            // One that was not made cannot be removed.
            let _ = self.ip(&format!("netns delete @{name}"));
        }
    }
}
