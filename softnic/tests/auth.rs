//! `softnic perf --auth` as people and scripts use it: on a wire in memory, between namespaces, and with key files that are none.

#[path = "common/namespaces.rs"]
mod namespaces;

use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use namespaces::Namespaces;
use serde_json::Value;

const SOFTNIC: &str = env!("CARGO_BIN_EXE_softnic");

/// A file of this test, gone with it.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Scratch {
    /// A key file with these bytes and rights.
    fn key(name: &str, bytes: &[u8], mode: u32) -> Scratch {
        let path = std::env::temp_dir().join(format!("softnic-auth-{}-{name}", std::process::id()));
        fs::write(&path, bytes).expect("a file");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a file of ours");
        Scratch(path)
    }

    fn name(&self) -> &str {
        self.0.to_str().expect("UTF-8")
    }
}

fn perf(args: &[&str]) -> Output {
    Command::new(SOFTNIC).arg("perf").args(args).output().expect("softnic runs")
}

fn json(out: &Output) -> Value {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("one object")
}

fn counter(v: &Value, name: &str) -> u64 {
    v["counters"][name].as_u64().unwrap_or(0)
}

#[test]
fn authenticated_runs_on_mem_have_the_right_data_over_every_transport() {
    let key = Scratch::key("own", &[7; 32], 0o600);
    for transport in ["rc", "sr", "lowar:8,2"] {
        for op in ["write_bw", "read_bw", "send_bw", "send_lat", "atomic_bw"] {
            let args = [op, "--transport", transport, "--iters", "100", "--verify", "--auth", key.name(), "--json"];
            let v = json(&perf(&args));
            assert_eq!((v["auth"].as_bool(), v["iterations"].as_u64()), (Some(true), Some(100)), "{v}");
            assert_eq!((counter(&v, "rx_auth_failed"), counter(&v, "rx_auth_replayed")), (0, 0), "{v}");
        }
    }
    let faulty = ["write_bw", "--iters", "300", "--verify", "--fault", "loss=0.01,dup=0.05", "--json", "--auth"];
    let v = json(&perf(&[&faulty[..], &[key.name()]].concat()));
    assert!(counter(&v, "rx_auth_replayed") > 0, "{v}");
    let out = perf(&["write_bw", "--iters", "20", "--auth", key.name()]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.lines().next().is_some_and(|line| line.contains("; rc, authenticated, mtu")), "{text}");
}

#[test]
fn a_key_file_that_is_none_gets_one_line() {
    let own = Scratch::key("right", &[7; 32], 0o600);
    let (open, short) = (Scratch::key("open", &[7; 32], 0o644), Scratch::key("short", b"short", 0o600));
    for (args, word) in [
        (&["write_bw", "--auth", "no-such-file"][..], "cannot read the key file no-such-file"),
        (&["write_bw", "--auth", open.name()], "others may use the key file"),
        (&["write_bw", "--auth", short.name()], "at least 16 bytes"),
        (&["write_bw", "--auth", own.name(), "--transport", "uc"], "only rc, sr and lowar have authentication"),
        (&["send_bw", "--auth", own.name(), "--transport", "ud"], "only rc, sr and lowar have authentication"),
        (&["raw", "--auth", own.name()], "only rc, sr and lowar have authentication"),
    ] {
        let out = perf(args);
        let text = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(out.stdout.is_empty(), "{args:?}");
        assert_eq!((out.status.code(), text.lines().count()), (Some(1), 1), "{args:?}: {text}");
        assert!(text.contains(word), "{args:?}: {text}");
    }
}

/// Two namespaces and a veth pair between them.
struct Ends(Namespaces);

impl Ends {
    fn new() -> Option<Ends> {
        let commands = [
            "link add name e netns @a type veth peer name e netns @b",
            "-n @a address add 10.79.0.1/24 dev e",
            "-n @b address add 10.79.0.2/24 dev e",
            "-n @a link set e up",
            "-n @b link set e up",
        ];
        Namespaces::new(&["a", "b"], &commands).map(Ends)
    }

    /// `softnic perf` in one of them.
    fn perf(&self, side: &str, args: &[&str]) -> Command {
        let mut command = self.0.inside(side, SOFTNIC);
        command.args(["perf", "--dev", "afxdp:e"]).args(args);
        command
    }

    /// A server with one key file and a client with another: what the client said.
    fn between(&self, keys: [&Scratch; 2], transport: &str) -> Output {
        let mut server = self.perf("b", &["--server", "--auth", keys[1].name()]);
        let mut server = server.stderr(Stdio::piped()).spawn().expect("softnic runs");
        let mut line = String::new();
        BufReader::new(server.stderr.take().expect("piped")).read_line(&mut line).expect("a line");
        assert!(line.contains("waiting for a client"), "{line}");
        let args = ["write_bw", "--connect", "10.79.0.2", "--iters", "200", "--verify", "--json", "--transport"];
        let out = self.perf("a", &[&args[..], &[transport, "--auth", keys[0].name()]].concat()).output();
        // It ends with its client.
        let _ = server.wait().expect("a child");
        out.expect("softnic runs")
    }
}

#[test]
fn authenticated_runs_between_namespaces_need_the_same_key_at_both_ends() {
    let Some(spaces) = Ends::new() else { return };
    let (key, other) = (Scratch::key("this", &[7; 32], 0o600), Scratch::key("other", &[8; 32], 0o600));
    for transport in ["rc", "sr", "lowar"] {
        let v = json(&spaces.between([&key, &key], transport));
        assert_eq!((v["iterations"].as_u64(), counter(&v, "rx_auth_failed")), (Some(200), 0), "{v}");
    }
    let out = spaces.between([&key, &other], "rc");
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(1) && text.contains("it has no key, or another one"), "{text}");
}
