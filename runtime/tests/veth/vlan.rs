//! A NIC on a VLAN interface.

use std::net::IpAddr;

use softnic_nic::QpKind;
use softnic_runtime::api::{Context, DeviceSpec, OpenOptions};

use crate::veth::{Veth, left_out};
use crate::world::{Side, World};

/// Makes VLAN interfaces, each on the one before; the last has an address. `false`, and said so, where that is not possible.
fn make(veth: &Veth, vlans: &[(&str, &str)]) -> bool {
    for side in 0..2 {
        let mut below = veth.interface(side);
        for (name, kind) in vlans {
            let made = veth
                .ip(side, &format!("link add link {below} name {name} type vlan {kind}"))
                .and_then(|_| veth.ip(side, &format!("link set {name} up")));
            if let Err(why) = made {
                left_out(&format!("no VLAN interfaces here: {why}"));
                return false;
            }
            below = name;
        }
        veth.ip(side, &format!("address add 10.78.0.{}/24 dev {below}", 1 + side)).unwrap();
    }
    true
}

/// Data goes both ways between NICs on the last of the VLAN interfaces, in frames with these tags.
fn exchange(vlans: &[(&str, &str)], tags: [Option<u16>; 2]) {
    let Some(veth) = Veth::new(1, 4300) else { return };
    if !make(&veth, vlans) {
        return;
    }
    let interface = vlans[vlans.len() - 1].0;
    let sides = [0, 1].map(|i| {
        let device = DeviceSpec::afxdp(interface);
        Side::new(veth.inside(i, || Context::open(&device, &OpenOptions::default()).unwrap()))
    });
    let w = World { sides, veth };
    let addresses: [IpAddr; 2] = [[10, 78, 0, 1].into(), [10, 78, 0, 2].into()];
    let path = w.sides[0].context.path_to(addresses[1], 1).unwrap();
    assert_eq!(path.attr.tags.map(|tag| tag.map(|tag| tag.tci & 0xfff)), tags);
    let qps = w.queue_pairs(QpKind::Rc, |_| ());
    w.connect(&qps, addresses, |_| ());
    w.write_and_compare(&qps, 0, 100_000, 1);
    w.write_and_compare(&qps, 1, 100_000, 2);
}

#[test]
fn frames_are_tagged_as_the_interface_says() {
    exchange(&[("v5", "id 5")], [Some(5), None]);
}

#[test]
fn frames_of_a_vlan_in_a_vlan_have_two_tags() {
    exchange(&[("s20", "protocol 802.1ad id 20"), ("c30", "id 30")], [Some(20), Some(30)]);
}
