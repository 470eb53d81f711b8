//! Clients and others who misbehave at the daemon's socket, and limits of the system: a line for who is refused, and nothing lost for others.

use std::io::{IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, accept, bind, connect as connect_to, listen, recv, send, sendmsg, socket_with,
};
use softnic_cm::Connect;
use softnic_nic::transports::Status;
use softnic_runtime::api::{CmListener, CmSink, ConnectionManager};
use softnic_wire::{Psn, Qpn};

use crate::clients::meet;
use crate::ends::{client, inside};
use crate::veth::{Veth, left_out};
use crate::world::{End, HALF, HERE, THERE, clients, connect, devices, open, share, until, usual, write};

/// What is said to attach, and to claim a service.
const ATTACH: [u8; 6] = [1, 1, 0, 0, 0, 0];
const CLAIM: [u8; 10] = [1, 3, 0, 0, 0, 0, 1, 6, 0x1b, 0];

/// Where the daemon of the shared interface has its socket.
fn socket_of(veth: &Veth) -> PathBuf {
    let namespace = veth.inside(HERE, || std::fs::metadata("/proc/thread-self/ns/net").unwrap().ino());
    format!("/run/softnic/{}.{namespace}", veth.interface(HERE)).into()
}

fn unix() -> OwnedFd {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

/// Somebody who speaks to the daemon without our library.
fn stranger(veth: &Veth) -> OwnedFd {
    let socket = unix();
    connect_to(&socket, &SocketAddrUnix::new(socket_of(veth)).unwrap()).unwrap();
    socket
}

fn say(to: &OwnedFd, what: &[u8]) {
    send(to, what, SendFlags::NOSIGNAL).unwrap();
}

/// What the daemon says to that; nothing at the end of the connection.
fn hear(from: &OwnedFd) -> String {
    let mut said = vec![0; 1 << 17];
    let len = recv(from, &mut said[..], RecvFlags::empty()).map_or(0, |(_, len)| len);
    String::from_utf8_lossy(&said[..len]).into_owned()
}

#[test]
fn connections_that_say_nothing_keep_nobody_waiting() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let _daemon = share(&veth, usual(&veth)).unwrap();
    let in_time = || {
        let begin = Instant::now();
        let _silent: Vec<_> = (0..300).map(|_| stranger(&veth)).collect();
        drop(open(&veth, HERE, "shared").unwrap());
        // They may stay for five seconds each, 64 at a time.
        begin.elapsed() < Duration::from_secs(5)
    };
    // Something else may have kept the machine busy.
    assert!((0..3).any(|_| in_time()));
}

#[test]
fn garbage_floods_and_descriptors_at_the_socket_harm_who_sends_them_alone() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let _daemon = share(&veth, usual(&veth)).unwrap();
    let peer = End::new(open(&veth, THERE, "afxdp").unwrap());
    let good = End::new(open(&veth, HERE, "shared").unwrap());
    connect(&good, &peer, [veth.address(HERE).into(), veth.address(THERE).into()]);
    let others_go_on = |seed| {
        assert_eq!(write(&good, &peer, HALF, seed), Status::Success);
        drop(open(&veth, HERE, "shared").unwrap());
        until("only the good one is left", || clients(&veth).len() == 1 && devices(&veth).len() == 1);
    };
    // Before they are clients: they are told what is wrong, also those of another version.
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[2, 1, 0, 0, 0, 0], &[1], &[0xff; 4096], &[1, 1, 0]] {
        let somebody = stranger(&veth);
        say(&somebody, garbage);
        let heard = hear(&somebody);
        assert!(heard.contains("both must be of the same version of softnic"), "{heard}");
    }
    let somebody = stranger(&veth);
    say(&somebody, &CLAIM);
    assert!(hear(&somebody).contains("who has no port cannot listen to anything"));
    others_go_on(1);
    // One that has a port and then sends garbage has none any more.
    let bad = stranger(&veth);
    say(&bad, &ATTACH);
    assert!(!hear(&bad).is_empty() && clients(&veth).len() == 2);
    say(&bad, b"garbage");
    assert!(hear(&bad).is_empty());
    others_go_on(2);
    // One that asks and asks and does not listen.
    let bad = stranger(&veth);
    say(&bad, &ATTACH);
    let _ = hear(&bad);
    let mut service = 0u16;
    while clients(&veth).len() == 2 {
        service = service.wrapping_add(1);
        let claim = [&CLAIM[..8], &service.to_be_bytes()].concat();
        let _ = send(&bad, &claim, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
    }
    others_go_on(3);
    // Descriptors that nobody wants are closed: the other end of the pipe is told.
    let (mut read, written) = std::io::pipe().unwrap();
    let somebody = stranger(&veth);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut beside = SendAncillaryBuffer::new(&mut space);
    let many = [written.as_fd(); 64];
    assert!(beside.push(SendAncillaryMessage::ScmRights(&many)));
    sendmsg(&somebody, &[IoSlice::new(&[1, 6])], &mut beside, SendFlags::NOSIGNAL).unwrap();
    assert!(!hear(&somebody).is_empty());
    drop(written);
    assert_eq!(read.read(&mut [0; 1]).unwrap(), 0);
    others_go_on(4);
}

#[test]
fn a_client_that_floods_qp1_keeps_no_other_from_connecting() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let _daemon = share(&veth, usual(&veth)).unwrap();
    let warden = open(&veth, HERE, "shared").unwrap();
    let _warden = ConnectionManager::new(&warden).unwrap();
    let peer = open(&veth, THERE, "afxdp").unwrap();
    let [server, good, bad] = [(); 3].map(|()| open(&veth, HERE, "shared").unwrap());
    let [at_peer, at_server, of_good, of_bad] =
        [&peer, &server, &good, &bad].map(|nic| ConnectionManager::new(nic).unwrap());
    let address = |side: usize, port| SocketAddr::from((veth.address(side), port));
    // Far more requests than it may send, on the wire and behind the same port.
    let (to, _events) = channel();
    for n in 0..4000 {
        let (from, nobody) = (address(HERE, 0), address(n as usize % 2, 7175));
        let connect = Connect::ip(from, nobody, Qpn::new(0x1000 + n), Psn::new(1)).unwrap();
        of_bad.connect(&connect, CmSink::channel(to.clone())).unwrap();
    }
    until("it is counted", || clients(&veth).iter().any(|client| client.tx_policed > 0));
    for (nic, manager, side) in [(&peer, &at_peer, THERE), (&server, &at_server, HERE)] {
        let listener = CmListener::bind(manager, address(side, 7174)).unwrap();
        meet(&listener, address(side, 7174), nic, &of_good, &good).unwrap();
    }
    assert_eq!(peer.counters().rx_source_over_rate, 0, "all clients together are one source for the peer");
}

#[test]
fn who_attaches_hundreds_of_times_leaves_nothing_in_the_daemon() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let daemon = client(&inside(&veth, HERE), "share");
    let descriptors = || std::fs::read_dir(format!("/proc/{}/fd", daemon.child.id())).unwrap().count();
    drop(open(&veth, HERE, "shared").unwrap());
    until("it left", || clients(&veth).is_empty());
    let before = descriptors();
    for _ in 0..300 {
        drop(open(&veth, HERE, "shared").unwrap());
    }
    until("nothing is left", || clients(&veth).is_empty() && devices(&veth).is_empty() && descriptors() <= before);
}

#[test]
fn a_daemon_without_descriptors_says_which_limit_to_raise_and_goes_on_for_those_it_has() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let daemon = client(&format!("{} prlimit --nofile=32:32", inside(&veth, HERE)), "share");
    if daemon.said == "nothing" {
        return left_out("no prlimit");
    }
    assert_eq!(daemon.said, "0 taken over");
    let peer = End::new(open(&veth, THERE, "afxdp").unwrap());
    let first = End::new(open(&veth, HERE, "shared").unwrap());
    connect(&first, &peer, [veth.address(HERE).into(), veth.address(THERE).into()]);
    let mut more = Vec::new();
    let why = loop {
        match open(&veth, HERE, "shared") {
            Ok(context) => more.push(context),
            Err(why) => break why.to_string(),
        }
        assert!(more.len() < 100, "there is no limit");
    };
    assert!(why.contains("the daemon that shares sn0 refuses") && why.contains("`ulimit -n`"), "{why}");
    assert_eq!(write(&first, &peer, HALF, 1), Status::Success);
    until("what was begun for who was refused is gone", || devices(&veth).len() == 1 + more.len());
    more.clear();
    until("those who leave make room", || open(&veth, HERE, "shared").is_ok());
}

#[test]
fn a_daemon_that_may_not_lock_memory_tells_its_clients_which_limit_to_raise() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let limit = "prlimit --memlock=1048576:1048576 setpriv --bounding-set -ipc_lock --inh-caps -ipc_lock";
    let daemon = client(&format!("{} {limit}", inside(&veth, HERE)), "share");
    if daemon.said == "nothing" {
        return left_out("no prlimit or setpriv");
    }
    assert_eq!(daemon.said, "0 taken over");
    for _ in 0..2 {
        let why = open(&veth, HERE, "shared").err().unwrap().to_string();
        assert!(why.contains("the daemon that shares sn0 refuses") && why.contains("`ulimit -l`"), "{why}");
    }
    until("what was begun is gone", || devices(&veth).is_empty() && clients(&veth).is_empty());
}

#[test]
fn a_client_without_descriptors_is_told_which_limit_to_raise() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let _daemon = share(&veth, usual(&veth)).unwrap();
    let told = client(&inside(&veth, HERE), "descriptors");
    assert!(told.said.starts_with("opened after"), "{}", told.said);
    until("nothing is left", || clients(&veth).is_empty() && devices(&veth).is_empty());
}

#[test]
fn a_daemon_of_another_version_is_named() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    std::fs::create_dir_all("/run/softnic").unwrap();
    let (path, listener) = (socket_of(&veth), unix());
    bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    listen(&listener, 1).unwrap();
    let daemon = std::thread::spawn(move || {
        let connection = accept(&listener).unwrap();
        let _ = hear(&connection);
        say(&connection, &[2, 4, b'n', b'o']);
    });
    let why = open(&veth, HERE, "shared").err().unwrap().to_string();
    std::fs::remove_file(path).unwrap();
    assert!(why.contains("its messages are of version 2, ours of version 1"), "{why}");
    daemon.join().unwrap();
}

#[test]
fn a_folder_of_sockets_that_somebody_else_made_is_refused_by_daemon_and_client() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    for (made, line) in [
        ("mkdir /run/softnic; chown 65534 /run/softnic", "it belongs to another user"),
        ("mkdir -m 777 /run/softnic", "others may write there"),
        ("ln -s /tmp /run/softnic", "it is no folder"),
    ] {
        let script = std::env::temp_dir().join(format!("softnic-squat-{}-{}", std::process::id(), made.len()));
        let mut file = std::fs::File::create(&script).unwrap();
        writeln!(file, "mount -t tmpfs -o mode=1777 squat /run && {made} && exec \"$@\"").unwrap();
        let wrapper = format!("{} unshare --mount sh {}", inside(&veth, HERE), script.display());
        let said = ["open", "share"].map(|role| client(&wrapper, role).said.clone());
        std::fs::remove_file(script).unwrap();
        assert!(
            said.iter().all(|said| said.contains("/run/softnic is not to be trusted") && said.contains(line)),
            "{said:?}"
        );
    }
}
