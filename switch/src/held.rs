//! Frames in a switch: each is kept once, however many copies of it wait, and a copy is changed as it leaves.

use softnic_fault_injector::frames::{Frame, Frames};
use softnic_wire::rewrite::{Passing, Rewrite, RewriteError};
use softnic_wire::transit::mark_ce;
use softnic_wire::{Error, TxFrame, icrc};

use crate::planted::{Bug, planted};

/// Bytes of the longest headers of a frame that is copied.
const MAX_HEAD: usize = 256;

/// A frame that waits.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kept {
    /// As it is.
    Plain(Frame),
    /// A copy of a frame that others may wait for as well.
    Copy(u32),
}

/// A frame with several copies.
#[derive(Debug)]
struct Shared {
    frame: Frame,
    passing: Passing,
    copies: u32,
}

/// A copy: what is different in it.
#[derive(Debug, Clone, Copy)]
struct Copied {
    shared: u32,
    rewrite: Rewrite,
    marked: bool,
}

/// Why a frame that waited does not leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsent {
    /// The driver's frames are shorter than ours.
    TooLong,
    /// It has no hop left, or cannot be changed.
    Unchangeable,
}

/// Frames in a switch.
#[derive(Debug)]
pub(crate) struct Held {
    frames: Frames,
    shared: Places<Shared>,
    copies: Places<Copied>,
}

impl Held {
    /// At most `limit` frames, and as many short ones.
    pub(crate) fn bounded(max_frame: usize, limit: usize) -> Held {
        Held { frames: Frames::bounded(max_frame, limit), shared: Places::default(), copies: Places::default() }
    }

    /// Keeps a frame that leaves once, and as it is.
    #[inline]
    pub(crate) fn keep(&mut self, bytes: &[u8], marked: bool) -> Option<(Kept, bool)> {
        let frame = self.frames.keep(bytes)?;
        let marked = marked && mark_ce(self.frames.bytes(frame));
        Some((Kept::Plain(frame), marked))
    }

    /// Keeps a frame that copies are to be made of; [`Held::settle`] ends that.
    pub(crate) fn share(&mut self, bytes: &[u8], passing: Passing) -> Option<u32> {
        if passing.head_len() > MAX_HEAD {
            return None;
        }
        let frame = self.frames.keep(bytes)?;
        Some(self.shared.add(Shared { frame, passing, copies: 0 }))
    }

    /// A copy of a frame that is shared.
    pub(crate) fn copy(&mut self, shared: u32, rewrite: Rewrite, marked: bool) -> Kept {
        if let Some(frame) = self.shared.get_mut(shared) {
            frame.copies += 1;
        }
        Kept::Copy(self.copies.add(Copied { shared, rewrite, marked }))
    }

    /// No more copies are made of it: without any its memory is free.
    pub(crate) fn settle(&mut self, shared: u32) {
        if let Some(frame) = self.shared.get_mut(shared)
            && frame.copies == 0
            && let Some(gone) = self.shared.take(shared)
        {
            self.frames.give_back(gone.frame);
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
            Kept::Copy(copy) => self.send_copy(copy, wire_len, tx),
        }
    }

    fn send_copy(&mut self, copy: u32, wire_len: usize, tx: &mut TxFrame<'_>) -> Result<(), Unsent> {
        // It is read where it lies: it is larger than most headers.
        let Some(&mut Copied { shared, ref rewrite, marked }) = self.copies.get_mut(copy) else {
            return Err(Unsent::Unchangeable);
        };
        let Some(of) = self.shared.get_mut(shared) else { return Err(Unsent::Unchangeable) };
        let sent = put_changed(self.frames.bytes(of.frame), &of.passing, rewrite, marked, wire_len, tx);
        of.copies -= 1;
        self.copies.free(copy);
        self.settle(shared);
        sent
    }
}

/// Copies a frame, changed where it leaves.
fn put_changed(
    bytes: &[u8],
    passing: &Passing,
    rewrite: &Rewrite,
    marked: bool,
    wire_len: usize,
    tx: &mut TxFrame<'_>,
) -> Result<(), Unsent> {
    tx.put_frame_elided(bytes, wire_len).map_err(|_: Error| Unsent::TooLong)?;
    let (frame, rest) = tx.slices_mut(0, bytes.len());
    if !rest.is_empty() {
        return put_apart(bytes, passing, rewrite, marked, wire_len, tx);
    }
    passing.apply(rewrite, frame).map_err(|_: RewriteError| Unsent::Unchangeable)?;
    if marked {
        mark_ce(frame);
    }
    if planted(Bug::IcrcMadeRight) {
        let _ = icrc::write(frame, passing.layout());
    }
    Ok(())
}

/// [`put_changed`] of a frame that leaves in two pieces: its head is changed apart.
#[cold]
fn put_apart(
    bytes: &[u8],
    passing: &Passing,
    rewrite: &Rewrite,
    marked: bool,
    wire_len: usize,
    tx: &mut TxFrame<'_>,
) -> Result<(), Unsent> {
    let (mut buffer, len) = ([0; MAX_HEAD], passing.head_len());
    let head = &mut buffer[..len];
    head.copy_from_slice(bytes.get(..len).ok_or(Unsent::Unchangeable)?);
    let at = passing.icrc_at();
    let old = at.and_then(|at| bytes.get(at..)?.first_chunk().copied()).unwrap_or_default();
    let icrc = passing.apply_head(rewrite, head, old).map_err(|_: RewriteError| Unsent::Unchangeable)?;
    if marked {
        mark_ce(head);
    }
    tx.put_frame_elided(bytes, wire_len).map_err(|_: Error| Unsent::TooLong)?;
    tx.put(0, head);
    if let Some(at) = at {
        tx.put(at, &icrc);
    }
    Ok(())
}

/// Values with numbers that serve again.
#[derive(Debug)]
struct Places<T> {
    values: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Places<T> {
    fn default() -> Places<T> {
        Places { values: Vec::new(), free: Vec::new() }
    }
}

impl<T> Places<T> {
    fn add(&mut self, value: T) -> u32 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.values.push(None);
            self.values.len() as u32 - 1
        });
        self.values[place as usize] = Some(value);
        place
    }

    fn get_mut(&mut self, place: u32) -> Option<&mut T> {
        self.values.get_mut(place as usize)?.as_mut()
    }

    fn free(&mut self, place: u32) {
        if let Some(value) = self.values.get_mut(place as usize).filter(|value| value.is_some()) {
            *value = None;
            self.free.push(place);
        }
    }

    fn take(&mut self, place: u32) -> Option<T> {
        let value = self.values.get_mut(place as usize)?.take();
        if value.is_some() {
            self.free.push(place);
        }
        value
    }
}
