//! The tables of groups: found by sender and MC_ID, by sender and its queue pair, and members by their address.

use std::net::IpAddr;

use softnic_wire::{MacAddr, Qpn};

use crate::hashed::Table;

use super::{GroupError, GroupSpec, MAX_GROUPS, MAX_RANGES, Memory, Merge};

/// An address and a queue pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Key(pub(crate) IpAddr, pub(crate) Qpn);

/// What a group did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct GroupCounters {
    /// Packets of the sender's.
    pub packets_in: u64,
    /// Packets to receivers, or to switches that copy them again.
    pub copies: u64,
    /// Acknowledgements of members, NAKs and RNR NAKs among them.
    pub acks_in: u64,
    /// What of these the sender got, merged.
    pub acks_out: u64,
    /// NAKs among those that came.
    pub naks: u64,
    /// RNR NAKs among those that came.
    pub rnr: u64,
    /// Congestion notifications of members.
    pub cnps_in: u64,
    /// Those that the sender got.
    pub cnps_out: u64,
    /// Requests that no member got: READs, atomics, and WRITEs to memory that is in no range.
    pub refused: u64,
    /// Damaged, malformed, from nobody who is a member, about what was never sent.
    pub bad: u64,
    /// Copies for which no way was known.
    pub unresolved: u64,
}

/// Where a branch leaves, as long as nothing changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Egress {
    /// Of the switch's tables.
    pub(crate) epoch: u64,
    /// Which of several ways a flow takes follows from it.
    pub(crate) src_port: u16,
    /// Port, MAC address, and whether that is a router's.
    pub(crate) to: Option<(usize, MacAddr, bool)>,
}

impl Egress {
    /// Whether it is what a look at the tables would find. What was not found is looked for again: to ask is what makes it known.
    #[inline]
    pub(crate) fn is_still(&self, epoch: u64, src_port: u16) -> bool {
        self.epoch == epoch && self.src_port == src_port && self.to.is_some()
    }
}

/// One copy of each packet.
#[derive(Debug, Clone)]
pub(crate) struct Branch {
    /// The first of its receivers.
    pub(crate) to: IpAddr,
    pub(crate) mac: Option<MacAddr>,
    /// The receiver that it is for, where it is for one alone: its index and its queue pair.
    pub(crate) last: Option<(usize, Qpn)>,
    /// That its receivers share.
    pub(crate) number: Option<u32>,
    pub(crate) egress: Option<Egress>,
    /// Copies that found no way.
    pub(crate) unresolved: u64,
}

/// A group.
#[derive(Debug)]
pub(crate) struct Group {
    /// The first receiver's, which packets are addressed to: here, so that no other memory is looked at to know whose they are.
    pub(crate) first: IpAddr,
    pub(crate) spec: GroupSpec,
    pub(crate) branches: Vec<Branch>,
    pub(crate) memory: Memory,
    pub(crate) merge: Option<Merge>,
    pub(crate) counters: GroupCounters,
    /// The MAC address that the first receiver's frames come from, where they come by it.
    pub(crate) first_mac: Option<MacAddr>,
}

/// How full the tables are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fill {
    /// Groups, of [`MAX_GROUPS`].
    pub groups: usize,
    /// Ranges of memory, of [`MAX_RANGES`].
    pub ranges: usize,
}

/// All groups of a switch.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    slots: Vec<Option<Group>>,
    free: Vec<u32>,
    by_mc_id: Table<Key, u32>,
    by_sender: Table<Key, u32>,
    members: Table<(u32, IpAddr), u32>,
    fill: Fill,
}

impl Groups {
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.fill.groups == 0
    }

    pub(crate) fn fill(&self) -> Fill {
        self.fill
    }

    /// Adds a group, or nothing.
    pub(crate) fn add(&mut self, spec: GroupSpec) -> Result<(), GroupError> {
        spec.check()?;
        let memory = Memory::new(&spec.ranges, spec.receivers.len())?;
        let first = spec.receivers.first().ok_or(GroupError::NoReceivers)?.address;
        let key = Key(spec.sender, spec.mc_id);
        if self.by_mc_id.contains_key(&key) {
            return Err(GroupError::Exists(spec.sender, spec.mc_id.value()));
        }
        let sender = spec.merge.map(|merge| Key(spec.sender, merge.qpn));
        if let Some(Key(address, qpn)) = sender.filter(|key| self.by_sender.contains_key(key)) {
            return Err(GroupError::SenderTaken(address, qpn.value()));
        }
        if self.fill.groups >= MAX_GROUPS {
            return Err(GroupError::GroupsFull);
        }
        let free = MAX_RANGES - self.fill.ranges;
        if memory.len() > free {
            return Err(GroupError::RangesFull(free));
        }
        self.fill.groups += 1;
        self.fill.ranges += memory.len();
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.by_mc_id.insert(key, slot);
        if let Some(key) = sender {
            self.by_sender.insert(key, slot);
            self.members.extend(spec.receivers.iter().enumerate().map(|(i, r)| ((slot, r.address), i as u32)));
        }
        let merge = spec.merge.map(|merge| Merge::new(merge.psn, spec.receivers.len()));
        let (branches, counters) = (branches(&spec), GroupCounters::default());
        self.slots[slot as usize] = Some(Group { first, spec, branches, memory, merge, counters, first_mac: None });
        Ok(())
    }

    /// Removes a group; what of it is in queues leaves.
    pub(crate) fn remove(&mut self, sender: IpAddr, mc_id: Qpn) -> Result<(), GroupError> {
        let unknown = GroupError::Unknown(sender, mc_id.value());
        let slot = self.by_mc_id.remove(&Key(sender, mc_id)).ok_or(unknown)?;
        let Some(group) = self.slots[slot as usize].take() else { return Ok(()) };
        if let Some(merge) = group.spec.merge {
            self.by_sender.remove(&Key(sender, merge.qpn));
        }
        for receiver in &group.spec.receivers {
            self.members.remove(&(slot, receiver.address));
        }
        self.free.push(slot);
        self.fill.groups -= 1;
        self.fill.ranges -= group.memory.len();
        Ok(())
    }

    /// The group of a packet from a sender.
    #[inline]
    pub(crate) fn of_sender(&self, src: IpAddr, dest_qp: Qpn) -> Option<u32> {
        self.by_mc_id.get(&Key(src, dest_qp)).copied()
    }

    /// The group of a packet to a sender.
    #[inline]
    pub(crate) fn to_sender(&self, dst: IpAddr, dest_qp: Qpn) -> Option<u32> {
        self.by_sender.get(&Key(dst, dest_qp)).copied()
    }

    /// Which member of a group has an address.
    #[inline]
    pub(crate) fn member(&self, group: u32, address: IpAddr) -> Option<usize> {
        self.members.get(&(group, address)).map(|i| *i as usize)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, group: u32) -> Option<&mut Group> {
        self.slots.get_mut(group as usize)?.as_mut()
    }

    pub(crate) fn get(&self, sender: IpAddr, mc_id: Qpn) -> Option<&Group> {
        self.slots.get(self.of_sender(sender, mc_id)? as usize)?.as_ref()
    }

    /// All of them, in the order of their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Group> {
        self.slots.iter().flatten()
    }

    /// Those in so many places from one on; and whether there are places behind them.
    pub(crate) fn page(&self, from: usize, places: usize) -> (impl Iterator<Item = &Group>, bool) {
        let end = from.saturating_add(places).min(self.slots.len());
        (self.slots.get(from..end).unwrap_or_default().iter().flatten(), end < self.slots.len())
    }
}

/// One branch for each receiver, or for each number that receivers share.
fn branches(spec: &GroupSpec) -> Vec<Branch> {
    let mut branches: Vec<Branch> = Vec::new();
    for (i, receiver) in spec.receivers.iter().enumerate() {
        let shared = branches.iter_mut().find(|b| b.number.is_some() && b.number == receiver.branch);
        if let Some(branch) = shared {
            branch.last = None;
            continue;
        }
        let last = Some((i, receiver.qpn));
        let (to, mac, number) = (receiver.address, receiver.mac, receiver.branch);
        branches.push(Branch { to, mac, last, number, egress: None, unresolved: 0 });
    }
    branches
}
