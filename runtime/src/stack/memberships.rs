//! Multicast group membership of a port: reports on join and leave, and answers to queriers, so that switches and routers forward the groups'
//! packets to the port.
//!
//! IGMPv3 and MLDv2 of a host that accepts every source; IGMPv2 and MLDv1 while a querier of these versions is present.

mod messages;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use softnic_wire::Instant;

use messages::{Packet, Query, Record, old_report, report};

/// The largest number of groups that a port is a member of.
const MAX_GROUPS: usize = 256;
/// The largest number of groups in one report, so that the report fits any link.
const MAX_RECORDS: usize = 60;
/// How often a change is reported, because a report may be lost, and the longest interval between the reports (RFC 3376, 8.1, 8.11).
const ROBUSTNESS: u32 = 2;
const REPEAT: Duration = Duration::from_secs(1);
/// The longest delay of an answer.
const LONGEST: Duration = Duration::from_secs(25);
/// The shortest interval between two answers for all groups, however frequent the queries.
const SHORTEST: Duration = Duration::from_millis(100);
/// How long answers use an old version after a query of that version (RFC 3376, 8.12; RFC 3810, 9.12).
const OLD_QUERIER: Duration = Duration::from_secs(260);

/// The port cannot be a member of so many groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a port is a member of at most {MAX_GROUPS} multicast groups")]
pub struct TooManyGroups;

/// A group and its pending reports.
#[derive(Debug, Clone, Copy)]
struct Group {
    /// Whether the port is a member. A group that was left is forgotten after the leave has been reported.
    member: bool,
    /// How often the change is still to be reported, and when next.
    changes: u32,
    change_at: Instant,
    /// When to answer a query for this group.
    answer_at: Option<Instant>,
}

impl Group {
    fn next(&self) -> Option<Instant> {
        let change = (self.changes > 0).then_some(self.change_at);
        [change, self.answer_at].into_iter().flatten().min()
    }
}

/// State of the queriers of one IP version.
#[derive(Debug, Clone, Copy, Default)]
struct Querier {
    /// Until when a querier of an old version counts as present.
    old_until: Option<Instant>,
    /// When to answer a query for all groups, and when that was done last.
    answer_at: Option<Instant>,
    answered: Option<Instant>,
}

/// The groups of a port.
#[derive(Debug)]
pub(super) struct Memberships {
    groups: BTreeMap<IpAddr, Group>,
    /// For IPv4 and for IPv6.
    queriers: [Querier; 2],
    random: u64,
    next: Option<Instant>,
}

impl Memberships {
    /// No groups. `seed` is the seed of the delays: hosts that receive the same query should not answer at the same time.
    pub(super) fn new(seed: u64) -> Memberships {
        let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Memberships { groups: BTreeMap::new(), queriers: [Querier::default(); 2], random, next: None }
    }

    /// A random delay of less than `most`.
    fn delay(&mut self, most: Duration) -> Duration {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let nanos = most.min(LONGEST).as_nanos() as u64;
        Duration::from_nanos((self.random >> 16) % nanos.max(1))
    }

    /// Makes the port a member of these groups, and of no others.
    pub(super) fn set(&mut self, now: Instant, groups: &BTreeSet<IpAddr>) -> Result<(), TooManyGroups> {
        let reported = || groups.iter().copied().filter(|&group| is_reported(group));
        if reported().count() > MAX_GROUPS {
            return Err(TooManyGroups);
        }
        for (address, group) in &mut self.groups {
            if group.member && !groups.contains(address) {
                *group = Group { member: false, changes: ROBUSTNESS, change_at: now, answer_at: None };
            }
        }
        for address in reported() {
            if self.groups.get(&address).is_none_or(|group| !group.member) {
                let group = Group { member: true, changes: ROBUSTNESS, change_at: now, answer_at: None };
                self.groups.insert(address, group);
            }
        }
        // Leaves of a port that joins and leaves without end are dropped unreported.
        while self.groups.len() > 2 * MAX_GROUPS {
            let left = self.groups.iter().find(|(_, group)| !group.member).map(|(&address, _)| address);
            let Some(left) = left else { break };
            self.groups.remove(&left);
        }
        self.set_next();
        Ok(())
    }

    /// Handles an IP packet; `true` if it was a query.
    pub(super) fn handle_packet(&mut self, now: Instant, packet: &[u8]) -> bool {
        let Some(query) = Query::of(packet) else { return false };
        let answer_at = now + self.delay(query.within);
        let querier = &mut self.queriers[usize::from(!query.is_v4)];
        if query.is_old {
            querier.old_until = Some(now + OLD_QUERIER);
        }
        // An answer that is due earlier keeps its time (RFC 3376, 5.2).
        let sooner = |old: Option<Instant>, at: Instant| Some(old.map_or(at, |old| old.min(at)));
        match query.group {
            None => {
                let at = querier.answered.map_or(answer_at, |last| answer_at.max(last + SHORTEST));
                querier.answer_at = sooner(querier.answer_at, at);
            }
            Some(group) => {
                if let Some(group) = self.groups.get_mut(&group).filter(|group| group.member) {
                    group.answer_at = sooner(group.answer_at, answer_at);
                }
            }
        }
        self.set_next();
        true
    }

    /// The packets to be sent now, each with its MAC address. `sources` are the port's source addresses.
    pub(super) fn poll(&mut self, now: Instant, sources: (Option<Ipv4Addr>, Option<Ipv6Addr>)) -> Vec<Packet> {
        if self.next.is_none_or(|next| next > now) {
            return Vec::new();
        }
        // Without a source address, reports use the unspecified address (RFC 3376, 4.2.13; RFC 3810, 5.2.13).
        let four = IpAddr::from(sources.0.unwrap_or(Ipv4Addr::UNSPECIFIED));
        let six = IpAddr::from(sources.1.unwrap_or(Ipv6Addr::UNSPECIFIED));
        let mut packets = Vec::new();
        for (place, source) in [four, six].into_iter().enumerate() {
            let records = self.records(now, place, source.is_ipv4());
            let is_old = self.queriers[place].old_until.is_some_and(|until| now < until);
            match is_old {
                true => packets.extend(records.iter().filter_map(|&(group, record)| old_report(source, group, record))),
                false => packets.extend(records.chunks(MAX_RECORDS).map(|records| report(source, records))),
            }
        }
        self.set_next();
        packets
    }

    /// The records to be sent now for the groups of one IP version.
    fn records(&mut self, now: Instant, place: usize, is_v4: bool) -> Vec<(IpAddr, Record)> {
        let querier = &mut self.queriers[place];
        let all = querier.answer_at.is_some_and(|at| at <= now);
        if all {
            (querier.answer_at, querier.answered) = (None, Some(now));
        }
        let mut records = Vec::new();
        let addresses: Vec<_> = self.groups.keys().copied().filter(|group| group.is_ipv4() == is_v4).collect();
        for address in addresses {
            let again = now + self.delay(REPEAT);
            let Some(group) = self.groups.get_mut(&address) else { continue };
            let changed = group.changes > 0 && group.change_at <= now;
            let asked = group.member && (all || group.answer_at.is_some_and(|at| at <= now));
            if changed {
                (group.changes, group.change_at) = (group.changes - 1, again);
                records.push((address, if group.member { Record::Joined } else { Record::Left }));
            } else if asked {
                records.push((address, Record::Member));
            }
            if changed || asked {
                group.answer_at = None;
            }
            if !group.member && group.changes == 0 {
                self.groups.remove(&address);
            }
        }
        records
    }

    /// When [`Memberships::poll`] next has packets.
    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    fn set_next(&mut self) {
        let queriers = self.queriers.iter().filter_map(|querier| querier.answer_at);
        self.next = self.groups.values().filter_map(Group::next).chain(queriers).min();
    }
}

/// Whether a group is reported: not the all-hosts group, nor groups of a scope that does not leave the host (RFC 3376, 6; RFC 3810, 6).
fn is_reported(group: IpAddr) -> bool {
    match group {
        IpAddr::V4(group) => group.is_multicast() && group != Ipv4Addr::new(224, 0, 0, 1),
        IpAddr::V6(group) => {
            let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
            group.is_multicast() && group != all_nodes && group.octets()[1] & 15 > 1
        }
    }
}

#[cfg(test)]
mod tests;
