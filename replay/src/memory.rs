//! The responder's memory, rebuilt from what its peer did to it.
//!
//! A region is what the accesses that went well span; what was refused is not in it, so our NIC refuses it by itself. The
//! content is known where the peer wrote or read it before, and is taken from the capture where it is seen first.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use softnic_nic::Buffer;
use softnic_nic::transports::memory::Access;
use softnic_wire::opcode::Kind;
use softnic_wire::sr::SrEth;

use crate::capture::{Packet, sign};
use crate::flows::Flow;
use crate::messages::remote_key;
use crate::rig::Rig;
use crate::side::Side;

/// Accesses nearer than this are of one stretch; a key that covers all of memory must not become a buffer of that size.
const NEAR: u64 = 1 << 16;
/// Memory that a flow may take.
const MOST: u64 = 256 << 20;
/// What a READ of the same few bytes over and over finds changed is what it waits for.
const POLLED: u32 = 64;
/// So many bytes must be other than expected before it is taken for the owner's doing: damage is smaller.
const REWRITTEN: usize = 4;

/// A stretch of a region.
struct Area {
    start: u64,
    end: u64,
    key: u32,
    access: Access,
    buffer: Option<Arc<Buffer>>,
    /// When each byte was learned: 0 never, else one more than the number of signs of the program before.
    known: Vec<u32>,
}

/// The regions of a responder.
pub(crate) struct Regions {
    areas: HashMap<u32, Vec<Area>>,
    volatile: Vec<u32>,
    /// No region has it.
    nobody: u32,
    /// The last READ: range, and where its answer began.
    last_read: Option<(u32, u64, u32)>,
    /// Keys of memory that its owner changed, as an earlier replay of the same flow found.
    rewritten_before: HashSet<u32>,
    /// And as this one found.
    pub(crate) rewritten: HashSet<u32>,
    /// Keys that the peer invalidated.
    pub(crate) invalidated: HashSet<u32>,
    /// The value before the last atomic, by key and address.
    before_atomic: HashMap<(u32, u64), u64>,
}

/// What the answers to one request say is in memory, from an address on: part after part.
pub(crate) type Parts<'a> = [(u64, &'a [u8])];

/// An access, as the survey of a flow sees it.
struct Use {
    start: u64,
    end: u64,
    access: Access,
}

pub(crate) fn needed_access(p: &Packet) -> Access {
    match p.opcode.kind() {
        Kind::ReadRequest => Access::REMOTE_READ,
        Kind::CompareSwap | Kind::FetchAdd => Access::REMOTE_ATOMIC,
        _ => Access::REMOTE_WRITE,
    }
}

fn range(p: &Packet) -> Option<(u64, u64)> {
    let (va, len) = p.ext.reth.map(|r| (r.va, u64::from(r.len))).or(p.ext.atomic.map(|a| (a.va, 8)))?;
    Some((va, va.checked_add(len)?))
}

impl Regions {
    /// Registers what the accesses of a flow need, but for those that were refused. `None` where it would be too much.
    pub(crate) fn build(
        rig: &mut Rig,
        flow: &Flow,
        packets: &[Packet],
        refused: impl Fn(i64) -> bool,
        side: &Side,
        rewritten_before: HashSet<u32>,
    ) -> Option<Regions> {
        let mut uses: HashMap<u32, Vec<Use>> = HashMap::new();
        let mut windows: Vec<u32> = Vec::new();
        let mut any_refused: Vec<u32> = Vec::new();
        for r in &flow.requests {
            let p = &packets[r.at];
            windows.extend(p.ext.ieth);
            let (Some(key), Some((start, end))) = (remote_key(p), range(p)) else { continue };
            if refused(r.psn) {
                any_refused.push(key);
            } else {
                uses.entry(key).or_default().push(Use { start, end, access: needed_access(p) });
            }
        }
        let mut regions = Regions {
            areas: HashMap::new(),
            volatile: Vec::new(),
            nobody: 0xffff_ffff,
            last_read: None,
            rewritten_before,
            rewritten: HashSet::new(),
            invalidated: HashSet::new(),
            before_atomic: HashMap::new(),
        };
        for &key in &windows {
            uses.entry(key).or_insert_with(|| vec![Use { start: 0, end: 8, access: Access::REMOTE_WRITE }]);
        }
        let mut keys: Vec<u32> = uses.keys().copied().collect();
        keys.sort_unstable();
        let mut total = 0u64;
        for key in keys {
            let mut list = uses.remove(&key).unwrap_or_default();
            let told = side.mr(flow.responder, key);
            if told.is_some_and(|mr| mr.volatile) || flow.shared_keys.contains(&key) {
                regions.volatile.push(key);
            }
            let access = match told {
                Some(mr) => mr.access(),
                None => list.iter().fold(Access::NONE, |sum, u| sum | u.access),
            };
            if let Some(mr) = told {
                list = vec![Use { start: mr.start, end: mr.start + mr.length, access }];
            }
            let is_window = windows.contains(&key);
            let looked_at = access.intersects(Access::REMOTE_READ | Access::REMOTE_ATOMIC);
            if !looked_at && !is_window && told.is_none() && !any_refused.contains(&key) {
                let area = Area {
                    start: 0,
                    end: u64::MAX,
                    key: rig.register_nowhere(access)?,
                    access,
                    buffer: None,
                    known: Vec::new(),
                };
                regions.areas.insert(key, vec![area]);
                continue;
            }
            list.sort_by_key(|u| u.start);
            let mut stretches: Vec<(u64, u64)> = Vec::new();
            for u in list {
                // Atomics need their eight bytes aligned.
                let start = u.start & !7;
                match stretches.last_mut() {
                    Some((_, end)) if start <= end.saturating_add(NEAR) => *end = (*end).max(u.end),
                    _ => stretches.push((start, u.end)),
                }
            }
            let mut areas = Vec::new();
            for (start, end) in stretches {
                total += end - start;
                if total > MOST {
                    return None;
                }
                let (mut rkey, buffer) = rig.register(start, (end - start) as usize, access)?;
                if is_window && end > start {
                    rkey = rig.bind_window(rkey, start, end - start, access)?;
                }
                let known = vec![0; buffer.len()];
                areas.push(Area { start, end, key: rkey, access, known, buffer: Some(buffer) });
            }
            regions.areas.insert(key, areas);
        }
        Some(regions)
    }

    fn area(&mut self, key: u32, addr: u64) -> Option<&mut Area> {
        self.areas.get_mut(&key)?.iter_mut().find(|a| a.start <= addr && addr < a.end.max(a.start + 1))
    }

    /// The request as our NIC knows its keys.
    pub(crate) fn translate(&mut self, p: &Packet) -> Vec<u8> {
        let mut frame = p.frame.clone();
        let at = p.layout.bth + softnic_wire::bth::LEN + p.ext.sr.map_or(0, |_| SrEth::LEN);
        let nobody = self.nobody;
        // A RETH and an AtomicETH both have the key behind the address; an IETH is nothing but the key.
        let found = match (remote_key(p), range(p), p.ext.ieth) {
            (Some(key), range, _) => {
                let addr = range.map_or(0, |r| r.0);
                let own = self.area(key, addr).map(|a| a.key);
                // Behind the last stretch: a region of ours refuses it as theirs did.
                let any = self.areas.get(&key).and_then(|a| a.first()).map(|a| a.key);
                Some((at + 8, own.or(any).unwrap_or(nobody)))
            }
            (None, _, Some(key)) => Some((at, self.areas.get(&key).and_then(|a| a.first()).map_or(nobody, |a| a.key))),
            _ => None,
        };
        if let Some((at, key)) = found
            && let Some(place) = frame.get_mut(at..at + 4)
        {
            place.copy_from_slice(&key.to_be_bytes());
            sign(&mut frame, &p.layout);
        }
        frame
    }

    /// A request that waits for an old value has seen it before: nothing that it finds surprises.
    pub(crate) fn is_polling(&mut self, p: &Packet) -> bool {
        let Some(r) = p.ext.reth else { return false };
        let this = (r.rkey, r.va, r.len);
        let again = self.last_read == Some(this) && r.len <= POLLED;
        self.last_read = Some(this);
        again
    }

    /// Whether a request names memory that the peer reached before, in the same way.
    pub(crate) fn grants(&mut self, p: &Packet) -> bool {
        let (Some(key), Some((start, end))) = (remote_key(p), range(p)) else { return false };
        !self.invalidated.contains(&key)
            && self.area(key, start).is_some_and(|a| end <= a.end && a.access.intersects(needed_access(p)))
    }

    /// The owner took the key back: nobody has it any more.
    pub(crate) fn revoke(&mut self, key: u32) {
        self.areas.remove(&key);
    }

    /// How many bytes of the answers to one request are known, and how many of them are other than expected.
    fn unexpected(&mut self, key: u32, parts: &Parts<'_>, signs: u32) -> (usize, usize) {
        let (mut known, mut other) = (0, 0);
        for &(addr, bytes) in parts {
            let Some(area) = self.area(key, addr) else { continue };
            let (Some(buffer), Some(at)) = (&area.buffer, addr.checked_sub(area.start)) else { continue };
            let at = at as usize;
            let mut expected = vec![0; bytes.len().min(area.known.len().saturating_sub(at))];
            buffer.read_at(at, &mut expected);
            for (i, (was, is)) in expected.iter().zip(bytes).enumerate() {
                if area.known[at + i] > signs {
                    known += 1;
                    other += usize::from(was != is);
                }
            }
        }
        (known, other)
    }

    /// Whether the owner changed what a READ found. Its program may do so at any time, and no packet tells. One wrong byte is
    /// a fault; when half of all that is known has changed, somebody wrote there. Of a few bytes alone nobody can tell,
    /// unless the owner is known to write there: then all of them changed.
    pub(crate) fn is_rewritten(&mut self, key: u32, parts: &Parts<'_>, signs: u32) -> bool {
        let (known, other) = self.unexpected(key, parts, signs);
        if other >= REWRITTEN && other * 2 >= known {
            self.rewritten.insert(key);
            return true;
        }
        other > 0 && other == known && known < REWRITTEN && self.rewritten_before.contains(&key)
    }

    /// The same of the value that an atomic found. That of one atomic fewer, or of this one twice, is a fault however many
    /// bytes that changes.
    pub(crate) fn is_reset(&mut self, p: &Packet, found: u64, signs: u32) -> bool {
        let Some(atomic) = p.ext.atomic else { return false };
        let bytes = found.to_ne_bytes();
        let (known, other) = self.unexpected(atomic.rkey, &[(atomic.va, &bytes)], signs);
        let expected = self.value(atomic.rkey, atomic.va);
        let twice = expected.map(|v| match p.opcode.kind() {
            Kind::FetchAdd => v.wrapping_add(atomic.swap_add),
            _ => atomic.swap_add,
        });
        let before = self.before_atomic.get(&(atomic.rkey, atomic.va)).copied();
        let reset = known == 8 && other >= REWRITTEN && Some(found) != before && Some(found) != twice;
        if reset {
            self.rewritten.insert(atomic.rkey);
        }
        reset
    }

    /// Eight bytes as they are now.
    fn value(&mut self, key: u32, addr: u64) -> Option<u64> {
        let area = self.area(key, addr)?;
        let (buffer, at) = (area.buffer.as_ref()?, addr.checked_sub(area.start)? as usize);
        let mut bytes = [0; 8];
        (at + 8 <= area.known.len()).then(|| buffer.read_at(at, &mut bytes))?;
        Some(u64::from_ne_bytes(bytes))
    }

    /// Keeps the value that an atomic is about to change.
    pub(crate) fn note_atomic(&mut self, key: u32, addr: u64) {
        if let Some(value) = self.value(key, addr) {
            self.before_atomic.insert((key, addr), value);
        }
    }

    /// What the peer was told to be there. Bytes that are known from before keep their value, so that our NIC answers with
    /// that; the others take this one. With `free` all do. Says whether any byte was taken.
    pub(crate) fn learn(&mut self, key: u32, addr: u64, bytes: &[u8], signs: u32, free: bool) -> bool {
        let free = free || self.volatile.contains(&key);
        let Some(area) = self.area(key, addr) else { return false };
        let (Some(buffer), Some(at)) = (&area.buffer, addr.checked_sub(area.start)) else { return false };
        let mut taken = false;
        for (i, &byte) in bytes.iter().enumerate() {
            let place = at as usize + i;
            let Some(known) = area.known.get_mut(place) else { break };
            if free || *known == 0 || *known < signs + 1 {
                buffer.write_at(place, &[byte]);
                *known = signs + 1;
                taken = true;
            }
        }
        taken
    }

    /// Our NIC has written there; with `whole` false nobody knows what.
    pub(crate) fn note_write(&mut self, key: u32, addr: u64, len: usize, signs: u32, whole: bool) {
        let Some(area) = self.area(key, addr) else { return };
        let at = addr.saturating_sub(area.start) as usize;
        for known in area.known.iter_mut().skip(at).take(len) {
            *known = if whole { signs + 1 } else { 0 };
        }
    }
}
