//! The kernel's view of an interface, in network namespaces over veth pairs.
#![cfg(target_os = "linux")]

mod namespaces;

use std::net::IpAddr;
use std::time::Duration;

use namespaces::{Namespaces, left_out};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use softnic_runtime::HostNetworkError as Error;
use softnic_runtime::host_network::{
    Event, Hop, HostNetwork, HostPath, Interface, Membership, PathState, Patience, Route, State,
};
use softnic_wire::ethernet::VlanTag;
use softnic_wire::{Instant, MacAddr, PathMtu};

/// Far longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(15);

fn ip(address: &str) -> IpAddr {
    address.parse().unwrap()
}

/// A control thread's view: the network, with a clock.
struct Control {
    host: HostNetwork,
    start: std::time::Instant,
}

impl Control {
    fn open(name: &str) -> Control {
        Control { host: HostNetwork::open(name).unwrap(), start: std::time::Instant::now() }
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.start.elapsed()
    }

    /// Sleeps until something happens; hands out what changed.
    fn turn(&mut self) -> Vec<Event> {
        let timer = self.host.poll_timeout().map_or(LIMIT, |at| at - self.now()).min(Duration::from_millis(500));
        let timer = Timespec::try_from(timer).unwrap();
        poll(&mut [PollFd::new(&self.host, PollFlags::IN)], Some(&timer)).unwrap();
        let now = self.now();
        if self.host.poll_timeout().is_some_and(|at| at <= now) {
            self.host.handle_timeout(now);
        }
        std::iter::from_fn(|| self.host.poll_event().unwrap()).collect()
    }

    /// Takes events until `done`; all that came.
    fn until(&mut self, what: &str, mut done: impl FnMut(&HostNetwork, &[Event]) -> bool) -> Vec<Event> {
        let (mut events, end) = (Vec::new(), self.now() + LIMIT);
        while !done(&self.host, &events) {
            assert!(self.now() < end, "{what}: it did not come; events: {events:?}");
            events.extend(self.turn());
        }
        events
    }

    fn expect(&mut self, event: Event) -> Vec<Event> {
        self.until(&format!("{event:?}"), |_, events| events.contains(&event))
    }

    fn path(&mut self, dst: &str) -> Result<HostPath, Error> {
        let end = self.now() + LIMIT;
        loop {
            match self.host.path(self.now(), ip(dst), None)? {
                PathState::Ready(path) => return Ok(path),
                PathState::Pending { .. } => assert!(self.now() < end, "{dst}: pending for ever"),
            }
            self.turn();
        }
    }
}

fn mac_of(spaces: &Namespaces, i: usize, name: &str) -> MacAddr {
    spaces.inside(i, || Interface::find(name).unwrap().mac)
}

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
        assert!(matches!(from(&mut control, "10.0.0.9"), Err(Error::NotOurs { .. })));
        assert_eq!(control.path("10.0.0.255"), Err(Error::NotAPeer(ip("10.0.0.255"))));
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

#[test]
fn routes_lead_by_gateways_by_other_interfaces_or_nowhere() {
    let Some(spaces) = Namespaces::new(3) else { return };
    spaces.veth((0, "wa"), (1, "wb"));
    spaces.veth((1, "wc"), (2, "wd"));
    spaces.veth((0, "we"), (2, "wf"));
    for (i, addresses) in [
        (0, &["10.0.0.1/24 dev wa", "fd00::1/64 dev wa nodad", "10.2.0.1/24 dev we"] as &[_]),
        (1, &["10.0.0.2/24 dev wb", "fd00::2/64 dev wb nodad", "10.1.0.2/24 dev wc", "fd01::2/64 dev wc nodad"]),
        (2, &["10.1.0.3/24 dev wd", "fd01::3/64 dev wd nodad", "10.2.0.3/24 dev wf"]),
    ] {
        addresses.iter().for_each(|address| drop(spaces.ip(i, &format!("address add {address}"))));
    }
    for route in [
        "10.1.0.0/24 via 10.0.0.2 mtu 600",
        "10.6.0.0/24 via inet6 fd00::2 dev wa",
        "unreachable 10.3.0.0/24",
        "blackhole 10.4.0.0/24",
        "prohibit 10.5.0.0/24",
        "10.2.0.128/25 via 10.0.0.2 metric 50",
    ] {
        spaces.ip(0, &format!("route add {route}"));
    }
    spaces.ip(0, "-6 route add fd01::/64 via fd00::2");
    spaces.ip(0, "-6 route add unreachable fd03::/64");
    let gateway = mac_of(&spaces, 1, "wb");
    spaces.inside(0, || {
        let mut control = Control::open("wa");
        let path = control.path("10.1.0.3").unwrap();
        assert_eq!((path.next_hop, path.mac, path.source), (ip("10.0.0.2"), gateway, ip("10.0.0.1")));
        assert_eq!(path.mtu, PathMtu::B256, "the route has a smaller MTU than the link");
        let path = control.path("fd01::3").unwrap();
        assert_eq!((path.next_hop, path.mac, path.source), (ip("fd00::2"), gateway, ip("fd00::1")));
        let path = control.path("10.6.0.9").unwrap();
        assert_eq!((path.next_hop, path.mac, path.source), (ip("fd00::2"), gateway, ip("10.0.0.1")));

        for dst in ["10.3.0.1", "10.4.0.1", "10.5.0.1", "172.16.0.1", "fd03::1", "fd09::1"] {
            let error = control.path(dst).unwrap_err();
            assert!(matches!(error, Error::Unreachable { .. }), "{dst}: {error:?}");
        }
        let error = control.path("10.2.0.3").unwrap_err();
        assert!(matches!(&error, Error::OtherInterface { other, .. } if other == "we"), "{error:?}");
        assert_eq!(control.path("10.2.0.1"), Err(Error::LocalElsewhere(ip("10.2.0.1"))));
        assert_eq!(control.host.route(ip("10.0.0.1"), None), Ok(Route::Local));

        // A route by our interface is taken although a better one goes by another.
        spaces.ip(0, "route add 10.7.0.0/24 via 10.2.0.3 metric 10");
        spaces.ip(0, "route add 10.7.0.0/24 via 10.0.0.2 metric 20");
        let hop = Hop { gateway: Some(ip("10.0.0.2")), source: Some(ip("10.0.0.1")), mtu: None };
        assert_eq!(control.host.route(ip("10.7.0.1"), None), Ok(Route::Out(hop)));
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
