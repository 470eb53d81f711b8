//! Devices that cannot be opened: one line each, which says what to do.

use std::process::Command;

use crate::ends::{Ends, Running};
use crate::namespaces::Namespaces;

/// What devinfo says of a device that it cannot open.
fn refusal(device: &str, eal: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softnic"));
    let out = command.args(["devinfo", "--dev", device]).env("SOFTNIC_DPDK_EAL", eal).output().expect("softnic runs");
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && out.stdout.is_empty(), "{device}: {out:?}");
    assert_eq!(text.lines().count(), 1, "{device}: one line, and nothing of DPDK's own: {text}");
    text
}

#[test]
fn a_device_that_is_not_there_is_named_with_what_to_do() {
    for (device, says) in [
        ("dpdk:0000:ff:1f.6,ip=10.9.0.1/24", "there is no PCI device 0000:ff:1f.6"),
        ("dpdk:net_null0", "add one, as in dpdk:net_null0,ip=10.0.0.1/24"),
        ("dpdk:net_memif0,nonsense=1,ip=10.9.0.1/24", "no option `nonsense`"),
        ("dpdk:net_memif0,bsize=2048,ip=10.9.0.1/24", "bsize must be at least"),
        ("dpdk:net_af_packet0,iface=lo,framesz=2048,ip=10.9.0.1/24", "framesz must be at least"),
        ("dpdk:net_memif0,socket=/nowhere/socket,ip=10.9.0.1/24", "Invalid socket directory"),
        ("dpdk:net_memif0,socket=/tmp/nobody,ip=10.9.0.1/24", "start the end with role=server first"),
        ("dpdk:net_af_packet0,iface=lo,queues=64,ip=10.9.0.1/24", "dpdk:net_af_packet0"),
        ("dpdk:net_nonsense0,ip=10.9.0.1/24", "net_nonsense0"),
        ("dpdk:net_af_packet0,iface=nosuchif0,ip=10.9.0.1/24", "nosuchif0"),
    ] {
        let text = refusal(device, "");
        assert!(text.contains(says), "{device}: {text}");
    }
}

#[test]
fn two_numbers_of_queues_are_refused() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softnic"));
    command.args(["perf", "--server", "--queues", "2", "--dev", "dpdk:net_null0,ip=10.9.0.1/24,queues=1"]);
    let (code, text) = Running::start(&mut command).end();
    assert_eq!((code, text.lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains("asks for 1 queues, and --queues for 2: say one of them"), "{text}");
}

#[test]
fn words_of_eal_that_are_wrong_or_clash_are_named() {
    for (words, says) in [
        ("--nonsense", "unrecognized option '--nonsense'"),
        ("--in-memory", "DPDK does not start"),
        ("--block=0000:00:01.0", "can't be used at the same time"),
    ] {
        let text = refusal("dpdk:net_null0,ip=10.9.0.1/24", words);
        assert!(text.contains(says), "{words}: {text}");
    }
}

#[test]
fn drivers_that_are_built_in_are_listed() {
    let out = Command::new(env!("CARGO_BIN_EXE_softnic")).arg("devinfo").output().expect("softnic runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let line = text.lines().find(|line| line.contains("built in")).unwrap_or_else(|| panic!("{text}"));
    assert!(["net_memif", "net_vhost", "net_e1000", "net_ice"].iter().all(|driver| line.contains(driver)), "{line}");
}

#[test]
fn a_device_says_what_it_is_once_it_is_open() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_softnic"));
    let out = command.args(["devinfo", "--dev", "dpdk:net_null0,ip=10.9.0.1/24"]).output().expect("softnic runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains("driver net_null, no huge pages, 1 queue, naps"), "{text}");
    assert_eq!(String::from_utf8_lossy(&out.stderr), "");
}

#[test]
fn a_socket_that_another_process_listens_at_is_refused_and_that_process_goes_on() {
    // What a memif's driver says itself is clear; vhost's would take the socket along.
    for (ends, says) in
        [(Ends::memif("taken"), "Address already in use"), (Ends::vhost("vhost-taken"), "another process listens at")]
    {
        let server = ends.server();
        let text = refusal(&ends.meeting.devices[0], "");
        assert!(text.contains(says), "{text}");
        let (code, text) = ends.client(&["write_bw", "--iters", "100", "--verify"]).end();
        assert_eq!(code, Some(0), "{text}");
        assert_eq!(server.end(), (Some(0), String::new()));
    }
}

#[test]
fn an_address_that_both_ends_of_a_link_have_is_told_in_one_line() {
    let mut ends = Ends::memif("twice");
    let mine = ends.meeting.devices[0].replace("role=server", "role=client");
    ends.meeting.devices[1] = mine;
    let server = ends.server();
    let (_, text) = ends.client(&["write_bw", "--iters", "100"]).end();
    let told: Vec<&str> = text.lines().filter(|line| line.contains("10.9.0.1")).collect();
    assert!(told.iter().any(|line| line.contains("another")), "{text}");
    server.kill();
}

#[test]
fn a_folder_without_room_for_the_socket_of_a_memif_is_named() {
    let Some(spaces) = Namespaces::new(&["full"], &[]) else { return };
    // `ip netns exec` has mounts of its own.
    let mut command = spaces.inside("full", "sh");
    let script = "mount -t tmpfs -o nr_inodes=1 none /mnt && exec \"$0\" \"$@\"";
    command.args(["-c", script, env!("CARGO_BIN_EXE_softnic"), "devinfo", "--dev"]);
    command.arg("dpdk:net_memif0,role=server,socket=/mnt/socket,ip=10.9.0.1/24");
    let (code, text) = Running::start(&mut command).end();
    assert_eq!((code, text.lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains("/mnt/socket"), "{text}");
}
