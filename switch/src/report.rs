//! What is told of groups to who asks.

use std::net::IpAddr;
use std::time::Duration;

use softnic_wire::{Instant, Psn, Qpn};

use crate::group::{Branch, BranchAside, Fill, Group, GroupCounters};
use crate::switch::Switch;

/// A group, as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupReport {
    /// The sender's address.
    pub sender: IpAddr,
    /// The destination of the sender's packets.
    pub mc_id: Qpn,
    /// The sender's queue pair, where acknowledgements are merged here.
    pub sender_qpn: Option<Qpn>,
    /// What it did.
    pub counters: GroupCounters,
    /// All members have everything up to this one; only where acknowledgements are merged.
    pub merged_psn: Option<Psn>,
    /// Its receivers.
    pub members: Vec<MemberReport>,
}

/// A receiver of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberReport {
    /// Its address.
    pub address: IpAddr,
    /// Its queue pair.
    pub qpn: Qpn,
    /// It has everything up to this one; only where acknowledgements are merged.
    pub acked_psn: Option<Psn>,
    /// Packets that it has not acknowledged.
    pub behind: Option<u32>,
    /// Since when it has been silent.
    pub last_heard: Option<Duration>,
    /// Copies for it, and for those on the same branch, for which no way was known.
    pub unresolved: u64,
}

impl Switch {
    /// All groups.
    pub fn groups(&self, now: Instant) -> impl Iterator<Item = GroupReport> {
        self.groups.iter().map(move |group| report(group, now))
    }

    /// Those in so many places of the table, from one on, in a time that does not grow with the table; and whether there are places behind them.
    pub fn groups_page(&self, now: Instant, from: usize, places: usize) -> (Vec<GroupReport>, bool) {
        let (page, more) = self.groups.page(from, places);
        (page.map(|group| report(group, now)).collect(), more)
    }

    /// One of them.
    pub fn group(&self, now: Instant, sender: IpAddr, mc_id: Qpn) -> Option<GroupReport> {
        self.groups.get(sender, mc_id).map(|group| report(group, now))
    }

    /// How full the tables of groups are.
    pub fn fill(&self) -> Fill {
        self.groups.fill()
    }
}

fn report(group: &Group, now: Instant) -> GroupReport {
    let merge = group.merge.as_ref();
    let spec = &group.aside.spec;
    let members = spec.receivers.iter().enumerate().map(|(i, receiver)| {
        let said = merge.and_then(|merge| merge.members().get(i));
        let same_branch = |(b, aside): &(&Branch, &BranchAside)| match b.last {
            Some(own) => usize::from(own) == i,
            None => aside.number.is_some() && aside.number == receiver.branch,
        };
        let mut branches = group.branches.iter().zip(&group.aside.branches);
        MemberReport {
            address: receiver.address,
            qpn: receiver.qpn,
            acked_psn: said.map(|member| member.acked),
            behind: merge.map(|merge| merge.behind(i)),
            last_heard: said.and_then(|member| member.heard).map(|at| now.saturating_since(at)),
            unresolved: branches.find(same_branch).map_or(0, |(_, aside)| aside.unresolved),
        }
    });
    GroupReport {
        sender: spec.sender,
        mc_id: spec.mc_id,
        sender_qpn: spec.merge.map(|merge| merge.qpn),
        counters: group.counters,
        merged_psn: merge.map(|merge| merge.merged()),
        members: members.collect(),
    }
}
