//! Backend `dgram:A,B`: an Ethernet frame in each datagram between two AF_UNIX sockets, as QEMU's `-netdev dgram` has it.
//!
//! We receive at `A` and send to `B`. No root, no device: the simplest attachment to a virtual machine.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use rustix::event::{self, PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::io::{PacketIo, Sent};

/// Why there is no such wire.
#[derive(Debug, thiserror::Error)]
pub enum DgramError {
    /// The specification does not name two sockets.
    #[error("`{0}` does not name two sockets: it must be dgram:OURS,PEERS")]
    Spec(String),
    /// Something that is no socket has the name of ours.
    #[error("{} exists and is not a socket", .0.display())]
    NotASocket(PathBuf),
    /// Our socket could not be made.
    #[error("cannot make the socket {}: {error}", path.display())]
    Bind {
        /// Its name.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
}

/// The names of the two sockets of a wire: `dgram:A,B`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DgramSpec {
    /// Ours, which we make.
    pub local: PathBuf,
    /// The peer's.
    pub remote: PathBuf,
}

impl FromStr for DgramSpec {
    type Err = DgramError;

    fn from_str(s: &str) -> Result<DgramSpec, DgramError> {
        let names = s.strip_prefix("dgram:").and_then(|names| names.split_once(','));
        match names {
            Some((a, b)) if !a.is_empty() && !b.is_empty() && !b.contains(',') && a != b => {
                Ok(DgramSpec { local: a.into(), remote: b.into() })
            }
            _ => Err(DgramError::Spec(s.into())),
        }
    }
}

/// One end of a wire of datagrams.
#[derive(Debug)]
pub struct Dgram {
    socket: UnixDatagram,
    local: PathBuf,
    remote: PathBuf,
    lost: u64,
}

impl Dgram {
    /// Makes our socket. The peer's need not be there yet. A socket file that an earlier run left behind is replaced.
    pub fn bind(spec: &DgramSpec) -> Result<Dgram, DgramError> {
        let failed = |error| DgramError::Bind { path: spec.local.clone(), error };
        match fs::symlink_metadata(&spec.local) {
            Ok(there) if there.file_type().is_socket() => fs::remove_file(&spec.local).map_err(failed)?,
            Ok(_) => return Err(DgramError::NotASocket(spec.local.clone())),
            Err(_) => {}
        }
        let socket = UnixDatagram::bind(&spec.local).map_err(failed)?;
        let dgram = Dgram { socket, local: spec.local.clone(), remote: spec.remote.clone(), lost: 0 };
        dgram.socket.set_nonblocking(true).map_err(failed)?;
        Ok(dgram)
    }

    /// Frames that were lost because the peer's socket was not there, and of those that came, the ones too long to take.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Our socket's name.
    pub fn local(&self) -> &Path {
        &self.local
    }

    /// The next datagram, if there is one.
    fn take(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match self.socket.recv(buffer) {
            // The system cuts off what does not fit and does not say so.
            Ok(len) if len == buffer.len() => {
                self.lost += 1;
                Ok(None)
            }
            Ok(len) => Ok(Some(len)),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => Ok(None),
            Err(e) => Err(e),
        }
    }
}

impl Drop for Dgram {
    fn drop(&mut self) {
        // That the file is gone already is just as well.
        let _ = fs::remove_file(&self.local);
    }
}

impl PacketIo for Dgram {
    fn receive(&mut self, buffer: &mut [u8], wait: Duration) -> io::Result<Option<usize>> {
        if let Some(len) = self.take(buffer)? {
            return Ok(Some(len));
        }
        let Ok(wait) = Timespec::try_from(wait) else { return Ok(None) };
        if wait == Timespec::default() {
            return Ok(None);
        }
        match event::poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&wait)) {
            Ok(0) | Err(Errno::INTR) => Ok(None),
            Ok(_) => self.take(buffer),
            Err(e) => Err(e.into()),
        }
    }

    fn send(&mut self, frame: &[u8]) -> io::Result<Sent> {
        match self.socket.send_to(frame, &self.remote) {
            Ok(_) => Ok(Sent::Yes),
            Err(e) => match e.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(Sent::Full),
                ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => {
                    self.lost += 1;
                    Ok(Sent::Lost)
                }
                _ if Errno::from_io_error(&e) == Some(Errno::NOBUFS) => Ok(Sent::Full),
                _ => Err(e),
            },
        }
    }
}
