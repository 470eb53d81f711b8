//! Memory regions: those that there are, and the keys of those that there were.

use std::collections::VecDeque;

use crate::calls::{NicId, ObjectId, Region, Sge};
use crate::finding::{Kind, Stack};
use crate::hash::NumberMap;

/// How many regions that are gone are remembered.
const REMEMBERED: usize = 4096;

/// A region, and what is posted with its key.
#[derive(Debug)]
pub(crate) struct Known {
    pub(crate) region: Region,
    pub(crate) made: Stack,
    /// How many elements of outstanding work have its key.
    pub(crate) uses: u64,
}

/// A region that is gone.
#[derive(Debug)]
pub(crate) struct Gone {
    pub(crate) region: Region,
    pub(crate) made: Stack,
    /// Where it was deregistered.
    pub(crate) ended: Stack,
}

/// All of a process.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    by_key: NumberMap<(NicId, u32), ObjectId>,
    all: NumberMap<ObjectId, Known>,
    gone: VecDeque<Gone>,
}

/// Where the bytes of an element are: its region, and their address and length in the program's memory.
pub(crate) type Located = (ObjectId, (u64, u64));

/// Why an element is wrong.
#[derive(Debug)]
pub(crate) struct Wrong<'a> {
    pub(crate) kind: Kind,
    pub(crate) what: String,
    pub(crate) made: Option<Stack>,
    pub(crate) ended: Option<&'a Stack>,
}

impl Regions {
    pub(crate) fn insert(&mut self, id: ObjectId, known: Known) {
        self.by_key.insert((known.region.nic, known.region.lkey), id);
        self.all.insert(id, known);
    }

    pub(crate) fn get(&self, id: ObjectId) -> Option<&Known> {
        self.all.get(&id)
    }

    /// Takes one out: its keys mean nothing any more.
    pub(crate) fn take(&mut self, id: ObjectId) -> Option<Known> {
        let known = self.all.remove(&id)?;
        let key = (known.region.nic, known.region.lkey);
        if self.by_key.get(&key) == Some(&id) {
            self.by_key.remove(&key);
        }
        Some(known)
    }

    /// Remembers the keys of one that is gone.
    pub(crate) fn bury(&mut self, gone: Gone) {
        if self.gone.len() == REMEMBERED {
            self.gone.pop_front();
        }
        self.gone.push_back(gone);
    }

    /// The region with this key.
    pub(crate) fn by_lkey(&self, nic: NicId, lkey: u32) -> Option<(ObjectId, &Known)> {
        let id = *self.by_key.get(&(nic, lkey))?;
        Some((id, self.all.get(&id)?))
    }

    /// A region that is gone and that peers knew by this key, with these bytes in it; none where a living one has the key.
    pub(crate) fn gone_by_rkey(&self, rkey: u32, address: u64) -> Option<&Gone> {
        if self.all.values().any(|known| known.region.rkey == rkey) {
            return None;
        }
        self.gone.iter().rev().find(|gone| {
            gone.region.rkey == rkey
                && address.checked_sub(gone.region.iova).is_some_and(|offset| offset < gone.region.len.max(1))
        })
    }

    /// Counts an element of outstanding work, or what ends.
    pub(crate) fn count(&mut self, id: ObjectId, begins: bool) {
        if let Some(known) = self.all.get_mut(&id) {
            known.uses = if begins { known.uses + 1 } else { known.uses.saturating_sub(1) };
        }
    }

    /// Where the bytes of an element are, and of which region.
    ///
    /// # Errors
    /// What is wrong with it. Elements of no length are never wrong.
    pub(crate) fn locate(
        &self,
        nic: NicId,
        domain: ObjectId,
        sge: &Sge,
        is_written: bool,
    ) -> Result<Option<Located>, Wrong<'_>> {
        if sge.len == 0 {
            return Ok(None);
        }
        let element = format_args!("{} bytes at {:#x} with lkey {:#x}", sge.len, sge.address, sge.lkey);
        let Some((id, Known { region, made, .. })) = self.by_lkey(nic, sge.lkey) else {
            let gone = self.gone.iter().rev().find(|gone| (gone.region.nic, gone.region.lkey) == (nic, sge.lkey));
            let (what, made, ended) = match gone {
                Some(gone) => {
                    (format!("{element}: the region was deregistered"), Some(gone.made.clone()), Some(&gone.ended))
                }
                None => (format!("{element}: no memory region of this device has this key"), None, None),
            };
            return Err(Wrong { kind: Kind::SgeUnknownKey, what, made, ended });
        };
        let wrong = |kind, why: String| {
            Err(Wrong { kind, what: format!("{element}: {why}"), made: Some(made.clone()), ended: None })
        };
        if region.domain != domain {
            return wrong(
                Kind::SgeOtherDomain,
                "the region is of another protection domain than the queue pair".into(),
            );
        }
        if is_written && !region.access.local_write {
            return wrong(Kind::SgeNotWritable, "the region was registered without IBV_ACCESS_LOCAL_WRITE".into());
        }
        if region.is_null {
            return Ok(None);
        }
        match sge.address.checked_sub(region.iova).filter(|at| at.saturating_add(sge.len.into()) <= region.len) {
            Some(offset) => Ok(Some((id, (region.address + offset, sge.len.into())))),
            None => {
                wrong(Kind::SgeOutsideRegion, format!("the region is {} bytes from {:#x} on", region.len, region.iova))
            }
        }
    }
}
