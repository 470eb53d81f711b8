//! Registered memory of the swarm: which bytes belong to which message, and what must be in them.

use std::sync::Arc;

use softnic_fault_injector::random::Random;
use softnic_nic::Buffer;
use softnic_nic::transports::Sge;

/// What memory holds before anybody writes to it.
pub(super) const UNTOUCHED: u8 = 0xa5;
/// Bytes of nobody around every range.
const GUARD: usize = 16;

/// What must be in a range of memory.
#[derive(Debug, Clone)]
pub(super) enum Content {
    /// These bytes.
    Exact(Vec<u8>),
    /// Each byte is this one, or it was never touched: a message that may or may not arrive, or in part.
    Each(Vec<u8>),
    /// Anything.
    Any,
}

/// A range of memory that belongs to some message.
struct Area {
    at: usize,
    len: usize,
    content: Content,
}

/// Names an area of a ground.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AreaId(usize);

/// A memory region and its areas; all between them is untouched.
pub(super) struct Ground {
    pub(super) buffer: Arc<Buffer>,
    pub(super) key: u32,
    /// Keys of the same memory that give no access: the region is gone, or of another protection domain.
    pub(super) no_access: Vec<u32>,
    /// The key of a region of the same memory that the peer may only read.
    pub(super) read_only: u32,
    used: usize,
    areas: Vec<Area>,
}

impl Ground {
    pub(super) fn new(addr: u64, size: usize) -> Ground {
        let buffer = Buffer::new(addr, size);
        buffer.write_at(0, &vec![UNTOUCHED; size]);
        Ground { buffer, key: 0, no_access: Vec::new(), read_only: 0, used: 0, areas: Vec::new() }
    }

    /// A range that no area has, at a multiple of `align`.
    pub(super) fn reserve(&mut self, len: usize, align: usize) -> Result<usize, String> {
        let at = (self.used + GUARD).next_multiple_of(align);
        self.used = at + len;
        if self.used + GUARD > self.buffer.len() { Err("the test's buffer is too small".into()) } else { Ok(at) }
    }

    /// An area in a range that was reserved; what is there now stays.
    pub(super) fn area(&mut self, at: usize, len: usize, content: Content) -> AreaId {
        self.areas.push(Area { at, len, content });
        AreaId(self.areas.len() - 1)
    }

    /// A new area with nothing in it yet.
    pub(super) fn room(&mut self, len: usize, content: Content) -> Result<AreaId, String> {
        let at = self.reserve(len, 1)?;
        Ok(self.area(at, len, content))
    }

    /// The program writes to an area.
    pub(super) fn fill(&mut self, id: AreaId, bytes: Vec<u8>) {
        let area = &mut self.areas[id.0];
        self.buffer.write_at(area.at, &bytes);
        area.content = Content::Exact(bytes);
    }

    /// As [`Ground::fill`], with the same byte everywhere.
    pub(super) fn wipe(&mut self, id: AreaId, byte: u8) {
        self.fill(id, vec![byte; self.areas[id.0].len]);
    }

    /// From now on this must be there.
    pub(super) fn expect(&mut self, id: AreaId, content: Content) {
        self.areas[id.0].content = content;
    }

    pub(super) fn len(&self, id: AreaId) -> usize {
        self.areas[id.0].len
    }

    pub(super) fn addr(&self, id: AreaId) -> u64 {
        self.buffer.addr() + self.areas[id.0].at as u64
    }

    /// What is in an area.
    pub(super) fn read(&self, id: AreaId) -> Vec<u8> {
        let Area { at, len, .. } = self.areas[id.0];
        let mut bytes = vec![0; len];
        self.buffer.read_at(at, &mut bytes);
        bytes
    }

    /// The elements of a work request that uses these areas in order, each cut into pieces.
    pub(super) fn sges(&self, areas: &[AreaId]) -> Vec<Sge> {
        areas.iter().map(|&id| Sge { addr: self.addr(id), len: self.len(id) as u32, lkey: self.key }).collect()
    }

    /// Elements that cover an area in several pieces.
    pub(super) fn scatter(&self, id: AreaId, r: &mut Random) -> Vec<Sge> {
        let mut addr = self.addr(id);
        let pieces = cut(r, self.len(id), 16);
        let next = |len: usize| {
            let sge = Sge { addr, len: len as u32, lkey: self.key };
            addr += len as u64;
            sge
        };
        pieces.into_iter().map(next).collect()
    }

    /// At the end: every byte is what must be there.
    pub(super) fn check(&mut self) -> Result<(), String> {
        let mut found = vec![0; self.buffer.len()];
        self.buffer.read_at(0, &mut found);
        self.areas.sort_by_key(|a| a.at);
        let untouched = |from: usize, to: usize| same(&found[from..to], None, "bytes that belong to no message", from);
        let mut end = 0;
        for a in &self.areas {
            untouched(end, a.at)?;
            end = a.at + a.len;
            let here = &found[a.at..end];
            match &a.content {
                Content::Exact(bytes) => same(here, Some(bytes), "memory at the end", a.at)?,
                Content::Each(bytes) => {
                    let wrong = |i: usize| here[i] != bytes[i] && here[i] != UNTOUCHED;
                    if let Some(i) = (0..a.len).find(|&i| wrong(i)) {
                        return Err(format!("safety: byte {i} at {:#x} was sent by nobody: {:#04x}", a.at, here[i]));
                    }
                }
                Content::Any => {}
            }
        }
        untouched(end, found.len())
    }
}

/// Compares bytes, with untouched ones where `expected` is `None`.
fn same(found: &[u8], expected: Option<&[u8]>, what: &str, at: usize) -> Result<(), String> {
    let wanted = |i: usize| expected.map_or(UNTOUCHED, |e| e[i]);
    match (0..found.len()).find(|&i| found[i] != wanted(i)) {
        None => Ok(()),
        Some(i) => Err(format!("safety: {what}: byte {i} at {at:#x} is {:#04x}, not {:#04x}", found[i], wanted(i))),
    }
}

/// Compares bytes that a completion says are there.
pub(super) fn expect_bytes(found: &[u8], expected: &[u8], what: &str) -> Result<(), String> {
    if found.len() != expected.len() {
        return Err(format!("safety: {what}: {} bytes, not {}", found.len(), expected.len()));
    }
    same(found, Some(expected), what, 0)
}

/// Cuts `len` bytes into one to `most` pieces, some of them empty.
pub(super) fn cut(r: &mut Random, len: usize, most: u64) -> Vec<usize> {
    let mut rest = len;
    let mut pieces: Vec<usize> = (0..r.below(most))
        .map(|_| {
            let n = r.below(rest as u64 + 1) as usize;
            rest -= n;
            n
        })
        .collect();
    pieces.push(rest);
    pieces
}
