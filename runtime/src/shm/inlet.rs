//! A ring that this process reads: from one other process.

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

/// Frames to QP1 that a process may send at once, and the time in which it may send one more: as many as a source on a wire.
const BURST: u32 = 2048;
const INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / 4096);

#[derive(Debug)]
pub(super) struct Inlet {
    pub(super) reader: Reader,
    pub(super) connection: Kept<UnixStream>,
    pub(super) name: u64,
    /// Frames of it that were not taken.
    pub(super) lost: u64,
    /// Nothing more comes than what is in the ring.
    ended: bool,
    /// It does not keep to the rules, and is not read any more.
    broken: bool,
    /// When it may send as many frames to QP1 as at the beginning.
    gsi_full_at: Option<Instant>,
    _seat: Arc<()>,
}

impl Inlet {
    pub(super) fn new(arrival: Arrival, name: u64) -> Inlet {
        let Arrival { reader, connection, _seat } = arrival;
        Inlet { reader, connection, name, lost: 0, ended: false, broken: false, gsi_full_at: None, _seat }
    }

    /// Hands over frames that have come, at most `limit`; how many.
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

    /// The other process is gone.
    pub(super) fn end(&mut self, ended: &OwnedFd) {
        self.ended = true;
        // It was added; and shown once is enough.
        let _ = epoll::delete(ended, &*self.connection);
    }

    /// Whether nothing will come any more.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.broken || self.ended && self.reader.is_empty()
    }
}

/// Takes a token of a bucket, which is kept as the time when it is full; `false` when there is none.
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
