//! What a person is told when a NIC cannot be opened.

use std::process::Command;
use std::time::Instant;

use softnic_runtime::api::{Context, DeviceSpec, OpenError, OpenOptions};

use crate::peer;
use crate::veth::{Veth, left_out};
use crate::world::{LIMIT, device};

fn refused(device: &DeviceSpec) -> (OpenError, String) {
    let error = Context::open(device, &OpenOptions::default()).map(|_| ()).unwrap_err();
    let line = error.to_string();
    assert!(!line.contains('\n'), "one line: {line}");
    (error, line)
}

#[test]
fn an_interface_that_is_not_there() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let nosuch = DeviceSpec::afxdp("nosuch0");
    let (error, line) = veth.inside(0, || refused(&nosuch));
    assert!(matches!(error, OpenError::Host(_)), "{line}");
    assert!(
        line.contains("no interface nosuch0") && line.contains(veth.interface(0)),
        "it says which there are: {line}"
    );
}

#[test]
fn an_interface_that_is_open_already() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let open = veth.inside(0, || Context::open(&device(&veth, 0), &OpenOptions::default()).unwrap());
    let (error, line) = veth.inside(0, || refused(&device(&veth, 0)));
    assert!(matches!(error, OpenError::AfXdp(_)), "{line}");
    assert!(line.starts_with("another XDP program is attached to sn0"), "{line}");
    drop(open);
    // A process that another test just starts may have a copy of our descriptors for a moment.
    let start = Instant::now();
    while let Err(busy) = veth.inside(0, || Context::open(&device(&veth, 0), &OpenOptions::default())) {
        assert!(start.elapsed() < LIMIT, "{busy}");
    }
}

#[test]
fn an_mtu_that_is_too_small() {
    let Some(veth) = Veth::new(1, 300) else { return };
    let (_, line) = veth.inside(0, || refused(&device(&veth, 0)));
    assert!(line.contains("MTU of 300 is too small") && line.contains("ip link set sn0 mtu"), "{line}");
    assert!(!veth.has_program(0));
}

#[test]
fn a_person_without_the_right() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    if Command::new("setpriv").arg("--version").output().is_err() {
        return left_out("there is no `setpriv`");
    }
    let inside = format!("ip netns exec {}", veth.namespaces[0]);
    let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all";
    let said = peer::start(&format!("{inside} {nobody}"), &format!("open {}", veth.interface(0))).said.clone();
    assert!(
        said.contains("not permitted to")
            && said.contains("CAP_NET_ADMIN")
            && said.contains("user namespace")
            && said.contains("`shm`"),
        "{said}"
    );
    assert!(!veth.has_program(0));
}
