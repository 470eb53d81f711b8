use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

use softnic_nic::sharing::PROCESS_BITS;
use softnic_wire::mad::ip_cm::ServiceId;
use softnic_wire::{Addresses, ExtHeaders, MacAddr, Opcode, PacketFields, Path, Psn, Qpn, Template};

use super::*;

/// A folder for one test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("softnic-shm-test-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Folder(path)
    }

    fn join(&self) -> Shm {
        self.try_join().unwrap()
    }

    fn try_join(&self) -> Result<Shm, ShmError> {
        Shm::open(&ShmSpec::parse(self.0.to_str(), None).unwrap())
    }

    fn files(&self) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(&self.0).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A frame for a queue pair of a process.
fn frame_to(process: Process, number: u32) -> Vec<u8> {
    frame_to_qpn(
        Qpn::new(process.number() << (24 - PROCESS_BITS) | 9),
        Addresses::V4 { src: LOCAL, dst: LOCAL },
        number,
    )
}

const LOCAL: std::net::Ipv4Addr = std::net::Ipv4Addr::LOCALHOST;

fn frame_to_qpn(qpn: Qpn, addresses: Addresses, number: u32) -> Vec<u8> {
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    let path = Path {
        src_mac: mac,
        dst_mac: mac,
        tags: [None; 2],
        addresses,
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        src_port: 50_000,
    };
    let fields = PacketFields {
        opcode: Opcode::RC_SEND_ONLY,
        psn: Psn::new(number),
        ack_req: false,
        solicited: false,
        becn: false,
        payload_len: 256,
    };
    let mut bytes = [0; MAX_FRAME];
    let mut tx = TxFrame::new(&mut bytes);
    Template::new(&path, qpn, 0xffff).build(&mut tx, &fields, &ExtHeaders::default(), &[number as u8; 256]).unwrap();
    let len = tx.len();
    bytes[..len].to_vec()
}

/// Sends frames; returns how many were accepted.
fn send(shm: &mut Shm, frames: &[impl AsRef<[u8]>]) -> usize {
    let mut rest = frames.iter();
    shm.transmit(frames.len(), &mut |tx| rest.next().is_some_and(|f| tx.put_frame(f.as_ref()).is_ok())).unwrap()
}

/// Receives until `count` frames have arrived.
fn receive(shm: &mut Shm, count: usize) -> Vec<Vec<u8>> {
    let mut frames = Vec::new();
    while frames.len() < count {
        let came = shm.receive(32, &mut |frame| frames.push(frame.to_vec())).unwrap();
        if came == 0 {
            shm.wait(Duration::from_secs(60)).unwrap();
        }
    }
    frames
}

/// Whether a descriptor becomes readable within `limit` seconds.
fn shows(sign: &OwnedFd, limit: i64) -> bool {
    let mut fds = [rustix::event::PollFd::new(sign, rustix::event::PollFlags::IN)];
    rustix::event::poll(&mut fds, Some(&Timespec { tv_sec: limit, tv_nsec: 0 })).unwrap() == 1
}

#[test]
fn frames_go_to_the_process_that_has_their_queue_pair_whoever_it_is() {
    let folder = Folder::new("three");
    let mut all = [folder.join(), folder.join(), folder.join()];
    let names: Vec<Process> = all.iter().map(Shm::process).collect();
    assert_eq!(names.iter().map(|p| p.number()).collect::<Vec<_>>(), [1, 2, 3]);
    for from in 0..3 {
        // The destinations alternate, so each frame is written into the ring of the previous destination, and then copied.
        let frames: Vec<_> = (0..30).map(|n| frame_to(names[n % 3], n as u32)).collect();
        assert_eq!(send(&mut all[from], &frames), 30);
        for (to, shm) in all.iter_mut().enumerate() {
            let expected: Vec<_> = frames.iter().skip(to).step_by(3).cloned().collect();
            assert_eq!(receive(shm, 10), expected, "from {from} to {to}");
        }
    }
    assert!(all.iter().all(|shm| shm.lost() == 0));
    drop(all);
    assert_eq!(folder.files(), ["lock"], "nothing is left behind");
}

#[test]
fn frames_for_nobody_are_lost_and_counted() {
    let folder = Folder::new("nobody");
    let mut shm = folder.join();
    assert_eq!(
        send(
            &mut shm,
            &[
                frame_to(Process::LAST, 1),
                frame_to_qpn(Qpn::new(5), Addresses::V4 { src: LOCAL, dst: LOCAL }, 1),
                vec![0xff; 60]
            ]
        ),
        3
    );
    assert_eq!(shm.lost(), 3);
}

#[test]
fn a_process_that_reads_nothing_stops_nobody_and_hears_again_when_it_reads() {
    let folder = Folder::new("stopped");
    let (mut a, mut stopped, mut b) = (folder.join(), folder.join(), folder.join());
    let (to_stopped, to_b) = (frame_to(stopped.process(), 1), frame_to(b.process(), 2));
    let mut taken = 0;
    // The ring of the stopped process fills, and then frames for it are lost.
    while a.lost() < 100 {
        taken += send(&mut a, &vec![to_stopped.clone(); 32]);
    }
    assert_eq!(send(&mut a, &vec![to_b.clone(); 32]), 32);
    assert_eq!(receive(&mut b, 32), vec![to_b; 32]);
    let kept = taken - a.lost() as usize - usize::from(a.held.is_some());
    assert_eq!(receive(&mut stopped, kept), vec![to_stopped.clone(); kept]);
    assert_eq!(send(&mut a, &[&to_stopped]), 1);
    assert_eq!(receive(&mut stopped, 1), [to_stopped]);
}

#[test]
fn what_was_sent_to_a_process_that_went_is_not_delivered_to_the_next_one() {
    let folder = Folder::new("gone");
    let mut a = folder.join();
    let b = folder.join();
    let number = b.process();
    assert_eq!(send(&mut a, &[frame_to(number, 1)]), 1);
    drop(b);
    // A ring that is no longer read accepts a few more frames, or none.
    send(&mut a, &[frame_to(number, 2)]);
    // All other numbers are given out before this one.
    let lock = folder.0.join("lock");
    assert_ne!(folder.join().process(), number, "numbers rest");
    fs::write(&lock, format!("softnic shm 1, last {:04}\n", number.number() - 1)).unwrap();
    let mut next = folder.join();
    assert_eq!(next.process(), number);
    while a.lost() == 0 {
        // Until the end of the first process is noticed.
        a.forget_ended();
        send(&mut a, &[frame_to(number, 3)]);
    }
    std::thread::sleep(2 * ABSENT);
    assert_eq!(send(&mut a, &[frame_to(number, 4)]), 1);
    assert_eq!(receive(&mut next, 1), [frame_to(number, 4)]);
}

#[test]
fn a_service_is_one_processs_at_a_time_and_what_asks_for_it_finds_it() {
    let folder = Folder::new("services");
    let (a, b) = (folder.join(), folder.join());
    let service = ServiceId(0x0106_4853);
    assert_eq!(a.directory.owner_of(service).unwrap(), None);
    assert!(a.directory.claim(service).unwrap() && a.directory.claim(service).unwrap());
    assert!(!b.directory.claim(service).unwrap());
    assert_eq!(b.directory.owner_of(service).unwrap(), Some(a.process()));
    a.directory.release(service);
    assert!(!b.directory.claim(service).unwrap(), "it was claimed twice");
    a.directory.release(service);
    assert!(b.directory.claim(service).unwrap());
    // A process that ends without cleaning up: its socket is closed, its files remain.
    let claimed_by_dead = folder.0.join("service-00000000000000aa");
    fs::write(&claimed_by_dead, "0777").unwrap();
    assert!(a.directory.claim(ServiceId(0xaa)).unwrap());
    // A process that gets a number does not get the claims of an earlier owner.
    fs::write(folder.0.join("service-00000000000000bb"), "0003").unwrap();
    let c = folder.join();
    assert_eq!((c.process().number(), c.directory.owner_of(ServiceId(0xbb)).unwrap()), (3, None));
}

#[test]
fn a_group_reaches_the_processes_that_have_members() {
    let folder = Folder::new("groups");
    let (mut a, mut b, mut c) = (folder.join(), folder.join(), folder.join());
    let group: IpAddr = [239, 1, 2, 3].into();
    let dst = [239, 1, 2, 3].into();
    let member = GroupMember::join(&b.directory, group).unwrap();
    let also = GroupMember::join(&b.directory, group).unwrap();
    let own = GroupMember::join(&a.directory, group).unwrap();
    let frame = frame_to_qpn(Qpn::MULTICAST, Addresses::V4 { src: LOCAL, dst }, 1);
    drop(also);
    send(&mut a, &[&frame]);
    assert_eq!(receive(&mut b, 1), std::slice::from_ref(&frame));
    drop(member);
    std::thread::sleep(2 * Duration::from_millis(1));
    send(&mut a, &[frame, frame_to(b.process(), 7), frame_to(c.process(), 8)]);
    assert_eq!(receive(&mut b, 1), [frame_to(b.process(), 7)]);
    assert_eq!(receive(&mut c, 1), [frame_to(c.process(), 8)]);
    assert!(a.receive(8, &mut |_| panic!("not to the sender")).is_ok());
    drop(own);
}

#[test]
fn who_sleeps_lets_go_of_what_those_who_went_have_brought() {
    let folder = Folder::new("went");
    let (mut a, mut b) = (folder.join(), folder.join());
    let (to_a, to_b) = (frame_to(a.process(), 1), frame_to(b.process(), 1));
    send(&mut b, &[&to_a]);
    receive(&mut a, 1);
    send(&mut a, &[&to_b]);
    assert!(a.prepare_sleep() && a.inlets.len() == 1);
    drop(b);
    assert!(shows(&a.readiness().unwrap()[0], 60));
    assert!(a.prepare_sleep() && a.inlets.is_empty());
    assert!(a.ways.iter().all(|way| !matches!(way, Way::Ring(_))));
}

#[test]
fn who_sleeps_is_woken_by_a_frame() {
    let folder = Folder::new("sleep");
    let (mut a, mut b) = (folder.join(), folder.join());
    let frame = frame_to(b.process(), 1);
    let reader = std::thread::spawn(move || {
        let mut came = 0;
        while came < 200 {
            came += receive(&mut b, 1).len();
        }
    });
    for _ in 0..200 {
        while send(&mut a, &[&frame]) == 0 {}
        std::thread::sleep(Duration::from_micros(300));
    }
    reader.join().unwrap();
}

#[test]
fn a_round_of_somebody_else_does_not_take_the_sign_from_who_sleeps() {
    let folder = Folder::new("sign");
    let (mut a, mut b) = (folder.join(), folder.join());
    let frame = frame_to(b.process(), 1);
    send(&mut a, &[&frame]);
    receive(&mut b, 1);
    let sign = b.readiness().unwrap().remove(0);
    for _ in 0..3 {
        // One thread is about to sleep while another thread makes rounds.
        assert!(b.prepare_sleep() && !shows(&sign, 0));
        assert_eq!(b.receive(8, &mut |_| ()).unwrap(), 0);
        send(&mut a, &[&frame]);
        for _ in 0..2 * ROUNDS_TO_LOOK {
            b.receive(8, &mut |_| ()).unwrap();
        }
        assert!(shows(&sign, 60));
    }
}

#[test]
fn strangers_at_the_door_are_turned_away_and_counted() {
    let folder = Folder::new("door");
    let (mut a, mut b) = (folder.join(), folder.join());
    let door = folder.0.join(format!("{:04}", b.process().number()));
    // A process that only connects is not counted.
    drop(UnixStream::connect(&door).unwrap());
    // Another message is sent.
    rustix::net::send(UnixStream::connect(&door).unwrap(), b"GET / HTTP/1.1\r\n", rustix::net::SendFlags::empty())
        .unwrap();
    // The memory is not a ring.
    let file = rustix::fs::memfd_create(c"x", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    meeting::hand_over(&UnixStream::connect(&door).unwrap(), &file).unwrap();
    while b.lost() < 2 {
        std::thread::yield_now();
    }
    // One process brings more rings than the limit.
    let rings: Vec<_> = (0..100)
        .map(|_| {
            let (writer, file) = ring::Writer::create().unwrap();
            let connection = UnixStream::connect(&door).unwrap();
            // A connection that was turned away may be closed already.
            let _ = meeting::hand_over(&connection, &file);
            (writer, connection)
        })
        .collect();
    while b.lost() < 2 + 84 {
        std::thread::yield_now();
    }
    drop(rings);
    while !b.inlets.is_empty() || b.door.has_arrivals() {
        b.receive(8, &mut |_| panic!("nothing was sent")).unwrap();
        b.forget_ended();
    }
    assert_eq!(send(&mut a, &[frame_to(b.process(), 1)]), 1);
    assert_eq!(receive(&mut b, 1).len(), 1);
}

#[test]
fn one_who_scribbles_into_its_ring_harms_itself_alone() {
    let folder = Folder::new("scribble");
    let (mut a, mut evil, mut b) = (folder.join(), folder.join(), folder.join());
    let to_b = frame_to(b.process(), 1);
    send(&mut evil, &[&to_b]);
    send(&mut a, &[&to_b]);
    assert_eq!(receive(&mut b, 2).len(), 2);
    let Way::Ring(outlet) = &mut evil.ways[b.process().number() as usize] else { panic!("there is a ring") };
    outlet.writer.place().unwrap().unwrap().fill(0xff);
    outlet.writer.commit(MAX_FRAME + 1);
    send(&mut a, &[to_b.clone(), to_b.clone()]);
    assert_eq!(receive(&mut b, 2), [to_b.clone(), to_b]);
    while b.inlets.len() > 1 {
        b.receive(8, &mut |_| panic!("nothing was sent")).unwrap();
    }
    assert_eq!(b.lost(), 1);
}

#[test]
fn a_process_that_floods_qp1_is_cut_to_its_rate() {
    let folder = Folder::new("flood");
    let (mut a, mut b) = (folder.join(), folder.join());
    // Negotiation messages for a queue pair are sent to QP1.
    let gsi = frame_to_qpn(Qpn::GSI, Addresses::V4 { src: LOCAL, dst: LOCAL }, 1);
    let way = a.way_to(b.process());
    assert!(way.is_some());
    let (mut sent, mut came) = (0, 0);
    while sent < 5000 {
        let Way::Ring(outlet) = &mut a.ways[b.process().number() as usize] else { panic!("there is a ring") };
        if let Some(place) = outlet.writer.place().unwrap() {
            place[..gsi.len()].copy_from_slice(&gsi);
            outlet.writer.commit(gsi.len());
            sent += 1;
        }
        b.receive(32, &mut |_| came += 1).unwrap();
    }
    while b.lost() + came < sent {
        b.receive(32, &mut |_| came += 1).unwrap();
    }
    assert!(came >= 2048 && b.lost() > 0, "{came} came, {} were lost", b.lost());
}

#[test]
fn folders_that_are_not_to_be_trusted_are_refused() {
    let folder = Folder::new("trust");
    let path = &folder.0;
    let why = || folder.try_join().err().map(|e| e.to_string()).unwrap_or_default();
    fs::create_dir(path).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(why().contains("others may enter it"), "{}", why());
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(why().contains("everybody may write there"), "{}", why());
    fs::remove_dir(path).unwrap();
    symlink("/tmp", path).unwrap();
    assert!(why().contains("it is no folder"), "{}", why());
    fs::remove_file(path).unwrap();
    fs::write(path, "").unwrap();
    assert!(why().contains("it is no folder"), "{}", why());
    fs::remove_file(path).unwrap();
    assert!(folder.try_join().is_ok());
    let long = ShmSpec::parse(Some(&format!("/tmp/{}", "x".repeat(120))), None).unwrap();
    assert!(matches!(Shm::open(&long), Err(ShmError::TooLong(_))));
    let nowhere = ShmSpec::parse(Some("/proc/softnic/x"), None).unwrap();
    assert!(matches!(Shm::open(&nowhere), Err(ShmError::Folder { .. })));
}

#[test]
fn a_network_of_another_version_is_refused_while_anybody_is_there() {
    let folder = Folder::new("version");
    let _first = folder.join();
    fs::write(folder.0.join("lock"), "softnic shm 99, last 0001\n").unwrap();
    let why = folder.try_join().err().unwrap().to_string();
    assert!(why.contains("softnic shm 99") && why.contains("shm:mine"), "{why}");
    drop(_first);
    assert!(folder.try_join().is_ok());
}

#[test]
fn what_a_process_was_writing_when_it_was_killed_is_removed_by_who_comes_next() {
    let folder = Folder::new("unfinished");
    let first = folder.join();
    drop(std::os::unix::net::UnixListener::bind(folder.0.join("0005")).unwrap());
    std::fs::write(folder.0.join("new-0005"), "00").unwrap();
    std::fs::write(folder.0.join("new-0001"), "0001").unwrap();
    let _second = folder.join();
    let files = folder.files();
    assert!(!files.iter().any(|name| name.ends_with("0005")), "{files:?}");
    assert!(files.contains(&"new-0001".into()), "one that lives may be writing: {files:?}");
    drop(first);
}

#[test]
fn a_socket_that_somebody_left_behind_is_replaced_and_a_full_network_says_so() {
    let folder = Folder::new("full");
    drop(folder.join());
    // As if each process had been killed.
    for number in 1..=Process::LAST.number() {
        drop(UnixListener::bind(folder.0.join(format!("{number:04}"))).unwrap());
    }
    let shm = folder.join();
    assert_eq!(shm.process().number(), 2);
    let held: Vec<_> = (1..=Process::LAST.number())
        .filter(|&n| n != 2)
        .map(|n| {
            let path = folder.0.join(format!("{n:04}"));
            // Some of the leftover sockets were removed.
            let _ = fs::remove_file(&path);
            UnixListener::bind(path).unwrap()
        })
        .collect();
    let before = folder.files();
    assert!(matches!(folder.try_join(), Err(ShmError::Full)));
    assert_eq!(folder.files(), before, "who is refused takes nobody's place away");
    drop(held);
}

mod limits;
mod users;
