//! Clients that talk: to a peer on the wire, to each other, by address; at every length of packets.

use std::net::SocketAddr;

use softnic_nic::QpKind;
use softnic_nic::sharing::Process;
use softnic_nic::transports::Status;
use softnic_nic::transports::memory::Access;
use softnic_runtime::api::{CmConnection, CmListener, ConnectError, ConnectionManager, Context, QpOptions};
use softnic_runtime::share::{Limits, ShareOptions};
use softnic_wire::mad::cm::RejReason;

use crate::veth::{Veth, left_out, longest_mtu};
use crate::world::{End, HALF, HERE, LIMIT, THERE, clients, connect, devices, open, share, until, usual, write};

#[test]
fn clients_talk_to_a_peer_to_each_other_and_to_themselves() {
    for mtu in [1500, 4200, 9000] {
        let Some(veth) = Veth::new(1, mtu) else { return };
        let daemon = share(&veth, usual(&veth)).unwrap();
        let peer = End::new(open(&veth, THERE, "afxdp").unwrap());
        let (here, there) = (veth.address(HERE).into(), veth.address(THERE).into());
        let [a, b] = [(); 2].map(|()| End::new(open(&veth, HERE, "shared").unwrap()));
        assert_ne!(Process::of(a.qp.qpn()), Process::of(b.qp.qpn()));
        assert_eq!(a.context.addresses(), b.context.addresses());
        if mtu > 4200 {
            assert_eq!(a.context.port().mtu, longest_mtu(), "as of the interface itself");
        }
        for client in [&a, &b] {
            let peer = peer.again();
            connect(client, &peer, [here, there]);
            for (seed, len) in [(1, 1), (2, 5000), (3, HALF)] {
                assert_eq!(write(client, &peer, len, seed), Status::Success);
                assert_eq!(write(&peer, client, len, seed), Status::Success);
            }
        }
        let (local_a, local_b) = (a.again(), b.again());
        connect(&local_a, &local_b, [here, here]);
        assert_eq!(write(&local_a, &local_b, HALF, 4), Status::Success);
        assert_eq!(write(&local_b, &local_a, HALF, 5), Status::Success);
        let (own, own_too) = (a.again(), a.again());
        connect(&own, &own_too, [here, here]);
        assert_eq!(write(&own, &own_too, HALF, 6), Status::Success);
        let seen = clients(&veth);
        assert_eq!(seen.len(), 2);
        for client in &seen {
            assert!(client.tx_frames > 10 && client.rx_frames > 10, "{client:?}");
            assert!(client.tx_bytes > HALF as u64 && client.rx_bytes > HALF as u64, "{client:?}");
            assert_eq!((client.tx_denied, client.tx_policed, client.pid), (0, 0, std::process::id()), "{client:?}");
        }
        drop((a, b, local_a, local_b, own, own_too));
        until("clients that left leave nothing", || devices(&veth).is_empty() && clients(&veth).is_empty());
        drop(daemon);
        veth.await_no_program(HERE);
        assert!(!veth.ip(HERE, "-details link show sn0").unwrap().contains("clsact"));
    }
}

/// Two queue pairs, connected by address.
pub(crate) fn meet(
    listener: &CmListener<'_>,
    at: SocketAddr,
    server: &Context,
    client: &ConnectionManager,
    nic: &Context,
) -> Result<(), ConnectError> {
    let queue_pair = |nic: &Context| {
        let (pd, cq) = (nic.alloc_pd(), nic.create_cq(16).unwrap());
        let qp = pd.create_qp(&QpOptions::new(QpKind::Rc, &cq)).unwrap();
        qp.init(Access::REMOTE).unwrap();
        qp
    };
    let asking = queue_pair(nic);
    std::thread::scope(|scope| {
        let connecting = scope.spawn(|| CmConnection::connect(client, &asking, at, &[], LIMIT).map(drop));
        let request = listener.next(LIMIT).expect("a request comes");
        let answering = queue_pair(server);
        let accepted = request.accept(&answering, &[], LIMIT);
        connecting.join().unwrap()?;
        accepted.map(drop)
    })
}

#[test]
fn a_service_is_one_clients_and_requests_for_it_find_that_client_from_everywhere() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let _daemon = share(&veth, usual(&veth)).unwrap();
    // The first client of the daemon's own process refuses what nobody listens to, as in `softnic share`.
    let warden = open(&veth, HERE, "shared").unwrap();
    let _warden = ConnectionManager::new(&warden).unwrap();
    let peer = open(&veth, THERE, "afxdp").unwrap();
    let [a, b] = [(); 2].map(|()| open(&veth, HERE, "shared").unwrap());
    let [from_peer, at_a, at_b] = [&peer, &a, &b].map(|nic| ConnectionManager::new(nic).unwrap());
    let address = |port| (std::net::IpAddr::from(veth.address(HERE)), port).into();
    let at = |manager, port| CmListener::bind(manager, address(port));
    let listener = at(&at_a, 7174).unwrap();
    assert!(at(&at_b, 7174).is_err(), "another client has it");
    let other = at(&at_b, 7175).unwrap();
    meet(&listener, address(7174), &a, &from_peer, &peer).unwrap();
    meet(&other, address(7175), &b, &from_peer, &peer).unwrap();
    meet(&listener, address(7174), &a, &at_b, &b).unwrap();
    drop(listener);
    let refused = |manager: &ConnectionManager, nic: &Context| {
        let (pd, cq) = (nic.alloc_pd(), nic.create_cq(16).unwrap());
        let qp = pd.create_qp(&QpOptions::new(QpKind::Rc, &cq)).unwrap();
        qp.init(Access::REMOTE).unwrap();
        match CmConnection::connect(manager, &qp, address(7174), &[], LIMIT) {
            Err(ConnectError::Refused { reason, .. }) => reason,
            Err(other) => panic!("nobody listens there: {other}"),
            Ok(_) => panic!("nobody listens there"),
        }
    };
    assert_eq!(refused(&from_peer, &peer), RejReason::INVALID_SERVICE_ID);
    assert_eq!(refused(&at_b, &b), RejReason::INVALID_SERVICE_ID);
    // It is free again.
    let listener = at(&at_b, 7174).unwrap();
    meet(&listener, address(7174), &b, &from_peer, &peer).unwrap();
}

#[test]
fn an_interface_whose_driver_has_no_place_for_a_program_is_shared_all_the_same() {
    let Some(veth) = Veth::new(1, 1500) else { return };
    let made = [
        "address flush dev sn0",
        "link add mv0 link sn0 type macvlan mode private",
        "address add 10.77.0.1/24 dev mv0",
        "link set mv0 up",
    ];
    if let Err(why) = made.iter().try_for_each(|words| veth.ip(HERE, words).map(drop)) {
        return left_out(&why);
    }
    let daemon = share(&veth, ShareOptions { interface: "mv0".into(), ..usual(&veth) }).unwrap();
    assert!(daemon.description().contains("its driver has no XDP"), "{}", daemon.description());
    let peer = End::new(open(&veth, THERE, "afxdp").unwrap());
    let client = || veth.inside(HERE, || Context::open(&"shared:mv0".parse().unwrap(), &Default::default())).unwrap();
    let [a, b] = [(); 2].map(|()| End::new(client()));
    let (here, there) = (veth.address(HERE).into(), veth.address(THERE).into());
    for client in [&a, &b] {
        let peer = peer.again();
        connect(client, &peer, [here, there]);
        assert_eq!(write(client, &peer, HALF, 1), Status::Success);
        assert_eq!(write(&peer, client, HALF, 2), Status::Success);
    }
    let (a, b) = (a.again(), b.again());
    connect(&a, &b, [here, here]);
    assert_eq!(write(&a, &b, HALF, 3), Status::Success);
}

#[test]
fn a_client_that_sends_faster_than_it_may_loses_packets_and_is_counted() {
    let Some(veth) = Veth::new(1, 4200) else { return };
    let limits = Limits { rate: 100_000_000, ..Limits::default() };
    let _daemon = share(&veth, ShareOptions { limits, ..usual(&veth) }).unwrap();
    let peer = End::new(open(&veth, THERE, "afxdp").unwrap());
    let client = End::new(open(&veth, HERE, "shared").unwrap());
    connect(&client, &peer, [veth.address(HERE).into(), veth.address(THERE).into()]);
    assert_eq!(write(&client, &peer, HALF, 1), Status::Success);
    let seen = clients(&veth);
    assert!(seen[0].tx_policed > 0 && seen[0].tx_denied == 0, "{seen:?}");
    assert!(client.context.counters().retransmitted_packets > 0, "they were sent again");
}
