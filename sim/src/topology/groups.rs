//! Groups in a network: their queue pairs, what their switches are told of them, and what these tell of them afterwards.

use softnic_switch::group::{GroupCounters, GroupSpec, MergeSpec, Range, Receiver, Target};
use softnic_wire::{Psn, Qpn};

use super::bifurcation::{Tree, bifurcate};
use super::flows::Run;
use super::report::{GroupReport, MemberReport};
use super::running::{Running, Side};
use super::world::{Connecting, World};
use super::{Flow, Topology};
use crate::workload::SimError;

/// The MC_ID of the first group; others count down from it. Queue pair numbers are drawn, and rarely this high.
const FIRST_MC_ID: u32 = 0xff_fffe;

/// What a group is known by.
pub(super) struct Joined {
    mc_id: Qpn,
    psn: Psn,
    /// The key that the sender writes with.
    pub(super) rkey: u32,
    tree: Tree,
}

impl World<'_> {
    /// Makes the queue pairs of a group, connects each with the sender's, and tells switches of it. `memory` is what the sender believes
    /// to write to, all receivers having as much.
    pub(super) fn join(
        &mut self,
        work: &Flow,
        index: usize,
        sender: &mut Side,
        receivers: &mut [Side],
        memory: (u64, u64),
    ) -> Result<Joined, SimError> {
        let hosts: Vec<usize> = receivers.iter().map(|side| side.host).collect();
        // A topology that was read has groups that can be; one that was made by hand may not.
        let tree = bifurcate(self.topology, sender.host, &hosts)
            .map_err(|_| SimError::Options("a group has no switch that could copy its packets"))?;
        sender.qpn = self.create_qp(sender.host, work)?;
        for side in &mut *receivers {
            side.qpn = self.create_qp(side.host, work)?;
        }
        let (mc_id, psn, rkey) = (self.mc_id(index, hosts[0]), Psn::new(self.draw()), self.draw());
        let how = Connecting::of(work);
        self.connect_qp([sender.host, hosts[0]], &how, [sender.qpn, mc_id], [psn; 2])?;
        for side in &*receivers {
            self.connect_qp([side.host, sender.host], &how, [side.qpn, sender.qpn], [psn; 2])?;
        }
        let joined = Joined { mc_id, psn, rkey, tree };
        for (&switch, branches) in &joined.tree.branches {
            let spec = joined.spec(self.topology, switch, branches, sender, receivers, memory);
            if let Some(switch) = self.switch(switch) {
                switch.add_group(spec)?;
            }
        }
        Ok(joined)
    }

    /// A queue pair number that the first receiver does not have.
    fn mc_id(&mut self, index: usize, first: usize) -> Qpn {
        let nic = self.sim.nic(first);
        let mut candidates = (0..FIRST_MC_ID - index as u32).rev().map(|n| Qpn::new(n + 1));
        candidates.find(|n| nic.queue_pairs().all(|taken| taken != *n)).unwrap_or(Qpn::new(FIRST_MC_ID))
    }
}

impl Joined {
    /// The group at one of its switches.
    fn spec(
        &self,
        topology: &Topology,
        switch: usize,
        branches: &[Vec<usize>],
        sender: &Side,
        sides: &[Side],
        (start, len): (u64, u64),
    ) -> GroupSpec {
        let mut members: Vec<(usize, Option<u32>)> = Vec::new();
        for (number, branch) in branches.iter().enumerate() {
            let shared = (branch.len() > 1).then_some(number as u32);
            members.extend(branch.iter().map(|&member| (member, shared)));
        }
        // The packets' destination is the first of those who get them.
        members.sort_unstable();
        let receiver = |&(member, branch): &(usize, Option<u32>)| {
            let (address, mac) = topology.kind.address(sides[member].host);
            let mac = (!topology.routed).then_some(mac);
            Receiver { address, qpn: sides[member].qpn, mac, branch }
        };
        let target =
            |&(member, _): &(usize, Option<u32>)| Target { start: sides[member].base, rkey: sides[member].key };
        let targets = members.iter().map(target).collect();
        GroupSpec {
            sender: topology.kind.address(sender.host).0,
            mc_id: self.mc_id,
            merge: (switch == self.tree.merge_at).then_some(MergeSpec { qpn: sender.qpn, psn: self.psn }),
            receivers: members.iter().map(receiver).collect(),
            ranges: vec![Range { start, len, rkey: self.rkey, targets }],
        }
    }
}

impl Run<'_> {
    /// What a group came to.
    pub(super) fn group_report(&mut self, index: usize, work: super::FlowReport) -> Option<GroupReport> {
        let Running { flow, group, .. } = &self.flows[index];
        let (t, now) = (self.world.topology, self.world.sim.now().instant());
        let sender = t.kind.address(flow.from).0;
        let Joined { mc_id, ref tree, .. } = *group.as_ref()?;
        let (merge_at, switches): (usize, Vec<usize>) = (tree.merge_at, tree.branches.keys().copied().collect());
        let merged = self.world.switch(merge_at)?.group(now, sender, mc_id)?;
        let mut copying = Vec::new();
        for switch in switches {
            let there = self.world.switch(switch).and_then(|s| s.group(now, sender, mc_id));
            let GroupCounters { packets_in, copies, .. } = there.map(|group| group.counters).unwrap_or_default();
            copying.push((t.switches[switch].clone(), packets_in, copies));
        }
        let (of, mut members) = (&self.flows[index], Vec::new());
        for (side, said) in of.receivers.iter().zip(&merged.members) {
            let taken = self.world.sim.nic(side.host).vitals(side.qpn).map_or(0, |vitals| vitals.answered);
            members.push(MemberReport {
                host: t.hosts[side.host].clone(),
                bytes: of.bytes_taken(Psn::new(taken), t.mtu.bytes()),
                acked_psn: said.acked_psn,
                behind: said.behind.unwrap_or(0),
            });
        }
        Some(GroupReport {
            work,
            merged_at: t.switches[merge_at].clone(),
            counters: merged.counters,
            merged_psn: merged.merged_psn,
            switches: copying,
            members,
        })
    }
}

impl Running {
    /// Payload that a receiver of a group took, which expects this PSN next. PSNs come again, but no receiver is behind what completed.
    fn bytes_taken(&self, expected: Psn, mtu: u32) -> u64 {
        let Some(group) = &self.group else { return 0 };
        let packets = u64::from(self.flow.size.div_ceil(mtu).max(1));
        let done = self.done * packets;
        let ahead = expected.forward_from(group.psn.add((done & 0xff_ffff) as u32));
        let (messages, rest) = ((done + u64::from(ahead)) / packets, (done + u64::from(ahead)) % packets);
        messages * u64::from(self.flow.size) + rest * u64::from(mtu)
    }
}
