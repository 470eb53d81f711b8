//! A NIC with a stack of its own, and a socket at the other end of its wire that says what a test wants.

use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::Mutex;

use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_wire::{MacAddr, Psn, Qpn};

use super::*;
use crate::api::{Connection, Context, OpenOptions, PeerPath, QpOptions};

const OURS: [u8; 4] = [10, 9, 0, 1];
const PEER: [u8; 4] = [10, 9, 0, 2];
const OLD: MacAddr = MacAddr([2, 0, 0, 0, 0, 8]);
const NEW: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const ARP: [u8; 2] = [8, 6];
/// Long enough for the slowest machine; no test that passes waits for it.
const LIMIT: Duration = Duration::from_secs(60);

/// A NIC, the other end of its wire, and what it told people.
struct Wire {
    folder: PathBuf,
    nic: Context,
    socket: UnixDatagram,
    said: Arc<Mutex<Vec<String>>>,
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Wire {
    fn new(name: &str) -> Wire {
        let folder = std::env::temp_dir().join(format!("softnic-own-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [ours, peers] = ["a", "b"].map(|name| folder.join(name));
        let socket = UnixDatagram::bind(&peers).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let device = format!("dgram:{},{},ip=10.9.0.1/24", ours.display(), peers.display()).parse().unwrap();
        let said = Arc::<Mutex<Vec<String>>>::default();
        let to = Arc::clone(&said);
        let on_notice = Some(LineSink::new(move |line| to.lock().unwrap().push(line.into())));
        let nic = Context::open(&device, &OpenOptions { on_notice, ..OpenOptions::default() }).unwrap();
        socket.connect(&ours).unwrap();
        Wire { folder, nic, socket, said }
    }

    /// The next frame of the NIC for which `is_it`.
    fn next(&self, is_it: impl Fn(&[u8]) -> bool) -> Vec<u8> {
        let mut room = [0; 4500];
        loop {
            let len = self.socket.recv(&mut room).expect("a frame within the limit");
            if is_it(&room[..len]) {
                return room[..len].to_vec();
            }
        }
    }

    /// The peer says by ARP where an address is; to the NIC's own question (2), or unasked (1).
    fn say_arp(&self, operation: u8, mac: MacAddr, address: [u8; 4]) {
        let to = self.nic.port().mac;
        let message = [&[0, 1, 8, 0, 6, 4, 0, operation][..], &mac.0, &address, &to.0, &OURS].concat();
        self.socket.send(&[&to.0[..], &mac.0, &ARP, &message].concat()).unwrap();
    }

    /// The path to the peer, which answers with its old MAC address.
    fn path(&self) -> PeerPath {
        std::thread::scope(|scope| {
            let asks = scope.spawn(|| self.nic.path_to(PEER.into(), 0).unwrap());
            self.next(|frame| frame[12..14] == ARP && frame[38..42] == PEER);
            self.say_arp(2, OLD, PEER);
            asks.join().unwrap()
        })
    }
}

fn until(what: impl Fn() -> bool) {
    let start = Instant::now();
    while !what() {
        assert!(start.elapsed() < LIMIT, "it does not happen");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn queue_pairs_that_are_connected_follow_a_peer_that_moves() {
    let wire = Wire::new("moves");
    let path = wire.path();
    assert_eq!(path.attr.dst_mac, OLD);
    let (pd, cq) = (wire.nic.alloc_pd(), wire.nic.create_cq(8).unwrap());
    let qp = pd.create_qp(&QpOptions::new(QpKind::Rc, &cq)).unwrap();
    qp.init(Access::NONE).unwrap();
    qp.connect(&Connection::new(path, Qpn::new(7), Psn::new(0), Psn::new(0))).unwrap();
    let goes_to = || qp.query().path.unwrap().dst_mac;
    // Another one that nobody asked for changes nothing.
    wire.say_arp(1, MacAddr([2, 0, 0, 0, 0, 7]), [10, 9, 0, 3]);
    assert_eq!(goes_to(), OLD);
    wire.say_arp(1, NEW, PEER);
    until(|| goes_to() == NEW);
}

const LINE: &str = "10.9.0.1 is on the link already: 02:00:00:00:00:08 has it; packets to it may go there: give one of the two another address";

#[test]
fn an_address_that_another_has_is_told_in_one_line() {
    let wire = Wire::new("conflict");
    wire.say_arp(1, OLD, OURS);
    until(|| !wire.said.lock().unwrap().is_empty());
    assert_eq!(wire.said.lock().unwrap()[0], LINE);
}

#[test]
fn however_often_another_claims_an_address_it_is_told_once() {
    let said = Arc::<Mutex<Vec<String>>>::default();
    let to = Arc::clone(&said);
    let port = Port {
        engines: Vec::new(),
        events: Arc::new(Events::new(None).unwrap()),
        link_down: LinkDown::Lose,
        number: 1,
        say: Some(LineSink::new(move |line| to.lock().unwrap().push(line.into()))),
    };
    let (news, refresh) = (Arc::default(), Instant::now());
    let mut follower = Follower { port, line: None, up: true, news, refresh, said: BTreeSet::new() };
    for mac in [OLD, OLD, NEW] {
        follower.tell(&Conflict { address: OURS.into(), mac });
    }
    assert_eq!(*said.lock().unwrap(), [LINE]);
}

/// Whether a frame is a report of IGMPv3 that says this of a group: 4 for one that is joined, 3 for one that is left (RFC 3376, 4.2.12).
fn reports(frame: &[u8], change: u8, group: [u8; 4]) -> bool {
    let is_igmp = frame.len() >= 50 && frame[12..14] == [8, 0] && frame[23] == 2;
    let message = is_igmp.then(|| &frame[14 + usize::from(frame[14] & 0xf) * 4..]);
    // Records without sources, behind a header of as many bytes.
    let says = |record: &[u8]| record[0] == change && record[4..] == group;
    message.is_some_and(|m| m[0] == 0x22 && m[8..].chunks_exact(8).any(says))
}

#[test]
fn groups_are_reported_when_queue_pairs_join_and_leave_them() {
    let wire = Wire::new("groups");
    let group = [239, 1, 2, 3];
    let (pd, cq) = (wire.nic.alloc_pd(), wire.nic.create_cq(8).unwrap());
    let qp = || {
        let qp = pd.create_qp(&QpOptions::new(QpKind::Ud, &cq)).unwrap();
        qp.open_datagrams(1).unwrap();
        qp
    };
    let (first, second) = (qp(), qp());
    first.attach_multicast(group.into()).unwrap();
    wire.next(|frame| reports(frame, 4, group));
    second.attach_multicast(group.into()).unwrap();
    first.detach_multicast(group.into()).unwrap();
    // The other one is a member still: that it is left is first said when that one is destroyed.
    second.attach_multicast([239, 1, 2, 4].into()).unwrap();
    let next = wire.next(|frame| reports(frame, 4, [239, 1, 2, 4]) || reports(frame, 3, group));
    assert!(reports(&next, 4, [239, 1, 2, 4]), "{next:?}");
    drop(second);
    wire.next(|frame| reports(frame, 3, group));
}
