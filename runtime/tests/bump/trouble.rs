//! What goes wrong, what a person is told, and that nothing stays behind.

use std::io::Read;
use std::process::Command;
use std::time::{Duration, Instant};

use softnic_runtime::PortError;
use softnic_runtime::afxdp::{self, AfXdp};
use softnic_runtime::bump::{Bump, BumpError, Options};

use crate::path::{options, start};
use crate::process::{Process, say};
use crate::veth::{LIMIT, MIDDLE, Veth, ip, left_out};

const VARIABLE: &str = "SOFTNIC_TEST_BUMP";

fn elsewhere(wrapper: &str) -> Process {
    Process::start(wrapper, "trouble::is_a_wire_when_told_to", VARIABLE, "yes")
}

#[test]
#[ignore = "only as a process of its own that other tests start"]
fn is_a_wire_when_told_to() {
    if std::env::var(VARIABLE).is_err() {
        return;
    }
    let wire = Bump::start(&options(""));
    say(&wire.as_ref().map_or_else(ToString::to_string, |_| "started".into()));
    // Until whoever started us ends it, or is gone.
    let _ = std::io::stdin().read(&mut [0]);
}

/// Whether each of the interfaces in the middle has a program, or takes in frames for others.
fn taken(veth: &Veth) -> [(bool, bool); 2] {
    let middle = veth.middle.as_ref().unwrap();
    MIDDLE.map(|name| {
        let shown = ip(&format!("-n {middle} -details link show {name}")).unwrap();
        (shown.contains("prog/xdp"), !shown.contains("promiscuity 0"))
    })
}

/// Another test may have a copy of our descriptors for a moment, in a process that it is just starting.
fn await_released(veth: &Veth) {
    let begin = Instant::now();
    while taken(veth) != [(false, false); 2] {
        assert!(begin.elapsed() < LIMIT, "{:?}", taken(veth));
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn refused(veth: &Veth, options: &Options) -> (BumpError, String) {
    let error = start(veth, options).map(|_| ()).unwrap_err();
    let line = error.to_string();
    assert!(!line.contains('\n'), "one line: {line}");
    (error, line)
}

#[test]
fn what_cannot_be_a_wire_is_refused_in_a_line() {
    let Some(veth) = Veth::with_middle(1, [1500; 2]) else { return };
    let middle = veth.middle.clone().unwrap();
    let (error, line) = refused(&veth, &Options { b: MIDDLE[0].into(), ..options("") });
    assert!(matches!(error, BumpError::Same(_)) && line.contains(MIDDLE[0]), "{line}");
    for (a, b) in [("nosuch0", MIDDLE[0]), (MIDDLE[0], "nosuch0")] {
        let (_, line) = refused(&veth, &Options { a: a.into(), b: b.into(), ..options("") });
        assert!(line.contains("no interface `nosuch0`"), "{line}");
    }
    let (_, line) = refused(&veth, &Options { a: "lo".into(), ..options("") });
    assert!(line.contains("lo has no Ethernet address"), "{line}");
    let (error, line) = refused(&veth, &options("rx.loss=0.1"));
    assert!(matches!(error, BumpError::Spec(_)) && line.contains("ab. and ba."), "{line}");
    let (error, _) = refused(&veth, &Options { cpu: Some(100_000), ..options("") });
    assert!(matches!(error, BumpError::Core(100_000)), "{error}");
    let (error, line) = refused(&veth, &Options { pcap: Some("/nosuch/file".into()), ..options("") });
    assert!(matches!(error, BumpError::Capture { .. }) && line.contains("/nosuch/file"), "{line}");
    ip(&format!("-n {middle} link set {} mtu 9500", MIDDLE[1])).unwrap();
    let (error, line) = refused(&veth, &options(""));
    assert!(matches!(error, BumpError::Port(PortError::Mtu { mtu: 9500, .. })), "{line}");
    assert!(line.contains(&format!("ip link set {} mtu 9216", MIDDLE[1])), "{line}");
    await_released(&veth);
}

#[test]
fn an_interface_that_has_a_program_already() {
    let Some(veth) = Veth::with_middle(1, [1500; 2]) else { return };
    let open = veth.in_the_middle(|| AfXdp::open(MIDDLE[1], &afxdp::Options::default()).unwrap());
    let (_, line) = refused(&veth, &options(""));
    assert!(line.starts_with(&format!("another XDP program is attached to {}", MIDDLE[1])), "{line}");
    drop(open);
    await_released(&veth);
}

#[test]
fn an_interface_that_is_down_is_a_cable_that_is_not_plugged_in() {
    let Some(veth) = Veth::with_middle(1, [1500; 2]) else { return };
    let middle = veth.middle.clone().unwrap();
    let set = |what: &str| ip(&format!("-n {middle} link set {} {what}", MIDDLE[1])).unwrap();
    set("down");
    match start(&veth, &options("")) {
        Err(error) => assert!(error.to_string().contains(&format!("ip link set {} up", MIDDLE[1])), "{error}"),
        Ok(bump) => drop(bump),
    }
    set("up");
    let bump = start(&veth, &options("")).unwrap();
    // Down and up again while it runs.
    set("down");
    std::thread::sleep(Duration::from_millis(300));
    assert!(bump.is_running());
    set("up");
    std::thread::sleep(Duration::from_millis(300));
    assert!(bump.is_running());
    bump.stop().unwrap();
}

#[test]
fn an_interface_that_goes_away_ends_it_with_its_name() {
    let Some(veth) = Veth::with_middle(1, [1500; 2]) else { return };
    let bump = start(&veth, &options("")).unwrap();
    veth.ip(1, &format!("link delete {}", veth.interface(1))).unwrap();
    let begin = Instant::now();
    while bump.is_running() {
        assert!(begin.elapsed() < LIMIT, "it does not notice");
        std::thread::sleep(Duration::from_millis(10));
    }
    let error = bump.stop().unwrap_err();
    assert!(matches!(&error, BumpError::Port(PortError::Gone(name)) if name == MIDDLE[1]), "{error}");
}

#[test]
fn nothing_stays_behind_whether_it_is_stopped_dropped_or_killed() {
    let Some(veth) = Veth::with_middle(1, [1500; 2]) else { return };
    let bump = start(&veth, &options("")).unwrap();
    assert_eq!(taken(&veth), [(true, true); 2]);
    bump.stop().unwrap();
    await_released(&veth);
    drop(start(&veth, &options("")).unwrap());
    await_released(&veth);
    let mut process = elsewhere(&format!("ip netns exec {}", veth.middle.as_ref().unwrap()));
    assert_eq!(process.said, "started");
    assert_eq!(taken(&veth), [(true, true); 2]);
    process.kill();
    await_released(&veth);
}

#[test]
fn a_person_without_the_right() {
    let Some(veth) = Veth::with_middle(1, [1500; 2]) else { return };
    if Command::new("setpriv").arg("--version").output().is_err() {
        return left_out("there is no `setpriv`");
    }
    let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all";
    let said = elsewhere(&format!("ip netns exec {} {nobody}", veth.middle.as_ref().unwrap())).said.clone();
    assert!(
        said.contains("not permitted to")
            && said.contains("CAP_NET_ADMIN")
            && said.contains("user namespace")
            && said.contains("`shm`"),
        "{said}"
    );
    await_released(&veth);
}
