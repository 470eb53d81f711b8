//! Why a device cannot be used with AF_XDP, and the remedy.

use std::io;

use super::holder::Holder;
use crate::remedy::remedy;

/// Why no AF_XDP socket could be opened.
#[derive(Debug, thiserror::Error)]
pub enum AfXdpError {
    /// The interface does not exist.
    #[error("there is no interface `{0}` in this network namespace: `ip link` shows those that are")]
    NoInterface(String),
    /// The interface is not Ethernet.
    #[error("{0} has no Ethernet address: only Ethernet devices carry RoCE")]
    NotEthernet(String),
    /// The kernel was built without AF_XDP.
    #[error("this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS)")]
    NoAfXdp,
    /// A privilege is missing.
    #[error("not permitted to {doing}: {}", crate::capabilities::advice())]
    NotPermitted {
        /// The step that failed.
        doing: &'static str,
    },
    /// The limit of locked memory is too low for the frames.
    #[error(
        "the system does not let {kib} KiB be locked for frames: raise the limit (`ulimit -l`), or give the program CAP_IPC_LOCK"
    )]
    LockedMemory {
        /// KiB requested.
        kib: usize,
    },
    /// Another XDP program is attached.
    #[error(
        "another XDP program is attached to {interface}{}: end the program that uses it, or `ip link set dev {interface} xdp off`",
        by(.holder)
    )]
    ProgramAttached {
        /// The device.
        interface: String,
        /// The process that attached it, if that process is visible.
        holder: Option<Holder>,
    },
    /// Another socket uses the queue.
    #[error("another AF_XDP socket uses queue {queue} of {interface}{}: end the program that has it open", by(.holder))]
    QueueBusy {
        /// The device.
        interface: String,
        /// The index of the queue.
        queue: u32,
        /// The process that has the queue open, if that process is visible.
        holder: Option<Holder>,
    },
    /// More queues were requested than the device has.
    #[error("{interface} has {has} receive queues, not {asked}: `ethtool -L` changes that where the device can")]
    NoSuchQueue {
        /// The device.
        interface: String,
        /// The number of queues of the device.
        has: u32,
        /// The number of queues requested.
        asked: u32,
    },
    /// Zero-copy was requested, and the device does not support it.
    #[error("no zero-copy on {interface}: {why}")]
    NoZeroCopy {
        /// The device.
        interface: String,
        /// Its driver and MTU, and the remedy.
        why: String,
    },
    /// The driver accepts no socket.
    #[error("cannot bind an AF_XDP socket to queue {queue} of {interface}: {error}: {why}")]
    BindRefused {
        /// The device.
        interface: String,
        /// The index of the queue.
        queue: u32,
        /// The system's error.
        error: io::Error,
        /// Its driver and MTU, and the remedy.
        why: String,
    },
    /// The link did not come back after the program was attached.
    #[error(
        "{interface} lost its link when the XDP program was attached, and has none after {seconds} s: look at its cable and the other end"
    )]
    NoCarrier {
        /// The device.
        interface: String,
        /// How long opening waited for the link.
        seconds: u64,
    },
    /// The system refused another step.
    #[error("cannot {doing}: {error}{}", remedy(.error))]
    System {
        /// The step that failed.
        doing: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

fn by(holder: &Option<Holder>) -> String {
    holder.as_ref().map_or_else(String::new, |holder| format!(", by {holder}"))
}

impl AfXdpError {
    /// The error for `error`, if nothing more specific is known.
    pub(super) fn new(doing: &'static str, error: io::Error) -> AfXdpError {
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => AfXdpError::NotPermitted { doing },
            _ => AfXdpError::System { doing, error },
        }
    }

    /// For use with `map_err`: as `new`, for the step `doing`.
    pub(super) fn when(doing: &'static str) -> impl Fn(io::Error) -> AfXdpError {
        move |error| AfXdpError::new(doing, error)
    }
}
