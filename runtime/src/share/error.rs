//! Why an interface is not shared, or a process has no place on it.

use std::io;
use std::path::PathBuf;

use crate::afxdp::AfXdpError;
use crate::host_network::HostNetworkError;
use crate::remedy::remedy;

/// Why an interface is not shared, or a process has no place on it.
#[derive(Debug, thiserror::Error)]
pub enum ShareError {
    /// No daemon serves the interface.
    #[error("nobody shares {0}: start `softnic share --dev afxdp:{0}` as root in this network namespace")]
    NotServed(String),
    /// The socket of the daemon may not be used.
    #[error("not permitted to use {}: its group or mode keeps you out (`softnic share --group … --mode …` sets them)", .0.display())]
    NotPermitted(PathBuf),
    /// The daemon said no.
    #[error("the daemon that shares {interface} refuses: {why}")]
    Refused {
        /// The interface.
        interface: String,
        /// What it said.
        why: String,
    },
    /// The daemon said nothing that is understood.
    #[error(
        "the daemon that shares {interface} does not answer as it should ({error}): both must be of the same version of softnic"
    )]
    Unanswered {
        /// The interface.
        interface: String,
        /// What went wrong.
        error: io::Error,
    },
    /// The daemon said nothing at all.
    #[error("the daemon that shares {0} does not answer: it has ended, is stopped, or has too much to do")]
    Silent(String),
    /// The folder of the daemons' sockets is not theirs alone.
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
        /// The daemon.
        pid: String,
    },
    /// An interface that stands on another one cannot be shared.
    #[error("{0} is a VLAN interface: only the device below it can be shared, without tags")]
    Vlan(String),
    /// A privilege is missing.
    #[error(
        "not permitted to {0}: `softnic share` runs as root, or with CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_SYS_ADMIN and CAP_IPC_LOCK"
    )]
    Privileges(&'static str),
    /// The queues of a client cannot be made.
    #[error(transparent)]
    AfXdp(#[from] AfXdpError),
    /// The kernel does not tell what is needed of the interface.
    #[error(transparent)]
    Host(#[from] HostNetworkError),
    /// The system refused something else.
    #[error("cannot {doing}: {error}{}", remedy(.error))]
    System {
        /// The step that failed.
        doing: &'static str,
        /// The system's error.
        error: io::Error,
    },
}

impl ShareError {
    /// What it means that the daemon of an interface was not understood, or not heard in time.
    pub(super) fn unanswered(interface: &str, error: io::Error) -> ShareError {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
                ShareError::Silent(interface.into())
            }
            _ => ShareError::Unanswered { interface: interface.into(), error },
        }
    }

    /// For `map_err`.
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
