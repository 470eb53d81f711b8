//! The seams that later transports plug into: a shim below a queue pair, congestion control above it, deadlines.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use softnic_nic::transports::congestion::{CongestionControl, Feedback};
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::negotiation::Agreed;
use softnic_nic::transports::qp::ExpectedPsns;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::shim::{ReceivedFrame, Shim, ShimAction, ShimResources};
use softnic_nic::transports::{BestEffort, Data, PostError, RecvWr, SendFlags, SendOp, SendWr, Sge, Status, Transport};
use softnic_nic::{Buffer, Nic};
use softnic_sim::LinkConfig;
use softnic_sim::pair::{A, B, Pair, PairConfig, timeout_code};
use softnic_wire::{ExtHeaders, Instant, Opcode, PacketFields, PathMtu, Psn, Qpn, RocePacket, Template, TxFrame, bth};

const SIZE: usize = 64 << 10;
const RTT: Duration = Duration::from_micros(100);

struct World {
    pair: Pair<'static>,
    qpns: [Qpn; 2],
    keys: [u32; 2],
    buffers: [Arc<Buffer>; 2],
}

impl World {
    fn new(loss: &str) -> World {
        let mut pair = Pair::new(PairConfig {
            transport: Transport::Rc,
            link: LinkConfig { rate: 10_000_000_000, delay: RTT / 2, faults: loss.parse().unwrap() },
            payload: PayloadMode::Real,
            mtu: PathMtu::B1024,
            timeout: timeout_code(RTT * 4),
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 1,
            max_rd_atomic: 16,
            caps: Caps { max_send_wr: 64, max_recv_wr: 64, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 },
            limit_flight: false,
            cq_capacity: 64,
            seed: 5,
            first_psn: None,
        });
        let qpns = pair.connect().unwrap();
        let buffers = [Buffer::new(0x10_0000, SIZE), Buffer::new(0x20_0000, SIZE)];
        let pattern: Vec<u8> = (0..SIZE).map(|i| ((i * 31) >> 3) as u8).collect();
        buffers[A].write_at(0, &pattern);
        let keys = [A, B].map(|host| {
            let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
            pair.sim.nic(host).reg_mr(pair.sides[host].pd, &buffers[host], access).unwrap()
        });
        World { pair, qpns, keys, buffers }
    }

    fn a(&mut self) -> &mut Nic {
        self.pair.sim.nic(A)
    }

    /// Writes the whole buffer `times` over; the virtual time it took. `see` looks at the requester after every event.
    fn write(&mut self, times: u32, mut see: impl FnMut(&mut Pair<'static>)) -> Duration {
        let sges = [Sge { addr: self.buffers[A].addr(), len: SIZE as u32, lkey: self.keys[A] }];
        let (qpn, now) = (self.qpns[A], self.pair.sim.now().instant());
        for wr_id in 0..u64::from(times) {
            let op = SendOp::Write { remote_addr: self.buffers[B].addr(), rkey: self.keys[B] };
            let flags = SendFlags { signaled: true, solicited: false, fence: false };
            let wr = SendWr { wr_id, op, data: Data::Gather(&sges), flags, best_effort: None, to: None };
            self.a().post_send(now, qpn, &wr).unwrap();
        }
        self.pair.sim.touch(A);
        let (cq, mut done) = (self.pair.sides[A].send_cq, 0);
        while done < times {
            self.pair.sim.step().expect("the work completes before nothing more happens");
            see(&mut self.pair);
            while let Some(c) = self.a().poll_cq(cq).unwrap() {
                assert_eq!((c.status, c.wr_id), (Status::Success, u64::from(done)));
                done += 1;
            }
        }
        let (mut sent, mut received) = (vec![0; SIZE], vec![0; SIZE]);
        self.buffers[A].read_at(0, &mut sent);
        self.buffers[B].read_at(0, &mut received);
        assert_eq!(sent, received);
        self.pair.sim.now().instant().saturating_since(now)
    }
}

/// The simplest forward error correction: every frame twice, and the receiver takes the first that comes.
#[derive(Default)]
struct Twice {
    copy: Option<Vec<u8>>,
    last: Option<u32>,
    held: VecDeque<Vec<u8>>,
}

impl Shim for Twice {
    fn on_agreement(&mut self, _: &Agreed) {}

    fn set_template(&mut self, _: &Template) {}

    fn on_transmit(&mut self, _: Instant, frame: &TxFrame<'_>, _: ShimResources<'_>) -> bool {
        let (a, b) = frame.segments();
        self.copy = Some([a, b].concat());
        true
    }

    fn poll_transmit(&mut self, _: Instant, tx: &mut TxFrame<'_>, _: ShimResources<'_>) -> bool {
        self.copy.take().is_some_and(|frame| tx.put_frame(&frame).is_ok())
    }

    fn on_receive(
        &mut self,
        _: Instant,
        arrival: &ReceivedFrame<'_>,
        _: ExpectedPsns,
        _: ShimResources<'_>,
    ) -> ShimAction {
        let packet = RocePacket::parse(arrival.frame).expect("the NIC has checked it");
        // Requests go through the shim's own queue, as recovered packets would; answers pass.
        if packet.bth.opcode.is_response() {
            return ShimAction::Deliver;
        }
        // The copy follows its frame at once; the same PSN later is a retransmission, which the queue pair wants to see.
        if self.last.replace(packet.bth.psn.value()) != Some(packet.bth.psn.value()) {
            self.held.push_back(arrival.frame.to_vec());
        } else {
            self.last = None;
        }
        ShimAction::Consume
    }

    fn poll_deliver(&mut self, _: Instant, _: ExpectedPsns, out: &mut [u8], _: ShimResources<'_>) -> Option<usize> {
        let frame = self.held.pop_front()?;
        out[..frame.len()].copy_from_slice(&frame);
        Some(frame.len())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant, _: ShimResources<'_>) {}

    fn reset(&mut self, _: ShimResources<'_>) {}
}

#[test]
fn a_shim_adds_frames_and_gives_the_queue_pair_what_it_recovered() {
    let mut plain = World::new("loss=0.01");
    plain.write(48, |_| {});
    let mut twice = World::new("loss=0.01");
    for host in [A, B] {
        let qpn = twice.qpns[host];
        twice.pair.sim.nic(host).set_shim(qpn, Some(Box::<Twice>::default())).unwrap();
    }
    twice.write(48, |_| {});
    let again = |w: &mut World| w.a().counters().retransmitted_packets;
    // 3072 packets at 1 % lose about thirty, each for a whole round trip of packets; both copies are lost once in 10,000.
    let (without, with) = (again(&mut plain), again(&mut twice));
    assert!(without > 200 && with * 4 < without, "{without} packets again without the shim, {with} with it");
    let sent = twice.a().counters();
    assert_eq!(sent.sent_pkts, 2 * (sent.sent_requests + sent.retransmitted_packets));
}

/// Round-trip times as a shim measures them: behind every eighth frame a packet of the shim's own, which the peer's shim answers.
struct Probes {
    template: Template,
    /// Frames of the queue pair that left.
    frames: u32,
    /// The probe that goes next, and the one whose echo does.
    due: Option<u32>,
    owed: Option<u32>,
    /// When each probe left.
    left: Vec<Instant>,
    measured: Arc<Mutex<Vec<Duration>>>,
}

impl Probes {
    /// Opcodes that no queue pair knows.
    const PROBE: Opcode = Opcode(0xfe);
    const ECHO: Opcode = Opcode(0xff);
    const EVERY: u32 = 8;

    fn is_own(frame: &[u8]) -> bool {
        let opcode = RocePacket::parse(frame).expect("a RoCE packet").bth.opcode;
        opcode == Probes::PROBE || opcode == Probes::ECHO
    }
}

impl Shim for Probes {
    fn on_agreement(&mut self, _: &Agreed) {}

    fn set_template(&mut self, template: &Template) {
        self.template = *template;
    }

    fn on_transmit(&mut self, _: Instant, _: &TxFrame<'_>, _: ShimResources<'_>) -> bool {
        self.frames += 1;
        if self.frames.is_multiple_of(Self::EVERY) {
            self.due = Some(self.frames / Self::EVERY - 1);
        }
        self.due.is_some()
    }

    fn poll_transmit(&mut self, now: Instant, tx: &mut TxFrame<'_>, _: ShimResources<'_>) -> bool {
        let (opcode, number) = match (self.owed.take(), self.due) {
            (Some(number), _) => (Self::ECHO, number),
            (None, Some(number)) => {
                self.due = None;
                self.left.push(now);
                (Self::PROBE, number)
            }
            (None, None) => return false,
        };
        let fields =
            PacketFields { opcode, psn: Psn::new(0), ack_req: false, solicited: false, becn: false, payload_len: 4 };
        self.template.build(tx, &fields, &ExtHeaders::default(), &number.to_be_bytes()).is_ok()
    }

    fn on_receive(
        &mut self,
        now: Instant,
        received: &ReceivedFrame<'_>,
        _: ExpectedPsns,
        _: ShimResources<'_>,
    ) -> ShimAction {
        let opcode = Opcode(received.frame[received.bth]);
        let payload = received.frame[received.bth + bth::LEN..].first_chunk();
        match (opcode, payload.map(|&bytes| u32::from_be_bytes(bytes))) {
            (Self::PROBE, Some(number)) => self.owed = Some(number),
            (Self::ECHO, Some(number)) => {
                self.measured.lock().unwrap().push(now.saturating_since(self.left[number as usize]));
            }
            _ => return ShimAction::Deliver,
        }
        ShimAction::Consume
    }

    fn poll_deliver(&mut self, _: Instant, _: ExpectedPsns, _: &mut [u8], _: ShimResources<'_>) -> Option<usize> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant, _: ShimResources<'_>) {}

    fn reset(&mut self, _: ShimResources<'_>) {}
}

/// Puts probes below both queue pairs; the round trips that A measures.
fn probe(w: &mut World) -> Arc<Mutex<Vec<Duration>>> {
    let measured = [(); 2].map(|()| Arc::new(Mutex::new(Vec::new())));
    for host in [A, B] {
        let (ip, mac) = (w.pair.network.address(1 - host).0, w.pair.network.next_hop(host, 1 - host));
        let path = w.pair.sim.nic(host).path_to(ip, mac, w.qpns[host].value()).unwrap();
        let template = Template::new(&path, w.qpns[1 - host], bth::DEFAULT_PKEY);
        let measured = Arc::clone(&measured[host]);
        let shim = Probes { template, frames: 0, due: None, owed: None, left: Vec::new(), measured };
        w.pair.sim.nic(host).set_shim(w.qpns[host], Some(Box::new(shim))).unwrap();
    }
    let [a, _] = measured;
    a
}

/// The frames that A sends from now on, without those of the shim.
fn requests(w: &mut World) -> Arc<Mutex<Vec<Vec<u8>>>> {
    let frames = Arc::new(Mutex::new(Vec::new()));
    let (seen, link) = (Arc::clone(&frames), w.pair.links[A]);
    w.pair.sim.set_tap(Box::new(move |sent| {
        if sent.link == link && !Probes::is_own(sent.frame) {
            seen.lock().unwrap().push(sent.frame.to_vec());
        }
    }));
    frames
}

#[test]
fn a_shim_takes_and_answers_packets_of_its_own_and_the_queue_pair_never_hears_of_them() {
    let (mut plain, mut probed) = (World::new(""), World::new(""));
    let measured = probe(&mut probed);
    let [without, with] = [&mut plain, &mut probed].map(|w| {
        let frames = requests(w);
        w.write(8, |_| {});
        frames
    });
    // 512 requests, and an answer to each probe but perhaps the last; its time is that of the link and of at most a frame before it.
    let measured = measured.lock().unwrap();
    assert!((63..=64).contains(&measured.len()), "{}", measured.len());
    assert!(measured.iter().all(|t| (RTT..RTT + Duration::from_micros(4)).contains(t)), "{measured:?}");
    assert_eq!(*without.lock().unwrap(), *with.lock().unwrap());
    let (a, b) = (*probed.a().counters(), *probed.pair.sim.nic(B).counters());
    assert_eq!((a.rx_malformed, b.rx_malformed, a.retransmitted_packets), (0, 0, 0));
    assert!(a.sent_pkts >= 512 + 64, "{}", a.sent_pkts);
}

#[test]
fn probes_below_a_connection_that_loses_packets_do_not_harm_it() {
    let mut w = World::new("loss=0.02");
    let measured = probe(&mut w);
    w.write(48, |_| {});
    let measured = measured.lock().unwrap();
    assert!(measured.len() > 300 && measured.iter().all(|&t| t >= RTT), "{measured:?}");
    assert_eq!(w.a().counters().rx_malformed, 0);
}

/// A window that never changes, and a note of all that it was told.
struct FixedWindow(u64, Arc<Mutex<(u64, u32)>>);

impl CongestionControl for FixedWindow {
    fn on_feedback(&mut self, _: Instant, feedback: Feedback) {
        let Feedback::Acknowledged { bytes, rtt } = feedback else { panic!("{feedback:?} on a link without faults") };
        // Serialisation adds to the round trip.
        assert!(rtt.is_none_or(|t| t >= RTT && t < RTT * 2), "{rtt:?}");
        let mut told = self.1.lock().unwrap();
        *told = (told.0 + bytes, told.1 + u32::from(rtt.is_some()));
    }
    fn on_sent(&mut self, _: Instant, _: u32) {}
    fn window(&self) -> u64 {
        self.0
    }
    fn next_send(&self) -> Instant {
        Instant::ZERO
    }
    fn reset(&mut self) {}
}

#[test]
fn a_congestion_window_bounds_what_is_in_flight() {
    let mut w = World::new("");
    let qpn = w.qpns[A];
    let told = Arc::new(Mutex::new((0, 0)));
    w.a().set_congestion_control(qpn, Some(Box::new(FixedWindow(8 * 1024, Arc::clone(&told))))).unwrap();
    let mut most = 0;
    let took = w.write(2, |pair| {
        let sent = pair.sim.nic(A).counters().sent_requests;
        let arrived = pair.sim.nic(B).counters().rcvd_pkts;
        most = most.max(sent - arrived);
    });
    assert!(most <= 8, "{most} packets in flight with room for 8");
    // 128 packets, 8 a round trip.
    assert!(took >= RTT * 15, "{took:?}");
    let (bytes, timed) = *told.lock().unwrap();
    assert_eq!(bytes, 2 * SIZE as u64, "every byte was acknowledged once");
    assert!(timed >= 15, "a round trip was timed in each: {timed}");
}

/// A packet each 10 µs.
struct Paced(Instant);

impl CongestionControl for Paced {
    fn on_feedback(&mut self, _: Instant, _: Feedback) {}
    fn on_sent(&mut self, now: Instant, _: u32) {
        self.0 = now + Duration::from_micros(10);
    }
    fn window(&self) -> u64 {
        u64::MAX
    }
    fn next_send(&self) -> Instant {
        self.0
    }
    fn reset(&mut self) {}
}

#[test]
fn a_paced_queue_pair_wakes_by_itself() {
    let mut w = World::new("");
    let qpn = w.qpns[A];
    w.a().set_congestion_control(qpn, Some(Box::new(Paced(Instant::ZERO)))).unwrap();
    let took = w.write(1, |_| {});
    let expected = Duration::from_micros(10) * 63 + RTT;
    assert!(took >= expected && took < expected + Duration::from_micros(20), "{took:?}");
}

#[test]
fn rc_takes_no_deadlines() {
    let mut w = World::new("");
    let (qpn, work) = (w.qpns[A], BestEffort::until(Instant::from_nanos(1)));
    let best_effort = Some(&work);
    let flags = SendFlags::default();
    let wr = SendWr { wr_id: 1, op: SendOp::Send, data: Data::Gather(&[]), flags, best_effort, to: None };
    assert_eq!(w.a().write_send(qpn, &wr), Err(PostError::NoDeadlines));
    assert_eq!(w.a().post_recv(qpn, &RecvWr { wr_id: 1, sges: &[], best_effort }), Err(PostError::NoDeadlines));
}
