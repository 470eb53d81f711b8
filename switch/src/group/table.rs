//! The tables of groups: found by sender and MC_ID, by sender and its queue pair, and members by their address.

use std::hint::black_box;
use std::net::IpAddr;

use softnic_wire::{MacAddr, Qpn};

use crate::few::Few;
use crate::hashed::ByAddress;

use super::{GroupError, GroupSpec, MAX_GROUPS, MAX_RANGES, Memory, Merge, Receiver};

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

/// When the ways of a group's branches were looked up: they stay as long as nothing changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Looked {
    /// Of the switch's tables.
    pub(crate) epoch: u64,
    /// Which of several ways a flow takes follows from it.
    pub(crate) src_port: u16,
}

/// Where a branch leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Egress {
    pub(crate) port: u32,
    pub(crate) mac: MacAddr,
    /// Whether the MAC address is a router's.
    pub(crate) routed: bool,
}

/// One copy of each packet: what is looked at for each of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Branch {
    /// The first of its receivers.
    pub(crate) to: IpAddr,
    pub(crate) egress: Option<Egress>,
    /// The receiver that it is for, where it is for one alone.
    pub(crate) last: Option<u16>,
    /// The queue pair of that receiver.
    pub(crate) qpn: Qpn,
}

/// What of a branch packets do not need.
#[derive(Debug, Clone)]
pub(crate) struct BranchAside {
    pub(crate) mac: Option<MacAddr>,
    /// That its receivers share.
    pub(crate) number: Option<u32>,
    /// Copies that found no way.
    pub(crate) unresolved: u64,
}

/// A group. With tables that are full each packet finds it in memory that is far away: what a packet needs lies in one piece, and is
/// fetched at once ([`Group::fetch`]).
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Group {
    /// The first receiver's, which packets are addressed to.
    pub(crate) first: IpAddr,
    /// `None` also where a branch has no way: to ask again is what makes it known.
    pub(crate) looked: Option<Looked>,
    pub(crate) branches: Few<Branch, NEAR_BRANCHES>,
    pub(crate) memory: Memory,
    pub(crate) merge: Option<Merge>,
    pub(crate) counters: GroupCounters,
    pub(crate) aside: Box<Aside>,
}

/// Branches that lie with their group.
const NEAR_BRANCHES: usize = 4;

impl Group {
    /// Whether a packet of the sender's to the MC_ID is one of the group: its destination is the first receiver.
    #[inline]
    pub(crate) fn is_to(&self, dst: IpAddr) -> bool {
        self.fetch();
        self.first == dst
    }

    /// Looks at a little of everything that a packet of the sender's needs, before any of it is needed: lines of memory that are far away
    /// come together, not one after the other.
    #[inline]
    fn fetch(&self) {
        black_box((self.merge.as_ref().map(Merge::next), self.counters.packets_in));
        self.branches.iter().take(NEAR_BRANCHES).for_each(|branch| _ = black_box(branch.qpn));
        self.memory.fetch();
    }
}

/// What of a group the sender's packets do not need.
#[derive(Debug)]
pub(crate) struct Aside {
    /// As it was asked for, but for the ranges.
    pub(crate) spec: GroupSpec,
    pub(crate) branches: Vec<BranchAside>,
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
    by_mc_id: ByAddress,
    by_sender: ByAddress,
    /// By a member's address and its group.
    members: ByAddress,
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
    pub(crate) fn add(&mut self, mut spec: GroupSpec) -> Result<(), GroupError> {
        spec.check()?;
        let ranges = std::mem::take(&mut spec.ranges);
        let memory = Memory::new(&ranges, spec.receivers.len())?;
        drop(ranges);
        let first = spec.receivers.first().ok_or(GroupError::NoReceivers)?.address;
        if self.of_sender(spec.sender, spec.mc_id).is_some() {
            return Err(GroupError::Exists(spec.sender, spec.mc_id.value()));
        }
        if let Some(merge) = spec.merge.filter(|merge| self.to_sender(spec.sender, merge.qpn).is_some()) {
            return Err(GroupError::SenderTaken(spec.sender, merge.qpn.value()));
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
        self.by_mc_id.insert(spec.sender, spec.mc_id.value(), slot);
        if let Some(merge) = spec.merge {
            self.by_sender.insert(spec.sender, merge.qpn.value(), slot);
            for (i, receiver) in spec.receivers.iter().enumerate() {
                self.members.insert(receiver.address, slot, i as u32);
            }
        }
        let merge = spec.merge.map(|merge| Merge::new(merge.psn, spec.receivers.len()));
        let (branches, asides) = branches(&spec);
        let aside = Box::new(Aside { spec, branches: asides, first_mac: None });
        let counters = GroupCounters::default();
        let group = Group { first, looked: None, branches, memory, merge, counters, aside };
        self.slots[slot as usize] = Some(group);
        Ok(())
    }

    /// Removes a group; what of it is in queues leaves.
    pub(crate) fn remove(&mut self, sender: IpAddr, mc_id: Qpn) -> Result<(), GroupError> {
        let unknown = GroupError::Unknown(sender, mc_id.value());
        let slot = self.by_mc_id.remove(sender, mc_id.value()).ok_or(unknown)?;
        let Some(group) = self.slots[slot as usize].take() else { return Ok(()) };
        let spec = &group.aside.spec;
        if let Some(merge) = spec.merge {
            self.by_sender.remove(sender, merge.qpn.value());
        }
        for receiver in &spec.receivers {
            self.members.remove(receiver.address, slot);
        }
        self.free.push(slot);
        self.fill.groups -= 1;
        self.fill.ranges -= group.memory.len();
        Ok(())
    }

    /// The group of a packet from a sender.
    #[inline]
    pub(crate) fn of_sender(&self, src: IpAddr, dest_qp: Qpn) -> Option<u32> {
        self.by_mc_id.get(src, dest_qp.value())
    }

    /// The group of a packet to a sender.
    #[inline]
    pub(crate) fn to_sender(&self, dst: IpAddr, dest_qp: Qpn) -> Option<u32> {
        self.by_sender.get(dst, dest_qp.value())
    }

    /// Which member of a group has an address.
    #[inline]
    pub(crate) fn member(&self, group: u32, address: IpAddr) -> Option<usize> {
        self.members.get(address, group).map(|i| i as usize)
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
fn branches(spec: &GroupSpec) -> (Few<Branch, NEAR_BRANCHES>, Vec<BranchAside>) {
    let (mut branches, mut asides) = (Vec::<Branch>::new(), Vec::<BranchAside>::new());
    for (i, receiver) in spec.receivers.iter().enumerate() {
        let Receiver { address, qpn, mac, branch: number } = *receiver;
        let shared = asides.iter().position(|b| b.number.is_some() && b.number == number);
        if let Some(branch) = shared.and_then(|i| branches.get_mut(i)) {
            branch.last = None;
            continue;
        }
        branches.push(Branch { to: address, egress: None, last: Some(i as u16), qpn });
        asides.push(BranchAside { mac, number, unresolved: 0 });
    }
    let none = Branch { to: spec.sender, egress: None, last: None, qpn: spec.mc_id };
    (Few::new(branches, none), asides)
}
