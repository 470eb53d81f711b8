//! Limits of the system, and processes in other PID namespaces. Limits apply to a whole process, so each test runs in its own process.

use std::io::Write;
use std::process::{Child, Command, Stdio};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

const VARIABLE: &str = "SOFTNIC_TEST_SHM_LIMITS";

/// A process that calls `play` with this word, started by the command `wrapper`.
fn process(wrapper: &[&str], word: &str) -> Child {
    let program = std::env::current_exe().unwrap();
    let mut words = wrapper.iter().map(std::ffi::OsStr::new).chain([program.as_os_str()]);
    Command::new(words.next().unwrap())
        .args(words)
        .args(["--exact", "--ignored", "--nocapture", "shm::tests::limits::play"])
        .env(VARIABLE, word)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
#[ignore = "only as a process of its own that other tests start"]
fn play() {
    let Ok(told) = std::env::var(VARIABLE) else { return };
    match told.as_str() {
        "open" => each_refusal_names_the_limit(),
        "run" => peers_come_and_go_without_descriptors(),
        folder => take_rings(folder),
    }
}

/// Limits descriptors to numbers below this one.
fn limit(descriptors: u64) {
    setrlimit(Resource::Nofile, Rlimit { current: Some(descriptors), ..getrlimit(Resource::Nofile) }).unwrap();
}

/// The lowest free descriptor number: with that as the limit, no descriptor can be opened.
fn free() -> u64 {
    fs::File::open("/dev/null").unwrap().as_raw_fd() as u64
}

/// Waits until the threads that hand over rings have closed their descriptors.
fn settle() {
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let (mut before, mut same) = (open(), 0);
    while same < 20 {
        std::thread::sleep(Duration::from_millis(5));
        let now = open();
        same = if now == before { same + 1 } else { 0 };
        before = now;
    }
}

fn each_refusal_names_the_limit() {
    let folder = Folder::new("nofile");
    drop(folder.join());
    let (before, mut refused) = (free(), 0);
    for descriptors in before.. {
        limit(descriptors);
        match folder.try_join() {
            Ok(_) => break,
            Err(why) => assert!(why.to_string().contains("`ulimit -n`"), "{descriptors}: {why}"),
        }
        refused += 1;
    }
    assert!(refused >= 5, "it opens more than {refused} descriptors");
    limit(before + 64);
    assert_eq!(folder.files(), ["lock"], "who was refused left nothing");
}

#[test]
fn without_descriptors_joining_a_network_says_which_limit_to_raise() {
    assert!(process(&[], "open").wait().unwrap().success());
}

fn peers_come_and_go_without_descriptors() {
    let folder = Folder::new("exhausted");
    let (mut a, mut b, c) = (folder.join(), folder.join(), folder.join());
    let (to_b, to_c) = (frame_to(b.process(), 1), frame_to(c.process(), 2));
    let service = ServiceId(0x1234);
    assert!(b.directory.claim(service).unwrap());
    send(&mut a, &[&to_b]);
    receive(&mut b, 1);
    // Another process is about to bring a ring.
    let door = folder.0.join(format!("{:04}", b.process().number()));
    let address = rustix::net::SocketAddrUnix::new(&door).unwrap();
    let [first, second] = [(); 2].map(|()| {
        let (mut writer, file) = ring::Writer::create().unwrap();
        writer.place().unwrap().unwrap()[..to_b.len()].copy_from_slice(&to_b);
        writer.commit(to_b.len());
        let flags = rustix::net::SocketFlags::CLOEXEC;
        let (family, kind) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM);
        (UnixStream::from(rustix::net::socket_with(family, kind, flags, None).unwrap()), writer, file)
    });
    let bring = |(connection, _, file): &(UnixStream, ring::Writer, OwnedFd)| {
        rustix::net::connect(connection, &address).unwrap();
        meeting::hand_over(connection, file).unwrap();
    };
    settle();
    let none_left = free();
    limit(none_left);
    // A thread that still held a descriptor when the limit was set leaves a free number below the limit.
    let _held: Vec<OwnedFd> = std::iter::from_fn(|| rustix::io::dup(&first.2).ok()).collect();
    assert_eq!(send(&mut a, &[&to_c, &to_b]), 2);
    assert_eq!((receive(&mut b, 1), a.lost()), (vec![to_b.clone()], 1), "the old one goes on");
    assert_ne!(a.directory.owner_of(service).ok(), Some(None), "that nobody listens would be a lie");
    assert_ne!(a.directory.claim(service).ok(), Some(true));
    bring(&first);
    for _ in 0..20 {
        send(&mut a, &[&to_b]);
        assert_eq!(receive(&mut b, 1), std::slice::from_ref(&to_b));
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((b.inlets.len(), b.lost()), (1, 0), "who waits to be let in goes on waiting");
    // One descriptor is free for the connection, and none for the ring.
    limit(none_left + 1);
    while b.lost() == 0 {
        std::thread::yield_now();
    }
    limit(none_left + 64);
    bring(&second);
    assert_eq!(receive(&mut b, 1), std::slice::from_ref(&to_b), "the ring is taken as soon as it can be");
    std::thread::sleep(ABSENT);
    send(&mut a, &[&to_c]);
    assert_eq!(a.lost(), 1);
    assert_eq!(b.directory.owner_of(service).unwrap(), Some(b.process()), "nobody took it away");
}

#[test]
fn without_descriptors_new_peers_are_lost_and_counted_and_old_ones_go_on() {
    assert!(process(&[], "run").wait().unwrap().success());
}

/// Number of rings, from as many NICs of one process.
const MANY: usize = 40;

fn take_rings(folder: &str) {
    let mut nic = Shm::open(&ShmSpec::parse(Some(folder), None).unwrap()).unwrap();
    assert_eq!((receive(&mut nic, MANY).len(), nic.lost()), (MANY, 0));
}

#[test]
fn processes_of_other_containers_are_let_in_though_they_cannot_be_told_apart() {
    let folder = Folder::new("containers");
    let alone = ["unshare", "--pid", "--fork", "--kill-child"];
    if !Command::new(alone[0]).args(&alone[1..]).arg("true").output().is_ok_and(|o| o.status.success()) {
        let _ = writeln!(std::io::stderr(), "LEFT OUT: processes of other containers: no PID namespace without root");
        return;
    }
    // Processes outside the container have no process ID inside it.
    let mut container = process(&alone, folder.0.to_str().unwrap());
    let begin = Instant::now();
    while !folder.0.join("0001").exists() {
        assert!(begin.elapsed() < Duration::from_secs(60), "it does not come");
        std::thread::yield_now();
    }
    let _nics: Vec<Shm> = (0..MANY)
        .map(|_| {
            let mut nic = folder.join();
            while nic.way_to(Process::FIRST).is_none() {
                std::thread::yield_now();
            }
            send(&mut nic, &[frame_to(Process::FIRST, 1)]);
            nic
        })
        .collect();
    let ended = std::iter::from_fn(|| {
        std::thread::sleep(Duration::from_millis(2));
        (begin.elapsed() < Duration::from_secs(60)).then(|| container.try_wait().unwrap())
    });
    let ended = ended.flatten().next();
    let _ = container.kill();
    assert!(ended.is_some_and(|status| status.success()), "rings were not taken");
}

#[test]
fn those_who_connect_and_say_nothing_keep_nobody_out() {
    let in_time = || {
        let folder = Folder::new("silent");
        let (mut a, mut b) = (folder.join(), folder.join());
        let door = folder.0.join(format!("{:04}", b.process().number()));
        let begin = Instant::now();
        let _silent: Vec<_> = (0..200).map(|_| UnixStream::connect(&door).unwrap()).collect();
        send(&mut a, &[frame_to(b.process(), 1)]);
        receive(&mut b, 1);
        // Connections may wait for a second each, 64 at a time.
        begin.elapsed() < Duration::from_secs(1)
    };
    // Other load may have delayed this machine.
    assert!((0..5).any(|_| in_time()));
}
