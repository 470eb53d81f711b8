//! Two NICs that find each other by ARP or NDP and exchange data, over a wire in memory and over datagram sockets.

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode, QpState};
use softnic_nic::transports::{CqId, Data, SendFlags, SendOp, SendWr, Sge, Status};
use softnic_nic::{Buffer, Nic, NicConfig, Port, QpAttr, QpInit, QpKind};
use softnic_runtime::{
    Dgram, DgramError, DgramSpec, Driver, DriverError, MAX_FRAME, MemoryWire, Neighbours, OsRandom, PacketIo,
};
use softnic_wire::{MacAddr, PathMtu, Psn, Qpn};

/// Long enough for the slowest machine; no test that passes waits for it.
const LIMIT: Duration = Duration::from_secs(60);
const SIZE: usize = 64 << 10;

struct Host<I> {
    driver: Driver<Nic, I>,
    cq: CqId,
    qpn: Qpn,
    buffer: Arc<Buffer>,
    key: u32,
}

fn addresses(host: u8) -> Vec<IpAddr> {
    vec![[10, 33, 0, host].into(), [0xfd33, 0, 0, 0, 0, 0, 0, u16::from(host)].into()]
}

fn host<I: PacketIo>(n: u8, io: I) -> Host<I> {
    let port = Port { mac: MacAddr([2, 0, 0, 0, 0, n]), addresses: addresses(n), mtu: PathMtu::B4096 };
    let neighbours = Neighbours::new(&port);
    let mut nic = Nic::new(NicConfig { port, payload: PayloadMode::Real }, Box::new(OsRandom::new().unwrap()));
    let pd = nic.alloc_pd();
    let cq = nic.create_cq(16);
    let all = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
    let buffer = Buffer::new(0x10_0000 * u64::from(n), SIZE);
    let key = nic.reg_mr(pd, &buffer, all).unwrap();
    let caps = Caps { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
    let qpn = nic.create_qp(&QpInit { sig_all: true, ..QpInit::new(QpKind::Rc, pd, cq, cq, caps) }).unwrap();
    let init = QpAttr {
        state: Some(QpState::Init),
        pkey_index: Some(0),
        port: Some(1),
        access: Some(all),
        ..QpAttr::default()
    };
    nic.modify_qp(qpn, &init).unwrap();
    Host { driver: Driver::new(nic, io, neighbours), cq, qpn, buffer, key }
}

fn connect<I: PacketIo>(host: &mut Host<I>, peer: IpAddr, mac: MacAddr, dest_qp: Qpn) {
    let nic = &mut host.driver.node;
    let rtr = QpAttr {
        state: Some(QpState::ReadyToReceive),
        path: nic.path_to(peer, mac, host.qpn.value()),
        mtu: Some(PathMtu::B4096),
        dest_qp: Some(dest_qp),
        rq_psn: Some(Psn::new(7)),
        max_dest_rd_atomic: Some(1),
        min_rnr_timer: Some(12),
        ..QpAttr::default()
    };
    nic.modify_qp(host.qpn, &rtr).unwrap();
    let rts = QpAttr {
        state: Some(QpState::ReadyToSend),
        sq_psn: Some(Psn::new(7)),
        timeout: Some(18),
        retry_cnt: Some(7),
        rnr_retry: Some(7),
        max_rd_atomic: Some(1),
        ..QpAttr::default()
    };
    nic.modify_qp(host.qpn, &rts).unwrap();
}

/// Runs both in turn until `done`.
fn run<I: PacketIo>(hosts: &mut [Host<I>; 2], mut done: impl FnMut(&mut [Host<I>; 2]) -> bool) {
    let begin = std::time::Instant::now();
    while !done(hosts) {
        assert!(begin.elapsed() < LIMIT, "nothing moves any more");
        for h in hosts.iter_mut() {
            h.driver.step().unwrap();
        }
    }
}

/// The second host's MAC address, as the first one finds it.
fn resolve<I: PacketIo>(hosts: &mut [Host<I>; 2], v6: bool) -> MacAddr {
    let address = addresses(2)[usize::from(v6)];
    let mut found = None;
    run(hosts, |hosts| {
        found = hosts[0].driver.mac_of(address).unwrap();
        found.is_some()
    });
    found.unwrap()
}

/// Sends one frame, if there is room; says how many.
fn send(io: &mut impl PacketIo, frame: &[u8]) -> usize {
    io.transmit(1, &mut |tx| tx.put_frame(frame).is_ok()).unwrap()
}

/// The lengths of the frames that have come.
fn received(io: &mut impl PacketIo, limit: usize) -> Vec<usize> {
    let mut lengths = Vec::new();
    io.receive(limit, &mut |frame| lengths.push(frame.len())).unwrap();
    lengths
}

fn write_and_read<I: PacketIo>(mut hosts: [Host<I>; 2], v6: bool) {
    let mac = resolve(&mut hosts, v6);
    assert_eq!(mac, MacAddr([2, 0, 0, 0, 0, 2]));
    let qpns = [hosts[0].qpn, hosts[1].qpn];
    connect(&mut hosts[0], addresses(2)[usize::from(v6)], mac, qpns[1]);
    connect(&mut hosts[1], addresses(1)[usize::from(v6)], MacAddr([2, 0, 0, 0, 0, 1]), qpns[0]);
    let sent: Vec<u8> = (0..20_001u32).map(|i| ((i * 31) >> 3) as u8).collect();
    hosts[0].buffer.write_at(0, &sent);
    let (remote_addr, rkey) = (hosts[1].buffer.addr(), hosts[1].key);
    for (op, at) in [(SendOp::Write { remote_addr, rkey }, 0), (SendOp::Read { remote_addr, rkey }, 32 << 10)] {
        let sge = Sge { addr: hosts[0].buffer.addr() + at, len: sent.len() as u32, lkey: hosts[0].key };
        let flags = SendFlags::default();
        let wr = SendWr { wr_id: at, op, data: Data::Gather(&[sge]), flags, best_effort: None, to: None };
        let (now, qpn, cq) = (hosts[0].driver.now(), hosts[0].qpn, hosts[0].cq);
        hosts[0].driver.node.post_send(now, qpn, &wr).unwrap();
        let mut completion = None;
        run(&mut hosts, |hosts| {
            completion = hosts[0].driver.node.poll_cq(cq).unwrap();
            completion.is_some()
        });
        let completion = completion.unwrap();
        assert_eq!((completion.wr_id, completion.status), (at, Status::Success));
    }
    for (host, at) in [(&hosts[1], 0), (&hosts[0], 32 << 10)] {
        let mut found = vec![0; sent.len()];
        host.buffer.read_at(at, &mut found);
        assert!(found == sent, "the data is another");
    }
}

#[test]
fn a_queue_pair_connected_to_itself_needs_no_wire() {
    let (io, mut other_end) = MemoryWire::pair().unwrap();
    let mut host = host(1, io);
    let (qpn, mac) = (host.qpn, MacAddr([2, 0, 0, 0, 0, 1]));
    connect(&mut host, addresses(1)[0], mac, qpn);
    host.buffer.write_at(0, &[7; 5000]);
    let op = SendOp::Write { remote_addr: host.buffer.addr() + 10_000, rkey: host.key };
    let sge = Sge { addr: host.buffer.addr(), len: 5000, lkey: host.key };
    let flags = SendFlags::default();
    let wr = SendWr { wr_id: 3, op, data: Data::Gather(&[sge]), flags, best_effort: None, to: None };
    let (now, cq) = (host.driver.now(), host.cq);
    host.driver.node.post_send(now, qpn, &wr).unwrap();
    let mut done = None;
    let finished = host.driver.run_until(LIMIT, |nic| {
        done = nic.poll_cq(cq).unwrap();
        done.is_some()
    });
    assert!(finished.unwrap() && done.unwrap().status == Status::Success);
    let mut found = vec![0; 5000];
    host.buffer.read_at(10_000, &mut found);
    assert_eq!(found, [7; 5000]);
    assert!(received(&mut other_end, 1).is_empty(), "nothing leaves by the wire");
}

#[test]
fn a_write_and_a_read_over_a_wire_in_memory() {
    for v6 in [false, true] {
        let (a, b) = MemoryWire::pair().unwrap();
        write_and_read([host(1, a), host(2, b)], v6);
    }
}

/// A folder of this test's own, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let folder = std::env::temp_dir().join(format!("softnic-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn spec(&self, local: &str, remote: &str) -> DgramSpec {
        DgramSpec { local: self.0.join(local), remote: self.0.join(remote) }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_write_and_a_read_over_datagram_sockets() {
    let folder = Folder::new("dgram");
    for v6 in [false, true] {
        let a = Dgram::bind(&folder.spec("a", "b")).unwrap();
        let b = Dgram::bind(&folder.spec("b", "a")).unwrap();
        write_and_read([host(1, a), host(2, b)], v6);
        assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0, "socket files stay behind");
    }
}

#[test]
fn a_peer_that_is_not_there_loses_frames_and_one_that_does_not_read_makes_us_wait() {
    let folder = Folder::new("dgram-peer");
    let mut a = Dgram::bind(&folder.spec("a", "b")).unwrap();
    assert_eq!((send(&mut a, &[0; 60]), a.lost()), (1, 1));
    let mut b = Dgram::bind(&folder.spec("b", "a")).unwrap();
    let sent = (0..1_000_000).take_while(|_| send(&mut a, &[1; 4200]) == 1).count();
    assert!((1..1_000_000).contains(&sent), "{sent}");
    assert_eq!(send(&mut a, &[2; 60]), 0, "one is kept, and no other is asked for");
    assert_eq!(received(&mut b, 1), [4200]);
    a.transmit(0, &mut |_| unreachable!("only what was kept may leave")).unwrap();
    assert_eq!(received(&mut b, sent), vec![4200; sent - 1]);
    drop(b);
    assert_eq!((send(&mut a, &[0; 60]), a.lost()), (1, 2));
}

#[test]
fn a_datagram_longer_than_any_frame_is_lost_and_an_idle_wait_ends() {
    let folder = Folder::new("dgram-long");
    let mut a = Dgram::bind(&folder.spec("a", "b")).unwrap();
    let b = std::os::unix::net::UnixDatagram::bind(folder.0.join("b")).unwrap();
    for len in [MAX_FRAME + 1, MAX_FRAME, 2 * MAX_FRAME, 60] {
        b.send_to(&vec![0; len], a.local()).unwrap();
    }
    assert_eq!((received(&mut a, 10), a.lost()), (vec![MAX_FRAME, 60], 2));
    let begin = std::time::Instant::now();
    a.wait(Duration::from_millis(2)).unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(1));
    b.send_to(&[0; 60], a.local()).unwrap();
    a.wait(LIMIT).unwrap();
    assert!(begin.elapsed() < LIMIT);
}

#[test]
fn a_socket_file_left_behind_is_replaced_and_another_file_is_not() {
    let folder = Folder::new("dgram-stale");
    let stale = std::os::unix::net::UnixDatagram::bind(folder.0.join("a")).unwrap();
    drop(stale);
    drop(Dgram::bind(&folder.spec("a", "b")).unwrap());
    std::fs::write(folder.0.join("a"), "precious").unwrap();
    let refused = Dgram::bind(&folder.spec("a", "b")).unwrap_err();
    assert!(matches!(refused, DgramError::NotASocket(_)), "{refused}");
    assert_eq!(std::fs::read(folder.0.join("a")).unwrap(), b"precious");
    let nowhere = Dgram::bind(&folder.spec("no/such/folder", "b")).unwrap_err();
    assert!(matches!(nowhere, DgramError::Bind { .. }), "{nowhere}");
}

#[test]
fn specifications_of_datagram_wires() {
    let good: DgramSpec = "dgram:/tmp/a,/tmp/b".parse().unwrap();
    assert_eq!((good.local.to_str(), good.remote.to_str()), (Some("/tmp/a"), Some("/tmp/b")));
    for bad in ["", "dgram:", "dgram:a", "dgram:a,", "dgram:,b", "dgram:a,b,c", "dgram:a,a", "mem:a,b"] {
        let e = bad.parse::<DgramSpec>().unwrap_err().to_string();
        assert!(e.contains("must be dgram:OURS,PEERS"), "{e}");
    }
}

#[test]
fn a_neighbour_that_is_not_there_is_named() {
    let (a, _b) = MemoryWire::pair().unwrap();
    let mut lonely = host(1, a);
    let refused = lonely.driver.resolve(addresses(2)[0]).unwrap_err();
    assert!(matches!(refused, DriverError::Neighbour(_)), "{refused}");
    assert!(refused.to_string().starts_with("10.33.0.2 does not answer"), "{refused}");
}

#[test]
fn every_frame_of_both_directions_is_recorded() {
    let folder = Folder::new("record");
    let (a, b) = MemoryWire::pair().unwrap();
    let mut hosts = [host(1, a), host(2, b)];
    let file = folder.0.join("frames.pcap");
    hosts[0].driver.record(Box::new(std::fs::File::create(&file).unwrap())).unwrap();
    resolve(&mut hosts, false);
    hosts[0].driver.stop_recording().unwrap();
    let mut reader = softnic_pcaps::Reader::new(std::fs::File::open(&file).unwrap()).unwrap();
    let mut seen = Vec::new();
    while let Some(frame) = reader.next_frame().unwrap() {
        seen.push((frame.data[12..14].to_vec(), frame.data[21]));
    }
    assert_eq!(seen, [(vec![8, 6], 1), (vec![8, 6], 2)], "an ARP request and its answer");
}
