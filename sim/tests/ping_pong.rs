//! Ping-pong by WRITEs, as `ib_write_lat` plays it: acknowledgements that wait for the reply make no round trip longer, and cause no retry.

use std::sync::Arc;
use std::time::Duration;

use softnic_nic::Buffer;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::transports::{Data, SendFlags, SendOp, SendWr, Sge, Status, Transport};
use softnic_sim::LinkConfig;
use softnic_sim::pair::{A, B, Pair, PairConfig, timeout_code};
use softnic_wire::{PathMtu, Qpn};

const ROUNDS: u8 = 100;
const LEN: usize = 64;

struct World {
    pair: Pair<'static>,
    qpns: [Qpn; 2],
    keys: [u32; 2],
    buffers: [Arc<Buffer>; 2],
}

impl World {
    fn new(rtt: Duration) -> World {
        let mut pair = Pair::new(PairConfig {
            transport: Transport::Rc,
            link: LinkConfig { rate: 10_000_000_000, delay: rtt / 2, faults: "".parse().unwrap() },
            payload: PayloadMode::Real,
            mtu: PathMtu::B1024,
            timeout: timeout_code(rtt * 4),
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 1,
            max_rd_atomic: 16,
            caps: Caps { max_send_wr: 64, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 },
            limit_flight: false,
            cq_capacity: 256,
            seed: 5,
            first_psn: None,
        });
        let qpns = pair.connect().unwrap();
        // The first half is sent from, the second written to.
        let buffers = [Buffer::new(0x10_0000, 2 * LEN), Buffer::new(0x20_0000, 2 * LEN)];
        let keys = [A, B].map(|host| {
            let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
            pair.sim.nic(host).reg_mr(pair.sides[host].pd, &buffers[host], access).unwrap()
        });
        World { pair, qpns, keys, buffers }
    }

    fn post(&mut self, host: usize, round: u8) {
        let (own, peer) = (&self.buffers[host], &self.buffers[1 - host]);
        own.write_at(0, &[round; LEN]);
        let sges = [Sge { addr: own.addr(), len: LEN as u32, lkey: self.keys[host] }];
        let op = SendOp::Write { remote_addr: peer.addr() + LEN as u64, rkey: self.keys[1 - host] };
        let flags = SendFlags { signaled: true, solicited: false, fence: false };
        let wr = SendWr { wr_id: round.into(), op, data: Data::Gather(&sges), flags, best_effort: None, to: None };
        let now = self.pair.sim.now().instant();
        self.pair.sim.nic(host).post_send(now, self.qpns[host], &wr).unwrap();
        self.pair.sim.touch(host);
    }

    /// Plays; each program takes `think` to answer. How long each round took, in nanoseconds, and in how many the reply was there before
    /// the acknowledgement.
    fn play(&mut self, think: Duration) -> (Vec<u64>, u32) {
        let (mut times, mut first) = (Vec::new(), 0);
        for round in 1..=ROUNDS {
            let begin = self.pair.sim.now();
            self.post(A, round);
            let mut acknowledged = false;
            for host in [B, A] {
                while self.buffers[host].load_byte(2 * LEN - 1) != round {
                    self.pair.sim.step().expect("it arrives");
                    acknowledged |= self.completions(A) > 0;
                }
                let at = self.pair.sim.now().after(think);
                self.pair.sim.wake_at(at, host);
                while self.pair.sim.now() < at {
                    self.pair.sim.step().expect("the program wakes");
                    // The acknowledgement right behind the reply comes now, too.
                    let done = self.completions(A) > 0;
                    acknowledged |= host == B && done;
                }
                if host == B {
                    self.post(B, round);
                } else {
                    first += u32::from(!acknowledged);
                }
            }
            times.push((self.pair.sim.now().0 - begin.0) / 1000);
        }
        // What is left is acknowledged, with nobody's help.
        while self.pair.sim.step().is_some() {}
        (times, first)
    }

    fn completions(&mut self, host: usize) -> usize {
        let cq = self.pair.sides[host].send_cq;
        let nic = self.pair.sim.nic(host);
        std::iter::from_fn(|| nic.poll_cq(cq).unwrap()).inspect(|c| assert_eq!(c.status, Status::Success)).count()
    }
}

#[test]
fn no_round_trip_is_longer_and_nothing_is_sent_again() {
    for rtt in [2, 10, 100].map(Duration::from_micros) {
        for think in [0, 1, 5, 15, 30, 500].map(Duration::from_micros) {
            let mut w = World::new(rtt);
            let (times, _) = w.play(think);
            let slowest = times.iter().max().unwrap();
            // The first three are played without: nothing is known of the programs then. An ACK may be in the way of a frame.
            assert!(*slowest <= times[0] + 200, "{rtt:?}, {think:?}: {times:?}");
            for host in [A, B] {
                let c = w.pair.sim.nic(host).counters();
                let again = (c.local_ack_timeout_err, c.duplicate_request, c.retransmitted_packets);
                assert_eq!(again, (0, 0, 0), "{rtt:?}, {think:?}");
            }
        }
    }
}

#[test]
fn the_reply_of_a_program_that_answers_at_once_comes_before_the_acknowledgement() {
    let play = |think| World::new(Duration::from_micros(100)).play(think).1;
    let rounds = u32::from(ROUNDS);
    assert!(play(Duration::from_micros(5)) >= rounds - 3);
    assert_eq!(play(Duration::from_micros(30)), 0, "nobody is waited for so long");
}
