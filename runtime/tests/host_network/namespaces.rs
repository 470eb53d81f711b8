//! Network namespaces for tests: made with `ip netns`, removed when dropped, also after a panic.

use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Some namespaces, known by their numbers.
pub(crate) struct Namespaces {
    names: Vec<String>,
}

impl Namespaces {
    /// `None` where they cannot be made, which is said on stderr: the test is left out.
    pub(crate) fn new(count: usize) -> Option<Namespaces> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let set = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut all = Namespaces { names: Vec::new() };
        for i in 0..count {
            let name = format!("sn-{}-{set}-{i}", std::process::id());
            match Command::new("ip").args(["netns", "add", &name]).output() {
                Ok(output) if output.status.success() => all.names.push(name),
                Ok(output) => {
                    let why = String::from_utf8_lossy(&output.stderr);
                    left_out(&format!("no network namespaces here (root makes them): {}", why.trim()));
                    return None;
                }
                Err(error) => {
                    left_out(&format!("`ip` does not run (it is in the package iproute2): {error}"));
                    return None;
                }
            }
        }
        Some(all)
    }

    /// A veth pair between two of them, both ends up; the names belong to the ends.
    pub(crate) fn veth(&self, (a, end_a): (usize, &str), (b, end_b): (usize, &str)) {
        self.ip(a, &format!("link add {end_a} type veth peer name {end_b} netns {}", self.names[b]));
        self.ip(a, &format!("link set {end_a} up"));
        self.ip(b, &format!("link set {end_b} up"));
    }

    /// Runs `ip` in one of them; what it prints.
    pub(crate) fn ip(&self, i: usize, args: &str) -> String {
        let output = self.command(i, args).output().unwrap();
        assert!(output.status.success(), "ip {args}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Tries to run `ip` in one of them.
    pub(crate) fn can(&self, i: usize, args: &str) -> bool {
        self.command(i, args).output().unwrap().status.success()
    }

    fn command(&self, i: usize, args: &str) -> Command {
        let mut command = Command::new("ip");
        command.args(["-n", &self.names[i]]).args(args.split_whitespace());
        command
    }

    /// Sets a kernel parameter, a path below /proc/sys, in one of them.
    pub(crate) fn sysctl(&self, i: usize, path: &str, value: u32) {
        let (path, value) = (format!("/proc/sys/{path}"), value.to_string());
        self.inside(i, || std::fs::write(path, value).unwrap());
    }

    /// Calls `f` in one of them, on a thread of its own.
    pub(crate) fn inside<T: Send>(&self, i: usize, f: impl FnOnce() -> T + Send) -> T {
        let space = File::open(format!("/run/netns/{}", self.names[i])).unwrap();
        let result = thread::scope(|scope| {
            let thread = scope.spawn(|| {
                move_into_link_name_space(space.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
                f()
            });
            thread.join()
        });
        result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

/// Says on stderr why this test is left out; not by `eprintln`, which is shown for tests that fail only.
pub(crate) fn left_out(why: &str) {
    let name = thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(std::io::stderr(), "LEFT OUT: {name}: {why}");
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).output();
        }
    }
}
