//! Two NICs whose backups find each other in a redis server: one that works, and servers in every kind of trouble.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

use redis::Value;
use softnic_wire::Qpn;
use softnic_wire::failover::{Entry, EntryKey, EntryValue, Object};

use super::regions::{a_region_changes_between_failures, a_region_changes_while_the_backup_is_used};
use super::*;
use crate::failover::store::tests::server::Server;

/// What a server is like that stands before the real one.
const PASSES: u8 = 0;
const SLOW: u8 = 1;
const GARBAGE: u8 = 2;
const GONE: u8 = 3;

/// A server that passes on what it hears to another, or does not.
struct Proxy {
    port: u16,
    mode: Switch,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    fn start(to: &Server, mode: u8) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, to) = (listener.local_addr().unwrap().port(), to.port);
        let (state, over) = (Switch::default(), Arc::new(AtomicBool::new(false)));
        state.set(mode);
        let (shown, is_over) = (state.clone(), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            let mut all = Vec::new();
            while let (Ok((client, _)), false) = (listener.accept(), is_over.load(Ordering::SeqCst)) {
                let (mode, over) = (shown.clone(), Arc::clone(&is_over));
                all.push(std::thread::spawn(move || _ = Proxy::serve(client, to, &mode, &over)));
            }
            all.into_iter().for_each(|thread| _ = thread.join());
        });
        Proxy { port, mode: state, over, thread: Some(thread) }
    }

    fn serve(mut client: TcpStream, to: u16, mode: &Switch, over: &AtomicBool) -> io::Result<()> {
        let server = TcpStream::connect(("127.0.0.1", to))?;
        let look = Some(Duration::from_millis(5));
        client.set_read_timeout(look)?;
        server.set_read_timeout(look)?;
        let mut ends = [client.try_clone()?, server];
        let mut bytes = [0; 4096];
        while !over.load(Ordering::SeqCst) && mode.state() != GONE {
            for from in [0, 1] {
                let count = match ends[from].read(&mut bytes) {
                    Ok(0) => return client.shutdown(Shutdown::Both),
                    Ok(count) => count,
                    Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => continue,
                    Err(e) => return Err(e),
                };
                let start = Instant::now();
                while mode.state() == SLOW && start.elapsed() < Duration::from_secs(10) && !over.load(Ordering::SeqCst)
                {
                    std::thread::sleep(Duration::from_millis(5));
                }
                match mode.state() {
                    GARBAGE => client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")?,
                    _ => ends[1 - from].write_all(&bytes[..count])?,
                }
            }
        }
        client.shutdown(Shutdown::Both)
    }

    fn url(&self) -> Kv {
        format!("redis://127.0.0.1:{}", self.port).parse().unwrap()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        let _ = self.thread.take().unwrap().join();
    }
}

fn url(server: &Server, login: &str, rest: &str) -> Kv {
    format!("redis://{login}127.0.0.1:{}{rest}", server.port).parse().unwrap()
}

fn world(store: &Kv) -> World {
    patient(World::with_stores(Progress::Inline, 1, [true, true], [store.clone(), store.clone()]))
}

/// Without a backup for seconds, connections have to live through whatever else the machine does.
fn patient(world: World) -> World {
    World { retries: 7, ..world }
}

fn said(world: &World, what: &str) -> usize {
    world.lines.lock().unwrap().iter().filter(|line| line.contains(what)).count()
}

/// The program runs although the store does not; a line says so; and connections have a backup when it does.
fn runs_meanwhile(world: &World, line: &str, mend: impl FnOnce()) {
    let mut flow = Flow::new(world, Work::Write);
    flow.until(line, |flow| said(flow.world, line) >= 1);
    flow.more(50);
    assert_eq!([A, B].map(|host| world.counters()[host][0]), [0; 2], "{:?}", world.lines.lock().unwrap());
    mend();
    flow.until("protection", |flow| [A, B].iter().all(|&host| flow.world.counters()[host][0] >= 1));
    fails_over(&mut flow);
    assert!(said(world, line) <= 2, "one line of each host: {:?}", world.lines.lock().unwrap());
}

fn fails_over(flow: &mut Flow<'_>) {
    let world = flow.world;
    let before = world.moved(A);
    world.set(0, LOSES);
    flow.until("fallback", |flow| flow.world.moved(A).0 > before.0);
    flow.more(50);
    world.set(0, WHOLE);
    flow.until("return", |flow| flow.world.moved(A).1 > before.1);
    flow.more(50);
}

/// Keys of the server, of this kind.
fn keys(server: &Server, pattern: &str) -> Vec<String> {
    let Value::Array(all) = server.say(&format!("KEYS {pattern}")) else { panic!() };
    let text = |value| if let Value::BulkString(key) = value { String::from_utf8(key).ok() } else { None };
    all.into_iter().filter_map(text).collect()
}

#[test]
fn connections_are_protected_by_a_store_and_their_entries_go_with_them() {
    let server = Server::start();
    for engines in [1, 2] {
        let kv = url(&server, "", "/0?prefix=p");
        let world = World::with_stores(Progress::Inline, engines, [true, true], [kv.clone(), kv]);
        let mut flows = [Work::Write, Work::Read, Work::Send].map(|work| Flow::new(&world, work));
        world.await_protection(3);
        assert_eq!(keys(&server, "p:1:qp:*").len(), 6);
        // Peers may know a region under each address of its NIC.
        let gids = world.contexts[A].addresses().len();
        world.until("entries of regions", || keys(&server, "p:1:mr:*").len() == 6 * gids);
        flows.iter_mut().for_each(fails_over);
        let [first, second, third] = flows;
        drop((first, second));
        world.until("entries go with their objects", || keys(&server, "p:*").len() == 2 + 2 * gids);
        drop(third);
        drop(world);
        assert_eq!(keys(&server, "*"), [""; 0], "they go with their NICs");
    }
}

#[test]
fn a_region_that_is_registered_anew_is_found_in_the_store_after_the_next_failure() {
    let server = Server::start();
    a_region_changes_between_failures([url(&server, "", ""), url(&server, "", "")]);
}

#[test]
fn a_region_that_is_registered_anew_keeps_its_key_at_the_backup_with_a_store_too() {
    let server = Server::start();
    a_region_changes_while_the_backup_is_used(1, &url(&server, "", ""));
}

#[test]
fn a_store_that_is_absent_slow_or_talks_nonsense_is_done_without_until_it_works() {
    let server = Server::start();
    for mode in [GONE, SLOW, GARBAGE] {
        let proxy = Proxy::start(&server, mode);
        let world = world(&proxy.url());
        runs_meanwhile(&world, "is not reached", || proxy.mode.set(PASSES));
        // Of two hosts the slower one may have found a store that works already.
        world.until("the line", || said(&world, "is reached again") >= said(&world, "is not reached"));
    }
}

#[test]
fn a_store_that_goes_in_the_middle_leaves_protected_connections_as_they_are() {
    let server = Server::start();
    let proxy = Proxy::start(&server, PASSES);
    let world = world(&proxy.url());
    let mut flow = Flow::new(&world, Work::Write);
    world.await_protection(1);
    proxy.mode.set(GONE);
    flow.until("the line", |flow| said(flow.world, "is not reached") >= 2);
    // Keys have not been looked up yet: the peer itself is asked.
    fails_over(&mut flow);
    let mut late = Flow::new(&world, Work::Send);
    late.more(50);
    assert_eq!(world.counters()[A][0], 1);
    proxy.mode.set(PASSES);
    late.until("protection", |flow| [A, B].iter().all(|&host| flow.world.counters()[host][0] >= 2));
    fails_over(&mut late);
}

#[test]
fn a_full_store_is_done_without_until_there_is_room() {
    let server = Server::start();
    server.say("CONFIG SET maxmemory 1");
    let world = world(&url(&server, "", ""));
    runs_meanwhile(&world, "OOM", || _ = server.say("CONFIG SET maxmemory 0"));
}

#[test]
fn a_wrong_password_is_said_and_never_shown() {
    let server = Server::start();
    server.say("ACL SETUSER me on >other ~* +@all");
    let world = world(&url(&server, "me:hunter2@", ""));
    runs_meanwhile(&world, "WRONGPASS", || _ = server.say("ACL SETUSER me >hunter2"));
    assert_eq!(said(&world, "hunter2"), 0, "{:?}", world.lines.lock().unwrap());
    assert!(said(&world, "redis://me:***@127.0.0.1") >= 1);
}

#[test]
fn entries_of_another_run_are_not_believed() {
    let server = Server::start();
    // Each host has a store of its own, and reads there what the test writes.
    let prefixes = ["a", "b"];
    let stores = prefixes.map(|prefix| url(&server, "", &format!("?prefix={prefix}")));
    let world = patient(World::with_stores(Progress::Inline, 1, [true, true], stores));
    let mut flow = Flow::new(&world, Work::Write);
    flow.until("entries", |_| keys(&server, "*:1:qp:*").len() == 2);
    let object = |host: usize, qpn: Qpn| {
        let std::net::IpAddr::V4(gid) = world.contexts[host].addresses()[0] else { panic!() };
        Object::QueuePair { gid: gid.to_ipv6_mapped(), qpn }
    };
    let objects = [A, B].map(|host| object(host, flow.ends[host].qp.qpn()));
    let entries = [A, B].map(|host| {
        let key = EntryKey { prefix: prefixes[host], object: objects[host] };
        let Value::BulkString(value) = server.say(&format!("GET {key}")) else { panic!("{key}") };
        Entry::parse(&key, &value).unwrap()
    });
    let write = |of: usize, entry: &Entry| {
        let key = EntryKey { prefix: prefixes[1 - of], object: objects[of] };
        let mut value = [0; Entry::LEN];
        entry.emit(&key, &mut value);
        server.set(&key.to_string(), &value);
    };
    // What an earlier run of the peer, or a liar, has left: the same backup, another nonce.
    for host in [A, B] {
        write(host, &Entry { nonce: [7; 16], ..entries[host] });
        assert!(matches!(entries[host].value, EntryValue::QueuePair(_)));
    }
    flow.until("the line", |flow| said(flow.world, "has not proven") >= 2);
    flow.more(50);
    assert_eq!([A, B].map(|host| world.counters()[host][0]), [0; 2]);
    [A, B].iter().for_each(|&host| write(host, &entries[host]));
    flow.until("protection", |flow| [A, B].iter().all(|&host| flow.world.counters()[host][0] >= 1));
    fails_over(&mut flow);
    assert!(said(&world, "have a backup now") >= 1, "{:?}", world.lines.lock().unwrap());
}

#[test]
fn an_end_that_has_a_store_and_one_that_asks_its_peer_do_without_a_backup() {
    let server = Server::start();
    let stores = [url(&server, "", ""), Kv::Peer];
    let world = patient(World::with_stores(Progress::Inline, 1, [true, true], stores));
    let mut flow = Flow::new(&world, Work::Write);
    flow.until("the lines", |flow| {
        said(flow.world, "the peer has no backup") >= 1 && said(flow.world, "no entry of the peer") >= 1
    });
    flow.more(50);
    assert_eq!(world.counters(), [[0; 4]; 2]);
}

/// Time from the first connection's first step to the last one's backup. Run by
/// `cargo test --release -p softnic-runtime --lib how_long_protection -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::print_stdout, reason = "what was measured")]
fn how_long_protection_takes_by_a_store_and_by_asking_the_peer() {
    let server = Server::start();
    for (name, kv) in [("redis", url(&server, "", "")), ("peer", Kv::Peer)] {
        for progress in [Progress::Inline, Progress::Dedicated] {
            for count in [1, 1, 1, 100, 1000] {
                let world = World::with_stores(progress, 1, [true, true], [kv.clone(), kv.clone()]);
                let hosts =
                    [A, B].map(|host| (world.contexts[host].alloc_pd(), world.contexts[host].create_cq(4096).unwrap()));
                std::thread::sleep(Duration::from_millis(200));
                let start = Instant::now();
                let pairs: Vec<[QueuePair; 2]> = (0..count)
                    .map(|_| {
                        let qps = [A, B].map(|host| {
                            let (pd, cq) = &hosts[host];
                            let qp = pd.create_qp(&QpOptions::new(QpKind::Rc, cq)).unwrap();
                            qp.init(rights()).unwrap();
                            qp
                        });
                        for host in [B, A] {
                            let peer = world.contexts[1 - host].addresses()[0];
                            let path = world.contexts[host].path_to(peer, qps[host].qpn().value()).unwrap();
                            let psn = Psn::new(7);
                            qps[host].connect(&Connection::new(path, qps[1 - host].qpn(), psn, psn)).unwrap();
                        }
                        qps
                    })
                    .collect();
                let connected = start.elapsed();
                world.await_protection(count);
                println!(
                    "{name} {progress:?}: {} connections connected after {connected:?}, protected after {:?}",
                    pairs.len(),
                    start.elapsed()
                );
            }
        }
    }
}
