//! Routes: by gateways, by other interfaces, nowhere.

use softnic_runtime::host_network::{Hop, HostNetworkError as Error, Route};
use softnic_wire::PathMtu;

use crate::control::{Control, ip, mac_of};
use crate::namespaces::Namespaces;

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
        let error = control.path("10.2.0.1").unwrap_err();
        assert!(matches!(error, Error::LocalElsewhere { .. }), "{error:?}");
        assert_eq!(control.host.route(ip("10.0.0.1"), None), Ok(Route::Local));

        // A route by our interface is taken although a better one goes by another.
        spaces.ip(0, "route add 10.7.0.0/24 via 10.2.0.3 metric 10");
        spaces.ip(0, "route add 10.7.0.0/24 via 10.0.0.2 metric 20");
        let hop = Hop { gateway: Some(ip("10.0.0.2")), source: Some(ip("10.0.0.1")), mtu: None };
        assert_eq!(control.host.route(ip("10.7.0.1"), None), Ok(Route::Out(hop)));
    });
}
