//! A client's place on a shared interface: its process number and limits, and its connection to the daemon.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::SendFlags;
use softnic_nic::sharing::Process;
use softnic_wire::mad::ip_cm::ServiceId;

use super::error::ShareError;
use super::message::{Reply, Request};
use super::place::{connect, socket_of};
use super::{Limits, Served};
use crate::afxdp::Handed;
use crate::forked::Kept;
use crate::locked::lock;

/// A place among the processes that share an interface. Dropping it gives the place back.
#[derive(Debug)]
pub(crate) struct Seat {
    interface: String,
    /// The path of the daemon's socket, and of its successor's.
    path: PathBuf,
    process: Process,
    secret: [u8; 16],
    limits: Limits,
    /// A copy of the first queue's socket; used to test whether the device still exists.
    probe: Kept<OwnedFd>,
    talk: Mutex<Talk>,
}

#[derive(Debug)]
struct Talk {
    /// The connection to the daemon, until this process leaves.
    connection: Option<Arc<Kept<OwnedFd>>>,
    /// Number of group memberships that need frames to multicast groups.
    groups: usize,
}

impl Seat {
    /// Registers with the daemon, with this many queues, or with the daemon's default.
    pub(crate) fn take(interface: &str, queues: Option<u32>) -> Result<(Seat, Vec<Handed>), ShareError> {
        let unanswered = |error| ShareError::unanswered(interface, error);
        let path = socket_of(interface)?;
        let connection = connect(interface, &path)?;
        let no_descriptors = ShareError::when("take what the daemon hands over");
        let refused = |why| ShareError::Refused { interface: interface.into(), why };
        let (reply, fds) = ask(&connection, &Request::Attach { queues }).map_err(unanswered)?;
        let (process, secret, limits, count, shape) = match reply {
            Reply::Attached { process, secret, limits, queues, shape } => (process, secret, limits, queues, shape),
            Reply::Refused(why) => return Err(refused(why)),
            _ => return Err(unanswered(io::ErrorKind::InvalidData.into())),
        };
        if fds.is_empty() || fds.len() != 2 * count as usize {
            // The system had no file descriptors left for the attached ones.
            return Err(no_descriptors(rustix::io::Errno::MFILE.into()));
        }
        let (mut handed, mut fds) = (Vec::new(), fds.into_iter());
        while let (Some(socket), Some(memory)) = (fds.next(), fds.next()) {
            handed.push(Handed { socket, memory, shape });
        }
        let probe = handed[0].socket.try_clone().map_err(no_descriptors)?;
        let connection = Some(Arc::new(Kept::new(connection)));
        let talk = Mutex::new(Talk { connection, groups: 0 });
        let probe = Kept::new(probe);
        Ok((Seat { interface: interface.into(), path, process, secret, limits, probe, talk }, handed))
    }

    /// The number of this process on the interface.
    pub(crate) fn me(&self) -> Process {
        self.process
    }

    /// The limits of this client.
    pub(crate) fn limits(&self) -> Limits {
        self.limits
    }

    /// Directs requests for a service to this process; returns `false` if another process has the service.
    pub(crate) fn claim(&self, service: ServiceId) -> Result<bool, ShareError> {
        match self.ask(&mut lock(&self.talk), &Request::Claim(service))? {
            Reply::Done => Ok(true),
            Reply::Taken => Ok(false),
            other => Err(self.unexpected(other)),
        }
    }

    /// Releases a service. If the daemon is gone, the next daemon releases the service when this process ends.
    pub(crate) fn release(&self, service: ServiceId) {
        let _ = self.ask(&mut lock(&self.talk), &Request::Release(service));
    }

    fn set_groups(&self, talk: &mut Talk, wanted: bool) -> Result<(), ShareError> {
        match self.ask(talk, &Request::Groups(wanted))? {
            Reply::Done => Ok(()),
            other => Err(self.unexpected(other)),
        }
    }

    /// Leaves the interface: no process finds this one any more.
    pub(crate) fn leave(&self) {
        if let Some(connection) = lock(&self.talk).connection.take() {
            // The shutdown also notifies other holders of the connection.
            let _ = rustix::net::shutdown(&**connection, rustix::net::Shutdown::Both);
        }
    }

    fn ask(&self, talk: &mut Talk, request: &Request) -> Result<Reply, ShareError> {
        let connection = talk.connection.as_ref().ok_or_else(|| ShareError::NotServed(self.interface.clone()))?;
        let reply = match ask(connection, request) {
            Ok((reply, _)) => reply,
            // The daemon is gone; there may be a new one.
            Err(_) => {
                let connection = self.reconnect(talk)?;
                ask(&connection, request).map_err(|error| self.unanswered(error))?.0
            }
        };
        Ok(reply)
    }

    /// Registers with a new daemon.
    fn reconnect(&self, talk: &mut Talk) -> Result<Arc<Kept<OwnedFd>>, ShareError> {
        let connection = connect(&self.interface, &self.path)?;
        let request = Request::Return { process: self.process, secret: self.secret };
        match ask(&connection, &request).map_err(|error| self.unanswered(error))?.0 {
            Reply::Done => {}
            other => return Err(self.unexpected(other)),
        }
        let connection = Arc::new(Kept::new(connection));
        talk.connection = Some(Arc::clone(&connection));
        if talk.groups > 0 {
            let _ = ask(&connection, &Request::Groups(true));
        }
        Ok(connection)
    }

    fn unanswered(&self, error: io::Error) -> ShareError {
        ShareError::unanswered(&self.interface, error)
    }

    fn unexpected(&self, reply: Reply) -> ShareError {
        match reply {
            Reply::Refused(why) => ShareError::Refused { interface: self.interface.clone(), why },
            _ => self.unanswered(io::ErrorKind::InvalidData.into()),
        }
    }

    /// The connection to the daemon, for code that watches for its end.
    pub(crate) fn connection(&self) -> Option<Arc<Kept<OwnedFd>>> {
        lock(&self.talk).connection.clone()
    }

    /// Whether the daemon has closed the connection.
    pub(crate) fn is_orphan(connection: &Kept<OwnedFd>) -> bool {
        let mut fds = [PollFd::new(&**connection, PollFlags::RDHUP)];
        matches!(poll(&mut fds, Some(&Timespec::default())), Ok(1..))
    }

    /// Whether the device still exists. A daemon that ends the sharing removes the device; a daemon that is killed leaves it in place.
    pub(crate) fn has_device(&self) -> bool {
        let kicked = rustix::net::send(&*self.probe, &[], SendFlags::DONTWAIT);
        !matches!(kicked, Err(rustix::io::Errno::NXIO | rustix::io::Errno::NODEV))
    }

    /// Looks for a new daemon, once.
    pub(crate) fn look_for_daemon(&self) {
        let mut talk = lock(&self.talk);
        if talk.connection.is_some() {
            let _ = self.reconnect(&mut talk);
        }
    }

    /// The interface.
    pub(crate) fn interface(&self) -> &str {
        &self.interface
    }
}

fn ask(connection: &OwnedFd, request: &Request) -> io::Result<(Reply, Vec<OwnedFd>)> {
    request.send(connection.as_fd())?;
    Reply::receive(connection.as_fd())
}

/// The state of a shared interface, as its daemon reports it.
///
/// # Errors
/// When no daemon serves the interface, or its daemon does not reply.
pub fn served(interface: &str) -> Result<Served, ShareError> {
    let connection = connect(interface, &socket_of(interface)?)?;
    match ask(&connection, &Request::List) {
        Ok((Reply::Listed(served), _)) => Ok(served),
        Ok((Reply::Refused(why), _)) => Err(ShareError::Refused { interface: interface.into(), why }),
        Ok(_) => Err(ShareError::unanswered(interface, io::ErrorKind::InvalidData.into())),
        Err(error) => Err(ShareError::unanswered(interface, error)),
    }
}

/// While this value lives, the seat receives frames to multicast groups.
#[derive(Debug)]
pub(crate) struct GroupSeat(Arc<Seat>);

impl GroupSeat {
    pub(crate) fn join(seat: &Arc<Seat>) -> Result<GroupSeat, ShareError> {
        let mut talk = lock(&seat.talk);
        if talk.groups == 0 {
            seat.set_groups(&mut talk, true)?;
        }
        talk.groups += 1;
        Ok(GroupSeat(Arc::clone(seat)))
    }
}

impl Drop for GroupSeat {
    fn drop(&mut self) {
        let mut talk = lock(&self.0.talk);
        talk.groups -= 1;
        if talk.groups == 0 {
            // If the daemon is gone, unneeded frames keep arriving.
            let _ = self.0.set_groups(&mut talk, false);
        }
    }
}
