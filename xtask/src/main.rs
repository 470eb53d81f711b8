//! The project's chores: `cargo xtask setup`, `test`, `tshark`, `interop`, `between`, `switch`, `guest-tests`, `nic-tests`, `soak`, `fuzz`, `verbs`, `shift`, `pyverbs`, `dist`.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)] // what a chore prints is what it is for

mod bench_peers;
mod commands;
mod dist;
#[cfg(test)]
mod docs;
mod fuzz;
mod soak;
mod test;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use softnic_conformance::{between, guest_tests, interop, nic_tests, pyverbs, setup, switch, tshark, verbs};

/// The project's chores
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Install with apt what the tests use beyond Rust: tshark, ip, ISA-L, redis and the headers of libibverbs
    Setup,
    /// Run every layer of tests and end with a table of them
    ///
    /// Captures of real hardware are read from the folder that SOFTNIC_CAPTURES names; where it is not set, from
    /// ../shared/captures beside the repository. Its INDEX.md says how many ICRCs of each file must match.
    #[command(after_help = "Examples:
  cargo xtask test
  cargo xtask test --only clippy --only tshark
  SOFTNIC_CAPTURES=~/captures cargo xtask test --all")]
    Test {
        /// Also what takes long or needs a nightly toolchain: miri, the fuzzers
        #[arg(long)]
        all: bool,
        /// Only the layers whose names have this in them; may be given several times
        #[arg(long, value_name = "PART")]
        only: Vec<String>,
    },
    /// Hold our dissection of captures against tshark's, field by field
    #[command(after_help = "Examples:
  cargo xtask tshark
  cargo xtask tshark capture.pcap")]
    Tshark {
        /// Captures; without any: ours, those of SOFTNIC_CAPTURES, and frames of every opcode made on the spot
        files: Vec<PathBuf>,
    },
    /// Exchange data with Linux Soft-RoCE (rdma_rxe) in a virtual machine, both ways, and see that all is as it must be
    ///
    /// The guest is made from Debian packages, without installing any, and kept in ~/.cache/softnic. As root the frames go over
    /// AF_XDP on a tap, in a network namespace that is made for it and removed at the end; without, through a datagram socket.
    #[command(after_help = "Examples:
  cargo xtask interop
  cargo xtask interop --all --keep-pcap captures
  cargo xtask interop --all --write-docs
  cargo xtask interop --wire dgram loss corrupt --seed 3
  cargo xtask interop send/rxe read/softnic/ipv6/4096")]
    Interop(interop::Options),
    /// Put `softnic wire` between two virtual machines with Linux Soft-RoCE (rdma_rxe), with faults, and see that they recover
    ///
    /// Data is compared, and the counters of both machines are held against those of the wire. Needs root: the guests are on taps in a
    /// network namespace of their own.
    #[command(after_help = "Examples:
  cargo xtask between
  cargo xtask between loss script --keep-pcap captures")]
    Between(between::Options),
    /// Put `softnic switch` among two virtual machines with Linux Soft-RoCE (rdma_rxe) and a softnic: one sends to a group, the others receive
    ///
    /// Data is compared in all memories, and the counters of the machines are held against those of the switch. Needs root: the guests are
    /// on taps in a network namespace of their own. With --bench nobody boots: rates of the switch, as ratios.
    #[command(after_help = "Examples:
  cargo xtask switch
  cargo xtask switch loss rxe-key --keep-pcap captures
  cargo xtask switch --bench")]
    Switch(switch::Options),
    /// Run tests of softnic-runtime inside the guest: on an older kernel, with VLAN interfaces
    ///
    /// The test programs for network namespaces are built here and run there as root, so nothing on this machine is touched. Without
    /// any FILTER, those that this machine may not be able to run.
    #[command(after_help = "Examples:
  cargo xtask guest-tests
  cargo xtask guest-tests --all
  cargo xtask guest-tests vlan multicast")]
    GuestTests(guest_tests::Options),
    /// Run softnic over AF_XDP in zero-copy on emulated PCI NICs (igb, virtio_net), in a guest with a newer kernel
    ///
    /// QEMU and kernel are fetched from Debian's backports with the mirror that apt uses, without installing any, and kept in
    /// ~/.cache/softnic. Two NICs of each kind are wired to each other; nothing on this machine is touched. See docs/afxdp-nics.md.
    #[command(after_help = "Examples:
  cargo xtask nic-tests
  cargo xtask nic-tests --all
  cargo xtask nic-tests igb/rc --verbose")]
    NicTests(nic_tests::Options),
    /// Run the simulator's swarm over very many seeds: every transport, operation, network and fault, on all cores
    ///
    /// Each seed is a world of its own, in which everything that must hold is checked. Seeds that fail are written to a file
    /// as they come; exit code 1 if there are any. Ctrl-C ends it with the summary so far. With --self-test known bugs
    /// are planted one at a time, each of which must be found: exit code 1 if one is not. See docs/testing.md.
    #[command(after_help = "Examples:
  cargo xtask soak --seeds 50000 --seed 100000
  cargo xtask soak --self-test
  cargo xtask soak --self-test --bug atomic-twice --bug fence-ignored")]
    Soak(soak::Options),
    /// Run every fuzz target in turn, and end with a table of executions, new inputs and crashes
    ///
    /// Needs a nightly toolchain. Inputs that reach something new are kept in target/fuzz-corpus, and the next run begins with
    /// them. An input that a target does not survive lies in fuzz/artifacts; exit code 1 if there is any. See docs/testing.md.
    #[command(after_help = "Examples:
  cargo xtask fuzz --minutes 60
  cargo xtask fuzz --minutes 5 nic cm
  cargo xtask fuzz cm --input fuzz/corpus/cm/mixed")]
    Fuzz(fuzz::Options),
    /// Make a tar.gz and a .deb for x86-64 with glibc 2.31 or newer: program, libraries, man pages, completions, unit, licences
    ///
    /// Links with the C library of Debian 11, which is fetched once, and refuses what needs a newer one or is larger than 10 MB.
    /// The same source gives the same bytes; times are those of SOURCE_DATE_EPOCH, or of the last commit.
    #[command(after_help = "Examples:
  cargo xtask dist
  cargo xtask dist --try
  cargo xtask dist --dev")]
    Dist(dist::Options),
    /// Race softnic against UCX over TCP, UDP and raw frames over one veth pair, in turns
    ///
    /// Needs root, for network namespaces and AF_XDP, and two cores with nothing else to do. Installs ucx-utils and
    /// ethtool with apt where they are missing. Segmentation offloads are off, as on a plain wire. See docs/performance.md.
    #[command(after_help = "Examples:
  cargo xtask bench-peers
  cargo xtask bench-peers --rounds 15 --write-docs")]
    BenchPeers(bench_peers::Options),
    /// Run unmodified verbs programs on softnic: ibv_*_pingpong, perftest, UCX and libfabric, with each other and with Linux Soft-RoCE, and C tests
    ///
    /// Needs root, for network namespaces and AF_XDP; the C tests on a wire in memory do not. Installs ibverbs-utils, perftest,
    /// rdmacm-utils, ucx-utils, libfabric-bin, gcc and the headers of rdma-core with apt where they are missing.
    #[command(after_help = "Examples:
  cargo xtask verbs
  cargo xtask verbs --c
  cargo xtask verbs c/errors pair/ibv_rc_pingpong
  cargo xtask verbs --all --write-docs
  cargo xtask verbs --offsets > offsets.txt")]
    Verbs(verbs::Options),
    /// Take the path away from under programs on softnic, whose device has a backup, and give it back: they must not notice
    ///
    /// Needs root, for network namespaces and AF_XDP. Links that go down, flap, or lose one way only, interfaces that are deleted, peers
    /// without a backup, programs that connect by name: see docs/failover.md.
    #[command(after_help = "Examples:
  cargo xtask shift
  cargo xtask shift --all
  cargo xtask shift --list
  cargo xtask shift ib_send_bw -v
  cargo xtask shift by-name")]
    Shift(verbs::FailoverOptions),
    /// Run rdma-core's own tests of libibverbs (pyverbs) on softnic, over loopback queue pairs of one device
    ///
    /// Installs python3-pyverbs with apt where it is missing, which has them. Modules for devices of other vendors are left out. As
    /// root over AF_XDP, on a veth in a network namespace that is made for it and removed at the end; without, on a wire in memory. A test
    /// that the suite skips has failed, unless docs/verbs.md says that softnic does not have what it is for, or the machine lacks it.
    #[command(after_help = "Examples:
  cargo xtask pyverbs
  cargo xtask pyverbs test_mr test_qp.QPTest.test_create_rc_qp_with_attr --repeat 10
  cargo xtask pyverbs --write-docs")]
    Pyverbs(pyverbs::Options),
}

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Setup => setup::run().map(|done| println!("{done}")),
        Command::Test { all, only } => test::run(all, &only),
        Command::Between(options) => between::run(&options),
        Command::Switch(options) => switch::run(&options),
        Command::Interop(options) => interop::run(&options),
        Command::GuestTests(options) => guest_tests::run(&options),
        Command::NicTests(options) => nic_tests::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::Dist(options) => dist::run(&options),
        Command::BenchPeers(options) => bench_peers::run(&options),
        Command::Verbs(options) => verbs::run(&options),
        Command::Shift(options) => verbs::run_failover(&options),
        Command::Pyverbs(options) => pyverbs::run(&options),
        Command::Tshark { files } => tshark::run(&files).map(|report| println!("{report}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("xtask: {e}");
            ExitCode::FAILURE
        }
    }
}
