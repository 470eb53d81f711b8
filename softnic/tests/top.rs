//! `softnic top` on a terminal and elsewhere: keys through a pseudo-terminal, against a NIC and a wire that this process stands in for.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Once};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Termios, Winsize, tcgetattr, tcsetwinsize};
use serde_json::Value;

/// Long enough for the slowest machine; no test that passes waits for it.
const LIMIT: Duration = Duration::from_secs(60);
const SOFTNIC: &str = env!("CARGO_BIN_EXE_softnic");

fn listen(name: &str) -> UnixListener {
    UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).expect("the name is free")
}

/// A NIC that sends 1000 packets for each look, and a wire that takes faults and has dropped three frames: both of this process.
fn stand_in() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let pid = std::process::id();
        let faults = Arc::new(Mutex::new("loss=1e-3".to_string()));
        let nic = listen(&format!("softnic/{pid}/0"));
        std::thread::spawn(move || {
            for (looks, stream) in nic.incoming().enumerate() {
                let line = format!(
                    "{{\"pid\":{pid},\"nic\":0,\"description\":\"stand-in\",\"up\":true,\"queue_pairs\":1,\"counters\":{{\"sent_bytes\":{}}},\
                     \"qps\":[{{\"qpn\":17,\"transport\":\"sr\",\"state\":\"RTS\",\"posted\":9,\"completed\":1,\"requested\":{},\"answered\":0,\
                     \"in_flight\":3,\"retries\":0,\"rnr_retries\":0}}]}}\n",
                    looks * 1_000_000,
                    looks * 1000
                );
                let _ = stream.unwrap().write_all(line.as_bytes());
            }
        });
        let (wire, now) = (listen(&format!("softnic/{pid}/1")), Arc::clone(&faults));
        std::thread::spawn(move || {
            for stream in wire.incoming() {
                let line = format!(
                    "{{\"pid\":{pid},\"nic\":1,\"description\":\"wire\",\"a\":\"va\",\"b\":\"vb\",\"fault\":\"{}\",\"counters\":{{\"ab_rx_missed\":3}}}}\n",
                    now.lock().unwrap()
                );
                let _ = stream.unwrap().write_all(line.as_bytes());
            }
        });
        let control = listen(&format!("softnic-wire/{pid}/0"));
        std::thread::spawn(move || {
            for stream in control.incoming() {
                let mut stream = stream.unwrap();
                let mut spec = String::new();
                stream.read_to_string(&mut spec).unwrap();
                *faults.lock().unwrap() = spec;
                stream.write_all(b"ok\n").unwrap();
            }
        });
    });
}

/// A program on a terminal.
struct OnTerminal {
    child: Child,
    terminal: File,
    /// The program's end, held open: what it said last can be read when it has ended.
    end: OwnedFd,
    said: Arc<Mutex<String>>,
    /// How much of it was waited for.
    seen: usize,
}

impl OnTerminal {
    fn start(arguments: &[&str], columns: u16, rows: u16) -> OnTerminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let end = rustix::fs::open(&*name, OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC, Mode::empty()).unwrap();
        tcsetwinsize(&master, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let stdio = || Stdio::from(end.try_clone().unwrap());
        let mut command = Command::new(SOFTNIC);
        command.args(arguments).env("TERM", "xterm").env_remove("NO_COLOR");
        let child = command.stdin(stdio()).stdout(stdio()).stderr(stdio()).spawn().unwrap();
        let (mut reads, said) = (File::from(master.try_clone().unwrap()), Arc::new(Mutex::new(String::new())));
        let saying = Arc::clone(&said);
        std::thread::spawn(move || {
            let mut room = [0; 4096];
            while let Ok(n @ 1..) = reads.read(&mut room) {
                saying.lock().unwrap().push_str(&String::from_utf8_lossy(&room[..n]));
            }
        });
        OnTerminal { child, terminal: File::from(master), end, said, seen: 0 }
    }

    /// Waits until the program draws some words that were not there before.
    fn wait_for(&mut self, words: &str) {
        let begin = Instant::now();
        loop {
            let said = self.said.lock().unwrap().clone();
            if let Some(at) = said[self.seen..].find(words) {
                self.seen += at + words.len();
                return;
            }
            assert!(begin.elapsed() < LIMIT, "no {words:?} in {:?}", &said[self.seen..]);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn press(&mut self, keys: &str) {
        self.terminal.write_all(keys.as_bytes()).unwrap();
    }

    fn modes(&self) -> LocalModes {
        let modes: Termios = tcgetattr(self.end.as_fd()).unwrap();
        modes.local_modes
    }

    /// Waits for its end, after which the terminal must be as it was.
    fn end(mut self, code: i32) {
        let begin = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(begin.elapsed() < LIMIT, "it runs on"),
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        assert_eq!(status.code(), Some(code));
        self.wait_for("\x1b[?25h\x1b[?1049l");
        assert!(self.modes().contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG));
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn top(columns: u16, rows: u16) -> OnTerminal {
    stand_in();
    let pid = std::process::id().to_string();
    let mut top = OnTerminal::start(&["top", &pid, "--interval", "100ms"], columns, rows);
    top.wait_for("\x1b[?25l\x1b[Hso");
    top
}

#[test]
fn keys_open_a_queue_pair_sort_and_quit() {
    let mut top = top(80, 24);
    assert!(!top.modes().contains(LocalModes::ICANON));
    top.wait_for("0x11 sr");
    top.wait_for("INVALID: the wire itself dropped 3 frames");
    top.press("s");
    top.wait_for("sorted by number");
    top.press("\r");
    top.wait_for("Enter one queue pair");
    top.press("\r");
    top.wait_for("queue pair 0x11 of");
    top.wait_for("8 outstanding");
    top.press("\x1b[D");
    top.wait_for("Enter one queue pair");
    top.press("q");
    top.end(0);
}

#[test]
fn faults_of_a_wire_are_changed_and_wrong_ones_are_told() {
    let mut top = top(80, 24);
    top.press("f");
    top.wait_for("select a wire with the arrows");
    top.press("\x1b[B");
    top.press("f");
    top.wait_for("faults (Enter sets, Esc leaves): ");
    top.press("\x15loss=2\r");
    top.wait_for("loss=2");
    top.wait_for("\x1b[1;31m");
    top.press("\x15ab.loss=0.25\r");
    top.wait_for("faults now: ab.loss=0.25");
    top.press("q");
    top.end(0);
}

#[test]
fn ctrl_c_a_signal_and_a_resized_terminal_leave_the_terminal_as_it_was() {
    let mut by_key = top(80, 24);
    tcsetwinsize(&by_key.terminal, Winsize { ws_row: 6, ws_col: 30, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    by_key.wait_for("softnic top: 1 NIC, 1 wire; r…");
    by_key.press("\x03");
    by_key.end(130);
    let by_signal = top(3, 2);
    let pid = rustix::process::Pid::from_child(&by_signal.child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    by_signal.end(130);
}

#[test]
fn without_a_terminal_there_is_one_table_or_json() {
    stand_in();
    let pid = std::process::id().to_string();
    let of = |more: &[&str]| {
        let out = Command::new(SOFTNIC).args(["top", &pid, "--interval", "50ms"]).args(more).output().unwrap();
        assert!(out.status.success() && out.stderr.is_empty(), "{out:?}");
        String::from_utf8(out.stdout).unwrap()
    };
    for more in [&[][..], &["--once"]] {
        let table = of(more);
        assert!(table.contains("stand-in") && table.contains("0x11 sr") && !table.contains('\x1b'), "{table}");
        assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    }
    let json: Value = serde_json::from_str(&of(&["--json"])).unwrap();
    assert!(json["nics"][0]["out_bps"].as_f64().unwrap() > 0.0, "{json}");
    assert!(json["nics"][0]["qps"][0]["out_pps"].as_f64().unwrap() > 0.0, "{json}");
    assert_eq!(
        (json["wires"][0]["valid"].as_bool(), json["wires"][0]["ab"]["dropped"].as_u64()),
        (Some(false), Some(3))
    );
}

#[test]
fn counters_that_are_watched_are_drawn_in_place_and_fit_the_terminal() {
    stand_in();
    let pid = std::process::id().to_string();
    let mut watching = OnTerminal::start(&["counters", &pid, "--watch", "0.05"], 34, 24);
    watching.wait_for("process ");
    watching.wait_for("\x1b[1;31m  INVALID: the wire itself droppe…\x1b[0m");
    // Back over all lines, and the first one again.
    watching.wait_for("A");
    watching.wait_for("process ");
    let said = watching.said.lock().unwrap().clone();
    let (up, _) = said.split_once("\x1b[J\x1b[").unwrap().1.split_once('A').unwrap();
    assert_eq!(up.parse::<usize>().unwrap(), said.split("\x1b[J").next().unwrap().matches('\n').count(), "{said:?}");
}

/// The NICs of a measurement say what each of their queue pairs does.
#[test]
fn queue_pairs_of_a_measurement_have_rates() {
    let mut perf = Command::new(SOFTNIC);
    perf.args(["perf", "write_bw", "--size", "4K", "--duration", "60", "--interval", "0"]);
    let mut perf = perf.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begin = Instant::now();
    let shown = loop {
        let mut command = Command::new(SOFTNIC);
        let out = command.args(["top", &perf.id().to_string(), "--interval", "100ms", "--json"]).output().unwrap();
        let json: Value = serde_json::from_slice(&out.stdout).unwrap();
        let rates = |name: &str| {
            let qps = json["nics"].as_array().unwrap().iter().flat_map(|nic| nic["qps"].as_array().unwrap());
            qps.filter_map(|qp| qp[name].as_f64()).filter(|rate| *rate > 100.0).count()
        };
        if rates("out_pps") == 1 && rates("in_pps") == 1 && rates("completed_per_s") == 1 {
            break true;
        }
        if begin.elapsed() > LIMIT {
            break false;
        }
    };
    perf.kill().unwrap();
    perf.wait().unwrap();
    assert!(shown);
}
