//! A kernel whose AF_XDP takes no frame in several buffers.

use softnic_nic::QpKind;
use softnic_wire::PathMtu;

use crate::veth::{has_multi_buffer, left_out};
use crate::world::World;

#[test]
fn before_6_6_the_path_mtu_is_2048_and_the_description_says_why() {
    let Some(w) = World::new(1, 4200) else { return };
    if has_multi_buffer() {
        return left_out("this kernel is younger; `cargo xtask guest-tests` runs it on one that is not");
    }
    for side in &w.sides {
        let said = side.context.description();
        assert!(said.contains("path MTU 2048 instead of 4096: for that AF_XDP needs Linux 6.6"), "{said}");
        assert_eq!(side.context.port().mtu, PathMtu::B2048);
    }
    let path = w.sides[0].context.path_to(w.address(1), 1).unwrap();
    assert_eq!(path.mtu, PathMtu::B2048);
    let qps = w.connected(QpKind::Rc, None);
    w.write_and_compare(&qps, 0, 100_000, 1);
    w.write_and_compare(&qps, 1, 100_000, 2);
    // Who asks for more is told, not left to wait for packets that cannot be sent.
    let qps = w.queue_pairs(QpKind::Rc, |_| ());
    let mut connection =
        softnic_runtime::api::Connection::new(path, qps[1].qpn(), Default::default(), Default::default());
    connection.mtu = PathMtu::B4096;
    let refused = qps[0].connect(&connection).unwrap_err().to_string();
    assert!(refused.contains("4096") && refused.contains("2048"), "{refused}");
}
