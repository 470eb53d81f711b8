//! Drivers of DPDK's on an interface of the kernel's, a veth pair between two namespaces; at the other end AF_XDP, or the kernel itself.
//! Without root or `ip` they are left out.

use std::process::Command;
use std::rc::Rc;

use crate::all_operations;
use crate::ends::Ends;
use crate::namespaces::Namespaces;

/// Two namespaces with a veth pair for frames, and another by which the two ends talk beforehand.
fn spaces(mtu: u32) -> Option<Rc<Namespaces>> {
    let mtu = format!("-n @a link set e mtu {mtu} up");
    let mut commands = vec![
        "link add name e netns @a type veth peer name e netns @b".to_string(),
        "link add name talk netns @a type veth peer name talk netns @b".to_string(),
        mtu.clone(),
        mtu.replace("@a", "@b"),
        // The kernel has an address on the link at one end: that is AF_XDP's, or its own.
        "-n @a address add 10.78.0.1/24 dev e".to_string(),
        "-n @a address add 10.79.0.1/24 dev talk".to_string(),
        "-n @b address add 10.79.0.2/24 dev talk".to_string(),
    ];
    commands.extend(["a", "b"].map(|name| format!("-n @{name} link set talk up")));
    commands.extend(["a", "b"].map(|name| format!("-n @{name} link set lo up")));
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    Namespaces::new(&["a", "b"], &commands).map(Rc::new)
}

/// A server over AF_XDP in the one, and a client on a device of DPDK's in the other.
fn across(name: &str, spaces: &Rc<Namespaces>, device: &str) -> Ends {
    let mut ends = Ends::new(name, |_| ["afxdp:e".into(), device.into()]);
    let inside = |side: &'static str| {
        let spaces = Rc::clone(spaces);
        Box::new(move || spaces.inside(side, env!("CARGO_BIN_EXE_softnic"))) as Box<dyn Fn() -> Command>
    };
    (ends.softnic, ends.host) = ([inside("a"), inside("b")], "10.79.0.1");
    ends
}

#[test]
fn all_operations_between_af_packet_and_af_xdp() {
    let Some(spaces) = spaces(4200) else { return };
    all_operations(&across("af_packet", &spaces, "dpdk:net_af_packet0,iface=e,ip=10.78.0.2/24"), "4096");
}

#[test]
fn all_operations_between_dpdks_af_xdp_and_ours() {
    let Some(spaces) = spaces(3400) else { return };
    all_operations(&across("af_xdp", &spaces, "dpdk:net_af_xdp0,iface=e,ip=10.78.0.2/24"), "2048");
}
