//! A NIC on a VLAN interface.

use std::net::IpAddr;

use softnic_nic::QpKind;
use softnic_runtime::api::{Context, DeviceSpec, OpenOptions};

use crate::veth::{Veth, left_out};
use crate::world::{Side, World};

#[test]
fn frames_are_tagged_as_the_interface_says() {
    let Some(veth) = Veth::new(1, 4300) else { return };
    for side in 0..2 {
        let below = veth.interface(side);
        let made = veth
            .ip(side, &format!("link add link {below} name {below}.5 type vlan id 5"))
            .and_then(|_| veth.ip(side, &format!("address add 10.78.0.{}/24 dev {below}.5", 1 + side)))
            .and_then(|_| veth.ip(side, &format!("link set {below}.5 up")));
        if let Err(why) = made {
            return left_out(&format!("no VLAN interfaces here: {why}"));
        }
    }
    let sides = [0, 1].map(|i| {
        let interface = format!("{}.5", veth.interface(i));
        let open = || Context::open(&DeviceSpec::AfXdp { interface }, &OpenOptions::default()).unwrap();
        Side::new(veth.inside(i, open))
    });
    let w = World { sides, veth };
    let addresses: [IpAddr; 2] = [[10, 78, 0, 1].into(), [10, 78, 0, 2].into()];
    let path = w.sides[0].context.path_to(addresses[1], 1).unwrap();
    assert_eq!(path.attr.tags[0].map(|tag| tag.tci & 0xfff), Some(5));
    let qps = w.queue_pairs(QpKind::Rc, |_| ());
    w.connect(&qps, addresses, |_| ());
    w.write_and_compare(&qps, 0, 100_000, 1);
    w.write_and_compare(&qps, 1, 100_000, 2);
}
