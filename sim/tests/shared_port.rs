//! Several NICs behind one port: who gets which frame.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use softnic_fault_injector::Spec;
use softnic_nic::sharing::Process;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::{Data, QKEY_GSI, SendFlags, SendOp, SendWr, Sge, Status};
use softnic_nic::{Buffer, Nic, NicConfig, Port, QpInit, QpKind};
use softnic_sim::pair::{A, Network, Pair, PairConfig};
use softnic_sim::shared_port::{SharedPort, SharedPortCounters};
use softnic_sim::{LinkConfig, Transport};
use softnic_wire::ext::Deth;
use softnic_wire::mad::cm::{DATA_LEN, Message};
use softnic_wire::mad::ip_cm::ServiceId;
use softnic_wire::mad::{Attribute, MAD_LEN};
use softnic_wire::{
    Addresses, ExtHeaders, Instant, MacAddr, Node, Opcode, PacketFields, Path, PathMtu, Psn, Qpn, Template, TxFrame,
};

const PORT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
const CAPS: Caps = Caps { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };

/// A frame from the peer.
fn frame(dst: Ipv4Addr, qpn: Qpn, payload: &[u8]) -> Vec<u8> {
    let path = Path {
        src_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        dst_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        tags: [None; 2],
        addresses: Addresses::V4 { src: PEER, dst },
        traffic_class: 0,
        flow_label: 0,
        hop_limit: 64,
        src_port: 50_000,
    };
    let fields = PacketFields {
        opcode: Opcode::UD_SEND_ONLY,
        psn: Psn::new(1),
        ack_req: false,
        solicited: false,
        becn: false,
        payload_len: payload.len(),
    };
    let deth = Deth { qkey: QKEY_GSI, src_qp: Qpn::GSI };
    let mut bytes = [0; 1024];
    let mut tx = TxFrame::new(&mut bytes);
    let headers = ExtHeaders { deth: Some(deth), ..ExtHeaders::default() };
    Template::new(&path, qpn, 0xffff).build(&mut tx, &fields, &headers, payload).unwrap();
    let len = tx.len();
    bytes[..len].to_vec()
}

/// A request for a service.
fn request(service: u64) -> Vec<u8> {
    let mut data = [0; DATA_LEN];
    data[8..16].copy_from_slice(&service.to_be_bytes());
    let message = Message::Other { attribute: Attribute::CM_REQ, data };
    let mut mad = [0; MAD_LEN];
    message.emit(&message.header(7), &mut mad);
    frame(PORT, Qpn::GSI, &mad)
}

/// Three NICs, of the processes 1, 2 and 3.
fn port() -> SharedPort {
    let addresses = vec![IpAddr::from(PORT)];
    let port = Port { mac: MacAddr([2, 0, 0, 0, 0, 1]), addresses, mtu: PathMtu::B1024 };
    let mut shared = SharedPort::new(port.clone(), 2048);
    for number in 1..=3 {
        let mut drawn = number << 8;
        let random = move || {
            drawn += 1;
            drawn
        };
        let config = NicConfig { port: port.clone(), payload: PayloadMode::Real };
        shared.add(Process::new(number).unwrap(), Nic::new(config, Box::new(random)));
    }
    shared
}

/// How many frames each NIC was given for queue pairs that it does not have.
fn strays(port: &mut SharedPort) -> [u64; 3] {
    [0, 1, 2].map(|place| port.nic_at(place).unwrap().counters().rx_bad_qp)
}

#[test]
fn a_frame_is_given_to_the_process_that_its_queue_pair_number_names_and_to_nobody_else() {
    let mut port = port();
    for (number, expected) in [(2, [0, 1, 0]), (3, [0, 1, 1]), (1, [1, 1, 1])] {
        let qpn = Qpn::new(number << 14 | 0x77);
        port.handle_frame(Instant::ZERO, Nic::WIRE, &mut frame(PORT, qpn, &[0; 8]));
        assert_eq!(strays(&mut port), expected);
    }
    assert_eq!(port.counters().nobody, 0);
    port.handle_frame(Instant::ZERO, Nic::WIRE, &mut frame(PORT, Qpn::new(4 << 14), &[0; 8]));
    port.handle_frame(Instant::ZERO, Nic::WIRE, &mut [0; 60]);
    assert_eq!((strays(&mut port), port.counters().nobody), ([1, 1, 1], 2), "nobody has these");
}

#[test]
fn a_request_is_given_to_who_listens_to_its_service() {
    let mut port = port();
    port.listen(ServiceId(0x1234), Process::new(3).unwrap());
    port.handle_frame(Instant::ZERO, Nic::WIRE, &mut request(0x1234));
    assert_eq!((strays(&mut port), port.counters().nobody), ([0, 0, 1], 0));
    port.handle_frame(Instant::ZERO, Nic::WIRE, &mut request(0x1235));
    assert_eq!((strays(&mut port), port.counters().nobody), ([0, 0, 1], 1), "nobody listens");
}

#[test]
fn a_frame_to_a_group_is_given_to_every_process_with_members() {
    let mut port = port();
    let to_group = || frame(GROUP, Qpn::MULTICAST, &[0; 8]);
    port.handle_frame(Instant::ZERO, Nic::WIRE, &mut to_group());
    assert_eq!(port.counters(), SharedPortCounters { nobody: 1, ..SharedPortCounters::default() });
    for place in [0, 2] {
        let nic = port.nic_at(place).unwrap();
        let (pd, cq) = (nic.alloc_pd(), nic.create_cq(4));
        let qpn = nic.create_qp(&QpInit::new(QpKind::Ud, pd, cq, cq, CAPS)).unwrap();
        assert_eq!(Process::of(qpn), Process::new(place as u32 + 1));
        nic.attach_multicast(qpn, GROUP.into()).unwrap();
    }
    port.handle_frame(Instant::ZERO, Nic::WIRE, &mut to_group());
    assert_eq!(port.counters(), SharedPortCounters { nobody: 1, to_members: 2, local: 0 });
    let ignored = [0, 1, 2].map(|place| port.nic_at(place).unwrap().counters().rx_no_group);
    assert_eq!(ignored, [0; 3], "who has no members is not asked");
}

#[test]
fn nics_behind_one_port_talk_to_each_other_and_nothing_leaves_by_the_wire() {
    let config = PairConfig {
        transport: Transport::Rc,
        link: LinkConfig { rate: 10_000_000_000, delay: Duration::from_micros(1), faults: Spec::default() },
        payload: PayloadMode::Real,
        mtu: PathMtu::B1024,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 1,
        max_rd_atomic: 4,
        caps: CAPS,
        cq_capacity: 16,
        limit_flight: false,
        seed: 1,
        first_psn: None,
    };
    let mut pair = Pair::sharing(Network::default(), config, [2, 1]);
    pair.add_loopback();
    assert_eq!((pair.nics(), [0, 1, 2].map(|nic| pair.host_of(nic))), (3, [0, 0, 1]));
    // To the other NIC of the port, to itself, and to the other host.
    for (n, [from, to]) in [[0, 1], [1, 1], [1, 2]].into_iter().enumerate() {
        let sides = pair.sides.clone();
        let ends = [from, to].map(|nic| {
            let init = QpInit::new(QpKind::Rc, sides[nic].pd, sides[nic].send_cq, sides[nic].recv_cq, CAPS);
            (nic, pair.nic(nic).create_qp(&init).unwrap())
        });
        pair.ready(QpKind::Rc, &ends).unwrap();
        let [source, target] = [from, to].map(|nic| {
            let buffer = Buffer::new(0x1000, 5000);
            let key = pair.nic(nic).reg_mr(sides[nic].pd, &buffer, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
            (buffer, key)
        });
        source.0.write_at(0, &[7; 5000]);
        let op = SendOp::Write { remote_addr: 0x1000, rkey: target.1 };
        let sges = [Sge { addr: 0x1000, len: 5000, lkey: source.1 }];
        let flags = SendFlags { signaled: true, ..SendFlags::default() };
        let wr = SendWr { wr_id: n as u64, op, data: Data::Gather(&sges), flags, best_effort: None, to: None };
        pair.nic(from).write_send(ends[0].1, &wr).unwrap();
        let (qpn, now) = (ends[0].1, pair.sim.now().instant());
        pair.nic(from).ring_doorbell(now, qpn);
        pair.touch(from);
        let before = (pair.sim.link_stats(pair.links[A]).frames, pair.shared_port(A).local);
        while pair.sim.step().is_some() {}
        let done = pair.nic(from).poll_cq(sides[from].send_cq).unwrap().unwrap();
        assert_eq!((done.wr_id, done.status), (n as u64, Status::Success));
        let mut bytes = [0; 5000];
        target.0.read_at(0, &mut bytes);
        assert_eq!(bytes, [7; 5000]);
        let after = (pair.sim.link_stats(pair.links[A]).frames, pair.shared_port(A).local);
        assert_eq!((after.0 > before.0, after.1 > before.1), (to == 2, to != 2), "{from} to {to}");
    }
    assert_eq!(pair.shared_port(A).nobody, 0);
}
