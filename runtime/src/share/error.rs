//! Why an interface cannot be shared, or why a process is not admitted to it.

use std::io;
use std::path::PathBuf;

use crate::afxdp::AfXdpError;
use crate::host_network::HostNetworkError;
use crate::remedy::remedy;

/// Why an interface cannot be shared, or why a process is not admitted to it.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// No daemon serves the interface.
    #[error("nobody shares {0}: start `softnic share --dev afxdp:{0}` as root in this network namespace")]
    NotServed(String),
    /// This process may not use the daemon's socket.
    #[error("not permitted to use {}: its group or mode keeps you out (`softnic share --group … --mode …` sets them)", .0.display())]
    NotPermitted(PathBuf),
    /// The daemon refused the request.
    #[error("the daemon that shares {interface} refuses: {why}")]
    Refused {
        /// The interface.
        interface: String,
        /// The reason that the daemon gave.
        why: String,
    },
    /// The daemon's reply was not understood.
    #[error(
        "the daemon that shares {interface} does not answer as it should ({error}): both must be of the same version of softnic"
    )]
    Unanswered {
        /// The interface.
        interface: String,
        /// The error.
        error: io::Error,
    },
    /// The daemon did not reply in time.
    #[error("the daemon that shares {0} does not answer: it has ended, is stopped, or has too much to do")]
    Silent(String),
    /// Other users may write to the folder of the daemons' sockets.
    #[error("{} is not to be trusted: {why}", path.display())]
    Untrusted {
        /// The folder.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Another daemon serves the interface.
    #[error("{interface} is shared already, by process {pid}")]
    Served {
        /// The interface.
        interface: String,
        /// The daemon's process ID.
        pid: String,
    },
    /// An interface on top of another one cannot be shared.
    #[error("{0} is a VLAN interface: only the device below it can be shared, without tags")]
    Vlan(String),
    /// A privilege is missing.
    #[error(
        "not permitted to {0}: `softnic share` runs as root, or with CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_SYS_ADMIN and CAP_IPC_LOCK"
    )]
    Privileges(&'static str),
    /// The queues of a client cannot be created.
    #[error(transparent)]
    AfXdp(#[from] AfXdpError),
    /// The kernel does not report the necessary facts about the interface.
    #[error(transparent)]
    Host(#[from] HostNetworkError),
    /// The system refused another step.
    #[error("cannot {doing}: {error}{}", remedy(.error))]
    System {
        /// The step that failed.
        doing: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

impl ShareError {
    /// The error for a reply that was not understood, or did not arrive in time.
    pub(super) fn unanswered(interface: &str, error: io::Error) -> ShareError {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                ShareError::Silent(interface.into())
            }
            _ => ShareError::Unanswered { interface: interface.into(), error },
        }
    }

    /// For use with `map_err`: the error of the step `doing`.
    pub(super) fn when<E: Into<io::Error>>(doing: &'static str) -> impl Fn(E) -> ShareError {
        move |error| {
            let error: io::Error = error.into();
            match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => ShareError::Privileges(doing),
                _ => ShareError::System { doing, error },
            }
        }
    }
}
