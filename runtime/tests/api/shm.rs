//! NICs that share a network in memory: the same addresses, told apart by the numbers of their queue pairs. Here they are of one process; to each other they
//! are strangers all the same.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;

use softnic_cm::{Connect, Event, Listen, PortSpace};
use softnic_nic::QpKind;
use softnic_nic::sharing::Process;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::negotiation::Choice;
use softnic_nic::transports::{Data, RecvWr, SendFlags, SendOp, SendWr, Status};
use softnic_runtime::api::{
    CmConnection, CmListener, CmSink, ConnectionManager, Context, DeviceSpec, OpenError, OpenOptions, PathError,
    Progress, QpOptions, RawPort, Transport,
};
use softnic_wire::mad::cm::RejReason;
use softnic_wire::{Psn, Qpn};

use crate::world::{LIMIT, SIZE, Side, completion, connect, contents, filled, side, write};

/// A network of the test's own, which is removed with it.
struct Place(std::path::PathBuf);

impl Place {
    fn new() -> Place {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Place(std::env::temp_dir().join(format!("softnic-api-shm-{}-{n}", std::process::id())))
    }

    fn device(&self) -> DeviceSpec {
        format!("shm:{}", self.0.display()).parse().unwrap()
    }

    fn open(&self, options: &OpenOptions) -> Context {
        Context::open(&self.device(), options).unwrap()
    }

    fn sides(&self, progress: Progress) -> [Side; 2] {
        let options = OpenOptions { progress: Some(progress), ..OpenOptions::default() };
        [(); 2].map(|()| side(self.open(&options)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn writes_reach_the_nic_whose_queue_pair_it_is_with_the_same_addresses_on_both_sides() {
    for progress in [Progress::Inline, Progress::Dedicated] {
        let place = Place::new();
        let [a, b] = place.sides(progress);
        let addresses: Vec<String> = a.context.addresses().iter().map(ToString::to_string).collect();
        assert_eq!((addresses, a.context.addresses()), (vec!["127.0.0.1".into(), "::1".into()], b.context.addresses()));
        assert_ne!(Process::of(a.qp.qpn()), Process::of(b.qp.qpn()));
        connect(&a, &b);
        let bytes = filled(&a, 1);
        write(&a, &b, 7, SIZE).unwrap();
        assert_eq!(
            completion(&a, || {
                b.context.progress();
            })
            .status,
            Status::Success
        );
        assert_eq!(contents(&b), bytes);
    }
}

#[test]
fn a_nic_talks_to_itself_over_a_shared_network() {
    let place = Place::new();
    let a = side(place.open(&OpenOptions::default()));
    let b = side(a.context.clone());
    connect(&a, &b);
    let bytes = filled(&a, 3);
    write(&a, &b, 7, SIZE).unwrap();
    assert_eq!(completion(&a, || ()).status, Status::Success);
    assert_eq!(contents(&b), bytes);
}

#[test]
fn every_transport_is_agreed_on_and_carries_data_with_loss() {
    for transport in ["rc", "sr", "lowar:8,1"] {
        let place = Place::new();
        let fault = Some("loss=1e-2".parse().unwrap());
        let options = OpenOptions { progress: Some(Progress::Dedicated), fault, ..OpenOptions::default() };
        let transport: Transport = Transport::parse_rc(transport).unwrap();
        let sides = [(); 2].map(|()| side(place.open(&options))).map(|side| {
            let options = QpOptions { transport, ..QpOptions::new(QpKind::Rc, &side.cq) };
            Side { qp: side.pd.create_qp(&options).unwrap(), ..side }
        });
        let [a, b] = &sides;
        connect(a, b);
        let bytes = filled(a, 5);
        for n in 0..4 {
            write(a, b, n, SIZE).unwrap();
            assert_eq!(completion(a, || ()).status, Status::Success, "{transport}");
        }
        assert_eq!(contents(b), bytes, "{transport}");
        if transport != Transport::Rc {
            assert_eq!(a.qp.choice(), Some(Choice::Agreed), "{transport}");
        }
    }
}

#[test]
fn requests_find_who_listens_and_answers_who_asked_among_three() {
    let place = Place::new();
    let nics = [(); 3].map(|()| place.open(&OpenOptions::default()));
    let managers = nics.each_ref().map(|nic| ConnectionManager::new(nic).unwrap());
    let here = nics[0].addresses()[0];
    let listeners: Vec<_> = [7174, 7175]
        .into_iter()
        .zip(&managers[1..])
        .map(|(port, manager)| CmListener::bind(manager, (here, port).into()).unwrap())
        .collect();
    // The port of one is nobody else's.
    assert!(CmListener::bind(&managers[0], (here, 7174).into()).is_err());
    std::thread::scope(|scope| {
        for (port, (listener, nic)) in [7174, 7175].into_iter().zip(listeners.iter().zip(&nics[1..])) {
            let (manager, client) = (&managers[0], side(nics[0].clone()));
            let client = scope.spawn(move || {
                let to = (here, port).into();
                let connection = CmConnection::connect(manager, &client.qp, to, b"hello", LIMIT).unwrap();
                assert_eq!(&connection.private_data()[..5], b"come\0");
                assert!(connection.disconnect(LIMIT));
            });
            let server = side(nic.clone());
            let request = listener.next(LIMIT).expect("somebody asks");
            let mut connection = request.accept(&server.qp, b"come", LIMIT).unwrap();
            while !connection.is_over() {
                std::thread::yield_now();
            }
            client.join().unwrap();
        }
    });
    // A port that nobody has is refused at once, by the asking side itself.
    let (to, events) = channel();
    let connect = Connect::ip((here, 40_000).into(), (here, 9999).into(), Qpn::new(17), Psn::new(5)).unwrap();
    managers[2].connect(&connect, CmSink::channel(to)).unwrap();
    let Event::Rejected { rej, .. } = events.recv_timeout(LIMIT).unwrap() else { panic!("a refusal") };
    assert_eq!(rej.reason, RejReason::INVALID_SERVICE_ID);
    // What a listener leaves is free.
    drop(listeners);
    CmListener::bind(&managers[0], (here, 7174).into()).unwrap();
    // A service that is another's stays its own when the claim is refused.
    let listen = Listen::port(PortSpace::Udp, (here, 7000).into());
    let (to, _events) = channel();
    managers[1].listen(&listen, CmSink::channel(to.clone())).unwrap();
    assert!(managers[2].listen(&listen, CmSink::channel(to.clone())).is_err());
    assert!(managers[1].listen(&listen, CmSink::channel(to.clone())).is_err(), "twice in one process, too");
    assert!(managers[2].listen(&listen, CmSink::channel(to)).is_err(), "the first claim is still there");
    drop((managers, nics));
    // A thread of a manager may hold its NIC for a moment longer.
    let left = || -> Vec<_> { std::fs::read_dir(&place.0).unwrap().map(|file| file.unwrap().file_name()).collect() };
    let begin = std::time::Instant::now();
    while left() != ["lock"] && begin.elapsed() < LIMIT {
        std::thread::yield_now();
    }
    assert_eq!(left(), ["lock"], "who is closed is not there any more");
}

#[test]
fn a_datagram_to_a_group_reaches_members_behind_the_same_addresses() {
    const QKEY: u32 = 0x1234;
    let group = [239, 7, 7, 7].into();
    let place = Place::new();
    let open = || {
        let nic = place.open(&OpenOptions { progress: Some(Progress::Dedicated), ..OpenOptions::default() });
        let (pd, cq) = (nic.alloc_pd(), nic.create_cq(16).unwrap());
        let qp = pd.create_qp(&QpOptions::new(QpKind::Ud, &cq)).unwrap();
        qp.open_datagrams(QKEY).unwrap();
        let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE).unwrap();
        qp.post_recv(&RecvWr { wr_id: 1, sges: &[mr.sge(0, 4096)], best_effort: None }).unwrap();
        (nic, pd, cq, qp, mr)
    };
    let (nic, pd, own_cq, qp, mr) = open();
    let members = [open(), open()];
    for (.., member, _) in &members {
        member.attach_multicast(group).unwrap();
    }
    // The sender is a member, too.
    qp.attach_multicast(group).unwrap();
    let ah = pd.create_ah(&nic.path_to(group, 0).unwrap()).unwrap();
    let sges = [mr.sge(0, 100)];
    let (data, to) = (Data::Gather(&sges), Some(ah.to(Qpn::MULTICAST, QKEY)));
    let flags = SendFlags::default();
    qp.post_send(&SendWr { wr_id: 2, op: SendOp::Send, data, flags, best_effort: None, to }).unwrap();
    for cq in members.iter().map(|(_, _, cq, ..)| cq).chain([&own_cq]) {
        let done = std::iter::from_fn(|| {
            assert!(cq.wait(LIMIT).unwrap(), "it is lost");
            cq.poll_one().unwrap()
        });
        let came = done.into_iter().find(|done| done.wr_id == 1).expect("it comes");
        assert_eq!(came.byte_len, 140);
        assert!(cq.poll_one().unwrap().is_none_or(|done| done.wr_id == 2), "it comes once");
    }
}

#[test]
fn numbers_of_queue_pairs_are_their_processes_own_and_run_out_only_when_all_are_taken() {
    let place = Place::new();
    let nic = place.open(&OpenOptions::default());
    let (pd, cq) = (nic.alloc_pd(), nic.create_cq(1).unwrap());
    let options = QpOptions::new(QpKind::Rc, &cq);
    let mut qps = Vec::new();
    while let Ok(qp) = pd.create_qp(&options) {
        qps.push(qp);
    }
    assert!(qps.len() > 16_000, "{}", qps.len());
    let numbers: HashSet<u32> = qps.iter().map(|qp| qp.qpn().value()).collect();
    let owners: HashSet<_> = qps.iter().map(|qp| Process::of(qp.qpn())).collect();
    assert_eq!((numbers.len(), owners.len()), (qps.len(), 1));
}

#[test]
fn other_hosts_are_not_on_the_network_and_raw_frames_neither() {
    let place = Place::new();
    let nic = place.open(&OpenOptions::default());
    assert!(matches!(nic.path_to([10, 0, 0, 1].into(), 0), Err(PathError::Elsewhere(_))));
    let raw = RawPort::open(&place.device(), &OpenOptions::default());
    assert!(matches!(raw.err(), Some(OpenError::NoRawFrames(_))));
}
