//! How it ends: clients that are killed, a daemon that is killed and its successor, a daemon that ends.

use std::io::Write;
use std::os::fd::AsRawFd;

use softnic_nic::transports::{Event, Status};
use softnic_runtime::api::{CmListener, ConnectionManager, Context, DeviceSpec, OpenOptions, Progress};
use softnic_runtime::share::{Limits, Share, ShareOptions};

use crate::process::{Process, say};
use crate::veth::Veth;
use crate::world::{End, HALF, HERE, LIMIT, THERE, clients, connect, devices, open, share, until, usual, write};

const VARIABLE: &str = "SOFTNIC_TEST_SHARE";

/// The words that run a command in the namespace of a side.
pub(crate) fn inside(veth: &Veth, side: usize) -> String {
    format!("ip netns exec {}", veth.namespaces[side])
}

/// Starts a process in this role, by the words of `wrapper`.
pub(crate) fn client(wrapper: &str, role: &str) -> Process {
    Process::start(wrapper, "ends::is_what_it_is_told_to_be", VARIABLE, role)
}

#[test]
#[ignore = "only as a process of its own that other tests start"]
fn is_what_it_is_told_to_be() {
    let Ok(role) = std::env::var(VARIABLE) else { return };
    let interface = "sn0".to_string();
    let device = DeviceSpec::Shared { interface: interface.clone() };
    let options = OpenOptions { progress: Some(Progress::Inline), ..OpenOptions::default() };
    match role.as_str() {
        "open" => match Context::open(&device, &options) {
            Ok(context) => {
                let manager = ConnectionManager::new(&context).unwrap();
                let _listener = CmListener::bind(&manager, (context.addresses()[0], 7174).into());
                say(&format!("opened {}", context.description()));
                heard();
            }
            Err(why) => say(&why.to_string()),
        },
        "share" => {
            let (group, mode, queues, limits) = (None, 0o666, 1, Limits::default());
            let options = ShareOptions { interface, group, mode, clients: 100, clients_of_user: 100, queues, limits };
            match Share::start(options) {
                Ok(share) => {
                    say(&format!("{} taken over", share.taken_over()));
                    heard();
                }
                Err(why) => say(&why.to_string()),
            }
        }
        "descriptors" => say(&descriptors(&device, &options)),
        _ => say("no such role"),
    }
}

/// Opens a NIC with as few descriptors as can be, one more each time.
fn descriptors(device: &DeviceSpec, options: &OpenOptions) -> String {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let free = std::fs::File::open("/dev/null").unwrap().as_raw_fd() as u64;
    let mut refused = 0;
    for limit in free..free + 100 {
        setrlimit(Resource::Nofile, Rlimit { current: Some(limit), ..getrlimit(Resource::Nofile) }).unwrap();
        match Context::open(device, options) {
            Ok(_) => return format!("opened after {refused} refusals"),
            Err(why) if why.to_string().contains("`ulimit -n`") => refused += 1,
            Err(why) => return why.to_string(),
        }
    }
    "never opened".into()
}

fn heard() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}

#[test]
fn a_client_that_is_killed_leaves_nothing_and_stops_nobody() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let _daemon = share(&veth, usual(&veth)).unwrap();
    let peer = End::new(open(&veth, THERE, "afxdp").unwrap());
    let survivor = End::new(open(&veth, HERE, "shared").unwrap());
    connect(&survivor, &peer, [veth.address(HERE).into(), veth.address(THERE).into()]);
    let manager = ConnectionManager::new(&survivor.context).unwrap();
    let bind = || CmListener::bind(&manager, (survivor.context.addresses()[0], 7174).into());
    let mut victim = client(&inside(&veth, HERE), "open");
    assert!(victim.said.starts_with("opened shared:sn0"), "{}", victim.said);
    assert!(bind().is_err(), "the other one listens there");
    assert_eq!((clients(&veth).len(), devices(&veth).len()), (2, 2));
    victim.kill();
    until("what it had is gone", || clients(&veth).len() == 1 && devices(&veth).len() == 1);
    bind().unwrap();
    assert_eq!(write(&survivor, &peer, HALF, 1), Status::Success);
}

#[test]
fn clients_outlive_a_daemon_that_is_killed_and_the_next_one_takes_them_over() {
    let Some(veth) = Veth::new(1, 4200) else { return };
    let mut daemon = client(&inside(&veth, HERE), "share");
    assert_eq!(daemon.said, "0 taken over");
    let peer = End::new(open(&veth, THERE, "afxdp").unwrap());
    let (here, there) = (veth.address(HERE).into(), veth.address(THERE).into());
    let (a, b) = (End::new(open(&veth, HERE, "shared").unwrap()), open(&veth, HERE, "shared").unwrap());
    let b = End::new(b);
    connect(&a, &peer, [here, there]);
    let manager = ConnectionManager::new(&a.context).unwrap();
    let address = |port| (a.context.addresses()[0], port).into();
    let _listener = CmListener::bind(&manager, address(7174)).unwrap();
    daemon.kill();
    assert_eq!(write(&a, &peer, HALF, 1), Status::Success, "established clients go on");
    let local = (a.again(), b.again());
    connect(&local.0, &local.1, [here, here]);
    assert_eq!(write(&local.0, &local.1, HALF, 2), Status::Success, "also to each other");
    let why = open(&veth, HERE, "shared").err().unwrap().to_string();
    assert!(why.contains("start `softnic share --dev afxdp:sn0`"), "{why}");
    // One of them leaves while nobody serves: what it had goes by itself.
    drop((b, local));
    until("its device goes without a daemon", || devices(&veth).len() == 1);
    let successor = client(&inside(&veth, HERE), "share");
    assert_eq!(successor.said, "1 taken over");
    assert_eq!(write(&a, &peer, HALF, 3), Status::Success);
    let newcomer = End::new(open(&veth, HERE, "shared").unwrap());
    let others = ConnectionManager::new(&newcomer.context).unwrap();
    assert!(CmListener::bind(&others, address(7174)).is_err(), "a service that was claimed before is still taken");
    // The client makes itself known to the new daemon.
    let _more = CmListener::bind(&manager, address(7175)).unwrap();
    assert!(CmListener::bind(&others, address(7175)).is_err());
    let back = peer.again();
    connect(&newcomer, &back, [here, there]);
    assert_eq!(write(&newcomer, &back, HALF, 4), Status::Success);
    drop((_listener, _more));
    drop(manager);
    drop(a);
    until("it leaves the new daemon, too", || clients(&veth).len() == 1 && devices(&veth).len() == 1);
}

#[test]
fn a_daemon_that_ends_takes_the_interface_from_its_clients_and_leaves_nothing() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let mut daemon = client(&inside(&veth, HERE), "share");
    let client = End::new(open(&veth, HERE, "shared").unwrap());
    // It is told to end.
    writeln!(daemon.child.stdin.as_mut().unwrap()).unwrap();
    daemon.child.wait().unwrap();
    let begin = std::time::Instant::now();
    while client.context.failure().is_none() {
        assert!(begin.elapsed() < LIMIT, "it does not hear of it");
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    assert_eq!(client.context.failure().as_deref(), Some("sn0 is not shared any more"));
    assert!(std::iter::from_fn(|| client.context.poll_event()).any(|event| event == Event::PortErr));
    assert!(devices(&veth).is_empty());
    veth.await_no_program(HERE);
    drop(open(&veth, HERE, "afxdp").unwrap());
}
