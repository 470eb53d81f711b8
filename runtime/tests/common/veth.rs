//! A veth pair between two network namespaces, gone when it is dropped.
#![allow(dead_code)] // each test binary uses its own part of this

use std::fs::File;
use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use softnic_runtime::afxdp::{AfXdp, Options};
use softnic_wire::{MacAddr, PathMtu};

/// Names of namespaces must differ within a process too: tests run at the same time.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Long enough for the slowest machine; no test that passes waits for it.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// Two namespaces with a cable between them, or with one each to a namespace in the middle.
pub(crate) struct Veth {
    pub(crate) namespaces: [String; 2],
    /// The one in the middle, whose interfaces are [`MIDDLE`].
    pub(crate) middle: Option<String>,
}

/// Interfaces of the namespace in the middle, towards the first and towards the second side.
pub(crate) const MIDDLE: [&str; 2] = ["snm0", "snm1"];

/// Says that a test did not run. Past the test harness, which shows nothing of tests that pass.
pub(crate) fn left_out(why: &str) {
    let test = std::thread::current().name().unwrap_or("a test").to_string();
    let _ = writeln!(std::io::stderr(), "LEFT OUT: {test}: {why}");
}

/// Whether AF_XDP of this kernel takes frames in several buffers, as path MTU 4096 needs: since Linux 6.6.
pub(crate) fn has_multi_buffer() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map(|n| n.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(6), Some(6))
}

/// The longest path MTU that a device with MTU 4200 and more has here.
pub(crate) fn longest_mtu() -> PathMtu {
    if has_multi_buffer() { PathMtu::B4096 } else { PathMtu::B2048 }
}

/// All path MTUs up to that one.
pub(crate) fn path_mtus() -> impl Iterator<Item = PathMtu> {
    PathMtu::ALL.into_iter().filter(|&mtu| mtu <= longest_mtu())
}

pub(crate) fn ip(arguments: &str) -> Result<String, String> {
    let output = Command::new("ip").args(arguments.split_whitespace()).output().map_err(|e| format!("ip: {e}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into())
    } else {
        Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}

impl Veth {
    /// A pair with so many queues; `None`, and said so, where that is not possible.
    pub(crate) fn new(queues: u32, mtu: u32) -> Option<Veth> {
        Veth::made(queues, [mtu; 2], false)
    }

    /// Two pairs with a namespace in the middle, in which nothing forwards yet; each has its MTU.
    pub(crate) fn with_middle(queues: u32, mtus: [u32; 2]) -> Option<Veth> {
        Veth::made(queues, mtus, true)
    }

    fn made(queues: u32, mtus: [u32; 2], middle: bool) -> Option<Veth> {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = |side: &str| format!("sn-{}-{n}-{side}", std::process::id());
        // From here on whatever was made is removed.
        let veth = Veth { namespaces: ["a", "b"].map(name), middle: middle.then(|| name("m")) };
        match veth.make(queues, mtus) {
            Ok(()) => Some(veth),
            Err(e) => {
                left_out(&e);
                None
            }
        }
    }

    fn make(&self, queues: u32, mtus: [u32; 2]) -> Result<(), String> {
        let [a, b] = &self.namespaces;
        ip(&format!("netns add {a}"))?;
        ip(&format!("netns add {b}"))?;
        let numbers = |side: usize| format!("mtu {} numrxqueues {queues} numtxqueues {queues}", mtus[side]);
        let end = |side: usize| {
            let (name, namespace, mac) = (self.interface(side), &self.namespaces[side], self.mac(side));
            format!("name {name} netns {namespace} {} address {mac}", numbers(side))
        };
        match &self.middle {
            None => ip(&format!("link add {} type veth peer {}", end(0), end(1))).map(drop)?,
            Some(middle) => {
                ip(&format!("netns add {middle}"))?;
                for (side, name) in MIDDLE.into_iter().enumerate() {
                    let peer = format!("name {name} netns {middle} {}", numbers(side));
                    ip(&format!("link add {} type veth peer {peer}", end(side)))?;
                    ip(&format!("-n {middle} link set {name} up"))?;
                }
            }
        }
        for side in 0..2 {
            let interface = self.interface(side);
            self.ip(side, &format!("address add {}/24 dev {interface}", self.address(side)))?;
            self.ip(side, &format!("link set {interface} up"))?;
        }
        Ok(())
    }

    pub(crate) fn interface(&self, side: usize) -> &'static str {
        ["sn0", "sn1"][side]
    }

    pub(crate) fn address(&self, side: usize) -> Ipv4Addr {
        [10, 77, 0, 1 + side as u8].into()
    }

    /// The address of [`Veth::add_ipv6`].
    pub(crate) fn address_v6(&self, side: usize) -> Ipv6Addr {
        [0xfd77, 0, 0, 0, 0, 0, 0, 1 + side as u16].into()
    }

    /// Gives both ends an IPv6 address, usable at once.
    pub(crate) fn add_ipv6(&self) -> Result<(), String> {
        (0..2).try_for_each(|side| {
            self.ip(side, &format!("address add {}/64 dev {} nodad", self.address_v6(side), self.interface(side)))
                .map(drop)
        })
    }

    /// Runs `ip` in the namespace of that side; what it prints.
    pub(crate) fn ip(&self, side: usize, arguments: &str) -> Result<String, String> {
        ip(&format!("-n {} {arguments}", self.namespaces[side]))
    }

    pub(crate) fn mac(&self, side: usize) -> MacAddr {
        MacAddr([2, 0, 0, 0, 77, 1 + side as u8])
    }

    /// Runs `work` in a thread that lives in the namespace of that side.
    pub(crate) fn inside<T: Send>(&self, side: usize, work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                self.enter(side);
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Runs `work` in a thread that lives in the namespace in the middle.
    pub(crate) fn in_the_middle<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let middle = self.middle.as_ref().unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                enter(middle);
                work()
            });
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Moves the calling thread into the namespace of that side.
    pub(crate) fn enter(&self, side: usize) {
        enter(&self.namespaces[side]);
    }

    /// Opens the device of that side.
    pub(crate) fn open(&self, side: usize, options: &Options) -> Vec<AfXdp> {
        self.inside(side, || AfXdp::open(self.interface(side), options).unwrap())
    }

    /// Waits until no XDP program is attached to the device of that side: another test may have a copy of our file descriptors
    /// for a moment, in a process that it is just starting.
    pub(crate) fn await_no_program(&self, side: usize) {
        let begin = Instant::now();
        while self.has_program(side) {
            assert!(begin.elapsed() < LIMIT, "the XDP program is still there");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Whether an XDP program is attached to the device of that side.
    pub(crate) fn has_program(&self, side: usize) -> bool {
        let shown = self.ip(side, &format!("-details link show {}", self.interface(side))).unwrap();
        shown.contains("prog/xdp")
    }
}

/// Moves the calling thread into a namespace.
pub(crate) fn enter(namespace: &str) {
    let namespace = File::open(format!("/run/netns/{namespace}")).unwrap();
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
}

impl Drop for Veth {
    fn drop(&mut self) {
        for namespace in self.namespaces.iter().chain(&self.middle) {
            // One that was not made cannot be removed.
            let _ = ip(&format!("netns delete {namespace}"));
        }
    }
}
