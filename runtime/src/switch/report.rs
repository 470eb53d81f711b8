//! What a switch did, port by port and group by group.

use std::time::Duration;

use softnic_switch::group::Fill;
use softnic_switch::{GroupReport, MemberReport, SwitchCounters};

/// A port. What was to leave has ended in one of these: `tx`, `dropped`, `too_long`, `silent`, or waits still.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PortReport {
    /// Its interface.
    pub interface: String,
    /// Whether the interface is there.
    pub up: bool,
    /// Frames that came in.
    pub rx: u64,
    /// Their bytes, from Ethernet on.
    pub rx_bytes: u64,
    /// Frames that were put into the interface's ring.
    pub tx: u64,
    /// Their bytes.
    pub tx_bytes: u64,
    /// Frames that found the queue full.
    pub dropped: u64,
    /// Frames that were marked: congestion experienced.
    pub marked: u64,
    /// Bytes that wait now.
    pub queue: u64,
    /// The most bytes that ever waited.
    pub max_queue: u64,
    /// Frames to leave that are longer than the interface's MTU allows.
    pub too_long: u64,
    /// Frames that came in longer than the interface's MTU allows: a sender left them to be segmented.
    pub unsegmented: u64,
    /// Frames to leave while the interface was gone.
    pub silent: u64,
    /// TCP and UDP checksums that were partial and were completed.
    pub checksums_completed: u64,
    /// Frames that the kernel dropped because the ring that we read was full; not among `rx`.
    pub rx_missed: u64,
    /// Those of `tx` that the interface refused, its own queue being full.
    pub tx_refused: u64,
}

impl PortReport {
    /// Names and values, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        [
            ("rx", self.rx),
            ("rx_bytes", self.rx_bytes),
            ("tx", self.tx),
            ("tx_bytes", self.tx_bytes),
            ("dropped", self.dropped),
            ("marked", self.marked),
            ("queue", self.queue),
            ("max_queue", self.max_queue),
            ("too_long", self.too_long),
            ("unsegmented", self.unsegmented),
            ("silent", self.silent),
            ("checksums_completed", self.checksums_completed),
            ("rx_missed", self.rx_missed),
            ("tx_refused", self.tx_refused),
        ]
        .into_iter()
    }
}

/// A switch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// How long it was there.
    pub elapsed: Duration,
    /// Its ports, in their order.
    pub ports: Vec<PortReport>,
    /// Frames that no port's queue saw.
    pub counters: SwitchCounters,
    /// How full the tables of groups are.
    pub fill: Fill,
    /// Neighbours whose MAC address was asked for and is known.
    pub neighbours: usize,
    /// Its groups.
    pub groups: Vec<GroupReport>,
}

/// Frames that no port's queue saw, by name.
pub(crate) fn named(c: &SwitchCounters) -> [(&'static str, u64); 6] {
    [
        ("flooded", c.flooded),
        ("filtered", c.filtered),
        ("unroutable", c.unroutable),
        ("hops_exceeded", c.hops_exceeded),
        ("no_buffer", c.no_buffer),
        ("unresolved", c.unresolved),
    ]
}

impl Report {
    /// Frames that no port's queue saw, by name.
    pub fn switch_counters(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        named(&self.counters).into_iter()
    }

    /// The counters of a group, by name.
    pub fn group_counters(group: &GroupReport) -> impl Iterator<Item = (&'static str, u64)> + use<> {
        let c = &group.counters;
        [
            ("packets_in", c.packets_in),
            ("copies", c.copies),
            ("acks_in", c.acks_in),
            ("acks_out", c.acks_out),
            ("naks", c.naks),
            ("rnr", c.rnr),
            ("cnps_in", c.cnps_in),
            ("cnps_out", c.cnps_out),
            ("refused", c.refused),
            ("bad", c.bad),
            ("unresolved", c.unresolved),
        ]
        .into_iter()
    }

    /// All of it as names and numbers, as `softnic counters` shows them.
    pub(super) fn counters(&self) -> Vec<(String, u64)> {
        let mut all = Vec::new();
        for port in &self.ports {
            all.extend(port.iter().map(|(name, n)| (format!("{}_{name}", port.interface), n)));
        }
        all.extend(self.switch_counters().map(|(name, n)| (name.into(), n)));
        all.extend([("groups".into(), self.fill.groups as u64), ("ranges".into(), self.fill.ranges as u64)]);
        for group in &self.groups {
            let whose = format!("{}_{:#x}", group.sender, group.mc_id.value());
            all.extend(Report::group_counters(group).map(|(name, n)| (format!("{whose}_{name}"), n)));
            all.extend(group.merged_psn.map(|psn| (format!("{whose}_merged_psn"), psn.value().into())));
            for member in &group.members {
                let known = member_numbers(member).into_iter().filter_map(|(name, n)| Some((name, n?)));
                all.extend(known.map(|(name, n)| (format!("{whose}_{}_{name}", member.address), n)));
            }
        }
        all
    }
}

/// What is known of a member, by name.
fn member_numbers(member: &MemberReport) -> [(&'static str, Option<u64>); 4] {
    [
        ("acked_psn", member.acked_psn.map(|psn| psn.value().into())),
        ("behind", member.behind.map(u64::from)),
        ("last_heard_ms", member.last_heard.map(|time| time.as_millis() as u64)),
        ("unresolved", Some(member.unresolved)),
    ]
}

#[cfg(test)]
mod tests {
    use softnic_switch::group::GroupCounters;
    use softnic_wire::{Psn, Qpn};

    use super::*;

    #[test]
    fn live_counters_have_what_is_known_of_each_member() {
        let address = |n: u8| [10, 0, 0, n].into();
        let known = MemberReport {
            address: address(2),
            qpn: Qpn::new(5),
            acked_psn: Some(Psn::new(97)),
            behind: Some(3),
            last_heard: Some(Duration::from_millis(12)),
            unresolved: 1,
        };
        // Never heard.
        let silent = MemberReport {
            address: address(3),
            qpn: Qpn::new(6),
            acked_psn: None,
            behind: None,
            last_heard: None,
            unresolved: 4,
        };
        let group = GroupReport {
            sender: address(1),
            mc_id: Qpn::new(0x77),
            sender_qpn: None,
            counters: GroupCounters::default(),
            merged_psn: Some(Psn::new(96)),
            members: vec![known, silent],
        };
        let counters = Report { groups: vec![group], ..Report::default() }.counters();
        let members = counters.iter().skip_while(|(name, _)| name != "10.0.0.1_0x77_merged_psn");
        let members: Vec<(&str, u64)> = members.map(|(name, n)| (name.as_str(), *n)).collect();
        assert_eq!(
            members,
            [
                ("10.0.0.1_0x77_merged_psn", 96),
                ("10.0.0.1_0x77_10.0.0.2_acked_psn", 97),
                ("10.0.0.1_0x77_10.0.0.2_behind", 3),
                ("10.0.0.1_0x77_10.0.0.2_last_heard_ms", 12),
                ("10.0.0.1_0x77_10.0.0.2_unresolved", 1),
                ("10.0.0.1_0x77_10.0.0.3_unresolved", 4),
            ]
        );
    }
}
