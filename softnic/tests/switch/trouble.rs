//! What goes wrong, what a person is told, and that nothing stays behind.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use crate::star::{LIMIT, SOFTNIC, Star, scratch};

fn switch(config: &str, more: &[&str]) -> Output {
    let file = scratch("sw.toml");
    std::fs::write(&file, config).expect("a file");
    let out = Command::new(SOFTNIC).args(["switch", "--config"]).arg(&file).args(more).output().expect("softnic runs");
    std::fs::remove_file(file).expect("it is there");
    out
}

/// One line, and the exit code of a command that failed.
fn refused(out: &Output, words: &str) {
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!((out.status.code(), text.lines().count(), out.stdout.len()), (Some(1), 1, 0), "{text}");
    assert!(text.starts_with("softnic: ") && text.contains(words), "{text}");
}

#[test]
fn what_is_not_understood_is_refused_in_a_line() {
    let one = "[[port]]\ninterface = \"nosuch0\"\n";
    for more in [&["--duration", "0"][..], &["--cpu", "first"], &["--control", "0.0.0.0:9500"], &["--control", "x"]] {
        let out = switch(one, more);
        assert!(out.status.code() == Some(2) && out.stdout.is_empty(), "{more:?}");
    }
    for (config, words) in [
        (one, "no interface `nosuch0`"),
        ("[[port]]\ninterface = \"lo\"\n", "lo has no Ethernet address"),
        ("[[port]]\ninterface = \"e0\"\ncolour = \"red\"\n", "sw.toml: line 3: unknown field `colour`"),
        ("mac = \"zz\"\n", "sw.toml: line 1: mac: 'zz' is no MAC address"),
        (
            "[[port]]\ninterface = \"e0\"\n[[route]]\nto = \"10.0.0.0/8\"\nvia = [{ port = \"e1\", mac = \"02:00:00:00:00:01\" }]\n",
            "sw.toml: line 5: port: there is no port 'e1': e0",
        ),
        ("", "sw.toml: line 1: port: there is none"),
    ] {
        refused(&switch(config, &[]), words);
    }
    let out = Command::new(SOFTNIC).args(["switch", "--config", "/no/such/file"]).output().expect("softnic runs");
    refused(&out, "/no/such/file: No such file");
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("one").to_string();
    refused(&switch(one, &["--control", &address]), &format!("--control: another process listens at {address}"));
    refused(
        &switch(one, &["--control", "unix:/no/such/folder/x"]),
        "--control: cannot listen at unix:/no/such/folder/x",
    );
}

fn await_released(star: &Star) {
    let begin = Instant::now();
    while (0..4).any(|port| star.taken(port)) {
        assert!(begin.elapsed() < LIMIT, "an interface is still taken");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn nothing_stays_behind_however_it_ends() {
    let Some(star) = Star::flat(1500) else { return };
    for signal in ["-INT", "-TERM", "-KILL"] {
        let switch = star.switch("", "", &[]);
        assert!((0..4).all(|port| star.taken(port)));
        switch.signal(signal);
        let (code, out, _) = switch.end();
        assert_eq!(code == Some(0) && out.contains("p3 "), signal != "-KILL", "{signal}: {out}");
        await_released(&star);
    }
    let (code, out, err) = star.switch("", "", &["--duration", "300ms"]).end();
    assert!(code == Some(0) && err.is_empty() && out.contains("max queue"), "{out}{err}");
    await_released(&star);
}

fn reaches(star: &Star, to: u8) -> bool {
    let there =
        star.inside(["a", "b", "c", "d"][usize::from(to) - 1], || UdpSocket::bind("0.0.0.0:0").expect("a port"));
    let here = star.inside("a", || UdpSocket::bind("0.0.0.0:0").expect("a port"));
    there.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket");
    let port = there.local_addr().expect("one").port();
    // An address that is gone is an error of its sender's.
    let sent = here.send_to(b"hello", (Ipv4Addr::new(10, 78, 0, to), port));
    sent.is_ok() && there.recv_from(&mut [0; 10]).is_ok()
}

fn await_reaches(star: &Star, to: u8, wanted: bool) {
    let begin = Instant::now();
    while reaches(star, to) != wanted {
        assert!(begin.elapsed() < LIMIT, "{to}: {wanted}");
    }
}

#[test]
fn an_interface_that_goes_is_said_once_others_go_on_and_it_is_used_again_when_it_is_back() {
    let Some(star) = Star::flat(1500) else { return };
    let mut switch = star.switch("", "", &["--json"]);
    await_reaches(&star, 2, true);
    star.0.ip("-n @m link delete p1").expect("it is there");
    assert_eq!(switch.line(), "softnic: the interface p1 is gone; its port is silent until it is back\n");
    await_reaches(&star, 3, true);
    for command in [
        "link add name e netns @b address 02:00:00:00:78:02 type veth peer name p1 netns @m",
        "-n @m link set p1 up",
        "-n @b address add 10.78.0.2/24 dev e",
        "-n @b link set e up",
    ] {
        star.0.ip(command).expect(command);
    }
    assert_eq!(switch.line(), "softnic: the interface p1 is back\n");
    await_reaches(&star, 2, true);
    // Down is a cable that is not plugged in.
    star.0.ip("-n @m link set p2 down").expect("it is there");
    await_reaches(&star, 3, false);
    await_reaches(&star, 4, true);
    star.0.ip("-n @m link set p2 up").expect("it is there");
    await_reaches(&star, 3, true);
    let summary = switch.summary();
    assert!((0..4).all(|port| summary["ports"][port]["up"] == true), "{summary}");
}

#[test]
fn interfaces_that_cannot_be_used_and_captures_that_cannot_be_written() {
    let Some(star) = Star::flat(1500) else { return };
    let run = |more: &[&str]| {
        let file = scratch("sw.toml");
        let ports: String = (0..4).map(|i| format!("[[port]]\ninterface = \"p{i}\"\n")).collect();
        std::fs::write(&file, ports).expect("a file");
        let mut command = star.0.inside("m", SOFTNIC);
        let out = command.args(["switch", "--duration", "30", "--config"]).arg(&file).args(more).output();
        std::fs::remove_file(file).expect("it is there");
        out.expect("softnic runs")
    };
    for (path, why) in [("/dev/full", "No space left"), ("/no/such/folder/x.pcapng", "No such file")] {
        refused(&run(&["--pcap", path]), &format!("cannot write the capture {path}: {why}"));
    }
    star.0.ip("-n @m link set p2 mtu 9500").expect("it is there");
    refused(&run(&[]), "ip link set p2 mtu 9216");
    star.0.ip("-n @m link set p2 mtu 1500").expect("it is there");
    let _running = star.switch("", "", &[]);
    refused(&run(&[]), "another XDP program is attached to p0");
}

#[test]
fn a_person_without_the_right() {
    let Some(star) = Star::flat(1500) else { return };
    let file = scratch("sw.toml");
    std::fs::write(&file, "[[port]]\ninterface = \"p0\"\n").expect("a file");
    let mut command = star.0.inside("m", "setpriv");
    command.args([
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        "--inh-caps=-all",
        "--bounding-set=-all",
        SOFTNIC,
    ]);
    let out = command.args(["switch", "--config"]).arg(&file).output().expect("ip");
    std::fs::remove_file(file).expect("it is there");
    refused(&out, "CAP_NET_ADMIN");
}
