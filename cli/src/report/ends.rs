//! The ends of a trace: which two queue pairs are one connection, and which packet that came is which that was sent.

use std::collections::{HashMap, VecDeque};

use softnic_wire::{Opcode, Qpn};

use super::follow;
use super::model::Connection;
use super::packet::{Packet, flag};

/// What events of one `group_id` say of its queue pair.
#[derive(Debug)]
pub(super) struct Group {
    /// The NIC, where the trace has several; the sender and the receiver where the trace is of a capture.
    nic: String,
    qp: Option<u32>,
    pub(super) peer_qp: Option<u32>,
    pub(super) peer_address: Option<String>,
    pub(super) transport: Option<String>,
    pub(super) mtu: Option<u32>,
    pub(super) opcodes: [bool; 256],
    partner: Option<u32>,
    /// Its connection, and which end it is.
    place: (u32, u8),
}

impl Group {
    pub(super) fn named(id: &str) -> Group {
        let (nic, qp) = id.rsplit_once(' ').unwrap_or(("", id));
        let number = qp.strip_prefix("0x").and_then(|hex| u32::from_str_radix(hex, 16).ok());
        Group {
            nic: if number.is_some() { nic.into() } else { id.into() },
            qp: number,
            peer_qp: None,
            peer_address: None,
            transport: None,
            mtu: None,
            opcodes: [false; 256],
            partner: None,
            place: (0, 0),
        }
    }

    /// Of a trace of a capture: the two addresses.
    fn addresses(&self) -> Option<(&str, &str)> {
        self.nic.split_once(" > ")
    }
}

/// All groups of a trace.
#[derive(Debug, Default)]
pub(super) struct Ends {
    pub(super) groups: Vec<Group>,
    /// The groups of each connection.
    connections: Vec<[Option<u32>; 2]>,
}

impl Ends {
    /// Finds connections: two queue pairs that name each other, or two flows of a capture that are the only ones between
    /// their addresses.
    pub(super) fn pair(&mut self) {
        // A NIC answers MADs itself, for no queue pair that it lists.
        for group in self.groups.iter_mut().filter(|g| g.qp.is_none() && g.peer_qp == Some(Qpn::GSI.value())) {
            group.qp = group.peer_qp;
        }
        let of_nic: Vec<Option<usize>> = (0..self.groups.len()).map(|i| self.only_queue_pair(i)).collect();
        for i in (0..self.groups.len()).filter(|&i| of_nic[i].is_none()) {
            if self.groups[i].partner.is_none()
                && let Some(j) = self.partner_of(i)
            {
                self.groups[i].partner = Some(j as u32);
                self.groups[j].partner = Some(i as u32);
            }
            let partner = self.groups[i].partner;
            if partner.is_some_and(|p| (p as usize) < i) {
                continue;
            }
            let connection = self.connections.len() as u32;
            self.groups[i].place = (connection, 0);
            if let Some(p) = partner {
                self.groups[p as usize].place = (connection, 1);
            }
            self.connections.push([Some(i as u32), partner]);
        }
        for (i, only) in of_nic.into_iter().enumerate() {
            if let Some(only) = only {
                self.groups[i].place = self.groups[only].place;
            }
        }
    }

    /// Of events that name a NIC and none of its queue pairs: the queue pair, if the NIC has no other.
    fn only_queue_pair(&self, i: usize) -> Option<usize> {
        let this = &self.groups[i];
        if this.qp.is_some() || this.peer_qp.is_some() {
            return None;
        }
        let is_of = |(_, g): &(usize, &Group)| g.qp.is_some_and(|qp| qp != Qpn::GSI.value()) && g.nic == this.nic;
        let mut of: Vec<usize> = self.groups.iter().enumerate().filter(is_of).map(|(j, _)| j).collect();
        of.pop().filter(|_| of.is_empty())
    }

    fn partner_of(&self, i: usize) -> Option<usize> {
        let this = &self.groups[i];
        let others = |fits: &dyn Fn(&Group) -> bool| -> Vec<usize> {
            let free = |(j, g): &(usize, &Group)| *j != i && g.partner.is_none() && fits(g);
            self.groups.iter().enumerate().filter(free).map(|(j, _)| j).collect()
        };
        if let Some((src, dst)) = this.addresses() {
            let back = others(&|g| g.addresses() == Some((dst, src)));
            let there = others(&|g| g.addresses() == Some((src, dst)));
            return (back.len() == 1 && there.is_empty()).then(|| back[0]);
        }
        let fits = others(&|g| {
            g.addresses().is_none()
                && g.qp.is_some()
                && g.qp == this.peer_qp
                && (g.peer_qp.is_none() || g.peer_qp == this.qp)
        });
        // Numbers of queue pairs may be the same at both NICs.
        fits.iter().copied().find(|&j| self.groups[j].nic != this.nic).or(fits.first().copied())
    }

    /// The connection of a group, and which end it is.
    pub(super) fn place(&self, group: u32) -> (u32, u8) {
        self.groups[group as usize].place
    }

    /// Which connections have a NIC at both ends that was traced.
    pub(super) fn both_traced(&self) -> Vec<bool> {
        let is_nic = |g: &u32| self.groups[*g as usize].addresses().is_none();
        self.connections.iter().map(|ends| ends.iter().flatten().filter(|g| is_nic(g)).count() == 2).collect()
    }

    pub(super) fn connections(&self) -> Vec<Connection> {
        let describe = |ends: &[Option<u32>; 2]| {
            let [a, b] = ends.map(|g| g.map(|g| &self.groups[g as usize]));
            let opcodes =
                (0..=255).map(Opcode).filter(|o| [a, b].iter().flatten().any(|group| group.opcodes[usize::from(o.0)]));
            let qps = [a, b].map(|g| g.and_then(|g| g.qp).map(Qpn::new));
            let named = [a, b].into_iter().flatten().find_map(|g| g.transport.clone());
            Connection {
                ends: labels(a, b),
                transport: named.unwrap_or_else(|| follow::transport(opcodes, qps).into()),
                mtu: [a, b].into_iter().flatten().find_map(|g| g.mtu),
                ..Connection::default()
            }
        };
        self.connections.iter().map(describe).collect()
    }

    /// A trace does not tell UDP ports: each direction of a connection is a path.
    pub(super) fn paths(&self) -> Vec<String> {
        let connections = self.connections();
        connections
            .iter()
            .flat_map(|c| {
                let [a, b] = &c.ends;
                [format!("{a} > {b}"), format!("{b} > {a}")]
            })
            .collect()
    }

    /// Packets by connection: one that was sent and came is one packet.
    pub(super) fn join(&self, packets: Vec<(Packet, bool)>) -> Vec<Packet> {
        let both = self.both_traced();
        let mut all: Vec<Packet> = Vec::with_capacity(packets.len());
        let mut under_way: HashMap<(u32, u8, u8, u32), VecDeque<usize>> = HashMap::new();
        // The longest and the shortest time that a packet of a connection took.
        let mut transits: Vec<(i64, Option<i64>)> = vec![(0, None); both.len()];
        // When the packet was sent that came last, for each end.
        let mut arrived: HashMap<(u32, u8), i64> = HashMap::new();
        let end = packets.iter().map(|(p, _)| p.time).max().unwrap_or(0);
        for (mut packet, received) in packets {
            let (connection, end) = self.place(packet.connection);
            packet.connection = connection;
            packet.end = if received { 1 - end } else { end };
            packet.path = 2 * connection + u32::from(packet.end);
            let key = (connection, packet.end, packet.opcode, packet.psn);
            if received {
                let (longest, shortest) = &mut transits[connection as usize];
                let sent = under_way.get_mut(&key).and_then(|sent| {
                    // Of several copies, the last that can be here by now: those before it are lost.
                    let fits = |&i: &usize| all[i].time + shortest.unwrap_or(0) <= packet.time;
                    let at = sent.iter().rposition(fits).unwrap_or(0);
                    sent.remove(at)
                });
                if let Some(sent) = sent {
                    let transit = (packet.time - all[sent].time).max(0);
                    arrived.insert((connection, packet.end), all[sent].time);
                    *longest = transit.max(*longest);
                    *shortest = Some(shortest.map_or(transit, |s| s.min(transit)));
                    all[sent].transit = Some(u32::try_from(transit).unwrap_or(u32::MAX));
                    all[sent].flags |= packet.flags & (flag::MARKED | flag::DAMAGED);
                    continue;
                }
                packet.flags |= flag::ARRIVAL_ONLY;
            } else if both[connection as usize] {
                under_way.entry(key).or_default().push_back(all.len());
            }
            all.push(packet);
        }
        for i in under_way.into_values().flatten() {
            let Packet { connection, end: from, time, .. } = all[i];
            // What was sent last may be under way at the end of the trace.
            let overtaken = arrived.get(&(connection, from)).is_some_and(|&last| time < last);
            if overtaken || time + 2 * transits[connection as usize].0 < end {
                all[i].flags |= flag::LOST;
            }
        }
        all
    }
}

fn labels(a: Option<&Group>, b: Option<&Group>) -> [String; 2] {
    let label = |this: Option<&Group>, other: Option<&Group>| {
        if let Some((src, _)) = this.and_then(Group::addresses) {
            let qp = other.and_then(|g| g.qp).map_or("unknown".into(), |qp| format!("{qp:#08x}"));
            return format!("{src} qp {qp}");
        }
        if let (None, Some((_, dst))) = (this, other.and_then(Group::addresses)) {
            return format!("{dst} qp {:#08x}", other.and_then(|g| g.qp).unwrap_or(0));
        }
        let qp = this.map_or_else(|| other.and_then(|g| g.peer_qp), |g| g.qp);
        let qp = qp.map_or_else(|| "qp unknown".into(), |qp| format!("qp {qp:#08x}"));
        let name = this.map(|g| g.nic.as_str()).filter(|nic| !nic.is_empty());
        let address = other.and_then(|g| g.peer_address.as_deref());
        match (name, address) {
            (Some(name), Some(address)) => format!("{name} {address} {qp}"),
            (Some(one), None) | (None, Some(one)) => format!("{one} {qp}"),
            (None, None) => qp,
        }
    };
    // Of two flows of a capture, each names the queue pair of the other's sender.
    match (a, b) {
        (Some(x), Some(y)) if x.addresses().is_some() => [label(Some(x), Some(y)), label(Some(y), Some(x))],
        _ => [label(a, b), label(b, a)],
    }
}
