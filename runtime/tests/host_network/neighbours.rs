//! Neighbours: found, not found, kept fresh, left alone.

use std::time::Duration;

use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use softnic_runtime::host_network::{Event, HostNetworkError as Error, PathState, Patience, State};
use softnic_wire::{MacAddr, PathMtu};

use crate::control::{Control, ip, mac_of};
use crate::namespaces::Namespaces;

#[test]
fn a_neighbour_is_resolved_from_nothing_and_the_path_is_whole() {
    let Some(spaces) = Namespaces::new(2) else { return };
    spaces.veth((0, "wa"), (1, "wb"));
    spaces.ip(0, "address add 10.0.0.1/24 dev wa");
    spaces.ip(0, "address add fd00::1/64 dev wa nodad");
    spaces.ip(1, "address add 10.0.0.2/24 dev wb");
    spaces.ip(1, "address add fd00::2/64 dev wb nodad");
    let peer = mac_of(&spaces, 1, "wb");
    let peer_local = spaces.inside(1, || {
        let mut control = Control::open("wb");
        control.until("a link-local address", |host, _| host.addresses().len() == 3);
        control.host.addresses()[2].to_string()
    });
    spaces.inside(0, || {
        let mut control = Control::open("wa");
        control.until("a link-local address", |host, _| host.addresses().len() == 3);
        for (dst, source, index) in [("10.0.0.2", "10.0.0.1", 0), ("fd00::2", "fd00::1", 1)] {
            assert_eq!(spaces.ip(0, &format!("neigh show {dst}")), "", "nothing is known at first");
            let path = control.path(dst).unwrap();
            assert_eq!((path.source, path.source_index, path.next_hop), (ip(source), index, ip(dst)));
            assert_eq!((path.mac, path.mtu, path.tags, path.local), (peer, PathMtu::B1024, [None; 2], false));
            let attr = path.attr(7);
            assert_eq!((attr.dgid, attr.dst_mac, attr.sgid_index, attr.entropy), (ip(dst), peer, index, 7));
        }
        let path = control.path(&peer_local).unwrap();
        assert_eq!((path.mac, path.source_index), (peer, 2), "from link-local to link-local");

        let own = control.path("10.0.0.1").unwrap();
        assert_eq!((own.mac, own.local), (control.host.interface().mac, true));
        let group = control.path("239.129.2.3").unwrap();
        assert_eq!((group.mac, group.source_index), (MacAddr([1, 0, 0x5e, 1, 2, 3]), 0));
        let group = control.path("ff0e::1:203:405").unwrap();
        assert_eq!((group.mac, group.source_index), (MacAddr([0x33, 0x33, 2, 3, 4, 5]), 1));
        assert_eq!(control.path("ff02::5").unwrap().source_index, 2);

        let now = control.now();
        let from = |control: &mut Control, from| control.host.path(now, ip("10.0.0.2"), Some(ip(from)));
        assert!(matches!(from(&mut control, "10.0.0.1"), Ok(PathState::Ready(_))));
        assert!(matches!(from(&mut control, "::ffff:10.0.0.1"), Ok(PathState::Ready(_))));
        assert!(matches!(from(&mut control, "10.0.0.9"), Err(Error::NotOurs { .. })));
        assert!(matches!(from(&mut control, "fd00::1"), Err(Error::Versions { .. })));
        assert_eq!(control.path("0.0.0.0"), Err(Error::NotAPeer(ip("0.0.0.0"))));
        assert_eq!(control.path("10.0.0.255"), Err(Error::NotAPeer(ip("10.0.0.255"))));
    });
}

#[test]
fn an_ipv6_neighbour_is_found_by_an_interface_without_a_link_local_address() {
    let Some(spaces) = Namespaces::new(2) else { return };
    spaces.veth((0, "wa"), (1, "wb"));
    for (space, interface) in [(0, "wa"), (1, "wb")] {
        spaces.ip(space, &format!("link set {interface} addrgenmode none"));
        spaces.ip(space, &format!("-6 address flush dev {interface}"));
        spaces.ip(space, &format!("address add fd00::{}/64 dev {interface} nodad", space + 1));
    }
    let peer = mac_of(&spaces, 1, "wb");
    spaces.inside(0, || {
        let mut control = Control::open("wa");
        assert_eq!(control.host.addresses(), [ip("fd00::1")], "no other address to ask in the name of");
        assert_eq!(control.path("fd00::2").unwrap().mac, peer);
    });
}

#[test]
fn without_the_right_to_tell_the_kernel_a_datagram_makes_it_ask() {
    let Some(spaces) = Namespaces::new(2) else { return };
    spaces.veth((0, "wa"), (1, "wb"));
    spaces.ip(0, "address add 10.0.0.1/24 dev wa");
    spaces.ip(0, "address add fd00::1/64 dev wa nodad");
    spaces.ip(1, "address add 10.0.0.2/24 dev wb");
    spaces.ip(1, "address add fd00::2/64 dev wb nodad");
    let peer = mac_of(&spaces, 1, "wb");
    spaces.inside(0, || {
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::NET_ADMIN);
        set_capabilities(None, sets).unwrap();
        let mut control = Control::open("wa");
        assert_eq!(control.path("10.0.0.2").unwrap().mac, peer);
        assert_eq!(control.path("fd00::2").unwrap().mac, peer);
    });
}

#[test]
fn a_neighbour_that_is_not_there_fails_in_time_and_may_be_asked_for_again() {
    let Some(spaces) = Namespaces::new(2) else { return };
    spaces.veth((0, "wa"), (1, "wb"));
    spaces.ip(0, "address add 10.0.0.1/24 dev wa");
    spaces.ip(0, "address add fd00::1/64 dev wa nodad");
    spaces.inside(0, || {
        let mut control = Control::open("wa");
        let limit = Duration::from_millis(1500);
        control.host.set_patience(Patience { limit, ..Patience::default() });
        for dst in ["10.0.0.2", "fd00::2"] {
            let begin = control.now();
            assert_eq!(control.path(dst), Err(Error::NoAnswer(ip(dst))));
            let took = control.now() - begin;
            assert!(took >= limit && took < limit + Duration::from_secs(4), "{took:?}");
        }
        assert_eq!(control.host.poll_timeout(), None, "nobody is asked for ever");
        assert_eq!(control.host.resolve(control.now(), ip("10.0.0.2")), Ok(State::Asked));
        spaces.ip(1, "address add 10.0.0.2/24 dev wb");
        assert_eq!(control.path("10.0.0.2").map(|path| path.next_hop), Ok(ip("10.0.0.2")));
    });
}

#[test]
fn a_neighbour_in_use_is_kept_fresh_and_its_new_mac_address_is_found() {
    let Some(spaces) = Namespaces::new(2) else { return };
    spaces.veth((0, "wa"), (1, "wb"));
    spaces.ip(0, "address add 10.0.0.1/24 dev wa");
    spaces.ip(1, "address add 10.0.0.2/24 dev wb");
    // The times of the kernel, shortened: entries age after a second at most, and are asked for quickly.
    spaces.sysctl(0, "net/ipv4/neigh/wa/base_reachable_time_ms", 600);
    spaces.sysctl(0, "net/ipv4/neigh/wa/delay_first_probe_time", 0);
    spaces.sysctl(0, "net/ipv4/neigh/wa/retrans_time_ms", 100);
    spaces.inside(0, || {
        let mut control = Control::open("wa");
        control.host.set_patience(Patience { refresh: Duration::from_millis(200), ..Patience::default() });
        let dst = ip("10.0.0.2");
        control.path("10.0.0.2").unwrap();
        let new = MacAddr([2, 0, 0, 0, 0, 0x77]);
        spaces.ip(1, "link set wb address 02:00:00:00:00:77");
        let events = control.expect(Event::NeighbourChanged { ip: dst, mac: Some(new) });
        assert!(events.contains(&Event::NeighbourChanged { ip: dst, mac: None }), "silent first: {events:?}");
        assert_eq!(control.path("10.0.0.2").unwrap().mac, new);
        control.host.release(dst);
        assert_eq!(control.host.poll_timeout(), None);
    });
}

#[test]
fn a_neighbour_that_somebody_else_keeps_is_left_as_it_is() {
    let Some(spaces) = Namespaces::new(2) else { return };
    spaces.veth((0, "wa"), (1, "wb"));
    spaces.ip(0, "address add 10.0.0.1/24 dev wa");
    spaces.ip(0, "neigh add 10.0.0.2 dev wa lladdr 02:00:00:00:00:22 nud permanent");
    spaces.ip(0, "neigh add 10.0.0.3 dev wa lladdr 02:00:00:00:00:33 nud reachable extern_learn");
    spaces.inside(0, || {
        let mut control = Control::open("wa");
        control.host.set_patience(Patience { refresh: Duration::from_millis(20), ..Patience::default() });
        for (dst, last, word) in [("10.0.0.2", 0x22, "PERMANENT"), ("10.0.0.3", 0x33, "extern_learn")] {
            assert_eq!(control.path(dst).unwrap().mac, MacAddr([2, 0, 0, 0, 0, last]));
            (0..5).for_each(|_| drop(control.turn()));
            let shown = spaces.ip(0, &format!("neigh show {dst}"));
            assert!(shown.contains(word), "{shown}");
        }
    });
}
