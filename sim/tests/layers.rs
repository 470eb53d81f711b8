//! A layer on a NIC, driven by the simulator as any host is: reliability in software over unreliable connections.

use std::any::Any;
use std::time::Duration;

use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::{Completion, CqId, Data, PostError, SendFlags, SendOp, SendWr, Sge};
use softnic_nic::{Buffer, Layer, Nic, Sink};
use softnic_sim::LinkConfig;
use softnic_sim::pair::{A, B, Pair, PairConfig};
use softnic_wire::{Instant, PathMtu, Qpn};

const RTT: Duration = Duration::from_micros(100);
const MESSAGES: usize = 200;
/// Three packets.
const LEN: usize = 2500;

/// The immediates that came.
#[derive(Default)]
struct Numbers(Vec<u32>);

impl Sink for Numbers {
    fn on_completion(&mut self, completion: &Completion) {
        self.0.extend(completion.imm);
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

fn arrived(nic: &mut Nic, sink: CqId) -> Vec<u32> {
    let sink = nic.sink_mut(sink).expect("a sink").as_any_mut();
    std::mem::take(&mut sink.downcast_mut::<Numbers>().expect("of numbers").0)
}

/// Where messages lie at one end.
#[derive(Clone, Copy)]
struct Place {
    addr: u64,
    key: u32,
}

/// Sends each message by its number, and again after a while, until its number comes back.
struct Sender {
    qpn: Qpn,
    sink: CqId,
    from: Place,
    to: Place,
    acknowledged: Vec<bool>,
    /// The next one to send in this pass over all.
    next: usize,
    /// When the next pass begins.
    again: Instant,
    sent: usize,
}

impl Layer for Sender {
    fn progress(&mut self, now: Instant, nic: &mut Nic) {
        for number in arrived(nic, self.sink) {
            self.acknowledged[number as usize] = true;
        }
        if now >= self.again {
            (self.next, self.again) = (0, now + 10 * RTT);
        }
        while self.next < MESSAGES {
            let at = (self.next * LEN) as u64;
            if !self.acknowledged[self.next] {
                let sge = Sge { addr: self.from.addr + at, len: LEN as u32, lkey: self.from.key };
                let (remote_addr, rkey) = (self.to.addr + at, self.to.key);
                let op = SendOp::WriteImm { remote_addr, rkey, imm: self.next as u32 };
                match nic.post_send(now, self.qpn, &request(op, &[sge])) {
                    Ok(()) => self.sent += 1,
                    // There is room when these have left, and then it has its turn again.
                    Err(PostError::QueueFull) => return,
                    Err(other) => panic!("{other}"),
                }
            }
            self.next += 1;
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (!self.acknowledged.iter().all(|&done| done)).then_some(self.again)
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Sends back the number of each message that came.
struct Receiver {
    qpn: Qpn,
    sink: CqId,
    /// Memory of the sender that an empty WRITE may name.
    peer: Place,
    owed: Vec<u32>,
}

impl Layer for Receiver {
    fn progress(&mut self, now: Instant, nic: &mut Nic) {
        self.owed.extend(arrived(nic, self.sink));
        let Place { addr: remote_addr, key: rkey } = self.peer;
        while let Some(&imm) = self.owed.first() {
            match nic.post_send(now, self.qpn, &request(SendOp::WriteImm { remote_addr, rkey, imm }, &[])) {
                Ok(()) => self.owed.remove(0),
                Err(PostError::QueueFull) => return,
                Err(other) => panic!("{other}"),
            };
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

fn request(op: SendOp, sges: &[Sge]) -> SendWr<'_> {
    SendWr { wr_id: 0, op, data: Data::Gather(sges), flags: SendFlags::default(), best_effort: None, to: None }
}

/// All messages over a link with such faults: how many were sent, the virtual time it took, and the digest of the run.
fn run(faults: &str, seed: u64) -> (usize, Duration, u64) {
    let mut pair = Pair::new(PairConfig {
        transport: softnic_sim::Transport::Uc,
        link: LinkConfig { rate: 10_000_000_000, delay: RTT / 2, faults: faults.parse().unwrap() },
        payload: PayloadMode::Real,
        mtu: PathMtu::B1024,
        timeout: 14,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 1,
        max_rd_atomic: 16,
        caps: Caps { max_send_wr: 16, max_recv_wr: 0, max_send_sge: 1, max_recv_sge: 0, max_inline: 0 },
        limit_flight: false,
        cq_capacity: 16,
        seed,
        first_psn: None,
    });
    for host in [A, B] {
        pair.sides[host].recv_cq = pair.sim.nic(host).create_cq_sink(Box::new(Numbers::default()));
    }
    let qpns = pair.connect().unwrap();
    let buffers = [Buffer::new(0x10_0000, MESSAGES * LEN), Buffer::new(0x20_0000, MESSAGES * LEN)];
    let pattern: Vec<u8> = (0..MESSAGES * LEN).map(|i| ((i * 31) >> 3) as u8).collect();
    buffers[A].write_at(0, &pattern);
    let places = [A, B].map(|host| {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let key = pair.sim.nic(host).reg_mr(pair.sides[host].pd, &buffers[host], access).unwrap();
        Place { addr: buffers[host].addr(), key }
    });
    let start = pair.sim.now().instant();
    let sender = Sender {
        qpn: qpns[A],
        sink: pair.sides[A].recv_cq,
        from: places[A],
        to: places[B],
        acknowledged: vec![false; MESSAGES],
        next: 0,
        again: start,
        sent: 0,
    };
    let receiver = Receiver { qpn: qpns[B], sink: pair.sides[B].recv_cq, peer: places[A], owed: Vec::new() };
    pair.sim.nic(A).set_layer(Some(Box::new(sender)));
    pair.sim.nic(B).set_layer(Some(Box::new(receiver)));
    pair.sim.touch(A);
    let sent = loop {
        let state = pair.sim.nic(A).with_layer(|layer, _| {
            let sender = layer.as_any_mut().downcast_mut::<Sender>().expect("the sender");
            (sender.acknowledged.iter().all(|&done| done), sender.sent)
        });
        if let Some((true, sent)) = state {
            break sent;
        }
        pair.sim.step().expect("the layer's timer is there until all is acknowledged");
    };
    let mut received = vec![0; MESSAGES * LEN];
    buffers[B].read_at(0, &mut received);
    assert!(received == pattern, "every message is placed where it belongs");
    (sent, pair.sim.now().instant().saturating_since(start), pair.sim.digest())
}

#[test]
fn without_loss_each_message_is_sent_once_as_fast_as_the_link_carries() {
    let (sent, took, _) = run("", 1);
    assert_eq!(sent, MESSAGES);
    // Half a megabyte at 10 Gbit/s, the headers, and a round trip.
    assert!(took < Duration::from_micros(450) + RTT, "{took:?}");
}

#[test]
fn what_is_lost_is_sent_again_by_the_layers_own_timer_and_every_run_is_the_same() {
    for seed in 1..4 {
        let (sent, took, digest) = run("loss=0.05", seed);
        assert!(sent > MESSAGES && sent < 2 * MESSAGES, "{sent}");
        assert_eq!(run("loss=0.05", seed), (sent, took, digest));
    }
}
