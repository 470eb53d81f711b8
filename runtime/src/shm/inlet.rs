//! A ring that this process reads; one other process writes it.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use softnic_wire::{Layout, Qpn, bth};

use super::attendant::Arrival;
use super::ring::{IN_FRONT, Reader};
use crate::forked::Kept;
use crate::io::{MAX_FRAME, TakeLocated};

/// How many frames to QP1 a process may send at once, and the interval after which it may send one more: the same limits as for a source on
/// a wire.
const BURST: u32 = 2048;
const INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / 4096);

#[derive(Debug)]
pub(super) struct Inlet {
    pub(super) reader: Reader,
    pub(super) connection: Kept<UnixStream>,
    pub(super) name: u64,
    /// Number of frames from this ring that were not accepted.
    pub(super) lost: u64,
    /// The writer is gone: only the frames in the ring are left.
    ended: bool,
    /// The writer violates the ring protocol; the ring is not read any more.
    broken: bool,
    /// The time at which the writer has its full burst of frames to QP1 again.
    gsi_full_at: Option<Instant>,
    _seat: Arc<()>,
}

impl Inlet {
    pub(super) fn new(arrival: Arrival, name: u64) -> Inlet {
        let Arrival { reader, connection, _seat } = arrival;
        Inlet { reader, connection, name, lost: 0, ended: false, broken: false, gsi_full_at: None, _seat }
    }

    /// Passes the frames that have arrived, at most `limit`, to the caller; returns their number.
    #[inline]
    pub(super) fn read(
        &mut self,
        limit: usize,
        copy: &mut [u8; IN_FRONT + MAX_FRAME],
        take: &mut TakeLocated<'_>,
    ) -> usize {
        if self.broken {
            return 0;
        }
        let Inlet { reader, lost, gsi_full_at, .. } = self;
        let read = reader.read(limit, copy, |frame| {
            let layout = Layout::locate(frame);
            let to_gsi = |layout: &Layout| {
                bth::Packet::new_checked(frame.get(layout.bth..).unwrap_or_default())
                    .is_ok_and(|b| b.dest_qp() == Qpn::GSI)
            };
            if layout.as_ref().is_ok_and(to_gsi) && !admit(gsi_full_at) {
                *lost += 1;
                return;
            }
            take(frame, layout);
        });
        read.unwrap_or_else(|_| {
            (self.broken, self.lost) = (true, self.lost + 1);
            0
        })
    }

    /// The writing process is gone.
    pub(super) fn end(&mut self, ended: &OwnedFd) {
        self.ended = true;
        // The connection was added before, so this succeeds. One event is enough.
        let _ = epoll::delete(ended, &*self.connection);
    }

    /// Whether the ring will deliver nothing more.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.broken || self.ended && self.reader.is_empty()
    }
}

/// Takes a token from a bucket, which is stored as the time at which it is full; returns `false` if there is none.
#[cold]
fn admit(full_at: &mut Option<Instant>) -> bool {
    let now = Instant::now();
    let until = full_at.map_or(now, |at| at.max(now));
    let has_token = until - now <= INTERVAL * (BURST - 1);
    if has_token {
        *full_at = Some(until + INTERVAL);
    }
    has_token
}
