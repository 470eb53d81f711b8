//! A switch as metrics: its ports, and its groups by sender and MC_ID.

use softnic_runtime::switch::Report;

use super::exposition::{Kind, Page};

/// The page of a switch.
pub(crate) fn page_of_switch(report: &Report) -> Page {
    let mut page = Page::default();
    for port in &report.ports {
        let labels = [("port", port.interface.as_str())];
        page.add("softnic_switch_up", Kind::Gauge, "Whether the interface is there", &labels, port.up.into());
        for (name, value) in port.iter() {
            match name {
                "queue" | "max_queue" => {
                    let help = "Bytes that wait before a port, and the most that ever did";
                    page.add(&format!("softnic_switch_{name}_bytes"), Kind::Gauge, help, &labels, value);
                }
                _ => {
                    let help = format!("The counter {name} of a port");
                    page.add(&format!("softnic_switch_{name}_total"), Kind::Counter, &help, &labels, value);
                }
            }
        }
    }
    for (name, value) in report.switch_counters() {
        let help = format!("Frames that no queue saw: {name}");
        page.add(&format!("softnic_switch_{name}_total"), Kind::Counter, &help, &[], value);
    }
    let (groups, ranges) = (report.fill.groups as u64, report.fill.ranges as u64);
    page.add("softnic_switch_groups", Kind::Gauge, "Groups in the table", &[], groups);
    page.add("softnic_switch_ranges", Kind::Gauge, "Ranges in the table of memory", &[], ranges);
    for group in &report.groups {
        let (sender, mc_id) = (group.sender.to_string(), format!("{:#x}", group.mc_id.value()));
        let labels = [("sender", sender.as_str()), ("mc_id", mc_id.as_str())];
        for (name, value) in Report::group_counters(group) {
            let help = format!("The counter {name} of a group");
            page.add(&format!("softnic_switch_group_{name}_total"), Kind::Counter, &help, &labels, value);
        }
        for member in &group.members {
            let address = member.address.to_string();
            let labels = [labels[0], labels[1], ("member", address.as_str())];
            // Not known where acknowledgements are not merged.
            if let Some(behind) = member.behind {
                let help = "Packets that a member has not acknowledged";
                page.add("softnic_switch_member_behind", Kind::Gauge, help, &labels, behind.into());
            }
        }
    }
    page
}

#[cfg(test)]
mod tests {
    use softnic_runtime::switch::PortReport;
    use softnic_switch::group::GroupCounters;
    use softnic_switch::{GroupReport, MemberReport};
    use softnic_wire::Qpn;

    use super::super::strict;
    use super::*;

    #[test]
    fn ports_and_groups_are_there_by_name() {
        let port = |name: &str, rx| PortReport { interface: name.into(), rx, queue: 7, ..PortReport::default() };
        let member = |n: u8, behind| MemberReport {
            address: [10, 0, 0, n].into(),
            qpn: Qpn::new(5),
            acked_psn: None,
            behind,
            last_heard: None,
            unresolved: 0,
        };
        let group = GroupReport {
            sender: [10, 0, 0, 1].into(),
            mc_id: Qpn::new(0x77),
            sender_qpn: None,
            counters: GroupCounters { copies: 9, ..GroupCounters::default() },
            merged_psn: None,
            members: vec![member(2, None), member(3, Some(3))],
        };
        let report = Report { ports: vec![port("p0", 1), port("p1", 2)], groups: vec![group], ..Report::default() };
        let families = strict::parse(&page_of_switch(&report).text()).unwrap();
        let rx = &families["softnic_switch_rx_total"].samples;
        assert_eq!((rx[1].value, rx[1].labels[0].1.as_str()), (2.0, "p1"));
        assert_eq!(families["softnic_switch_queue_bytes"].kind, "gauge");
        assert_eq!(families["softnic_switch_unresolved_total"].samples[0].value, 0.0);
        let copies = &families["softnic_switch_group_copies_total"].samples[0];
        assert_eq!((copies.value, copies.labels[1].1.as_str()), (9.0, "0x77"));
        let behind = &families["softnic_switch_member_behind"].samples;
        assert_eq!((behind.len(), behind[0].value, behind[0].labels[2].1.as_str()), (1, 3.0, "10.0.0.3"));
    }
}
