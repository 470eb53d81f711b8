//! Reliable messages in virtual time, over links with faults: memory exactly as sent, each message once, nothing after completion, and all
//! complete once faults stop.

use std::sync::Arc;
use std::time::Duration;

use softnic_fault_injector::{Script, Spec};
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_nic::{Buffer, Nic};
use softnic_sdr::reliable::{Outcome, ReliableAttr, ReliableCounters, ReliableError, ReliableQp, Scheme};
use softnic_sdr::{Local, QpAttr, SdrError};
use softnic_sim::LinkConfig;
use softnic_sim::pair::{A, B, Pair, PairConfig};
use softnic_wire::{Instant, PathMtu};

pub(crate) const MTU: u32 = 1024;
const ROOM: usize = 4 << 20;
const BASE: u64 = 0x10_0000;
pub(crate) const RTT: Duration = Duration::from_millis(10);
pub(crate) const RATE: u64 = 10_000_000_000;

pub(crate) struct World {
    pub(crate) pair: Pair<'static>,
    pub(crate) memory: [Arc<Buffer>; 2],
    keys: [u32; 2],
}

impl World {
    pub(crate) fn new(faults: &str, seed: u64, attrs: [ReliableAttr; 2]) -> World {
        // Behind an @ are the numbers of data packets from A that are lost, and behind a % those of control messages from B.
        let (faults, control) = faults.split_once('%').unwrap_or((faults, ""));
        let (faults, data) = faults.split_once('@').unwrap_or((faults, ""));
        let mut faults: Spec = faults.parse().unwrap();
        let mut script = String::new();
        for (lost, direction, opcode) in
            [(data, "ab", "UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE"), (control, "ba", "UC_SEND_ONLY")]
        {
            for nth in lost.split(',').filter(|nth| !nth.is_empty()) {
                let event = format!("direction = \"{direction}\"\nopcode = \"{opcode}\"\nnth = {nth}\n");
                script += &format!("[[event]]\naction = \"drop\"\n{event}");
            }
        }
        if !script.is_empty() {
            faults.script = Script::parse(&script).unwrap();
        }
        let mut pair = Pair::new(PairConfig {
            transport: softnic_sim::Transport::Uc,
            link: LinkConfig { rate: RATE, delay: RTT / 2, faults },
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
        let memory = [A, B].map(|_| Buffer::new(BASE, ROOM));
        let mut keys = [0; 2];
        let mut made = [A, B].map(|host| {
            let pd = pair.sides[host].pd;
            let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
            keys[host] = pair.sim.nic(host).reg_mr(pd, &memory[host], access).unwrap();
            ReliableQp::create(pair.sim.nic(host), pd, &attrs[host]).unwrap()
        });
        let infos = [A, B].map(|host| made[host].qp().info().encode());
        for (host, qp) in made.iter_mut().enumerate() {
            let (ip, mac) = (pair.network.address(1 - host).0, pair.network.next_hop(host, 1 - host));
            let path = pair.sim.nic(host).path_to(ip, mac, 3).unwrap();
            qp.qp().connect(pair.sim.nic(host), 1, &path, &infos[1 - host]).unwrap();
        }
        for (host, qp) in made.into_iter().enumerate() {
            pair.sim.nic(host).set_layer(Some(Box::new(qp)));
        }
        World { pair, memory, keys }
    }

    pub(crate) fn with<R>(&mut self, host: usize, talk: impl FnOnce(Instant, &mut ReliableQp, &mut Nic) -> R) -> R {
        let now = self.now();
        let result = self
            .pair
            .sim
            .nic(host)
            .with_layer(|layer, nic| talk(now, layer.as_any_mut().downcast_mut().expect("it is that"), nic));
        self.pair.touch(host);
        result.expect("there is a layer")
    }

    pub(crate) fn now(&self) -> Instant {
        self.pair.sim.now().instant()
    }

    fn local(&self, host: usize, at: usize, len: usize) -> Local {
        Local { key: self.keys[host], addr: BASE + at as u64, len: len as u64 }
    }

    pub(crate) fn write(&mut self, host: usize, at: usize, len: usize) -> u64 {
        let memory = self.local(host, at, len);
        self.with(host, |now, qp, nic| qp.write(now, nic, memory)).unwrap()
    }

    pub(crate) fn receive(&mut self, host: usize, at: usize, len: usize) -> u64 {
        self.try_receive(host, at, len).unwrap()
    }

    pub(crate) fn try_receive(&mut self, host: usize, at: usize, len: usize) -> Result<u64, SdrError> {
        let memory = self.local(host, at, len);
        self.with(host, |now, qp, nic| qp.receive(now, nic, memory))
    }

    pub(crate) fn poll(&mut self, host: usize) -> Option<Outcome> {
        self.with(host, |_, qp, _| qp.poll())
    }

    /// What a host counted, which is among the counters of its NIC.
    pub(crate) fn counters(&mut self, host: usize) -> ReliableCounters {
        let counted = self.with(host, |_, qp, _| qp.counters());
        let nic = self.pair.sim.nic(host).counters();
        let of_nic = ReliableCounters {
            chunks_sent: nic.sdr_chunks_sent,
            chunks_repeated: nic.sdr_chunks_repeated,
            packets_repeated: nic.sdr_retransmitted_packets,
            timeouts: nic.sdr_chunk_timeouts,
            chunks_asked_for: nic.sdr_chunks_asked_for,
            rows_asked_for: nic.sdr_rows_asked_for,
            parity_packets: nic.sdr_repair_packets,
            chunks_recovered: nic.sdr_chunks_recovered,
            packets_recovered: nic.sdr_recovered_packets,
            fallbacks: nic.sdr_fallbacks,
            failed_submessages: nic.sdr_failed_submessages,
            unprotected: nic.sdr_unprotected_submessages,
            decode_ns: nic.sdr_decode_ns,
            acks_sent: nic.sdr_acks_sent,
            nacks_sent: nic.sdr_nacks_sent,
            rejected: nic.sdr_rejected_reports,
        };
        assert_eq!(of_nic, counted);
        counted
    }

    /// Until the host says something.
    pub(crate) fn until(&mut self, host: usize) -> (Instant, Outcome) {
        loop {
            if let Some(outcome) = self.poll(host) {
                return (self.now(), outcome);
            }
            assert!(self.pair.sim.step().is_some(), "nothing happens any more");
        }
    }
}

pub(crate) fn attr(scheme: Scheme) -> ReliableAttr {
    let qp =
        QpAttr { max_message: 1 << 20, chunk: MTU, slots: 8, mtu: PathMtu::B1024, send_depth: 64, ..QpAttr::default() };
    ReliableAttr { qp, scheme, rtt: RTT, ..ReliableAttr::default() }
}

pub(crate) fn bytes(n: usize, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + n * 17 + i / 999) as u8).collect()
}

/// Messages in both directions at once, several at a time; what both ends counted.
pub(crate) fn transfer(faults: &str, seed: u64, attr: ReliableAttr, messages: usize) -> [ReliableCounters; 2] {
    let mut w = World::new(faults, seed, [attr; 2]);
    let len = |host: usize, n: usize| match n % 5 {
        0 => n % 3,
        1 => MTU as usize + n % 2,
        _ => 1 + (n * 7919 + seed as usize * 13 + host * 7) % 100_000,
    };
    const PLACE: usize = 200_000;
    let at = |host: usize, n: usize| (host * 8 + n % 8) * PLACE;
    for host in [A, B] {
        (0..8).for_each(|n| w.memory[host].write_at(at(1 - host, n), &[0xa5; PLACE]));
    }
    let (mut posted, mut written, mut received) = ([[0; 2]; 2], [0; 2], [0; 2]);
    // Messages that are not over, at their senders.
    let mut open: [std::collections::BTreeSet<usize>; 2] = Default::default();
    while written != [messages; 2] || received != [messages; 2] {
        for host in [A, B] {
            // A place of memory is used again when its message is over.
            while posted[host][0] < messages && open[host].first().is_none_or(|&oldest| posted[host][0] < oldest + 4) {
                let n = posted[host][0];
                w.memory[host].write_at(at(host, n), &bytes(n + host, len(host, n)));
                assert_eq!(w.write(host, at(host, n), len(host, n)), n as u64);
                open[host].insert(n);
                posted[host][0] += 1;
            }
            while posted[host][1] < messages && posted[host][1] < received[host] + 4 {
                let n = posted[host][1];
                match w.try_receive(host, at(1 - host, n), len(1 - host, n)) {
                    // The oldest is not over, and others behind it are.
                    Err(SdrError::Full(_)) => break,
                    id => assert_eq!(id, Ok(n as u64)),
                }
                posted[host][1] += 1;
            }
            while let Some(outcome) = w.poll(host) {
                match outcome {
                    Outcome::Written { id, outcome } => {
                        assert_eq!(outcome, Ok(()));
                        assert!(open[host].remove(&(id as usize)), "each message once");
                        written[host] += 1;
                    }
                    Outcome::Received { id, outcome } => {
                        assert_eq!(outcome, Ok(()), "message {id}");
                        let (n, from) = (id as usize, 1 - host);
                        let mut found = vec![0; len(from, n) + 64];
                        w.memory[host].read_at(at(from, n), &mut found);
                        assert!(found[..len(from, n)] == bytes(n + from, len(from, n)), "message {n} to {host}");
                        // Nothing is written after this, by whatever is late.
                        w.memory[host].write_at(at(from, n), &vec![0xa5; len(from, n)]);
                        received[host] += 1;
                    }
                }
            }
        }
        if w.pair.sim.step().is_none() {
            assert_eq!((written, received), ([messages; 2], [messages; 2]), "it stands still");
        }
    }
    while w.now() < Instant::ZERO + Duration::from_secs(60) && w.pair.sim.step().is_some() {}
    for host in [A, B] {
        for n in 0..8 {
            let mut found = vec![0; PLACE];
            w.memory[host].read_at(at(1 - host, n), &mut found);
            assert!(found.iter().all(|&byte| byte == 0xa5), "something was written after completion");
        }
    }
    [A, B].map(|host| w.counters(host))
}

#[test]
fn without_faults_nothing_is_sent_again() {
    for scheme in [Scheme::Sr, Scheme::Nack] {
        for counters in transfer("", 1, attr(scheme), 20) {
            assert_eq!((counters.chunks_repeated, counters.nacks_sent, counters.rejected), (0, 0, 0), "{scheme:?}");
        }
    }
}

/// `SDR_SEEDS` says how many are tried.
#[test]
fn every_message_comes_whole_through_loss_duplicates_and_reordering() {
    let seeds: u64 = std::env::var("SDR_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(2);
    let faults = ["loss=0.02", "loss=0.1,dup=0.05", "loss=0.05,jitter=2ms", "loss=0.3", "burst=5e-3:0.9:~20"];
    for scheme in [Scheme::Sr, Scheme::Nack] {
        let mut repeated = 0;
        for faults in faults {
            for seed in 0..seeds {
                // A burst lasts for as many packets, and there are few when one chunk is missing.
                let small = ReliableAttr { timeout: Duration::from_secs(1000), ..attr(scheme) };
                let chunks = ReliableAttr { qp: QpAttr { chunk: 4 * MTU, channels: 3, slots: 5, ..small.qp }, ..small };
                let tiny = QpAttr { split: "2+26+4".parse().unwrap(), slots: 4, generations: 3, ..small.qp };
                for attr in [small, chunks, ReliableAttr { qp: tiny, ..small }] {
                    repeated += transfer(faults, seed, attr, 12).iter().map(|c| c.chunks_repeated).sum::<u64>();
                }
            }
        }
        assert!(repeated > 1000, "{scheme:?}: {repeated}");
    }
}

/// How long a WRITE takes at its sender, and what it counted.
fn time_of(faults: &str, scheme: Scheme, len: usize) -> (Duration, ReliableCounters) {
    let mut w = World::new(faults, 1, [attr(scheme); 2]);
    w.receive(B, 0, len);
    // The peer's receive is known.
    while w.with(A, |_, qp, _| qp.qp().vitals().cleared) == 0 {
        w.pair.sim.step();
    }
    let begin = w.now();
    w.write(A, 0, len);
    let (end, outcome) = w.until(A);
    assert_eq!(outcome, Outcome::Written { id: 0, outcome: Ok(()) });
    (end.saturating_since(begin), w.counters(A))
}

/// A round trip, and what it takes to put the bytes on the wire; so a lost packet costs SR another three, and NACK about one.
#[test]
fn a_lost_packet_costs_what_the_paper_says() {
    let len = 100 * MTU as usize;
    let (clean, _) = time_of("", Scheme::Sr, len);
    assert!(clean > RTT && clean < RTT.mul_f64(1.1), "{clean:?}");
    let lost = "@40";
    let (sr, counters) = time_of(lost, Scheme::Sr, len);
    assert_eq!((counters.chunks_repeated, counters.timeouts), (1, 1));
    assert!(sr > RTT * 4 && sr < RTT.mul_f64(4.2), "{sr:?}: the timeout is three round trips");
    let (nack, counters) = time_of(lost, Scheme::Nack, len);
    assert_eq!((counters.chunks_repeated, counters.timeouts, counters.chunks_asked_for), (1, 0, 1));
    assert!(nack > RTT * 2 && nack < RTT.mul_f64(2.2), "{nack:?}: asked for at once");
}

#[test]
fn a_message_and_a_receive_of_other_lengths_end_in_an_error() {
    let mut w = World::new("", 1, [attr(Scheme::Sr); 2]);
    w.receive(B, 0, 50_000);
    w.write(A, 0, 40_960);
    let (at, outcome) = w.until(A);
    assert_eq!(outcome, Outcome::Written { id: 0, outcome: Err(ReliableError::Length(40_960, 50_000)) });
    assert!(at < Instant::ZERO + RTT * 4, "as soon as the peer says so");
}

#[test]
fn a_message_that_is_longer_than_its_receive_is_not_cut_off() {
    let mut w = World::new("", 1, [attr(Scheme::Sr); 2]);
    w.receive(B, 0, 4 * MTU as usize);
    w.write(A, 0, 4 * MTU as usize + 900);
    let (_, outcome) = w.until(A);
    assert_eq!(outcome, Outcome::Written { id: 0, outcome: Err(ReliableError::Length(4996, 4096)) });
    // One whose only packet does not fit is told, too, and not after the timeout.
    let mut w = World::new("", 1, [attr(Scheme::Sr); 2]);
    w.receive(B, 0, 2000);
    w.write(A, 0, 1000);
    let (at, outcome) = w.until(A);
    assert_eq!(outcome, Outcome::Written { id: 0, outcome: Err(ReliableError::Length(1000, 2000)) });
    assert!(at < Instant::ZERO + RTT * 4);
}

#[test]
fn a_peer_that_stops_ends_in_the_timeout_with_all_that_was_posted() {
    let short = ReliableAttr { timeout: Duration::from_millis(300), ..attr(Scheme::Sr) };
    // Nothing comes through: the sender's time is over, and the receiver waits for a message to begin.
    let mut w = World::new("ab.loss=1", 1, [short; 2]);
    w.receive(B, 0, 10_000);
    w.write(A, 0, 10_000);
    w.write(A, 0, 10_000);
    let (at, outcome) = w.until(A);
    assert_eq!(outcome, Outcome::Written { id: 0, outcome: Err(ReliableError::Timeout) });
    assert!(at >= Instant::ZERO + short.timeout);
    assert_eq!(w.until(A).1, Outcome::Written { id: 1, outcome: Err(ReliableError::Timeout) });
    assert_eq!(w.poll(B), None);
    let memory = w.local(A, 0, 100);
    assert_eq!(w.with(A, |now, qp, nic| qp.write(now, nic, memory)), Err(SdrError::Ended), "the connection is over");
    // Some comes through: neither end says that all is there.
    let mut w = World::new("ab.loss=0.98", 1, [short; 2]);
    for n in 0..2 {
        w.receive(B, n * 200_000, 200_000);
        w.write(A, n * 200_000, 200_000);
    }
    for (host, other) in [(A, B), (B, A)] {
        for _ in 0..2 {
            let (_, outcome) = w.until(host);
            let (Outcome::Written { outcome, .. } | Outcome::Received { outcome, .. }) = outcome;
            assert_eq!(outcome, Err(ReliableError::Timeout), "{host} {other}");
        }
    }
}

/// The receiver's time is over first: what it gave up is not what it has.
#[test]
fn a_message_that_its_receiver_gave_up_is_not_acknowledged() {
    let patient = ReliableAttr { timeout: Duration::from_secs(5), ..attr(Scheme::Sr) };
    let short = ReliableAttr { timeout: Duration::from_millis(100), ..patient };
    let mut w = World::new("ab.loss=0.9", 1, [patient, short]);
    w.receive(B, 0, 200_000);
    w.write(A, 0, 200_000);
    assert_eq!(w.until(B).1, Outcome::Received { id: 0, outcome: Err(ReliableError::Timeout) });
    let (at, outcome) = w.until(A);
    assert_eq!(outcome, Outcome::Written { id: 0, outcome: Err(ReliableError::Timeout) });
    assert!(at >= Instant::ZERO + patient.timeout);
    // Nothing is left to do, nor to wait for.
    for _ in 0..1000 {
        if w.pair.sim.step().is_none() {
            return;
        }
    }
    panic!("a connection that is over goes on");
}

#[test]
fn the_last_acknowledgement_is_given_again_when_it_is_lost() {
    // Every report is lost for 200 ms.
    let mut w = World::new("ba.loss=0.9", 3, [attr(Scheme::Sr); 2]);
    for n in 0..4 {
        w.receive(B, n * 10_000, 10_000);
        w.write(A, n * 10_000, 10_000);
    }
    for _ in 0..4 {
        let (_, outcome) = w.until(A);
        assert!(
            matches!(outcome, Outcome::Written { outcome: Ok(()), .. }),
            "{outcome:?} {:?} {:?}",
            w.counters(A),
            w.counters(B)
        );
    }
    assert!(w.counters(B).acks_sent > 4);
}
