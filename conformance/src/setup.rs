//! `cargo xtask setup`: installs with apt what the tests use beyond Rust.

use crate::steps::{self, Outcome, succeeds};

/// Another apt may be at work on a fresh machine; this many seconds are waited for it.
const LOCK_TIMEOUT: &str = "DPkg::Lock::Timeout=400";

/// A program that tests call, or a file that they need, by its whole name, and the Debian package that has it.
pub struct Tool {
    program: &'static str,
    package: &'static str,
}

/// What the tests call.
const TOOLS: [Tool; 5] = [
    Tool { program: "tshark", package: "tshark" },
    Tool { program: "ip", package: "iproute2" },
    // The library itself lies in a folder of the machine's architecture.
    Tool { program: "/usr/share/doc/libisal2/copyright", package: "libisal2" },
    Tool { program: "redis-server", package: "redis-server" },
    // C programs that `softnic explore` is tried on.
    Tool { program: "/usr/include/infiniband/verbs.h", package: "libibverbs-dev" },
];
/// What the tests of `softnic report` call.
pub const BROWSER: [Tool; 1] = [Tool { program: "chromium", package: "chromium" }];
/// What the feature `dpdk` is built with.
pub const DPDK: [Tool; 2] = [
    Tool { program: "/usr/include/dpdk/rte_ethdev.h", package: "libdpdk-dev" },
    Tool { program: "pkg-config", package: "pkg-config" },
];
/// What its tests on veth pairs call.
pub const DPDK_TESTS: [Tool; 3] = [
    Tool { program: "ethtool", package: "ethtool" },
    Tool { program: "sysctl", package: "procps" },
    Tool { program: "ping", package: "iputils-ping" },
];
/// DPDK's own program to send and receive frames.
pub const TESTPMD: [Tool; 1] = [Tool { program: "/usr/bin/dpdk-testpmd", package: "dpdk-dev" }];
/// What makes the veth pair of `cargo xtask bench-peers --dpdk`.
pub const LINK: [Tool; 2] =
    [Tool { program: "ip", package: "iproute2" }, Tool { program: "ethtool", package: "ethtool" }];
/// What `cargo xtask bench-peers` calls.
pub const RACE: [Tool; 4] = [
    Tool { program: "ip", package: "iproute2" },
    Tool { program: "ethtool", package: "ethtool" },
    Tool { program: "ucx_info", package: "ucx-utils" },
    Tool { program: "/usr/bin/ib_write_bw", package: "perftest" },
];

/// What `cargo xtask verbs` calls. The tools of rdma-core end with an error where there is no device, so their files are looked for.
pub(crate) const VERBS: [Tool; 13] = [
    Tool { program: "ip", package: "iproute2" },
    Tool { program: "/usr/bin/ibv_rc_pingpong", package: "ibverbs-utils" },
    Tool { program: "/usr/bin/ib_write_bw", package: "perftest" },
    Tool { program: "/usr/bin/rping", package: "rdmacm-utils" },
    Tool { program: "/usr/bin/ucx_perftest", package: "ucx-utils" },
    Tool { program: "/usr/bin/fi_pingpong", package: "libfabric-bin" },
    Tool { program: "/usr/bin/fio", package: "fio" },
    Tool { program: "/usr/bin/qperf", package: "qperf" },
    Tool { program: "/usr/sbin/ibstat", package: "infiniband-diags" },
    Tool { program: "/usr/include/infiniband/verbs.h", package: "libibverbs-dev" },
    Tool { program: "/usr/include/rdma/rdma_cma.h", package: "librdmacm-dev" },
    Tool { program: "gcc", package: "gcc" },
    Tool { program: "valgrind", package: "valgrind" },
];

/// What builds the C tests.
pub(crate) const COMPILER: [Tool; 3] = [
    Tool { program: "/usr/include/infiniband/verbs.h", package: "libibverbs-dev" },
    Tool { program: "/usr/include/rdma/rdma_cma.h", package: "librdmacm-dev" },
    Tool { program: "gcc", package: "gcc" },
];

/// What its tests of MPI call. The packages with headers need those with programs; their headers lie in folders of the machine's architecture.
pub(crate) const OPEN_MPI: [Tool; 1] =
    [Tool { program: "/usr/share/doc/libopenmpi-dev/copyright", package: "libopenmpi-dev" }];
pub(crate) const MPICH: [Tool; 1] =
    [Tool { program: "/usr/share/doc/libmpich-dev/copyright", package: "libmpich-dev" }];

/// What `cargo xtask pyverbs` calls.
pub(crate) const PYVERBS: [Tool; 3] = [
    Tool { program: "ip", package: "iproute2" },
    Tool { program: "/usr/bin/python3", package: "python3" },
    Tool { program: "/usr/lib/python3/dist-packages/pyverbs/__init__.py", package: "python3-pyverbs" },
];

/// Whether something is missing that `cargo test` uses; without it tests are left out, or fail.
pub fn lacks_for_unit_tests() -> bool {
    TOOLS[1..].iter().any(|tool| !is_installed(tool.program))
}

/// Installs what the tests need and is missing.
pub fn run() -> Result<String, String> {
    install(&TOOLS)
}

/// Installs what is missing; `Ok` says what there was to do, the error in one line why it could not be done.
pub fn install(tools: &[Tool]) -> Result<String, String> {
    let missing: Vec<&Tool> = tools.iter().filter(|t| !is_installed(t.program)).collect();
    if missing.is_empty() {
        let names: Vec<_> = tools.iter().map(|t| t.program).collect();
        return Ok(format!("setup: {} are here, nothing to install", names.join(", ")));
    }
    let packages: Vec<_> = missing.iter().map(|t| t.package).collect();
    let names = packages.join(" ");
    let prefix = apt_prefix().map_err(|why| format!("cannot install {names}: {why}"))?;
    println!("setup: installing with apt: {names}");
    // A machine whose lists are there and current needs no update, which takes longer than the installation.
    let install = || apt(&prefix, &[&["install", "-y", "--no-install-recommends"][..], &packages].concat());
    if install().is_err() {
        println!("setup: trying once more with new package lists");
        apt(&prefix, &["update"])?;
        install()?;
    }
    match missing.iter().find(|t| !is_installed(t.program)) {
        None => Ok(format!("setup: installed {names}")),
        Some(t) => Err(format!("{} was installed, but `{}` does not run", t.package, t.program)),
    }
}

/// Whether a program is there and runs, or a file is there.
pub fn is_installed(program: &str) -> bool {
    if program.starts_with('/') {
        return std::path::Path::new(program).exists();
    }
    // `ip` and UCX know a short form alone.
    succeeds(&[program, "--version"]) || succeeds(&[program, "-V"]) || succeeds(&[program, "-v"])
}

/// What to put before `apt-get` to be root; the error says why nothing would help.
fn apt_prefix() -> Result<Vec<&'static str>, &'static str> {
    if !succeeds(&["apt-get", "--version"]) {
        return Err("there is no apt-get on this system; install it by other means");
    }
    if is_root() {
        return Ok(vec![]);
    }
    match succeeds(&["sudo", "-n", "true"]) {
        true => Ok(vec!["sudo", "-n"]),
        false => Err("apt-get needs root, and sudo asks for a password or is not there"),
    }
}

fn is_root() -> bool {
    steps::command(&["id", "-u"]).output().is_ok_and(|o| o.stdout.trim_ascii() == b"0")
}

fn apt(prefix: &[&str], arguments: &[&str]) -> Result<(), String> {
    // The variable is set with `env`, because sudo drops those of its caller.
    let apt = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-q", "-o", LOCK_TIMEOUT];
    match steps::shell(&[prefix, &apt, arguments].concat()) {
        Outcome::Failed(why) => Err(why),
        Outcome::Passed(_) | Outcome::LeftOut(_) => Ok(()),
    }
}
