//! Backend `dgram:A,B`: an Ethernet frame in each datagram between two AF_UNIX sockets, as QEMU's `-netdev dgram` has it.
//!
//! We receive at `A` and send to `B`. No root, no device: the simplest attachment to a virtual machine.

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use rustix::io::Errno;
use softnic_wire::TxFrame;

use crate::io::{MAX_FRAME, PacketIo, sleep_until_readable};

/// How often a frame is offered again that the peer's socket had no room for. poll(2) says nothing about that room: our socket
/// is not connected, because the peer's may come later, and come again.
const RETRY: Duration = Duration::from_micros(100);

/// Why there is no such wire.
#[derive(Debug, thiserror::Error)]
pub enum DgramError {
    /// The specification does not name two sockets.
    #[error("`{0}` does not name two sockets: it must be dgram:OURS,PEERS, two paths of UNIX sockets")]
    Spec(String),
    /// A name is an address of UDP, as it seems.
    #[error("`{0}` looks like HOST:PORT: names of UNIX sockets are meant, as in dgram:/tmp/a,/tmp/b,ip=10.0.0.1/24")]
    HostAndPort(String),
    /// Something that is no socket has the name of ours.
    #[error("{} exists and is not a socket", .0.display())]
    NotASocket(PathBuf),
    /// Our socket could not be made.
    #[error("cannot make the socket {}: {error}", path.display())]
    Bind {
        /// Its name.
        path: PathBuf,
        /// The system's error.
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
        let is_host = |name: &&str| {
            !name.contains('/') && name.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok())
        };
        if let Some(host) = names.and_then(|(a, b)| [a, b].into_iter().find(is_host)) {
            return Err(DgramError::HostAndPort(host.into()));
        }
        match names {
            Some((a, b)) if !a.is_empty() && !b.is_empty() && !b.contains(',') && a != b => {
                Ok(DgramSpec { local: a.into(), remote: b.into() })
            }
            _ => Err(DgramError::Spec(s.into())),
        }
    }
}

/// The result of sending a datagram.
enum Sent {
    /// It is with the peer, or lost, and then counted.
    Gone,
    /// There is no room at the moment.
    Full,
}

/// One end of a wire of datagrams.
#[derive(Debug)]
pub struct Dgram {
    socket: UnixDatagram,
    local: PathBuf,
    remote: PathBuf,
    lost: u64,
    rx: Box<[u8]>,
    tx: Box<[u8]>,
    /// Bytes of a frame in `tx` for which there was no room; that there is none shows only when it is sent.
    held: Option<usize>,
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
        let dgram = Dgram {
            socket,
            local: spec.local.clone(),
            remote: spec.remote.clone(),
            lost: 0,
            // One byte more than the longest frame: the system cuts off what does not fit and does not say so.
            rx: vec![0; MAX_FRAME + 1].into(),
            tx: vec![0; MAX_FRAME].into(),
            held: None,
        };
        dgram.socket.set_nonblocking(true).map_err(failed)?;
        Ok(dgram)
    }

    /// Our socket's name.
    pub fn local(&self) -> &Path {
        &self.local
    }

    /// Sends the frame in `tx`.
    fn send(&mut self, len: usize) -> io::Result<Sent> {
        match self.socket.send_to(&self.tx[..len], &self.remote) {
            Ok(_) => Ok(Sent::Gone),
            Err(e) => match e.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(Sent::Full),
                ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset => {
                    self.lost += 1;
                    Ok(Sent::Gone)
                }
                _ if Errno::from_io_error(&e) == Some(Errno::NOBUFS) => Ok(Sent::Full),
                _ => Err(e),
            },
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
    fn receive(&mut self, limit: usize, take: &mut dyn FnMut(&mut [u8])) -> io::Result<usize> {
        let mut taken = 0;
        while taken < limit {
            match self.socket.recv(&mut self.rx) {
                Ok(len) if len > MAX_FRAME => self.lost += 1,
                Ok(len) => {
                    take(&mut self.rx[..len]);
                    taken += 1;
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => break,
                Err(e) => return Err(e),
            }
        }
        Ok(taken)
    }

    fn transmit(&mut self, limit: usize, next: &mut dyn FnMut(&mut TxFrame<'_>) -> bool) -> io::Result<usize> {
        let mut sent = 0;
        loop {
            if let Some(len) = self.held {
                if let Sent::Full = self.send(len)? {
                    return Ok(sent);
                }
                self.held = None;
            }
            let mut tx = TxFrame::new(&mut self.tx);
            if sent == limit || !next(&mut tx) {
                return Ok(sent);
            }
            sent += 1;
            self.held = Some(tx.len());
        }
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        let timeout = if self.held.is_some() { timeout.min(RETRY) } else { timeout };
        sleep_until_readable(&self.socket, timeout)
    }

    fn descriptors(&self) -> Vec<RawFd> {
        vec![self.socket.as_fd().as_raw_fd()]
    }

    fn readiness(&self) -> io::Result<Vec<OwnedFd>> {
        Ok(vec![self.socket.as_fd().try_clone_to_owned()?])
    }

    /// Those for which the peer's socket was not there, and of those that came, the ones too long to take.
    fn lost(&self) -> u64 {
        self.lost
    }
}
