//! Facts of an interface, their changes, and multicast groups.

use std::net::IpAddr;

use softnic_runtime::host_network::{Event, HostNetwork, HostNetworkError as Error, Interface, Membership};
use softnic_wire::ethernet::VlanTag;
use softnic_wire::{MacAddr, PathMtu};

use crate::control::{Control, ip};
use crate::namespaces::{Namespaces, left_out};

#[test]
fn facts_of_an_interface_and_the_names_of_others_when_there_is_none() {
    let Some(spaces) = Namespaces::new(2) else { return };
    spaces.veth((0, "wa"), (1, "wb"));
    spaces.ip(0, "link set wa mtu 4200 address 02:00:00:00:00:0a");
    spaces.inside(0, || {
        let found = Interface::find("wa").unwrap();
        assert_eq!((found.mac, found.mtu, found.vlan), (MacAddr([2, 0, 0, 0, 0, 10]), 4200, None));
        assert!(found.admin_up && found.carrier && found.up);
        assert_eq!(Interface::by_index(found.index).unwrap(), found);
        let error = Interface::find("eth7").unwrap_err();
        assert_eq!(error.to_string(), "there is no interface eth7 here; there are: lo, wa");
        assert!(matches!(Interface::find("a-name-that-is-too-long"), Err(Error::NoSuchInterface { .. })));
        assert!(matches!(Interface::by_index(99), Err(Error::NoSuchInterface { .. })));
        assert_eq!(Interface::find("lo"), Err(Error::NotEthernet("lo".into())));
    });
}

#[test]
fn addresses_have_the_order_of_gids_and_their_changes_are_events() {
    let Some(spaces) = Namespaces::new(2) else { return };
    spaces.veth((0, "wa"), (1, "wb"));
    spaces.ip(0, "address add fd00::1/64 dev wa nodad");
    spaces.ip(0, "address add fd00::2/64 dev wa nodad");
    spaces.ip(0, "address add 10.0.0.1/24 dev wa");
    spaces.ip(0, "address add 10.0.0.2/24 dev wa");
    spaces.inside(0, || {
        let mut control = Control::open("wa");
        let listed = |host: &HostNetwork| host.addresses().iter().map(IpAddr::to_string).collect::<Vec<_>>();
        // The link-local address counts once nobody else has turned out to have it.
        control.until("a link-local address", |host, _| host.addresses().len() == 5);
        let link_local = control.host.addresses()[4].to_string();
        assert!(link_local.starts_with("fe80::"));
        let before = ["10.0.0.1", "10.0.0.2", "fd00::1", "fd00::2", &link_local];
        assert_eq!(listed(&control.host), before);
        assert_eq!(control.host.port().unwrap().addresses, control.host.addresses());

        spaces.ip(0, "address add 192.168.7.1/24 dev wa");
        spaces.ip(0, "address add fd00::3/64 dev wa nodad");
        control
            .until("two more", |host, events| events.contains(&Event::AddressesChanged) && host.addresses().len() == 7);
        // The first of each network stands before the further ones.
        let more = ["10.0.0.1", "192.168.7.1", "10.0.0.2", "fd00::1", "fd00::2", "fd00::3", &link_local];
        assert_eq!(listed(&control.host), more);

        spaces.ip(0, "address change fd00::1/64 dev wa preferred_lft 0");
        control.expect(Event::AddressesChanged);
        assert_eq!(listed(&control.host)[3..6], ["fd00::2", "fd00::3", "fd00::1"], "deprecated, not gone");

        spaces.ip(0, "address del 192.168.7.1/24 dev wa");
        control.expect(Event::AddressesChanged);
        assert_eq!(control.host.addresses().len(), 6);
        assert_eq!(control.host.overruns(), 0);
    });
}

#[test]
fn changes_of_the_link_are_events() {
    let Some(spaces) = Namespaces::new(2) else { return };
    spaces.veth((0, "wa"), (1, "wb"));
    spaces.inside(0, || {
        let mut control = Control::open("wa");
        assert!(control.host.interface().up);
        spaces.ip(1, "link set wb down");
        control.expect(Event::LinkDown);
        let seen = control.host.interface();
        assert!(seen.admin_up && !seen.carrier && !seen.up, "the other end was switched off: {seen:?}");
        spaces.ip(1, "link set wb up");
        control.expect(Event::LinkUp);
        spaces.ip(0, "link set wa down");
        control.expect(Event::LinkDown);
        assert!(!control.host.interface().admin_up);
        spaces.ip(0, "link set wa up");
        control.expect(Event::LinkUp);
        spaces.ip(0, "link set wa mtu 9000");
        control.expect(Event::MtuChanged(9000));
        assert_eq!(control.host.port().unwrap().mtu, PathMtu::B4096);
        spaces.ip(0, "link set wa address 02:00:00:00:00:0b");
        control.expect(Event::MacChanged(MacAddr([2, 0, 0, 0, 0, 11])));
        spaces.ip(0, "route add 10.5.0.0/16 dev wa");
        control.expect(Event::RoutesChanged);
        spaces.ip(0, "link del wa");
        let events = control.expect(Event::Gone);
        assert!(events.contains(&Event::LinkDown), "{events:?}");
    });
}

#[test]
fn a_link_that_was_away_while_the_device_was_opened_is_no_event() {
    let Some(spaces) = Namespaces::new(2) else { return };
    spaces.veth((0, "wa"), (1, "wb"));
    spaces.inside(0, || {
        let mut control = Control::open("wa");
        let index = control.host.interface().index;
        for (state, up) in [("down", false), ("up", true)] {
            spaces.ip(1, &format!("link set wb {state}"));
            while Interface::by_index(index).unwrap().up != up {
                std::thread::yield_now();
            }
        }
        control.host.forget_changes().unwrap();
        assert_eq!(control.host.poll_event(), Ok(None));
        assert!(control.host.interface().up);
        // What happens from now on is told.
        spaces.ip(1, "link set wb down");
        control.expect(Event::LinkDown);
    });
}

#[test]
fn more_changes_than_fit_lead_to_reading_everything_again() {
    let Some(spaces) = Namespaces::new(2) else { return };
    spaces.veth((0, "wa"), (1, "wb"));
    spaces.ip(0, "address add 10.0.0.1/24 dev wa");
    spaces.inside(0, || {
        let mut control = Control::open("wa");
        let batch = std::env::temp_dir().join(format!("softnic-routes-{}", std::process::id()));
        let routes = (0..10_000).map(|i| format!("route add 10.{}.{}.0/24 dev wa\n", 1 + i / 250, i % 250));
        std::fs::write(&batch, routes.collect::<String>()).unwrap();
        spaces.ip(0, &format!("-batch {}", batch.display()));
        std::fs::remove_file(&batch).unwrap();
        // These are lost.
        spaces.ip(0, "link set wa mtu 9000");
        spaces.ip(0, "address add 10.0.0.2/24 dev wa");
        let events = control.until("an overrun", |host, _| host.overruns() > 0);
        assert!(events.contains(&Event::MtuChanged(9000)), "{events:?}");
        assert!(events.contains(&Event::AddressesChanged), "{events:?}");
        assert!(events.contains(&Event::RoutesChanged), "{events:?}");
        assert!(control.host.addresses().contains(&ip("10.0.0.2")));
        spaces.ip(0, "link set wa mtu 4200");
        control.expect(Event::MtuChanged(4200));
    });
}

#[test]
fn a_vlan_interface_has_its_tag_and_the_queues_of_its_parent() {
    let Some(spaces) = Namespaces::new(2) else { return };
    spaces.veth((0, "wa"), (1, "wb"));
    if !spaces.can(0, "link add link wa name v9 type vlan id 9") {
        return left_out("this kernel makes no VLAN interfaces (module 8021q)");
    }
    for (i, name) in [(0, "wa"), (1, "wb")] {
        spaces.ip(i, &format!("link add link {name} name v10 type vlan id 10"));
        spaces.ip(i, &format!("link add link {name} name s20 type vlan protocol 802.1ad id 20"));
        spaces.ip(i, "link add link s20 name c30 type vlan id 30");
        for (net, vlan) in [(10, "v10"), (20, "s20"), (30, "c30")] {
            spaces.ip(i, &format!("link set {vlan} up"));
            spaces.ip(i, &format!("address add 10.{net}.0.{}/24 dev {vlan}", i + 1));
        }
    }
    let tag = |tpid, tci| Some(VlanTag { tpid, tci });
    spaces.inside(0, || {
        let parent = Interface::find("wa").unwrap();
        let vlan = Interface::find("v10").unwrap().vlan.unwrap();
        assert_eq!((Some(vlan.tag), vlan.parent), (tag(0x8100, 10), Some(parent.index)));
        for (name, dst, tags) in
            [("v10", "10.10.0.2", [tag(0x8100, 10), None]), ("c30", "10.30.0.2", [tag(0x88a8, 20), tag(0x8100, 30)])]
        {
            let mut control = Control::open(name);
            assert_eq!((control.host.bottom().index, control.host.tags()), (parent.index, tags), "{name}");
            assert_eq!(control.path(dst).unwrap().tags, tags);
        }
        spaces.ip(0, "link add link c30 name x40 type vlan id 40");
        assert_eq!(HostNetwork::open("x40").unwrap_err(), Error::TooManyTags("x40".into()));
    });
}

#[test]
fn a_group_is_joined_on_the_interface_and_left_again() {
    let Some(spaces) = Namespaces::new(2) else { return };
    spaces.veth((0, "wa"), (1, "wb"));
    spaces.inside(0, || {
        let host = HostNetwork::open("wa").unwrap();
        for group in ["239.1.2.3", "ff0e::1:2"] {
            let member = || spaces.ip(0, "maddress show dev wa").split_whitespace().any(|word| word == group);
            assert!(!member());
            let membership = host.join(ip(group)).unwrap();
            assert!(member() && membership.group() == ip(group), "{group}");
            drop(membership);
            assert!(!member(), "{group}");
        }
        assert_eq!(host.join(ip("10.0.0.1")).unwrap_err(), Error::NotAGroup(ip("10.0.0.1")));
        let error = Membership::join(99, ip("239.1.2.3")).unwrap_err();
        assert!(matches!(error, Error::Join { .. }), "{error:?}");
    });
}
