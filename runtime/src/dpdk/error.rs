//! Why a DPDK device could not be opened.

use std::io;
use std::path::PathBuf;

/// Why a DPDK device could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum DpdkError {
    /// softnic was built without DPDK.
    #[error("`{0}`: this softnic was built without DPDK; build it with `cargo build --release --features dpdk`")]
    NotBuilt(String),
    /// The device has no address.
    #[error("`{0}` has no address of its own: add one, as in {0},ip=10.0.0.1/24")]
    NoAddress(String),
    /// DPDK did not start.
    #[error("DPDK does not start: {0}")]
    Start(String),
    /// DPDK was started in the parent process, before the fork.
    #[error(
        "`{0}`: DPDK runs in the process that this one was forked from, and not here: open the device there, or fork before"
    )]
    Forked(String),
    /// DPDK was started in this process with settings that do not fit this device.
    #[error("`{device}` needs {needs}, and DPDK was started without in this process: open that device first")]
    Started {
        /// The device.
        device: String,
        /// What the device needs.
        needs: &'static str,
    },
    /// The PCI device does not exist.
    #[error("there is no PCI device {0}: `softnic devinfo` lists those that DPDK would take")]
    NoSuchPci(String),
    /// The device is bound to a driver of the kernel.
    #[error("{address} belongs to the kernel's driver {driver}: give it to DPDK with `{command}`")]
    KernelDriver {
        /// The PCI address.
        address: String,
        /// The driver that the device is bound to.
        driver: String,
        /// The command that binds the device to a driver for DPDK.
        command: String,
    },
    /// The device is bound to no driver.
    #[error("{address} has no driver: give it to DPDK with `{command}`")]
    NoDriver {
        /// The PCI address.
        address: String,
        /// The command that binds the device to a driver for DPDK.
        command: String,
    },
    /// The process has no permission to use the device.
    #[error("{address}: no permission for {}; `chown $USER {}`, or run as root", path.display(), path.display())]
    Access {
        /// The PCI address.
        address: String,
        /// The device's file.
        path: PathBuf,
    },
    /// Another process uses the device.
    #[error("{address} is in use: a process has {} open", path.display())]
    InUse {
        /// The PCI address.
        address: String,
        /// The device's file.
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
        /// The process's limit on locked memory.
        limit_kib: u64,
        /// The memory that the device needs.
        needed_mib: u32,
    },
    /// The machine has less memory available than the device would lock.
    #[error(
        "`{device}` locks {needed_mib} MiB of memory for {queues} queues, and {available_mib} are available: ask for \
         fewer queues"
    )]
    Memory {
        /// The device.
        device: String,
        /// The memory that is available to programs.
        available_mib: u64,
        /// The memory that the device would lock.
        needed_mib: u32,
        /// The number of queues requested.
        queues: u32,
    },
    /// The device has no IOMMU, and too few huge pages are free.
    #[error(
        "`{device}` has no IOMMU and needs {needed_mib} MiB of huge pages, and {free_mib} are free: \
         `echo 96 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages`"
    )]
    HugePages {
        /// The device.
        device: String,
        /// The huge pages that are free.
        free_mib: u64,
        /// The huge pages that the device needs.
        needed_mib: u32,
    },
    /// The machine may be reached through the device.
    #[error(
        "{address} is {interface}, which has the default route, and the machine may be reached by no other: with `force` \
         behind its name softnic says how to give it to DPDK all the same"
    )]
    DefaultRoute {
        /// The PCI address.
        address: String,
        /// The device's interface.
        interface: String,
    },
    /// The device does not exist, or its driver refused it.
    #[error("cannot open `{device}`: {error}")]
    Attach {
        /// The device.
        device: String,
        /// DPDK's error.
        error: io::Error,
    },
    /// The driver has no such option.
    #[error("`{device}`: the driver has no option `{option}`; it has {known}")]
    Option {
        /// The device.
        device: String,
        /// The option.
        option: String,
        /// The options that the driver has.
        known: String,
    },
    /// Another process listens at the device's socket.
    #[error("`{device}`: another process listens at {socket}; take another socket")]
    Taken {
        /// The device.
        device: String,
        /// The path of the socket.
        socket: String,
    },
    /// No process listens at a memif's socket.
    #[error("`{device}`: nobody listens at {socket}; start the end with role=server first ({error})")]
    NoServer {
        /// The device.
        device: String,
        /// The path of the socket.
        socket: String,
        /// DPDK's error.
        error: io::Error,
    },
    /// A buffer of the driver is shorter than a frame.
    #[error("`{device}`: {option} must be at least {least}, so that a frame lies in one piece")]
    ShortBuffer {
        /// The device.
        device: String,
        /// The driver's option.
        option: &'static str,
        /// The least value of the option.
        least: usize,
    },
    /// The device has fewer queues than requested.
    #[error("`{device}` has {theirs} queues, not {wanted}")]
    Queues {
        /// The device.
        device: String,
        /// The number of queues that the device has.
        theirs: u16,
        /// The number of queues requested.
        wanted: u32,
    },
    /// The kernel has no support for taps.
    #[error("tap={0}: there is no /dev/net/tun; `modprobe tun`, or leave tap= out and use the port's own stack")]
    NoTaps(String),
    /// Another process uses the tap.
    #[error("tap={0}: another process has this tap; take another name")]
    TapInUse(String),
    /// An interface of this name exists, and is not a tap.
    #[error("tap={0}: there is an interface {0} already that is no tap; take another name")]
    NotATap(String),
    /// The process has no permission for an operation on the tap.
    #[error("tap={name}: {what} needs CAP_NET_ADMIN; run as root, or leave tap= out and use the port's own stack")]
    TapPermission {
        /// The name of the tap.
        name: String,
        /// The operation.
        what: &'static str,
    },
    /// An operation on the tap failed.
    #[error("tap={name}: {what} failed: {error}")]
    Tap {
        /// The name of the tap.
        name: String,
        /// The operation.
        what: &'static str,
        /// The kernel's error.
        error: io::Error,
    },
}
