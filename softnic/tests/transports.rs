//! The one list of transports as every command shows it: help, errors, the window of sr, and plans of older clients.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);

fn softnic(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_softnic")).args(args).output().expect("softnic runs")
}

#[test]
fn a_transport_that_cannot_be_is_refused_with_the_text_of_the_list() {
    for (transport, why) in [
        ("xq", "there is no transport `xq`: choose from rc, sr[:PACKETS], lowar[:R,C], xp[:K=V,..], uc, ud"),
        ("xp:tail=0", "`tail` of xp takes a number from 1 to 16"),
        ("sr:63", "`63` is no window of sr: it must be a number of packets from 64 to 2097152"),
        ("lowar:8,9", "`8,9` are no blocks of lowar"),
    ] {
        for command in [&["sim"][..], &["perf", "write_bw"]] {
            let out = softnic(&[command, &["--transport", transport]].concat());
            let said = String::from_utf8(out.stderr).expect("UTF-8");
            assert!(out.status.code() == Some(2) && out.stdout.is_empty(), "{transport}: {said}");
            assert!(said.contains(why), "{transport}: {said}");
        }
    }
}

#[test]
fn the_help_of_every_command_lists_the_transports_that_it_takes() {
    let reliable =
        ["  rc            reliable", "  sr[:PACKETS]  RC: Selective Repeat", "  lowar[:R,C]   RC: C repair packets"];
    let unreliable = ["  uc            unreliable connection", "  ud            unreliable datagram"];
    for (command, takes_all) in [("sim", true), ("perf", true), ("run", false), ("experiment", false)] {
        for flag in ["-h", "--help"] {
            let out = softnic(&[command, flag]);
            let help = String::from_utf8(out.stdout).expect("UTF-8");
            assert!(reliable.iter().all(|line| help.contains(line)), "{command} {flag}: {help}");
            assert_eq!(unreliable.iter().all(|line| help.contains(line)), takes_all, "{command} {flag}: {help}");
            assert!(help.lines().all(|line| line.chars().count() <= 120), "{command} {flag}: {help}");
        }
    }
}

#[test]
fn where_the_default_window_of_sr_does_not_fill_the_link_stderr_names_one_that_does() {
    let run = |more: &[&str]| {
        let out = softnic(&[&["sim", "--payload", "none", "--count", "40", "--depth", "40", "--json"], more].concat());
        assert!(out.status.success());
        let v: Value = serde_json::from_slice(&out.stdout).expect("JSON alone");
        (v["goodput_gbps"].as_f64().expect("goodput"), String::from_utf8(out.stderr).expect("UTF-8"))
    };
    let (narrow, said) = run(&["--transport", "sr", "--rtt", "10ms"]);
    assert_eq!(
        said,
        "softnic: the default window of sr has at most 4096 packets in flight, and a round trip of this link holds 11140: \
         --transport sr:65536 fills the link\n"
    );
    let (_, said) = run(&["--transport", "sr", "--rtt", "1s"]);
    assert!(said.ends_with("holds 1114081: --transport sr:2097152 comes closest\n"), "{said}");
    let (wide, said) = run(&["--transport", "sr:65536", "--rtt", "10ms"]);
    assert!(said.is_empty() && wide > 1.5 * narrow, "{wide} and {narrow}: {said}");
    for more in [
        &["--transport", "sr", "--rtt", "1ms"][..],
        &["--transport", "sr:1024", "--rtt", "10ms"],
        &["--transport", "sr", "--rtt", "10ms", "--size", "64K"],
        &["--transport", "sr", "--rtt", "10ms", "--qps", "4"],
        &["--transport", "lowar", "--rtt", "10ms"],
    ] {
        assert_eq!(run(more).1, "", "{more:?}");
    }
}

/// A process that ends with the test.
struct Running(Child);

impl Running {
    /// A server of `softnic perf`.
    fn server(folder: &str, port: u16) -> Running {
        let device = format!("dgram:{folder}/a,{folder}/b,ip=10.9.0.1/24");
        let mut command = Command::new(env!("CARGO_BIN_EXE_softnic"));
        command.args(["perf", "--server", "--dev", &device, "--port", &port.to_string()]);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("softnic runs");
        let mut line = String::new();
        BufReader::new(child.stderr.as_mut().expect("piped")).read_line(&mut line).expect("a line");
        assert!(line.contains("waiting for a client"), "{line}");
        Running(child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_client_of_an_older_version_is_served() {
    let folder = std::env::temp_dir().join(format!("softnic-transports-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("made");
    for (fields, transport, window, blocks) in [
        (r#""transport":"sr","window":512,"blocks":null"#, "sr", Some(512), Value::Null),
        (r#""transport":"lowar","window":null,"blocks":[8,2]"#, "lowar", None, json!([8, 2])),
        (r#""transport":"rc""#, "rc", None, Value::Null),
    ] {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port").port();
        let mut server = Running::server(folder.to_str().expect("UTF-8"), port);
        // Of raw frames the server needs no answer from the client's NIC, which is not there.
        let plan = format!(
            r#"{{"op":"raw",{fields},"cc":null,"sizes":[64],"amount":"usual","qps":1,"mtu":null,"depth":128,"timeout":14,"retry":7,
            "tclass":0,"verify":false,"wait_completion":false}}"#
        );
        let hello = format!(
            r#"{{"hello":{{"version":1,"plan":{plan},"address":"10.9.0.2","mac":[2,0,10,9,0,2],"max_mtu":4096,"link_mtu":4330,
            "queue_pairs":[{{"qpn":7433416,"psn":3960563}}],"memory":4096,"rkey":459318302}}}}"#
        );
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
        stream.set_read_timeout(Some(LIMIT)).expect("set");
        writeln!(stream, "{}", hello.replace('\n', "")).expect("sent");
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).expect("an answer");
        let answer: Value = serde_json::from_str(&line).expect("JSON");
        let plan = &answer["hello"]["plan"];
        assert_eq!((plan["transport"].as_str(), plan["window"].as_u64()), (Some(transport), window), "{line}");
        assert_eq!(plan["blocks"], blocks, "{line}");
        writeln!(reader.get_mut(), "\"bye\"").expect("sent");
        assert!(server.0.wait().expect("ended").success());
    }
    std::fs::remove_dir_all(&folder).expect("removed");
}

#[test]
fn a_client_writes_plans_that_older_servers_read() {
    let folder = std::env::temp_dir().join(format!("softnic-transports-client-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("made");
    let device = format!("dgram:{0}/a,{0}/b,ip=10.9.0.2/24", folder.display());
    for (transport, fields) in [
        ("rc", r#""transport":"rc","window":null,"blocks":null,"#),
        ("sr", r#""transport":"sr","window":null,"blocks":null,"#),
        ("sr:512", r#""transport":"sr","window":512,"blocks":null,"#),
        ("lowar", r#""transport":"lowar","window":null,"blocks":[32,1],"#),
        ("uc", r#""transport":"uc","window":null,"blocks":null,"#),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port().to_string();
        let mut command = Command::new(env!("CARGO_BIN_EXE_softnic"));
        command.args(["perf", "write_bw", "--transport", transport, "--dev", &device]);
        command.args(["--connect", "127.0.0.1", "--port", &port]).stdout(Stdio::null()).stderr(Stdio::null());
        let mut client = Running(command.spawn().expect("softnic runs"));
        let (stream, _) = listener.accept().expect("a client");
        stream.set_read_timeout(Some(LIMIT)).expect("set");
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).expect("a plan");
        assert!(line.contains(fields), "{transport}: {line}");
        assert_eq!(client.0.wait().expect("ended").code(), Some(1), "nobody answers");
    }
    std::fs::remove_dir_all(&folder).expect("removed");
}
