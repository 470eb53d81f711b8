//! Runs as processes that meet, are counted from outside and are ended: two ends, and one that is interrupted.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::meeting::{LIMIT, Meeting, Running};
use crate::{check_fields, lines, scratch, softnic};

/// Two processes with datagram sockets between them.
pub(crate) struct Pair {
    pub(crate) meeting: Meeting,
    files: [PathBuf; 2],
}

impl Drop for Pair {
    fn drop(&mut self) {
        for file in &self.files {
            // A process that ended well took it along.
            let _ = std::fs::remove_file(file);
        }
    }
}

impl Pair {
    pub(crate) fn new(name: &str) -> Pair {
        let files = [scratch(&format!("{name}-a")), scratch(&format!("{name}-b"))];
        let device = |i: usize| {
            let (ours, theirs) = (files[i].display(), files[1 - i].display());
            format!("dgram:{ours},{theirs},ip=10.9.0.{}/24", i + 1)
        };
        Pair { meeting: Meeting::new([device(0), device(1)]), files: files.clone() }
    }

    /// The server, once it listens.
    pub(crate) fn server(&self, more: &[&str]) -> Running {
        self.meeting.server(softnic(&[]), more)
    }

    pub(crate) fn client(&self, args: &[&str]) -> Command {
        self.client_of("127.0.0.1", args)
    }

    /// The same, with a server that is reached there.
    fn client_of(&self, host: &str, args: &[&str]) -> Command {
        self.meeting.client(softnic(&[]), host, args)
    }
}

#[test]
fn two_processes_meet_by_the_tcp_of_their_nics() {
    let pair = Pair::new("own");
    for (op, transport) in [("write_bw", "rc"), ("send_lat", "ud"), ("send_bw", "sr"), ("read_bw", "rc")] {
        let server = pair.server(&[]);
        let args = [op, "--transport", transport, "--size", "1000", "--iters", "100", "--verify"];
        let out = pair.client_of("10.9.0.1", &args).output().expect("softnic runs");
        check_fields(&lines(&out)[0], transport, op, 1000, 100);
        assert_eq!(server.end(), (Some(0), String::new()));
    }
    let out = pair.client_of("10.9.0.1", &["write_bw", "--iters", "10"]).output().expect("softnic runs");
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && text.contains("10.9.0.1"), "nobody is there: {text}");
}

#[test]
fn two_processes() {
    let pair = Pair::new("two");
    for (op, transport) in
        [("write_bw", "rc"), ("send_lat", "ud"), ("write_lat", "uc"), ("read_bw", "rc"), ("raw_lat", "rc")]
    {
        let server = pair.server(&[]);
        let raw = op.starts_with("raw");
        let verify: &[&str] = if raw { &[] } else { &["--verify"] };
        let args = ["--transport", transport, "--size", "1000", "--iters", "100"];
        let out = pair.client(&[&[op][..], &args, verify].concat()).output().expect("softnic runs");
        check_fields(&lines(&out)[0], if raw { "raw" } else { transport }, op, 1000, 100);
        assert_eq!(server.end(), (Some(0), String::new()));
    }
}

#[test]
fn a_server_has_intervals_of_its_own() {
    let pair = Pair::new("intervals");
    let verbs = ["write_bw", "send_bw", "read_bw"];
    for op in verbs {
        let server = pair.server(&["--interval", "50ms", "--json"]);
        let out = pair.client(&[op, "--size", "1000", "--iters", "400"]).output().expect("softnic runs");
        check_fields(&lines(&out)[0], "rc", op, 1000, 400);
        let (code, text) = server.end();
        let v: Value = serde_json::from_str(&text).expect("an object");
        let messages = v["intervals"].as_array().expect("an array").iter().map(|i| i["messages"].as_u64().unwrap());
        // With those of the warm-up.
        assert_eq!((v["op"].as_str(), messages.sum::<u64>()), (Some(op), 440), "{text}");
        assert_eq!(code, Some(0));
    }
}

#[test]
fn ends_that_do_not_agree_say_so_both() {
    let pair = Pair::new("disagree");
    let server = pair.server(&["read_bw", "--qps", "2"]);
    let out = pair.client(&["write_bw"]).output().expect("softnic runs");
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(1));
    assert!(text.contains("do not agree") && text.contains("read_bw") && text.contains("write_bw"), "{text}");
    let (code, text) = server.end();
    assert!(code == Some(1) && text.contains("do not agree"), "{text}");
}

#[test]
fn a_client_that_a_server_has_no_memory_for_is_told_so_and_the_next_one_is_served() {
    let mut pair = Pair::new("memory");
    // What a client says first, with a plan that needs 6 GiB.
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("its number").port().to_string();
    let free = std::mem::replace(&mut pair.meeting.port, port);
    let asking = Running::start(&mut pair.client(&["write_bw"]));
    let mut hello = String::new();
    let (stream, _) = listener.accept().expect("a client");
    BufReader::new(stream).read_line(&mut hello).expect("a line");
    drop((listener, asking));
    pair.meeting.port = free;
    let mut hello: Value = serde_json::from_str(&hello).expect("a line of JSON");
    let plan = &mut hello["hello"]["plan"];
    (plan["sizes"], plan["qps"]) = (vec![1 << 30].into(), 3.into());
    // A server that has 4 GiB of addresses.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -v 4194304 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_softnic")]);
    let server = pair.meeting.server(limited, &[]);
    let mut stream = TcpStream::connect(format!("127.0.0.1:{}", pair.meeting.port)).expect("a server");
    stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
    writeln!(stream, "{hello}").expect("it listens");
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).expect("a line");
    assert!(answer.contains("there is no memory for this run: it needs 614"), "{answer}");
    let out = pair.client(&["write_bw", "--size", "1000", "--iters", "100"]).output().expect("softnic runs");
    check_fields(&lines(&out)[0], "rc", "write_bw", 1000, 100);
    let (code, text) = server.end();
    assert!(code == Some(0) && text.contains("a client is refused"), "{text}");
}

#[test]
fn nobody_at_the_other_end_is_an_error() {
    let pair = Pair::new("nobody");
    let out = pair.client(&["write_bw"]).output().expect("softnic runs");
    let text = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!((out.status.code(), text.lines().count()), (Some(1), 1));
    assert!(text.contains("--server"), "{text}");
}

/// Asks a process for counters until there are some.
fn counters_of(running: &mut Running, done: impl Fn(&Value) -> bool) -> Value {
    let start = Instant::now();
    loop {
        let out = softnic(&["counters", &running.id().to_string(), "--json"]).output().expect("softnic runs");
        let text = String::from_utf8(out.stdout).expect("UTF-8");
        if let Some(v) = text.lines().next().map(|line| serde_json::from_str(line).expect("JSON"))
            && done(&v)
        {
            return v;
        }
        assert!(!running.has_ended() && start.elapsed() < LIMIT, "no counters: {text}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn counters_of_a_running_nic_and_a_peer_that_is_killed() {
    let pair = Pair::new("killed");
    let mut server = pair.server(&[]);
    let client = Running::start(&mut pair.client(&["write_bw", "--size", "1K", "--duration", "50"]));
    let v = counters_of(&mut server, |v| v["counters"]["rx_write_requests"].as_u64() > Some(100));
    assert_eq!((v["pid"].as_u64(), v["nic"].as_u64()), (Some(server.id().into()), Some(0)));
    assert_eq!((v["addresses"][0].as_str(), v["queue_pairs"].as_u64()), (Some("10.9.0.1"), Some(1)));
    server.kill();
    let (code, text) = client.end();
    assert_eq!((code, text.lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains("the peer is gone") || text.contains("work request"), "{text}");
}

#[test]
fn a_server_whose_client_is_killed_ends() {
    let pair = Pair::new("orphan");
    let server = pair.server(&[]);
    let mut client = Running::start(&mut pair.client(&["write_lat", "--duration", "50"]));
    counters_of(&mut client, |v| v["counters"]["rx_write_requests"].as_u64() > Some(10));
    client.kill();
    let (code, text) = server.end();
    assert!(code == Some(1) && text.contains("the peer is gone"), "{text}");
}

#[test]
fn ctrl_c_prints_what_was_measured() {
    let mut command = softnic(&["perf", "write_bw", "--size", "64", "--duration", "50", "--json"]);
    let mut run = Running::start(command.stdin(Stdio::null()));
    counters_of(&mut run, |v| v["counters"]["sent_requests"].as_u64() > Some(1000));
    let interrupted = Command::new("kill").args(["-INT", &run.id().to_string()]).status().expect("kill");
    assert!(interrupted.success());
    let (code, text) = run.end();
    assert_eq!(code, Some(130));
    let v: Value = serde_json::from_str(text.trim()).expect("one object");
    assert!(v["iterations"].as_u64() > Some(100), "{v}");
}
