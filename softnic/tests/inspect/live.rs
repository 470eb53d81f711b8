//! Following a capture while it is taken: each packet is shown when it comes, and Ctrl-C still gets a summary.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use super::program::{ethernet, frames, inspect};

/// Far longer than any line takes, so that a slow machine does not fail.
const PATIENCE: Duration = Duration::from_secs(60);

/// More lines than a program that was told to end has left to print.
const ENDLESS: usize = 100_000;

struct Follower {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Follower {
    fn start(arguments: &[&str]) -> Follower {
        let mut c = inspect();
        let mut child = c.args(arguments).arg("-").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        // One line is taken at a time: a test that does not ask for more is a reader that has stopped.
        let (tx, lines) = mpsc::sync_channel(1);
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|l| tx.send(l)));
        let stdin = child.stdin.take();
        Follower { child, stdin, lines }
    }

    fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(bytes).unwrap();
        stdin.flush().unwrap();
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line in time")
    }

    fn signal(&self, name: &str) {
        // A shell's own `kill`: the program of that name is not everywhere.
        let sent = Command::new("sh").arg("-c").arg(format!("kill -{name} {}", self.child.id())).status().unwrap();
        assert!(sent.success());
    }

    /// What is printed until the program ends, which it must do by itself.
    fn rest(mut self) -> (Vec<String>, Option<i32>) {
        let rest: Vec<_> = self.lines.iter().take(ENDLESS).collect();
        if rest.len() == ENDLESS {
            self.child.kill().unwrap();
            panic!("it goes on and on");
        }
        let begin = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return (rest, status.code());
            }
            assert!(begin.elapsed() < PATIENCE, "it does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// The file header and each record of a capture.
fn pieces() -> (Vec<u8>, Vec<Vec<u8>>) {
    let header = 24;
    let records = frames("rc_atomic.pcap").iter().map(|f| ethernet(&[f])[header..].to_vec()).collect();
    let none: [&[u8]; 0] = [];
    (ethernet(&none), records)
}

#[test]
fn each_packet_is_shown_before_the_next_one_is_there() {
    for arguments in [&[][..], &["--json"]] {
        let (header, records) = pieces();
        let mut f = Follower::start(arguments);
        f.write(&header);
        for record in &records[..3] {
            // In two parts, as a pipe may deliver it.
            f.write(&record[..20]);
            f.write(&record[20..]);
            let line = f.line();
            assert!(line.contains("RC_"), "{line}");
        }
        f.stdin = None;
        let (rest, code) = f.rest();
        assert_eq!(code, Some(0));
        assert!(rest.iter().any(|l| l.starts_with("3 RoCE packets") || l.contains(r#""packets":3"#)), "{rest:?}");
    }
}

#[test]
fn what_cannot_be_decoded_is_shown_at_once_as_well() {
    let mut fragment = frames("rc_atomic.pcap").swap_remove(0);
    fragment[20] = 0x20;
    let mut f = Follower::start(&[]);
    f.write(&ethernet(&[fragment]));
    assert!(f.line().ends_with("not decoded: an IP fragment, which RoCE does not allow"));
}

#[test]
fn an_interrupt_gets_its_summary() {
    for name in ["INT", "TERM"] {
        let (header, records) = pieces();
        let mut f = Follower::start(&[]);
        f.write(&header);
        f.write(&records[0]);
        f.line(); // by now the handler is in place
        f.signal(name);
        let (rest, code) = f.rest();
        assert_eq!(code, Some(0), "{name}");
        assert_eq!(rest[1], "1 RoCE packets in 1 frames (0 of other protocols, 0 fragments, 0 not decoded)", "{name}");
    }
}

#[test]
fn an_interrupt_is_not_lost_when_more_comes_in_than_goes_out() {
    let (header, records) = pieces();
    let mut f = Follower::start(&["--json"]);
    f.write(&header);
    let mut stdin = f.stdin.take().unwrap();
    // Never stops by itself: it ends when the program does.
    let flood = std::thread::spawn(move || while stdin.write_all(&records[0]).is_ok() {});
    f.line();
    // Nobody reads now, so every buffer on the way fills up, and the interrupt comes while they are full.
    std::thread::sleep(Duration::from_millis(300));
    f.signal("INT");
    std::thread::sleep(Duration::from_millis(100));
    let (rest, code) = f.rest();
    flood.join().unwrap();
    assert_eq!(code, Some(0));
    assert!(rest.last().unwrap().starts_with(r#"{"summary":"#));
}
