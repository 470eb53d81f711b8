//! A ring that this process writes; one other process reads it.

use std::io;
use std::os::unix::net::UnixStream;
use std::time::Instant;

use softnic_nic::sharing::Process;

use super::directory::Directory;
use super::ring::Writer;
use super::{PATIENCE, SPIN, meeting};
use crate::forked::Kept;

/// The outcome for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Put {
    /// The frame is in the ring.
    Done,
    /// There is no room at the moment.
    Full,
    /// No process is there to read the ring, or it has not read for a long time.
    Lost,
}

#[derive(Debug)]
pub(super) struct Outlet {
    pub(super) writer: Writer,
    /// The connection ends when the other process does.
    pub(super) connection: Kept<UnixStream>,
    /// Since when the ring has been full.
    full_since: Option<Instant>,
    /// Whether frames were committed in this batch, so that the reader may have to be woken at its end.
    touched: bool,
}

impl Outlet {
    /// Creates a ring and hands it to a process; frames can be written at once.
    pub(super) fn open(directory: &Directory, process: Process) -> io::Result<Outlet> {
        let connection = Kept::new(directory.connect(process)?);
        if directory.trust().admits(&*connection)?.is_none() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let (writer, file) = Writer::create()?;
        meeting::hand_over(&connection, &file)?;
        Ok(Outlet { writer, connection, full_since: None, touched: false })
    }

    /// Publishes the frame in the ring's slot.
    #[inline]
    pub(super) fn commit(&mut self, len: usize, process: Process, touched: &mut Vec<Process>) {
        self.writer.commit(len);
        self.full_since = None;
        if !self.touched {
            self.touched = true;
            touched.push(process);
        }
    }

    /// The ring is full: returns whether to wait for room.
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
