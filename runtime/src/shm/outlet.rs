//! A ring that this process writes: to one other process.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use softnic_nic::sharing::Process;

use super::directory::Directory;
use super::ring::Writer;
use super::{PATIENCE, SPIN, meeting};
use crate::forked::Kept;

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    /// It is in the ring.
    Done,
    /// There is no room at the moment.
    Full,
    /// Nobody is there to take it, or nobody has for long.
    Lost,
}

#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) writer: Writer,
    /// It ends when the other process does.
    pub(super) connection: Kept<UnixStream>,
    /// Since when there is no room.
    full_since: Option<Instant>,
    /// Whether its reader is to be looked after when the batch is over.
    touched: bool,
}

impl Outlet {
    /// Makes a ring and hands it to a process; it may be written to at once.
    pub(super) fn open(directory: &Directory, process: Process) -> io::Result<Outlet> {
        let connection = Kept::new(directory.connect(process)?);
        if directory.trust().admits(&*connection)?.is_none() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let (writer, file) = Writer::create()?;
        meeting::hand_over(&connection, &file)?;
        Ok(Outlet { writer, connection, full_since: None, touched: false })
    }

    /// The frame in the ring's place is whole.
    #[inline]
    pub(super) fn commit(&mut self, len: usize, process: Process, touched: &mut Vec<Process>) {
        self.writer.commit(len);
        self.full_since = None;
        if !self.touched {
            self.touched = true;
            touched.push(process);
        }
    }

    /// There is no room: whether to wait for some.
    #[cold]
    pub(super) fn wait_for_room(&mut self) -> Put {
        match self.full_since.get_or_insert_with(Instant::now).elapsed() {
            waited if waited >= PATIENCE => Put::Lost,
            waited => {
                if waited >= SPIN {
                    std::thread::yield_now();
                }
                Put::Full
            }
        }
    }

    /// Wakes the reader if it sleeps, at the end of a batch.
    #[inline]
    pub(super) fn wake(&mut self) -> io::Result<()> {
        self.touched = false;
        if self.writer.must_wake() { meeting::wake(&self.connection) } else { Ok(()) }
    }
}
