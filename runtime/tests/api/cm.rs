//! Connections by address, and the datagrams that they are made with.

use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use softnic_cm::{Accept, Connect, Event, Listen, PortSpace};
use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::{Data, RecvWr, SendFlags, SendOp, SendWr, Status};
use softnic_runtime::api::{
    CmConnection, CmListener, CmSink, CompletionQueue, ConnectError, ConnectionManager, Context, MemoryRegion,
    OpenOptions, QpOptions, QueuePair,
};
use softnic_wire::mad::cm::RejReason;
use softnic_wire::{Psn, Qpn};

const LIMIT: Duration = Duration::from_secs(60);

fn nics() -> [Context; 2] {
    let options = OpenOptions::default();
    Context::open_pair([&options, &options]).unwrap()
}

fn next(events: &Receiver<Event>) -> Event {
    events.recv_timeout(LIMIT).expect("an event comes")
}

#[test]
fn a_connection_is_asked_for_accepted_and_ended() {
    let [a, b] = nics();
    let (client, server) = (ConnectionManager::new(&a).unwrap(), ConnectionManager::new(&b).unwrap());
    assert!(ConnectionManager::new(&a).is_err(), "QP1 has one owner");
    let ((to_client, at_client), (to_server, at_server)) = (channel(), channel());
    let address = |nic: &Context, port| (nic.addresses()[0], port).into();
    let listen = Listen::port(PortSpace::Tcp, address(&b, 7174));
    server.listen(&listen, CmSink::channel(to_server)).unwrap();
    let ask = |port| {
        let connect = Connect::ip(address(&a, 40_000), address(&b, port), Qpn::new(17), Psn::new(5)).unwrap();
        client.connect(&Connect { private_data: b"hello", ..connect }, CmSink::channel(to_client.clone())).unwrap()
    };
    ask(7175);
    let Event::Rejected { rej, .. } = next(&at_client) else { panic!("nobody listens there") };
    assert_eq!(rej.reason, RejReason::INVALID_SERVICE_ID);
    let active = ask(7174);
    let Event::ConnectRequest { id: passive, request, .. } = next(&at_server) else { panic!("a request") };
    assert_eq!(&request.private_data[36..41], b"hello");
    server.accept(passive, &Accept::new(Qpn::new(18), Psn::new(9))).unwrap();
    let Event::ConnectResponse { reply, .. } = next(&at_client) else { panic!("an answer") };
    assert_eq!((reply.local_qpn, reply.starting_psn), (18, Psn::new(9)));
    client.establish(active).unwrap();
    assert!(matches!(next(&at_server), Event::Established { .. }));
    client.disconnect(active).unwrap();
    assert!(matches!(next(&at_server), Event::Disconnected { .. }));
    server.disconnect(passive).unwrap();
    assert!(matches!(next(&at_client), Event::Disconnected { .. }));
    assert!(client.holds(Qpn::new(17)), "its number rests");
    for events in [&at_client, &at_server] {
        assert!(matches!(next(events), Event::TimewaitExit { .. }));
    }
    assert!(!client.holds(Qpn::new(17)));
}

#[test]
fn first_data_stands_for_a_message_that_is_late_and_a_program_that_ends_says_so() {
    let [a, b] = nics();
    let (client, server) = (ConnectionManager::new(&a).unwrap(), ConnectionManager::new(&b).unwrap());
    let ((to_client, at_client), (to_server, at_server)) = (channel(), channel());
    let address = |nic: &Context, port| (nic.addresses()[0], port).into();
    let listen = Listen::port(PortSpace::Tcp, address(&b, 7174));
    server.listen(&listen, CmSink::channel(to_server)).unwrap();
    let connect = Connect::ip(address(&a, 40_000), address(&b, 7174), Qpn::new(17), Psn::new(5)).unwrap();
    let active = client.connect(&connect, CmSink::channel(to_client)).unwrap();
    let passive = next(&at_server).id();
    server.accept(passive, &Accept::new(Qpn::new(18), Psn::new(9))).unwrap();
    assert!(matches!(next(&at_client), Event::ConnectResponse { .. }));
    server.first_data().came(Qpn::new(18));
    assert!(matches!(next(&at_server), Event::Established { private_data: None, .. }));
    client.establish(active).unwrap();
    client.end_all(LIMIT);
    assert!(matches!(next(&at_server), Event::Disconnected { .. }));
    assert!(at_client.try_recv().is_err(), "nobody is told of what it does itself");
}

#[test]
fn a_peer_hears_of_the_end_of_a_program_whose_dreq_was_lost() {
    let script = std::env::temp_dir().join(format!("softnic-cm-{}.toml", std::process::id()));
    // REQ, RTU, DREQ.
    std::fs::write(&script, "[[event]]\naction = 'drop'\nopcode = 'UD_SEND_ONLY'\nnth = 3\n").unwrap();
    let lossy =
        OpenOptions { fault: Some(format!("@{}", script.display()).parse().unwrap()), ..OpenOptions::default() };
    let [a, b] = Context::open_pair([&lossy, &OpenOptions::default()]).unwrap();
    std::fs::remove_file(&script).unwrap();
    let (client, server) = (ConnectionManager::new(&a).unwrap(), ConnectionManager::new(&b).unwrap());
    let ((to_client, at_client), (to_server, at_server)) = (channel(), channel());
    let address = |nic: &Context, port| (nic.addresses()[0], port).into();
    server.listen(&Listen::port(PortSpace::Tcp, address(&b, 7174)), CmSink::channel(to_server)).unwrap();
    let connect = Connect::ip(address(&a, 40_000), address(&b, 7174), Qpn::new(17), Psn::new(5)).unwrap();
    let active = client.connect(&connect, CmSink::channel(to_client)).unwrap();
    let passive = next(&at_server).id();
    server.accept(passive, &Accept::new(Qpn::new(18), Psn::new(9))).unwrap();
    assert!(matches!(next(&at_client), Event::ConnectResponse { .. }));
    client.establish(active).unwrap();
    assert!(matches!(next(&at_server), Event::Established { .. }));
    client.end_all(LIMIT);
    // Nobody is there any more who could send it again.
    drop(client);
    drop(a);
    assert!(matches!(next(&at_server), Event::Disconnected { .. }));
}

/// A queue pair of a NIC, with its memory.
fn queue_pair(nic: &Context) -> (QueuePair, CompletionQueue, MemoryRegion) {
    let (pd, cq) = (nic.alloc_pd(), nic.create_cq(16).unwrap());
    let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
    (pd.create_qp(&QpOptions::new(QpKind::Rc, &cq)).unwrap(), cq, mr)
}

#[test]
fn calls_that_wait_connect_and_say_why_they_do_not() {
    let [a, b] = nics();
    let (client, server) = (ConnectionManager::new(&a).unwrap(), ConnectionManager::new(&b).unwrap());
    let here = SocketAddr::from((b.addresses()[0], 7174));
    let elsewhere = (a.addresses()[0], 7174).into();
    assert!(matches!(CmListener::bind(&server, elsewhere), Err(ConnectError::NotOurAddress { .. })));
    let ((qp, _cq, _mr), (their_qp, their_cq, their_mr)) = (queue_pair(&a), queue_pair(&b));
    let connect = |qp: &QueuePair| CmConnection::connect(&client, qp, here, b"it is me", LIMIT);
    let refused = |asked: Result<CmConnection<'_>, ConnectError>| match asked.err().expect("nobody wants it") {
        ConnectError::Refused { peer, reason, private_data } if peer == here => (reason, private_data),
        e => panic!("{e}"),
    };
    assert_eq!(refused(connect(&qp)).0, RejReason::INVALID_SERVICE_ID);
    let listener = CmListener::bind(&server, here).unwrap();
    assert!(CmListener::bind(&server, here).is_err(), "one listener a port");
    assert!(listener.next(Duration::ZERO).is_none());
    let request = || listener.next(LIMIT).expect("somebody asks");
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| refused(connect(&qp)));
        request().reject(b"not today").unwrap();
        let (reason, why) = asked.join().unwrap();
        assert_eq!((reason, &why[..10]), (RejReason::CONSUMER_DEFINED, &b"not today\0"[..]));
        let asked = scope.spawn(|| refused(connect(&qp)));
        drop(request());
        assert_eq!(asked.join().unwrap().0, RejReason::CONSUMER_DEFINED);
        // Accepted; the one who asked sends, and ends it.
        let asked = scope.spawn(|| {
            let connection = connect(&qp).unwrap();
            assert_eq!((connection.peer(), &connection.private_data()[..5]), (here, &b"come\0"[..]));
            connection
        });
        let request = request();
        assert_eq!((request.peer().ip(), &request.private_data()[..9]), (a.addresses()[0], &b"it is me\0"[..]));
        let mut theirs = request.accept(&their_qp, b"come", LIMIT).unwrap();
        let ours = asked.join().unwrap();
        their_qp.post_recv(&RecvWr { wr_id: 7, sges: &[their_mr.sge(0, 4096)], best_effort: None }).unwrap();
        assert!(!theirs.is_over());
        let ended = scope.spawn(move || ours.disconnect(LIMIT));
        while !theirs.is_over() {
            std::thread::yield_now();
        }
        assert!(ended.join().unwrap(), "the peer agreed");
        assert!(their_cq.wait(LIMIT).unwrap());
        assert_eq!(their_cq.poll_one().unwrap().unwrap().status, Status::WrFlushErr);
        assert!(theirs.disconnect(LIMIT), "what is over is over");
    });
    // Who asked and was not looked at is refused when the listener goes.
    let ((qp, ..), before) = (queue_pair(&a), server.counters().received);
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| refused(connect(&qp)));
        while server.counters().received == before {
            std::thread::yield_now();
        }
        drop(listener);
        assert_eq!(asked.join().unwrap().0, RejReason::CONSUMER_DEFINED);
    });
}

#[test]
fn a_peer_that_never_answers_is_given_up() {
    let [a, b] = nics();
    let client = ConnectionManager::new(&a).unwrap();
    let (qp, ..) = queue_pair(&a);
    // The NIC there has no manager.
    let peer = (b.addresses()[0], 7174).into();
    let asked = CmConnection::connect(&client, &qp, peer, &[], Duration::from_millis(50));
    assert!(matches!(asked.err(), Some(ConnectError::NoAnswer(silent)) if silent == peer));
    let nobody = ([10, 0, 0, 77], 7174).into();
    let asked = CmConnection::connect(&client, &qp, nobody, &[], LIMIT);
    assert!(matches!(asked.err(), Some(ConnectError::NoPath { .. })));
}

#[test]
fn a_datagram_leaves_though_its_handle_and_its_queue_pair_go_right_behind_it() {
    const QKEY: u32 = 0x1234;
    let [a, b] = nics();
    let open = |nic: &Context| {
        let (pd, cq) = (nic.alloc_pd(), nic.create_cq(16).unwrap());
        let qp = pd.create_qp(&QpOptions::new(QpKind::Ud, &cq)).unwrap();
        qp.open_datagrams(QKEY).unwrap();
        let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE).unwrap();
        (pd, cq, qp, mr)
    };
    let (pd, _cq, qp, mr) = open(&a);
    let (_, cq, to, room) = open(&b);
    to.post_recv(&RecvWr { wr_id: 1, sges: &[room.sge(0, 4096)], best_effort: None }).unwrap();
    let ah = pd.create_ah(&a.path_to(b.addresses()[0], 0).unwrap()).unwrap();
    let (sges, flags) = ([mr.sge(0, 100)], SendFlags::default());
    let (data, to) = (Data::Gather(&sges), Some(ah.to(to.qpn(), QKEY)));
    qp.post_send(&SendWr { wr_id: 2, op: SendOp::Send, data, flags, best_effort: None, to }).unwrap();
    drop(ah);
    drop(qp);
    assert!(cq.wait(LIMIT).unwrap(), "it is lost");
    let done = cq.poll_one().unwrap().unwrap();
    assert_eq!((done.status, done.byte_len), (Status::Success, 140));
}
