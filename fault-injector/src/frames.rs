//! Frames on their way: whole ones, and short ones in slots of their own, so that frames without payload need little memory.

use crate::slots::{SlotId, Slots};

/// Bytes of the longest frame that is short: all headers fit.
const SHORT: usize = 128;

/// A frame: where its bytes lie, and how many of them there are.
#[derive(Debug, Clone, Copy)]
pub struct Frame {
    slot: SlotId,
    len: u32,
}

impl Frame {
    /// Bytes of it.
    #[inline]
    #[allow(clippy::len_without_is_empty)] // none is
    pub fn len(self) -> usize {
        self.len as usize
    }
}

/// Memory for frames.
#[derive(Debug)]
pub struct Frames {
    short: Slots,
    whole: Slots,
}

impl Frames {
    /// None yet; frames are of at most `max_frame` bytes.
    pub fn new(max_frame: usize) -> Frames {
        Frames::bounded(max_frame, usize::MAX)
    }

    /// None yet, and never more than `limit` of each kind.
    pub fn bounded(max_frame: usize, limit: usize) -> Frames {
        Frames { short: Slots::bounded(SHORT, limit), whole: Slots::bounded(max_frame, limit) }
    }

    #[inline]
    fn slots(&mut self, len: usize) -> &mut Slots {
        if len <= SHORT { &mut self.short } else { &mut self.whole }
    }

    /// Room that a frame is written to before anybody knows its length; [`Frames::end`] says it.
    #[inline]
    pub fn begin(&mut self) -> Option<SlotId> {
        self.whole.take()
    }

    /// The bytes of the room.
    #[inline]
    pub fn room(&mut self, room: SlotId) -> &mut [u8] {
        self.whole.get_mut(room)
    }

    /// So many bytes were written to the room; `None` when there is no memory for them. Without bytes it was not used.
    #[inline]
    pub fn end(&mut self, room: SlotId, len: usize) -> Option<Frame> {
        if len > SHORT {
            return Some(Frame { slot: room, len: len as u32 });
        }
        let frame = match len {
            0 => None,
            _ => self.short.take(),
        };
        if let Some(slot) = frame {
            self.short.get_mut(slot)[..len].copy_from_slice(&self.whole.get_mut(room)[..len]);
        }
        self.whole.give_back(room);
        frame.map(|slot| Frame { slot, len: len as u32 })
    }

    /// Keeps a copy of a frame; `None` when there is no memory for it, or when it is too long.
    #[inline]
    pub fn keep(&mut self, bytes: &[u8]) -> Option<Frame> {
        let slots = self.slots(bytes.len());
        if bytes.len() > slots.slot_len() {
            return None;
        }
        let frame = Frame { slot: slots.take()?, len: bytes.len() as u32 };
        self.bytes(frame).copy_from_slice(bytes);
        Some(frame)
    }

    /// Another frame with the same bytes.
    pub fn copy(&mut self, frame: Frame) -> Option<Frame> {
        let slot = self.slots(frame.len()).copy(frame.slot, frame.len())?;
        Some(Frame { slot, ..frame })
    }

    /// The bytes of a frame.
    #[inline]
    pub fn bytes(&mut self, frame: Frame) -> &mut [u8] {
        &mut self.slots(frame.len()).get_mut(frame.slot)[..frame.len as usize]
    }

    /// Takes a frame back.
    #[inline]
    pub fn give_back(&mut self, frame: Frame) {
        self.slots(frame.len()).give_back(frame.slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_all_lengths_keep_their_bytes_and_their_slots_serve_again() {
        let mut frames = Frames::bounded(1000, 3);
        for len in [1, SHORT, SHORT + 1, 1000] {
            let room = frames.begin().unwrap();
            frames.room(room)[..len].fill(len as u8);
            let a = frames.end(room, len).unwrap();
            let b = frames.copy(a).unwrap();
            frames.bytes(a).fill(0);
            let c = frames.keep(&vec![7; len]).unwrap();
            assert!(frames.keep(&vec![7; len]).is_none(), "there are three of each kind");
            assert_eq!(frames.bytes(b), vec![len as u8; len]);
            assert_eq!((frames.bytes(a)[0], frames.bytes(c)[len - 1]), (0, 7));
            [a, b, c].into_iter().for_each(|frame| frames.give_back(frame));
        }
        assert!(frames.keep(&[0; 1001]).is_none());
        let room = frames.begin().unwrap();
        assert!(frames.end(room, 0).is_none());
    }
}
