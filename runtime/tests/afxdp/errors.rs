//! What goes wrong when a device is opened, and what the error tells a person to do.

use std::process::Command;

use softnic_runtime::afxdp::{AfXdp, AfXdpError, Options};

use crate::helper::open_elsewhere;
use crate::veth::{Veth, left_out};

#[test]
fn an_interface_that_is_not_there_or_not_ethernet() {
    for name in ["nosuch0", "", "a-name-longer-than-any", "sn\0"] {
        let refused = AfXdp::open(name, &Options::default()).unwrap_err();
        assert!(matches!(refused, AfXdpError::NoInterface(_)), "{refused}");
        assert!(refused.to_string().contains("`ip link` shows"), "{refused}");
    }
    let refused = AfXdp::open("lo", &Options::default()).unwrap_err();
    assert!(matches!(refused, AfXdpError::NotEthernet(_)), "{refused}");
}

#[test]
fn more_queues_than_there_are() {
    let Some(veth) = Veth::new(2, 1500) else { return };
    for asked in [0, 3] {
        let options = Options { queues: Some(asked), ..Options::default() };
        let refused = veth.inside(0, || AfXdp::open(veth.interface(0), &options)).unwrap_err();
        assert!(matches!(refused, AfXdpError::NoSuchQueue { has: 2, .. }), "{refused}");
    }
}

#[test]
fn a_device_that_is_open_already() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let open = veth.open(0, &Options::default());
    let refused = veth.inside(0, || AfXdp::open(veth.interface(0), &Options::default())).unwrap_err();
    assert!(matches!(refused, AfXdpError::ProgramAttached { .. }), "{refused}");
    let text = refused.to_string();
    assert!(text.starts_with("another XDP program is attached to sn0"), "{text}");
    assert!(text.contains(&format!("by process {} (", std::process::id())), "{text}");
    drop(open);
    veth.open(0, &Options::default());
}

#[test]
fn a_missing_privilege_is_named() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    if Command::new("setpriv").arg("--version").output().is_err() {
        return left_out("there is no `setpriv`");
    }
    let inside = format!("ip netns exec {}", veth.namespaces[0]);
    let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all";
    let said = open_elsewhere(&format!("{inside} {nobody}"), veth.interface(0)).said.clone();
    assert!(
        said.contains("not permitted to")
            && said.contains("CAP_NET_ADMIN")
            && said.contains("user namespace")
            && said.contains("`shm`"),
        "{said}"
    );
    let no_lock = "prlimit --memlock=65536 setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock";
    let said = open_elsewhere(&format!("{inside} {no_lock}"), veth.interface(0)).said.clone();
    assert!(said.contains("6144 KiB") && said.contains("CAP_IPC_LOCK"), "{said}");
    veth.await_no_program(0);
}

#[test]
fn where_little_memory_may_be_locked_there_are_fewer_chunks() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let inside = format!("ip netns exec {}", veth.namespaces[0]);
    // The usual limit: 6 MiB fit, 10 MiB do not.
    let limited = "prlimit --memlock=8388608 setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock";
    let said = open_elsewhere(&format!("{inside} {limited}"), veth.interface(0)).said.clone();
    assert_eq!(said, "opened with 1024 chunks");
    veth.await_no_program(0);
}

#[test]
fn the_capabilities_that_are_named_are_enough() {
    for mtu in [1500, 4200] {
        let Some(veth) = Veth::new(1, mtu) else { return };
        let inside = format!("ip netns exec {}", veth.namespaces[0]);
        // Locked memory is counted for a user, who has other processes: that is another test's.
        let few = "setpriv --bounding-set=-all,+net_admin,+net_raw,+bpf,+ipc_lock --inh-caps=-all";
        let said = open_elsewhere(&format!("{inside} {few}"), veth.interface(0)).said.clone();
        assert!(said.starts_with("opened with"), "MTU {mtu}: {said}");
        veth.await_no_program(0);
    }
}
