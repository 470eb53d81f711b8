//! Why a device of DPDK's was not opened.

use std::io;
use std::path::PathBuf;

/// Why a device of DPDK's was not opened.
#[derive(Debug, thiserror::Error)]
pub enum DpdkError {
    /// It is not built in.
    #[error("`{0}`: this softnic was built without DPDK; build it with `cargo build --release --features dpdk`")]
    NotBuilt(String),
    /// It has no address.
    #[error("`{0}` has no address of its own: add one, as in {0},ip=10.0.0.1/24")]
    NoAddress(String),
    /// DPDK does not start.
    #[error("DPDK does not start: {0}")]
    Start(String),
    /// It was started before the process was forked.
    #[error(
        "`{0}`: DPDK runs in the process that this one was forked from, and not here: open the device there, or fork before"
    )]
    Forked(String),
    /// It was started for devices of another kind.
    #[error("`{device}` needs {needs}, and DPDK was started without in this process: open that device first")]
    Started {
        /// The device.
        device: String,
        /// What it needs.
        needs: &'static str,
    },
    /// There is no such PCI device.
    #[error("there is no PCI device {0}: `softnic devinfo` lists those that DPDK would take")]
    NoSuchPci(String),
    /// A driver of the kernel has the device.
    #[error("{address} belongs to the kernel's driver {driver}: give it to DPDK with `{command}`")]
    KernelDriver {
        /// Where it is.
        address: String,
        /// The driver that has it.
        driver: String,
        /// What binds it to another one.
        command: String,
    },
    /// No driver has the device.
    #[error("{address} has no driver: give it to DPDK with `{command}`")]
    NoDriver {
        /// Where it is.
        address: String,
        /// What binds it to one.
        command: String,
    },
    /// The process may not use the device.
    #[error("{address}: no permission for {}; `chown $USER {}`, or run as root", path.display(), path.display())]
    Access {
        /// Where it is.
        address: String,
        /// The file that stands for it.
        path: PathBuf,
    },
    /// A process uses the device.
    #[error("{address} is in use: a process has {} open", path.display())]
    InUse {
        /// Where it is.
        address: String,
        /// The file that stands for it.
        path: PathBuf,
    },
    /// The process may not lock as much memory as the device needs.
    #[error(
        "`{device}` needs {needed_mib} MiB of locked memory, and {limit_kib} KiB are allowed: `ulimit -l unlimited`, \
         memlock in /etc/security/limits.conf, or CAP_IPC_LOCK"
    )]
    LockedMemory {
        /// The device.
        device: String,
        /// What the process may lock.
        limit_kib: u64,
        /// What the device needs.
        needed_mib: u32,
    },
    /// The machine has less memory than the device locks.
    #[error(
        "`{device}` locks {needed_mib} MiB of memory for {queues} queues, and {available_mib} are available: ask for \
         fewer queues"
    )]
    Memory {
        /// The device.
        device: String,
        /// What programs may have.
        available_mib: u64,
        /// What the device needs.
        needed_mib: u32,
        /// Those that are asked for.
        queues: u32,
    },
    /// Without an IOMMU a device needs huge pages.
    #[error(
        "`{device}` has no IOMMU and needs {needed_mib} MiB of huge pages, and {free_mib} are free: \
         `echo 96 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages`"
    )]
    HugePages {
        /// The device.
        device: String,
        /// What is free.
        free_mib: u64,
        /// What the device needs.
        needed_mib: u32,
    },
    /// The device is how this machine is reached.
    #[error(
        "{address} is {interface}, which has the default route, and the machine may be reached by no other: with `force` \
         behind its name softnic says how to give it to DPDK all the same"
    )]
    DefaultRoute {
        /// Where it is.
        address: String,
        /// Its interface.
        interface: String,
    },
    /// The device is not there, or its driver refuses it.
    #[error("cannot open `{device}`: {error}")]
    Attach {
        /// The device.
        device: String,
        /// DPDK's own words.
        error: io::Error,
    },
    /// The driver has no such option.
    #[error("`{device}`: the driver has no option `{option}`; it has {known}")]
    Option {
        /// The device.
        device: String,
        /// The word.
        option: String,
        /// Those that it has.
        known: String,
    },
    /// Another process listens at its socket.
    #[error("`{device}`: another process listens at {socket}; take another socket")]
    Taken {
        /// The device.
        device: String,
        /// Where.
        socket: String,
    },
    /// Nobody listens at a memif's socket.
    #[error("`{device}`: nobody listens at {socket}; start the end with role=server first ({error})")]
    NoServer {
        /// The device.
        device: String,
        /// Where.
        socket: String,
        /// DPDK's own words.
        error: io::Error,
    },
    /// A buffer of the driver is shorter than a frame.
    #[error("`{device}`: {option} must be at least {least}, so that a frame lies in one piece")]
    ShortBuffer {
        /// The device.
        device: String,
        /// The driver's option.
        option: &'static str,
        /// Its least value.
        least: usize,
    },
    /// The device has fewer queues.
    #[error("`{device}` has {theirs} queues, not {wanted}")]
    Queues {
        /// The device.
        device: String,
        /// Those that it has.
        theirs: u16,
        /// Those that are asked for.
        wanted: u32,
    },
    /// The kernel has no taps.
    #[error("tap={0}: there is no /dev/net/tun; `modprobe tun`, or leave tap= out and use the port's own stack")]
    NoTaps(String),
    /// Another process has the tap.
    #[error("tap={0}: another process has this tap; take another name")]
    TapInUse(String),
    /// There is an interface of this name.
    #[error("tap={0}: there is an interface {0} already that is no tap; take another name")]
    NotATap(String),
    /// The process may not do that.
    #[error("tap={name}: {what} needs CAP_NET_ADMIN; run as root, or leave tap= out and use the port's own stack")]
    TapPermission {
        /// The tap.
        name: String,
        /// What needs it.
        what: &'static str,
    },
    /// The kernel does not do what a tap needs.
    #[error("tap={name}: {what} failed: {error}")]
    Tap {
        /// The tap.
        name: String,
        /// What was tried.
        what: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
}
