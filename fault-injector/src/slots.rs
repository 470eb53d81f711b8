//! Memory for frames in flight: fixed slots, taken and given back without allocation once there are enough.

/// Names a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameId(u32);

/// Slots are made a chunk at a time, so that growing never moves a frame.
const CHUNK: usize = 256;

#[derive(Debug)]
pub(crate) struct Frames {
    slot_len: usize,
    chunks: Vec<Box<[u8]>>,
    free: Vec<u32>,
}

impl Frames {
    pub(crate) fn new(slot_len: usize) -> Frames {
        Frames { slot_len, chunks: Vec::new(), free: Vec::new() }
    }

    pub(crate) fn take(&mut self) -> FrameId {
        if self.free.is_empty() {
            let first = (self.chunks.len() * CHUNK) as u32;
            self.chunks.push(vec![0; CHUNK * self.slot_len].into());
            self.free.extend((first..first + CHUNK as u32).rev());
        }
        FrameId(self.free.pop().unwrap_or(0))
    }

    /// A slot with the same first `len` bytes.
    pub(crate) fn copy(&mut self, id: FrameId, len: usize) -> FrameId {
        let mut bytes = [0; 8192];
        let n = len.min(bytes.len());
        bytes[..n].copy_from_slice(&self.get_mut(id)[..n]);
        let copy = self.take();
        self.get_mut(copy)[..n].copy_from_slice(&bytes[..n]);
        copy
    }

    pub(crate) fn give_back(&mut self, id: FrameId) {
        self.free.push(id.0);
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: FrameId) -> &mut [u8] {
        let (chunk, at) = (id.0 as usize / CHUNK, id.0 as usize % CHUNK * self.slot_len);
        &mut self.chunks[chunk][at..at + self.slot_len]
    }
}
