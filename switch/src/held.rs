//! Frames in a switch: each is kept once, however many copies of it wait, and a copy is changed as it leaves.

use std::net::{IpAddr, Ipv4Addr};

use softnic_fault_injector::frames::{Frame, Frames};
use softnic_wire::rewrite::{Passing, Patch, RethRewrite, Rewrite, RewriteError, Stencil};
use softnic_wire::transit::mark_ce;
use softnic_wire::{Error, Qpn, TxFrame, icrc};

use crate::planted::{Bug, planted};

/// Bytes of the longest headers of a frame that is copied.
const MAX_HEAD: usize = 256;

/// The fields of a frame that copies may have their own of.
const COPIED: Rewrite = Rewrite {
    dst_mac: None,
    src_mac: None,
    src_ip: None,
    dst_ip: Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
    take_hop: false,
    dest_qp: Some(Qpn::QP0),
    psn: None,
    reth: Some(RethRewrite { offset: 0, rkey: 0 }),
    ieth: Some(0),
    aeth: None,
};

/// A frame that waits.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kept {
    /// As it is.
    Plain(Frame),
    /// A copy of a frame that others may wait for as well.
    Copy(Copied),
}

/// A copy: of which frame, which of its patches, and whether it is marked as well.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Copied {
    shared: u32,
    patch: u16,
    marked: bool,
}

/// A frame with several copies.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Its own place.
    place: u32,
    frame: Frame,
    passing: Passing,
    stencil: Stencil,
    /// What is different in each copy; those behind `made` were of another frame.
    patches: Vec<Patch>,
    made: u16,
    /// Copies that have not left.
    waiting: u32,
}

impl Shared {
    /// For [`Held::settle`].
    #[inline]
    pub(crate) fn place(&self) -> u32 {
        self.place
    }

    /// One more copy of the frame, of whose headers the destination differs: addresses, queue pair, memory.
    #[inline(always)]
    pub(crate) fn copy(&mut self, rewrite: &Rewrite, marked: bool) -> Result<Kept, RewriteError> {
        let at = usize::from(self.made);
        if self.patches.len() == at {
            self.patches.push(Patch::default());
        }
        self.passing.patch(&self.stencil, rewrite, &mut self.patches[at])?;
        let copied = Copied { shared: self.place, patch: self.made, marked };
        self.made += 1;
        self.waiting += 1;
        Ok(Kept::Copy(copied))
    }
}

/// Why a frame that waited does not leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// The driver's frames are shorter than ours.
    TooLong,
    /// It cannot be changed.
    Unchangeable,
}

/// Frames in a switch.
#[derive(Debug)]
pub(crate) struct Held {
    frames: Frames,
    shared: Vec<Shared>,
    /// Places of `shared` that serve again.
    free: Vec<u32>,
}

impl Held {
    /// At most `limit` frames, and as many short ones.
    pub(crate) fn bounded(max_frame: usize, limit: usize) -> Held {
        Held { frames: Frames::bounded(max_frame, limit), shared: Vec::new(), free: Vec::new() }
    }

    /// Keeps a frame that leaves once, and as it is.
    #[inline]
    pub(crate) fn keep(&mut self, bytes: &[u8], marked: bool) -> Option<(Kept, bool)> {
        let frame = self.frames.keep(bytes)?;
        let marked = marked && mark_ce(self.frames.bytes(frame));
        Some((Kept::Plain(frame), marked))
    }

    /// Keeps a frame that copies are to be made of; [`Held::settle`] ends that.
    #[inline]
    pub(crate) fn share(&mut self, bytes: &[u8], passing: &Passing) -> Option<&mut Shared> {
        if passing.head_len() > MAX_HEAD {
            return None;
        }
        let frame = self.frames.keep(bytes)?;
        let place = self.free.pop().unwrap_or_else(|| {
            let (place, stencil) = (self.shared.len() as u32, Stencil::default());
            let passing = *passing;
            self.shared.push(Shared { place, frame, passing, stencil, patches: Vec::new(), made: 0, waiting: 0 });
            place
        });
        let shared = self.shared.get_mut(place as usize)?;
        (shared.frame, shared.passing) = (frame, *passing);
        (shared.made, shared.waiting) = (0, 0);
        if shared.passing.stencil(&COPIED, bytes, &mut shared.stencil).is_err() {
            self.settle(place);
            return None;
        }
        self.shared.get_mut(place as usize)
    }

    /// No more copies are made of what was shared last: without any, its memory is free.
    #[inline]
    pub(crate) fn settle(&mut self, place: u32) {
        if let Some(shared) = self.shared.get(place as usize).filter(|shared| shared.waiting == 0) {
            self.frames.give_back(shared.frame);
            self.free.push(place);
        }
    }

    /// Writes a frame to where it leaves, and forgets it.
    #[inline]
    pub(crate) fn send(&mut self, kept: Kept, wire_len: usize, tx: &mut TxFrame<'_>) -> Result<(), Unsent> {
        match kept {
            Kept::Plain(frame) => {
                let put = tx.put_frame_elided(self.frames.bytes(frame), wire_len);
                self.frames.give_back(frame);
                put.map_err(|_| Unsent::TooLong)
            }
            Kept::Copy(copied) => self.send_copy(copied, wire_len, tx),
        }
    }

    #[inline]
    fn send_copy(&mut self, copied: Copied, wire_len: usize, tx: &mut TxFrame<'_>) -> Result<(), Unsent> {
        let Some(shared) = self.shared.get_mut(copied.shared as usize) else { return Err(Unsent::Unchangeable) };
        shared.waiting -= 1;
        let bytes = self.frames.bytes(shared.frame);
        let sent = match shared.patches.get(usize::from(copied.patch)) {
            Some(patch) => put_changed(bytes, shared, patch, copied.marked, wire_len, tx),
            None => Err(Unsent::Unchangeable),
        };
        self.settle(copied.shared);
        sent
    }
}

/// Copies a frame, changed where it leaves.
#[inline]
fn put_changed(
    bytes: &[u8],
    shared: &Shared,
    patch: &Patch,
    marked: bool,
    wire_len: usize,
    tx: &mut TxFrame<'_>,
) -> Result<(), Unsent> {
    let passing = &shared.passing;
    tx.put_frame_elided(bytes, wire_len).map_err(|_: Error| Unsent::TooLong)?;
    if let Some(at) = passing.icrc_at() {
        tx.put(at, &patch.icrc());
    }
    let len = passing.head_len();
    match tx.slices_mut(0, len) {
        (head, []) => put_head(shared, patch, marked, head)?,
        _ => {
            // Headers in two pieces are changed apart.
            let mut buffer = [0; MAX_HEAD];
            buffer[..len].copy_from_slice(bytes.get(..len).ok_or(Unsent::Unchangeable)?);
            put_head(shared, patch, marked, &mut buffer[..len])?;
            tx.put(0, &buffer[..len]);
        }
    }
    if planted(Bug::IcrcMadeRight) {
        let _ = icrc::write(tx.slices_mut(0, bytes.len()).0, passing.layout());
    }
    Ok(())
}

#[inline]
fn put_head(shared: &Shared, patch: &Patch, marked: bool, head: &mut [u8]) -> Result<(), Unsent> {
    shared.passing.put(&shared.stencil, patch, head).map_err(|_: RewriteError| Unsent::Unchangeable)?;
    if marked {
        mark_ce(head);
    }
    Ok(())
}
