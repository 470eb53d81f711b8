//! The status of a running NIC, for other processes: its counters, over an abstract socket that vanishes with the process.
//!
//! A NIC listens at `softnic/PID/N`. Whoever connects, as the same user or as root, gets one line of JSON.

mod queue_pairs;

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::fs::Uid;
use rustix::net::sockopt::socket_peercred;
use softnic_nic::transports::{Counters, Misfits};
use softnic_shift::FailoverCounters;

use crate::background::{Background, Stop};
use crate::engine::Engine;

/// How every name begins.
const PREFIX: &str = "softnic/";
/// How long the other side may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// Queue pairs that are named with the packets that did not fit, at most: those that got most of them.
const MOST_MISFITS: usize = 16;
/// No NIC's answer is longer.
const LONGEST: usize = 512 << 10;
/// NICs of one process that can be asked.
const MAX_NICS: u32 = 1024;

/// A NIC that can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunningNic {
    /// Its process.
    pub pid: u32,
    /// Which of the process's NICs it is.
    pub index: u32,
}

impl RunningNic {
    /// All NICs of the network namespace that this thread is in.
    ///
    /// # Errors
    /// When /proc cannot be read.
    pub fn all() -> io::Result<Vec<RunningNic>> {
        let sockets = std::fs::read_to_string("/proc/thread-self/net/unix")?;
        let mut all: Vec<RunningNic> = sockets.lines().filter_map(RunningNic::listening).collect();
        all.sort_unstable();
        all.dedup();
        Ok(all)
    }

    /// The NIC that a line of /proc/net/unix is about.
    fn listening(line: &str) -> Option<RunningNic> {
        let (pid, index) = line.split_whitespace().nth(7)?.strip_prefix('@')?.strip_prefix(PREFIX)?.split_once('/')?;
        Some(RunningNic { pid: pid.parse().ok()?, index: index.parse().ok()? })
    }

    fn address(self) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(format!("{PREFIX}{}/{}", self.pid, self.index))
    }

    /// Whether a user's process may answer for it when `us` asks.
    fn may_be(self, user: Uid, pid: u32, us: Uid) -> bool {
        pid == self.pid || user == us || user.is_root()
    }

    /// Refuses whoever is not the process at the other end: anybody can take any name that is free.
    pub(crate) fn check_answerer(self, stream: &UnixStream) -> io::Result<()> {
        let (them, us) = (socket_peercred(stream.as_fd())?, own_uid()?);
        match self.may_be(them.uid, them.pid.as_raw_nonzero().get().cast_unsigned(), us) {
            true => Ok(()),
            false => Err(io::Error::new(ErrorKind::PermissionDenied, "another process has taken its name")),
        }
    }

    /// Asks it: an object in a line of JSON, with `pid`, `nic`, `description`, `mac`, `addresses`, `mtu`, `up`, `queue_pairs`,
    /// `counters`, `misfits` and `qps`: docs/watching.md says what is in them.
    ///
    /// # Errors
    /// When it is gone, or another user's.
    pub fn ask(self) -> io::Result<String> {
        let stream = UnixStream::connect_addr(&self.address()?)?;
        self.check_answerer(&stream)?;
        let answer = read_line(&stream)?;
        match answer.is_empty() {
            true => Err(io::Error::new(ErrorKind::PermissionDenied, "it belongs to another user")),
            false => Ok(answer.trim_end().into()),
        }
    }
}

/// All that the other side says until it closes the stream, in the time and of the length that a NIC needs.
pub(crate) fn read_line(mut stream: &UnixStream) -> io::Result<String> {
    let end = Instant::now() + PATIENCE;
    let mut bytes = Vec::new();
    let mut room = [0; 4096];
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut room) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&room[..n]),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        if bytes.len() > LONGEST {
            return Err(io::Error::new(ErrorKind::InvalidData, "its answer never ends"));
        }
    }
    String::from_utf8(bytes).map_err(|_| io::Error::new(ErrorKind::InvalidData, "its answer is not text"))
}

/// Answers from now on, as long as the result lives.
pub(super) fn serve(engines: &[Arc<Engine>], description: &str) -> io::Result<Background> {
    let (engines, description) = (engines.to_vec(), description.to_string());
    serve_line(move |nic| status(nic, &engines, &description))
}

/// Serves a line of JSON that `line` makes anew for each client.
pub(crate) fn serve_line(line: impl Fn(RunningNic) -> String + Send + 'static) -> io::Result<Background> {
    let (listener, nic) = bind()?;
    let fd = listener.as_raw_fd();
    let thread = Background::start("softnic-status", move |stop| {
        // Whoever asked may be gone.
        let serve = |stream: UnixStream| drop(may_ask(&stream).then(|| answer(stream, &line(nic))));
        take_clients(&listener, stop, serve, |pause| stop.wait_on(&[], Some(pause)));
    })?;
    Ok(thread.holding(fd))
}

/// Takes clients until it is told to stop; how many rounds that were.
pub(crate) fn take_clients(
    listener: &UnixListener,
    stop: &Stop,
    mut serve: impl FnMut(UnixStream),
    mut pause: impl FnMut(Duration),
) -> u64 {
    let mut rounds = 0;
    while !stop.is_told() {
        stop.wait(listener, None);
        rounds += 1;
        match listener.accept() {
            Ok((stream, _)) => serve(stream),
            Err(error) => pause_after(&error).into_iter().for_each(&mut pause),
        }
    }
    rounds
}

/// How long nobody is asked to wait after a client that could not be taken: it still waits, so that the listener stays readable.
fn pause_after(error: &io::Error) -> Option<Duration> {
    let gone = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted);
    (!gone).then_some(PATIENCE)
}

/// The first name that is free.
fn bind() -> io::Result<(UnixListener, RunningNic)> {
    let pid = std::process::id();
    for index in 0..MAX_NICS {
        let nic = RunningNic { pid, index };
        match UnixListener::bind_addr(&nic.address()?) {
            Ok(listener) => {
                listener.set_nonblocking(true)?;
                return Ok((listener, nic));
            }
            Err(e) if e.kind() == ErrorKind::AddrInUse => {}
            Err(e) => return Err(e),
        }
    }
    Err(ErrorKind::AddrInUse.into())
}

/// Whether the client is the user of this process, or root.
pub(crate) fn may_ask(stream: &UnixStream) -> bool {
    match (socket_peercred(stream.as_fd()), own_uid()) {
        (Ok(them), Ok(us)) => them.uid == us || them.uid.is_root(),
        _ => false,
    }
}

/// The user of this process.
fn own_uid() -> io::Result<Uid> {
    // The other end of a pair of our own is ourselves.
    let (a, _b) = UnixStream::pair()?;
    Ok(socket_peercred(a.as_fd())?.uid)
}

fn answer(mut stream: UnixStream, line: &str) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(line.as_bytes())
}

fn status(nic: RunningNic, engines: &[Arc<Engine>], description: &str) -> String {
    let (mut counters, mut lost, mut joined, mut queue_pairs, mut up) = (Counters::default(), 0, 0, 0, true);
    let (mut port, mut failover) = (None, None);
    let mut misfits = Vec::new();
    let mut pairs = Vec::new();
    for engine in engines {
        let mut core = engine.control();
        counters.add(core.nic().counters());
        misfits.extend(core.nic().misfits());
        queue_pairs::look(core.nic(), &mut pairs);
        lost += core.driver.ios().map(|io| io.lost()).sum::<u64>();
        joined += core.driver.ios().map(|io| io.joined()).sum::<u64>();
        queue_pairs += core.queue_pairs();
        up &= core.nic().is_up();
        if let Some(counters) = core.dual().failover_counters() {
            failover.get_or_insert_with(FailoverCounters::default).add(counters);
        }
        port.get_or_insert_with(|| core.nic().port().clone());
    }
    let mut line = beginning(nic, description);
    // Writing to a string does not fail.
    if let Some(port) = port {
        let addresses: Vec<String> = port.addresses.iter().map(|a| format!("\"{a}\"")).collect();
        let (mac, addresses, mtu) = (port.mac, addresses.join(","), port.mtu.bytes());
        let _ = write!(line, ",\"mac\":\"{mac}\",\"addresses\":[{addresses}],\"mtu\":{mtu}");
    }
    let _ = write!(line, ",\"up\":{up},\"queue_pairs\":{queue_pairs},\"counters\":{{");
    let of_failover = failover.iter().flat_map(FailoverCounters::iter);
    for (name, value) in counters.iter().chain(of_failover) {
        let _ = write!(line, "\"{name}\":{value},");
    }
    if joined > 0 {
        // Few devices have such frames.
        let _ = write!(line, "\"joined_frames\":{joined},");
    }
    let _ = write!(line, "\"lost_frames\":{lost}}},\"misfits\":[");
    misfits.sort_unstable_by_key(|(_, misfits)| Reverse((misfits.tag, misfits.rkey, misfits.psn)));
    for (n, (qpn, Misfits { psn, rkey, tag })) in misfits.iter().take(MOST_MISFITS).enumerate() {
        let comma = if n > 0 { "," } else { "" };
        let _ = write!(line, "{comma}{{\"qpn\":{},\"psn\":{psn},\"rkey\":{rkey},\"tag\":{tag}}}", qpn.value());
    }
    line.push_str("],\"qps\":");
    queue_pairs::write(&mut line, &mut pairs);
    line.push_str("}\n");
    line
}

fn beginning(nic: RunningNic, description: &str) -> String {
    format!("{{\"pid\":{},\"nic\":{},\"description\":{}", nic.pid, nic.index, quoted(description))
}

/// The line of something that has counters, and texts of its own.
pub(crate) fn line(
    nic: RunningNic,
    description: &str,
    own: &[(&str, &str)],
    counters: impl Iterator<Item = (impl std::fmt::Display, u64)>,
) -> String {
    let own: String = own.iter().map(|(name, text)| format!(",\"{name}\":{}", quoted(text))).collect();
    let counters: Vec<String> = counters.map(|(name, value)| format!("\"{name}\":{value}")).collect();
    format!("{}{own},\"counters\":{{{}}}}}\n", beginning(nic, description), counters.join(","))
}

/// A string of JSON.
fn quoted(s: &str) -> String {
    let mut out = String::from('"');
    for c in s.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    use super::*;

    #[test]
    fn names_are_found_among_others() {
        let line = |name: &str| format!("0000000000000000: 00000002 00000000 00010000 0001 01 31415 {name}");
        let nic = RunningNic { pid: 17, index: 2 };
        assert_eq!(RunningNic::listening(&line("@softnic/17/2")), Some(nic));
        for other in ["", "/run/softnic/17/2", "@softnic/17", "@softnic/x/2", "@other/17/2"] {
            assert_eq!(RunningNic::listening(&line(other)), None, "{other}");
        }
    }

    #[test]
    fn what_json_cannot_have_is_escaped() {
        assert_eq!(quoted("a \"b\" \\ \n"), "\"a \\\"b\\\" \\\\ \\u000a\"");
    }

    #[test]
    fn an_answer_that_never_ends_is_given_up() {
        let (us, mut them) = UnixStream::pair().unwrap();
        let writes = std::thread::spawn(move || while them.write_all(&[b'x'; 4096]).is_ok() {});
        assert_eq!(read_line(&us).unwrap_err().kind(), ErrorKind::InvalidData);
        drop(us);
        writes.join().unwrap();
        let (us, mut them) = UnixStream::pair().unwrap();
        them.write_all(b"{}\n").unwrap();
        drop(them);
        assert_eq!(read_line(&us).unwrap(), "{}\n");
    }

    #[test]
    fn a_name_that_another_process_has_taken_is_found_out() {
        let [root, us, another] = [0, 1000, 1001].map(Uid::from_raw);
        let nic = RunningNic { pid: 17, index: 0 };
        assert!(nic.may_be(us, 99, us), "in a namespace of processes of its own");
        assert!(nic.may_be(root, 99, us));
        assert!(nic.may_be(another, 17, root), "root asks for another user's");
        assert!(!nic.may_be(another, 18, root) && !nic.may_be(another, 18, us));
    }

    #[test]
    fn a_listener_without_descriptors_pauses() {
        for code in [libc::EMFILE, libc::ENFILE, libc::ENOMEM] {
            assert!(pause_after(&io::Error::from_raw_os_error(code)).is_some());
        }
        assert_eq!(pause_after(&ErrorKind::WouldBlock.into()), None);
    }

    #[test]
    fn a_listener_without_descriptors_pauses_after_each_client_that_it_cannot_take() {
        const CHILD: &str = "SOFTNIC_TEST_WITHOUT_DESCRIPTORS";
        const PAUSES: u64 = 3;
        if std::env::var_os(CHILD).is_none() {
            // The limit is that of a process: of one that runs nothing but this.
            let name =
                "api::status::tests::a_listener_without_descriptors_pauses_after_each_client_that_it_cannot_take";
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            let status = child.args([name, "--exact", "--nocapture"]).env(CHILD, "1").status().unwrap();
            assert!(status.success());
            return;
        }
        let (listener, nic) = bind().unwrap();
        let _client = UnixStream::connect_addr(&nic.address().unwrap()).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let (served, serves) = std::sync::mpsc::channel();
        let before = getrlimit(Resource::Nofile);
        let mut paused = 0;
        // Descriptors that are open stay so, and no new one has a number below this.
        let none_left = Rlimit { current: Some(3), ..before };
        let thread = Background::start("test", move |stop| {
            let pause = |_: Duration| {
                paused += 1;
                if paused == PAUSES {
                    setrlimit(Resource::Nofile, before).unwrap();
                }
            };
            setrlimit(Resource::Nofile, none_left).unwrap();
            let rounds = take_clients(&listener, stop, |_| served.send(()).unwrap(), pause);
            tell.send((rounds, paused)).unwrap();
        })
        .unwrap();
        serves.recv_timeout(Duration::from_secs(30)).expect("it is served as soon as there are descriptors");
        drop(thread);
        let (rounds, paused) = told.recv().unwrap();
        // It was told to stop before its next round, or in it.
        assert!(paused == PAUSES && (PAUSES + 1..=PAUSES + 2).contains(&rounds), "{rounds} rounds, {paused} pauses");
    }
}
