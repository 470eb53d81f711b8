//! Many processes behind one port, on a network in memory and on an interface that a daemon shares: each connects to all others, some are killed at any
//! moment, and nothing is left behind.
//!
//! `SOFTNIC_CROWD=100 cargo test --release -p softnic-runtime --test crowd` has a hundred of them; a run of all tests has few.
#![allow(clippy::print_stdout)] // members tell their parent by it

use std::collections::HashSet;
use std::io::{BufRead, BufReader, Write};
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::{Data, RecvWr, SendFlags, SendOp, SendWr, Status};
use softnic_runtime::api::{
    CmConnection, CmListener, CompletionQueue, ConnectionManager, Context, MemoryRegion, OpenOptions, Progress,
    QpOptions, QueuePair,
};
use softnic_runtime::share::{Limits, Share, ShareOptions, served};

#[path = "common/veth.rs"]
mod veth;

use veth::Veth;

/// Long enough for the slowest machine; no test that passes waits for it.
const LIMIT: Duration = Duration::from_secs(120);
const FIRST_PORT: u16 = 20_000;
const LEN: usize = 1024;

/// What a member is told: the device, and its number.
const MEMBER: &str = "SOFTNIC_CROWD_MEMBER";

/// A member of the crowd, in a process of its own.
#[test]
#[ignore = "the other test runs it"]
fn member() {
    let Ok(told) = std::env::var(MEMBER) else { return };
    let mut words = told.split(' ');
    let mut word = || words.next().expect("two words");
    let (device, me) = (word().parse().unwrap(), word().parse().unwrap());
    // As many as there are on the machine's few cores sleep rather than spin.
    let options = OpenOptions { progress: Some(Progress::Inline), ..OpenOptions::default() };
    let nic = Context::open(&device, &options).unwrap();
    let manager = ConnectionManager::new(&nic).unwrap();
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let (nic, manager): (&'static Context, &'static ConnectionManager) =
        (Box::leak(Box::new(nic)), Box::leak(Box::new(manager)));
    let listener = CmListener::bind(manager, (here(nic), FIRST_PORT + me).into()).unwrap();
    let before = open();
    println!("ready");
    assert_eq!(told_line().as_deref(), Some("go"));
    std::thread::spawn(move || {
        (0..me).for_each(|peer| ask(nic, manager, me, peer));
        println!("asked");
        if told_line().is_some() {
            // All others are gone: so is what they brought, and what was made for them.
            let begin = Instant::now();
            while open() > before && begin.elapsed() < LIMIT {
                std::thread::sleep(Duration::from_millis(5));
            }
            println!("descriptors {before} {}", open());
            told_line();
        }
        // As programs end: whoever waits for a peer that was killed does not wait for ever.
        nic.settle();
        std::process::exit(0);
    });
    loop {
        let Some(request) = listener.next(LIMIT) else { continue };
        std::thread::spawn(move || {
            let (qp, cq, memory) = queue_pair(nic);
            receive(&qp, &memory);
            let Ok(_connection) = request.accept(&qp, &[], LIMIT) else { return };
            // What was asked comes back, with our own number behind it.
            if completed(&qp, &cq) {
                memory.write_at(LEN - 2, &me.to_be_bytes());
                send(&qp, &memory);
                completed(&qp, &cq);
            }
        });
    }
}

/// The address that all have.
fn here(nic: &Context) -> IpAddr {
    nic.addresses()[0]
}

/// The next line that the parent says; `None` when it says nothing more.
fn told_line() -> Option<String> {
    std::io::stdin().lines().next().map(|line| line.expect("text"))
}

fn queue_pair(nic: &Context) -> (QueuePair, CompletionQueue, MemoryRegion) {
    let (pd, cq) = (nic.alloc_pd(), nic.create_cq(16).unwrap());
    let memory = pd.alloc_mr(2 * LEN, Access::LOCAL_WRITE).unwrap();
    let qp = pd.create_qp(&QpOptions::new(QpKind::Rc, &cq)).unwrap();
    qp.init(Access::REMOTE).unwrap();
    (qp, cq, memory)
}

fn receive(qp: &QueuePair, memory: &MemoryRegion) {
    qp.post_recv(&RecvWr { wr_id: 1, sges: &[memory.sge(0, LEN)], best_effort: None }).unwrap();
}

fn send(qp: &QueuePair, memory: &MemoryRegion) {
    let sges = [memory.sge(0, LEN)];
    let (data, flags) = (Data::Gather(&sges), SendFlags { signaled: true, ..SendFlags::default() });
    // One whose peer is gone fails, and says so by its completion.
    let _ = qp.post_send(&SendWr { wr_id: 2, op: SendOp::Send, data, flags, best_effort: None, to: None });
}

/// Whether the next completion comes, and is a good one. While nothing comes, the peer is asked for a sign of life: one that was killed has nothing to
/// say, and only who sends hears of it.
fn completed(qp: &QueuePair, cq: &CompletionQueue) -> bool {
    const SIGN: u64 = 3;
    loop {
        match cq.poll_one().unwrap() {
            Some(done) if done.wr_id == SIGN && done.status == Status::Success => {}
            Some(done) => return done.status == Status::Success,
            None if cq.wait(Duration::from_millis(200)).unwrap() => {}
            None => {
                let (op, data) = (SendOp::Write { remote_addr: 0, rkey: 0 }, Data::Gather(&[]));
                // As many as fit.
                let flags = SendFlags::default();
                let _ = qp.post_send(&SendWr { wr_id: SIGN, op, data, flags, best_effort: None, to: None });
            }
        }
    }
}

/// Connects to a peer, sends a message and gets it back; says so where that does not work.
fn ask(nic: &Context, manager: &ConnectionManager, me: u16, peer: u16) {
    let (qp, cq, memory) = queue_pair(nic);
    let to = (here(nic), FIRST_PORT + peer).into();
    let _connection = match CmConnection::connect(manager, &qp, to, &[], LIMIT) {
        Ok(connection) => connection,
        Err(why) => return println!("failed {peer} to {me}: {why}"),
    };
    let bytes: Vec<u8> = (0..LEN).map(|n| (n as u16 ^ me) as u8).collect();
    memory.write_at(0, &bytes);
    receive(&qp, &memory);
    send(&qp, &memory);
    // What is sent, and what comes back.
    if !completed(&qp, &cq) || !completed(&qp, &cq) {
        return println!("failed {peer} to {me}: a message was lost");
    }
    let mut came = vec![0; LEN];
    memory.read_at(0, &mut came);
    let expected = [&bytes[..LEN - 2], &peer.to_be_bytes()].concat();
    assert!(came == expected, "the message of {me} and {peer} is another one");
}

/// One of the crowd, as its parent has it.
struct Member {
    child: Child,
    said: Receiver<String>,
}

impl Member {
    /// Starts it, by the words of a command that runs the command behind them, or none.
    fn start(wrapper: &str, device: &str, me: usize) -> Member {
        let program = std::env::current_exe().unwrap();
        let mut words = wrapper.split_whitespace().map(std::ffi::OsStr::new).chain([program.as_os_str()]);
        let mut child = Command::new(words.next().unwrap())
            .args(words)
            .args(["--exact", "member", "--ignored", "--nocapture"])
            .env(MEMBER, format!("{device} {me}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, said) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| to.send(line)));
        Member { child, said }
    }

    /// The rest of the next line that begins with a word; before it, those that it could not talk to are noted.
    fn wait_for(&self, word: &str, failed: &mut HashSet<usize>) -> Option<String> {
        loop {
            let line = self.said.recv_timeout(LIMIT).ok()?;
            // The harness of tests writes on the line where a test begins.
            if let Some((_, rest)) = line.split_once("failed ") {
                eprintln!("{line}");
                failed.insert(rest.split(' ').next().unwrap().parse().unwrap());
            }
            if let Some((_, rest)) = line.split_once(word) {
                return Some(rest.to_string());
            }
        }
    }

    fn tell(&mut self, line: &str) {
        let stdin = self.child.stdin.as_mut().expect("it is told until it is to end");
        writeln!(stdin, "{line}").unwrap();
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // One that has ended already needs nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A crowd on a device connects all to all, while a fifth of it is killed; when all are gone but one, that one has what it had at first. Says how many there
/// were, and how many were killed.
fn crowd(wrapper: &str, device: &str) -> (usize, usize) {
    let count: usize = std::env::var("SOFTNIC_CROWD").map_or(12, |count| count.parse().unwrap());
    let begin = Instant::now();
    let mut members: Vec<Member> = (0..count).map(|me| Member::start(wrapper, device, me)).collect();
    let mut nobody = HashSet::new();
    for member in &members {
        assert!(member.wait_for("ready", &mut nobody).is_some(), "a member did not begin");
    }
    members.iter_mut().for_each(|member| member.tell("go"));
    // A fifth of them is killed, while they connect; others, in another order, each time that this is run.
    let mut state = u64::from(std::process::id()) | 1;
    let mut random = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let mut killed = HashSet::new();
    while killed.len() < count / 5 {
        // The last one tells of its descriptors.
        let victim = random(count - 1);
        if killed.insert(victim) {
            std::thread::sleep(Duration::from_millis(random(40) as u64));
            members[victim].child.kill().unwrap();
        }
    }
    for (me, member) in members.iter().enumerate().filter(|(me, _)| !killed.contains(me)) {
        let mut failed = HashSet::new();
        assert!(member.wait_for("asked", &mut failed).is_some(), "{me} is not done");
        assert!(failed.is_subset(&killed), "{me} failed with {failed:?}, and {killed:?} were killed");
    }
    println!("{count} processes, {} killed, connected after {:.1?}", killed.len(), begin.elapsed());
    let mut last = members.pop().unwrap();
    for member in &mut members {
        drop(member.child.stdin.take());
    }
    for (me, member) in members.iter_mut().enumerate() {
        let status = member.child.wait().unwrap();
        assert_eq!(status.success(), !killed.contains(&me), "{me}: {status}");
    }
    last.tell("count");
    let counted = last.wait_for("descriptors ", &mut nobody).expect("it counts");
    let (before, after) = counted.split_once(' ').unwrap();
    assert!(after.trim().parse::<usize>().unwrap() <= before.parse().unwrap(), "descriptors: {counted}");
    drop(last.child.stdin.take());
    assert!(last.child.wait().unwrap().success());
    println!("{:.1?} in all", begin.elapsed());
    (count, killed.len())
}

/// No port is a dead one's.
fn listen_to_all(device: &str, count: usize) {
    let nic = Context::open(&device.parse().unwrap(), &OpenOptions::default()).unwrap();
    let manager = ConnectionManager::new(&nic).unwrap();
    for me in 0..count as u16 {
        CmListener::bind(&manager, (here(&nic), FIRST_PORT + me).into()).expect("no port is a dead one's");
    }
}

#[test]
fn all_connect_to_all_in_memory_while_some_are_killed_and_nothing_is_left() {
    let folder: PathBuf = std::env::temp_dir().join(format!("softnic-crowd-{}", std::process::id()));
    let device = format!("shm:{}", folder.display());
    let (count, killed) = crowd("", &device);
    // Nothing is there but what the killed could not take with them, and whoever comes next removes that.
    let left: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "lock")
        .collect();
    assert!(left.len() <= 3 * killed, "{left:?}");
    listen_to_all(&device, count);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn all_connect_to_all_on_a_shared_interface_while_some_are_killed_and_nothing_is_left() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let options = ShareOptions {
        interface: veth.interface(0).into(),
        group: None,
        mode: 0o600,
        clients: 1000,
        clients_of_user: 1000,
        queues: 1,
        limits: Limits::default(),
    };
    let devices = || veth.ip(0, "-oneline link show").unwrap().lines().count();
    let before = devices();
    let daemon = veth.inside(0, || Share::start(options)).unwrap();
    let device = format!("shared:{}", veth.interface(0));
    // As `softnic share` has one: whoever asks for a dead one's service is refused, and need not wait.
    let options = OpenOptions { progress: Some(Progress::Inline), ..OpenOptions::default() };
    let warden = veth.inside(0, || Context::open(&device.parse().unwrap(), &options)).unwrap();
    let manager = ConnectionManager::new(&warden).unwrap();
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let held = descriptors();
    let before_crowd = devices();
    let (count, _) = crowd(&format!("ip netns exec {}", veth.namespaces[0]), &device);
    let clients = || veth.inside(0, || served(veth.interface(0))).unwrap().clients;
    let begin = Instant::now();
    while clients().len() > 1 || devices() > before_crowd || descriptors() > held {
        let left = (clients(), devices(), descriptors());
        assert!(begin.elapsed() < LIMIT, "{left:?}; there were {before_crowd} devices and {held} descriptors");
        std::thread::sleep(Duration::from_millis(5));
    }
    veth.inside(0, || listen_to_all(&device, count));
    drop((manager, warden, daemon));
    assert_eq!(devices(), before);
}
