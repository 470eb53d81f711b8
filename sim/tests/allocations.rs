//! In steady state no packet costs an allocation, anywhere from the work request to the completion.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::IpAddr;
use std::time::Duration;

use softnic_fault_injector::{Direction, EmulatedLink, Script, Spec};
use softnic_nic::transports::lowar::Code;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::negotiation::vendor::{Extensions, Kind, Negotiation, Settings, VERSION};
use softnic_nic::transports::negotiation::write;
use softnic_nic::transports::qp::{Caps, PayloadMode, QpKind};
use softnic_nic::transports::{CqId, Data, Secret, SendFlags, SendOp, SendWr, Sge, Status};
use softnic_nic::{Buffer, Connection, Nic, NicConfig, Port, QpInit};
use softnic_sim::topology::{Hooks, Topology};
use softnic_sim::{Cc, Op, Options, Transport, UNITS};
use softnic_wire::{Instant, MacAddr, Node, PathMtu, Qpn, RoceHeaders, Template, TxFrame};

/// Counts the allocations of the thread that asks for them, so that the test harness does not disturb.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[allow(unsafe_code)]
// SAFETY: everything is handed to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no counter any more; it is not the one that measures.
        let _ = ALLOCATIONS.try_with(|n| n.set(n.get() + 1));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Allocations of a whole run: setting up, and whatever the packets cost.
fn allocations(options: &Options) -> (u64, u64) {
    let before = ALLOCATIONS.with(Cell::get);
    let report = softnic_sim::run(options, None, &mut |_| {}).expect("the run completes");
    assert_eq!(report.failed, 0);
    (ALLOCATIONS.with(Cell::get) - before, report.tx_packets)
}

/// The same run, ten times as long: packets must not show in the difference. What may grow still are the vectors of frames
/// in flight and of free frames, by doubling.
fn packets_are_free(options: &Options) {
    let (short, few) = allocations(options);
    let (long, many) = allocations(&Options { count: options.count * 10, ..options.clone() });
    assert!(many > few * 5 && many > 50_000, "the runs are long enough to tell: {few} and {many} packets");
    assert!(long <= short + 16, "{short} allocations for {few} packets, {long} for {many}");
}

#[test]
fn writes_allocate_nothing_per_packet() {
    packets_are_free(&Options { size: 65536, count: 100, rtt: Duration::from_micros(10), ..Options::default() });
}

#[test]
fn sends_allocate_nothing_per_packet() {
    packets_are_free(&Options {
        op: Op::Send,
        size: 5000,
        count: 2000,
        rtt: Duration::from_micros(10),
        ..Options::default()
    });
}

#[test]
fn loss_recovery_allocates_nothing_per_packet() {
    let faults = "loss=0.01".parse().expect("a fault");
    packets_are_free(&Options {
        size: 65536,
        count: 200,
        rtt: Duration::from_micros(10),
        faults,
        qps: 4,
        ..Options::default()
    });
}

#[test]
fn selective_repeat_allocates_nothing_per_packet() {
    for (op, size, count) in
        [(Op::Write, 65536, 100), (Op::Send, 5000, 2000), (Op::Read, 4096, 6000), (Op::Atomic, 8, 20_000)]
    {
        let options = Options {
            op,
            size,
            count,
            rtt: Duration::from_micros(10),
            faults: "loss=0.01,dup=0.01,reorder=0.01:3".parse().expect("faults"),
            ..Options::default()
        };
        packets_are_free(&options.over_wide_sr());
    }
}

#[test]
fn lowar_allocates_nothing_per_packet() {
    for faults in ["", "loss=0.01,dup=0.01,reorder=0.01:3"] {
        for (op, size, count) in
            [(Op::Write, 65536, 100), (Op::Send, 5000, 2000), (Op::Read, 4096, 6000), (Op::Atomic, 8, 20_000)]
        {
            packets_are_free(&Options {
                transport: Transport::Lowar(Code::new(16, 4).expect("a code")),
                op,
                size,
                count,
                rtt: Duration::from_micros(10),
                faults: faults.parse().expect("faults"),
                ..Options::default()
            });
        }
    }
}

#[test]
fn congestion_control_allocates_nothing_per_packet() {
    for (transport, cc) in
        [("rc", "swift"), ("sr", "swift"), ("xp", "swift"), ("rc", "eqds"), ("sr", "eqds"), ("xp", "eqds")]
    {
        packets_are_free(&Options {
            transport: transport.parse().expect("a transport"),
            cc: Cc::parse(cc, &UNITS).expect("a congestion control"),
            size: 65536,
            count: 200,
            rtt: Duration::from_micros(10),
            qps: 4,
            ..Options::default()
        });
    }
}

#[test]
fn unreliable_connections_allocate_nothing_per_packet() {
    for (op, faults) in [(Op::Write, ""), (Op::Send, "loss=0.01,dup=0.01,reorder=0.01:3")] {
        packets_are_free(&Options {
            transport: Transport::Uc,
            op,
            size: 5000,
            count: 2000,
            rtt: Duration::from_micros(10),
            faults: faults.parse().expect("faults"),
            qps: 4,
            ..Options::default()
        });
    }
}

#[test]
fn best_effort_allocates_nothing_per_packet() {
    let deadline = Some(Duration::from_millis(5));
    for (op, stride, deadline, count) in [
        (Op::Write, 1, None, 2000),
        (Op::Send, 1, deadline, 2000),
        (Op::Send, 4, None, 2000),
        (Op::Read, 1, deadline, 6000),
    ] {
        packets_are_free(&Options {
            transport: "xp:active=1ms,timeout=1ms".parse().expect("a transport"),
            op,
            stride,
            deadline,
            size: 5000,
            count,
            rtt: Duration::from_micros(10),
            faults: "loss=0.01,dup=0.01,reorder=0.01:3".parse().expect("faults"),
            qps: 4,
            ..Options::default()
        });
    }
}

#[test]
fn datagrams_allocate_nothing_each() {
    for faults in ["", "loss=0.01,dup=0.01,reorder=0.01:3"] {
        packets_are_free(&Options {
            transport: Transport::Ud,
            op: Op::Send,
            size: 1000,
            count: 10_000,
            rtt: Duration::from_micros(10),
            faults: faults.parse().expect("faults"),
            qps: 4,
            ..Options::default()
        });
    }
}

#[test]
fn queues_and_jitter_allocate_nothing_per_packet() {
    let faults = "jitter=1us,rate=5Gbit,queue=60K,ecn=10K:50K:0.1,burst=1e-3:1:3,dup=0.01".parse().expect("a fault");
    packets_are_free(&Options {
        size: 16384,
        depth: 2,
        count: 500,
        rtt: Duration::from_micros(10),
        faults,
        ..Options::default()
    });
}

#[test]
fn a_script_that_counts_every_packet_allocates_only_while_its_table_grows() {
    let event =
        "[[event]]\naction = \"drop\"\npsn = \"+7\"\niteration = 1\n[[event]]\naction = \"drop\"\niteration = 9";
    let script = Script::parse(event).expect("a script");
    // The table is full, and forgets, after 65,536 packets: the longer run goes far beyond.
    packets_are_free(&Options {
        size: 65536,
        count: 400,
        rtt: Duration::from_micros(10),
        faults: Spec { script, ..Spec::default() },
        ..Options::default()
    });
}

#[test]
fn switches_allocate_nothing_per_packet() {
    let run = |count: u64| {
        let flow =
            |from, to| format!("[[flow]]\nfrom=\"h{from}\"\nto=\"h{to}\"\nsize=\"16K\"\ndepth=4\ncount={count}\n");
        let net = "kind=\"leaf-spine\"\nleaves=2\nspines=2\nhosts=2\nqueue=\"60K\"\necn=\"10K:50K:0.1\"\n";
        let topology: Topology = [net, &flow(0, 2), &flow(1, 2), &flow(0, 1)].concat().parse().expect("a topology");
        let before = ALLOCATIONS.with(Cell::get);
        let report = softnic_sim::topology::run(&topology, 1, Hooks::default()).expect("the run completes");
        assert!(report.flows.iter().all(|f| f.failed == 0));
        (ALLOCATIONS.with(Cell::get) - before, report.tx_packets)
    };
    let ((short, few), (long, many)) = (run(100), run(1000));
    assert!(many > few * 5 && many > 40_000, "the runs are long enough to tell: {few} and {many} packets");
    assert!(long <= short + 32, "{short} allocations for {few} packets, {long} for {many}");
}

#[test]
fn an_emulated_link_allocates_nothing_per_frame_once_it_is_warm() {
    let spec = "jitter=5us,rate=5Gbit,queue=20K,ecn=5K:15K:0.5,reorder=0.01:3,dup=0.1,burst=0.01:0.5:~4";
    let spec: Spec = spec.parse().expect("a SPEC");
    let mut link = EmulatedLink::new(&spec, Direction::Ab, 1, 256, 1500);
    let mut frame = [0; 1000];
    let mut arrived = 0;
    let mut run = |from: u64, frames: u64| {
        let before = ALLOCATIONS.with(Cell::get);
        for n in from..from + frames {
            let now = Instant::from_nanos(n * 1500);
            link.offer(now, &mut frame);
            while link.poll(now).is_some() {
                arrived += 1;
            }
        }
        ALLOCATIONS.with(Cell::get) - before
    };
    assert!(run(0, 10_000) > 0, "the slots");
    assert_eq!(run(10_000, 100_000), 0);
    assert!(arrived > 80_000 && link.overflowed() == 0, "{arrived}");
}

#[test]
fn offers_to_a_queue_pair_that_offers_nothing_allocate_nothing_and_leave_one_answer() {
    let addresses = [IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2])];
    let [own, other] = [1, 2].map(|n| MacAddr([2, 0, 0, 0, 0, n]));
    let mut number = 0x100;
    let random = move || {
        number += 1;
        number
    };
    let nic = |mac, address| {
        let port = Port { mac, addresses: vec![address], mtu: PathMtu::B4096 };
        Nic::new(NicConfig { port, payload: PayloadMode::Real }, Box::new(random))
    };
    let (mut victim, attacker) = (nic(own, addresses[0]), nic(other, addresses[1]));
    let (pd, cq) = (victim.alloc_pd(), victim.create_cq(4));
    let caps = Caps { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
    let qpn = victim.create_qp(&QpInit::new(QpKind::Rc, pd, cq, cq, caps)).unwrap();
    let peer = Qpn::new(5);
    let template = Template::new(&attacker.path_to(addresses[0], own, 0).unwrap(), Qpn::GSI, 0xffff);
    let connection =
        Connection { path: victim.path_to(addresses[1], other, 0), dest_qp: peer, ..Connection::default() };
    let mut buffer = [0; 1000];
    let mut offer = |victim: &mut Nic, transaction_id| {
        let mad = Negotiation {
            transaction_id,
            kind: Kind::Offer,
            version: VERSION,
            sender_qpn: peer.value(),
            receiver_qpn: qpn.value(),
            extensions: Extensions::SR,
            settings: Settings::NONE,
            sdr: None,
        };
        let mut tx = TxFrame::new(&mut buffer);
        assert!(write(&mut tx, &template, &mad));
        let len = tx.segments().0.len();
        victim.handle_frame(Instant::ZERO, Nic::WIRE, &mut buffer[..len]);
    };
    for attr in connection.attributes(QpKind::Rc) {
        victim.modify_qp(qpn, &attr).unwrap();
        let before = ALLOCATIONS.with(Cell::get);
        for id in 0..10_000 {
            offer(&mut victim, id);
        }
        assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0, "{:?}", attr.state);
    }
    let mut answers = Vec::new();
    let mut frame = [0; 1000];
    let mut tx = TxFrame::new(&mut frame);
    while victim.poll_transmit(Instant::ZERO, Nic::WIRE, &mut tx) {
        let (frame, layout) = (tx.segments().0, softnic_wire::Layout::locate(tx.segments().0).unwrap());
        let payload = RoceHeaders::read(frame, &layout, |h| h.payload.clone()).unwrap();
        answers.push(Negotiation::parse(&frame[payload][..256]).unwrap().without_info());
        tx = TxFrame::new(&mut buffer);
    }
    let [answer] = answers[..] else { panic!("{answers:?}") };
    assert_eq!((answer.transaction_id, answer.extensions), (9_999, Extensions::NONE), "the last offer is answered");
}

/// Two NICs with one authenticated connection, and no wire.
struct Authenticated {
    nics: [Nic; 2],
    qpn: Qpn,
    cq: CqId,
    wr: (u64, u32, u64, u32),
}

impl Authenticated {
    fn new(transport: Transport) -> Authenticated {
        let addresses = [1, 2].map(|n| IpAddr::from([10, 0, 0, n]));
        let macs = [1, 2].map(|n| MacAddr([2, 0, 0, 0, 0, n]));
        let caps = Caps { max_send_wr: 16, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
        let mut sides = [0, 1].map(|i| {
            let mut number = 0x100 + i as u32;
            let random = move || {
                number = number.wrapping_mul(0x5851_f42d).wrapping_add(7);
                number >> 3
            };
            let port = Port { mac: macs[i], addresses: vec![addresses[i]], mtu: PathMtu::B4096 };
            let mut nic = Nic::new(NicConfig { port, payload: PayloadMode::Real }, Box::new(random));
            let (pd, cq) = (nic.alloc_pd(), nic.create_cq(64));
            let buffer = Buffer::new(0x10_0000, 64 << 10);
            let key = nic.reg_mr(pd, &buffer, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
            let qpn = nic.create_qp(&QpInit { transport, ..QpInit::new(QpKind::Rc, pd, cq, cq, caps) }).unwrap();
            nic.authenticate(qpn, &Secret::new(&[7; 32]).unwrap()).unwrap();
            (nic, qpn, cq, (buffer.addr(), key))
        });
        let qpns = [sides[0].1, sides[1].1];
        for i in 0..2 {
            let nic = &mut sides[i].0;
            let path = nic.path_to(addresses[1 - i], macs[1 - i], 0);
            let mtu = PathMtu::B1024;
            nic.connect(qpns[i], &Connection { path, dest_qp: qpns[1 - i], mtu, ..Connection::default() }).unwrap();
        }
        let [(a, qpn, cq, own), (b, .., theirs)] = sides;
        let mut world = Authenticated { nics: [a, b], qpn, cq, wr: (own.0, own.1, theirs.0, theirs.1) };
        world.run();
        assert_eq!(world.nics.each_ref().map(|nic| nic.counters().rx_auth_failed), [0, 0]);
        world
    }

    /// Carries frames over until nobody has any; how many.
    fn run(&mut self) -> u64 {
        let (mut carried, mut buffer) = (0, [0; 4352]);
        loop {
            let before = carried;
            for from in 0..2 {
                loop {
                    let mut tx = TxFrame::new(&mut buffer);
                    if !self.nics[from].poll_transmit(Instant::ZERO, Nic::WIRE, &mut tx) {
                        break;
                    }
                    let len = tx.len();
                    self.nics[1 - from].handle_frame(Instant::ZERO, Nic::WIRE, &mut buffer[..len]);
                    carried += 1;
                }
            }
            if carried == before {
                return carried;
            }
        }
    }

    /// WRITEs of 60,000 bytes; the packets that they took.
    fn write(&mut self, times: u32) -> u64 {
        let (addr, lkey, remote_addr, rkey) = self.wr;
        (0..times)
            .map(|_| {
                let sges = [Sge { addr, len: 60_000, lkey }];
                let flags = SendFlags { signaled: true, ..SendFlags::default() };
                let (op, data) = (SendOp::Write { remote_addr, rkey }, Data::Gather(&sges));
                let wr = SendWr { wr_id: 1, op, data, flags, best_effort: None, to: None };
                self.nics[0].post_send(Instant::ZERO, self.qpn, &wr).unwrap();
                let carried = self.run();
                let done = self.nics[0].poll_cq(self.cq).unwrap().map(|c| c.status);
                assert_eq!(done, Some(Status::Success));
                carried
            })
            .sum()
    }
}

#[test]
fn authenticated_packets_allocate_nothing() {
    for transport in [Transport::Rc, Transport::SR, Transport::LOWAR] {
        let mut world = Authenticated::new(transport);
        world.write(10);
        let before = ALLOCATIONS.with(Cell::get);
        let packets = world.write(100);
        assert_eq!(ALLOCATIONS.with(Cell::get) - before, 0, "{transport}");
        assert!(packets > 5900, "{transport}: {packets}");
    }
}
