//! Devices that cannot be opened: one line each, which says what to do.

use std::process::Command;

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
fn words_of_eal_that_are_wrong_are_named() {
    for (words, says) in [("--nonsense", "unrecognized option '--nonsense'"), ("--in-memory", "DPDK does not start")] {
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
