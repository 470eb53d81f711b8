//! Over a link with faults, in virtual time: a set bit means right bytes, and what is missing can be sent again until nothing is.

use std::sync::Arc;
use std::time::Duration;

use softnic_nic::Buffer;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::{Caps, PayloadMode};
use softnic_sdr::{Counters, Local, QpAttr, QpId, Sdr, SdrQp};
use softnic_sim::LinkConfig;
use softnic_sim::pair::{A, B, Pair, PairConfig};
use softnic_wire::{Instant, PathMtu};

const MTU: usize = 1024;
const ROOM: usize = 1 << 20;

struct World {
    pair: Pair<'static>,
    qps: [QpId; 2],
    memory: [Arc<Buffer>; 2],
    keys: [u32; 2],
}

impl World {
    fn new(faults: &str, seed: u64, attr: &QpAttr) -> World {
        let mut pair = Pair::new(PairConfig {
            transport: softnic_sim::Transport::Uc,
            link: LinkConfig {
                rate: 10_000_000_000,
                delay: Duration::from_micros(50),
                faults: faults.parse().unwrap(),
            },
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
        let memory = [A, B].map(|_| Buffer::new(0x10_0000, ROOM));
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let mut keys = [0; 2];
        let mut made = [A, B].map(|host| {
            let pd = pair.sides[host].pd;
            keys[host] = pair.sim.nic(host).reg_mr(pd, &memory[host], access).unwrap();
            SdrQp::create(pair.sim.nic(host), pd, attr).unwrap()
        });
        let infos = [A, B].map(|host| made[host].info().encode());
        for (host, qp) in made.iter_mut().enumerate() {
            let (ip, mac) = (pair.network.address(1 - host).0, pair.network.next_hop(host, 1 - host));
            let path = pair.sim.nic(host).path_to(ip, mac, 3).unwrap();
            qp.connect(pair.sim.nic(host), 1, &path, &infos[1 - host]).unwrap();
        }
        let mut host = 0;
        let qps = made.map(|qp| {
            let mut sdr = Sdr::default();
            let id = sdr.add(qp);
            pair.sim.nic(host).set_layer(Some(Box::new(sdr)));
            host += 1;
            id
        });
        World { pair, qps, memory, keys }
    }

    /// Talks to the queue pair of a host.
    fn with<R>(&mut self, host: usize, talk: impl FnOnce(Instant, &mut SdrQp, &mut softnic_nic::Nic) -> R) -> R {
        let (now, id) = (self.pair.sim.now().instant(), self.qps[host]);
        let result = self.pair.sim.nic(host).with_layer(|layer, nic| {
            let sdr = layer.as_any_mut().downcast_mut::<Sdr>().expect("it is that");
            talk(now, sdr.qp(id).expect("it is there"), nic)
        });
        self.pair.touch(host);
        result.expect("there is a layer")
    }

    fn local(&self, host: usize, at: usize, len: usize) -> Local {
        Local { key: self.keys[host], addr: 0x10_0000 + at as u64, len: len as u64 }
    }

    fn run(&mut self) {
        while self.pair.sim.step().is_some() {}
    }

    fn counters(&mut self, host: usize) -> Counters {
        self.with(host, |_, qp, nic| qp.counters(nic))
    }
}

/// Messages from one end to the other, each sent again, chunk by chunk, until all of it is there; how many rounds that took, what the
/// receiver counted, and the digest of the run.
fn transfer(faults: &str, seed: u64, channels: u8, messages: usize) -> (u32, Counters, u64) {
    let (split, slots) = ("2+26+4".parse().unwrap(), 4);
    let chunk = 2 * MTU as u32;
    let attr =
        QpAttr { max_message: 64 << 10, chunk, split, slots, channels, mtu: PathMtu::B1024, ..QpAttr::default() };
    let mut w = World::new(faults, seed, &attr);
    let mut rounds = 0;
    for n in 0..messages {
        let len = 1 + (n * 7919 + seed as usize * 13) % (60 << 10);
        let at = n % 7 * (64 << 10);
        let bytes: Vec<u8> = (0..len).map(|i| (i * 31 + n * 17 + seed as usize) as u8).collect();
        w.memory[A].write_at(at, &bytes);
        w.memory[B].write_at(at, &vec![0xa5; len + 64]);
        let (from, to) = (w.local(A, at, len), w.local(B, at, len));
        let receive = w.with(B, |now, qp, nic| qp.recv_post(now, nic, to)).unwrap();
        let imm = n as u32 ^ 0x5a5a_0000;
        let stream = w.with(A, |now, qp, nic| qp.send_stream_start(now, nic, len as u64, Some(imm))).unwrap();
        for round in 0.. {
            assert!(round < 100, "message {n} is never whole");
            rounds += 1;
            let missing: Vec<u32> = w.with(B, |_, qp, _| qp.recv_bitmap_get(receive).unwrap().missing().collect());
            for chunk in missing {
                let offset = chunk as usize * attr.chunk as usize;
                let part = Local {
                    addr: from.addr + offset as u64,
                    len: (len - offset).min(attr.chunk as usize) as u64,
                    ..from
                };
                w.with(A, |now, qp, nic| qp.send_stream_continue(now, nic, stream, offset as u64, part)).unwrap();
            }
            w.run();
            let bitmap = w.with(B, |_, qp, _| qp.recv_bitmap_get(receive).unwrap().clone());
            let mut found = vec![0; len + 64];
            w.memory[B].read_at(at, &mut found);
            for chunk in (0..bitmap.chunks()).filter(|&chunk| bitmap.is_set(chunk)) {
                let range = chunk as usize * attr.chunk as usize..((chunk as usize + 1) * attr.chunk as usize).min(len);
                assert!(
                    found[range.clone()] == bytes[range],
                    "message {n}, chunk {chunk}: a set bit means right bytes"
                );
            }
            assert!(found[len..] == [0xa5; 64], "nothing behind the receive");
            if bitmap.is_full() {
                assert_eq!(bitmap.imm().unwrap_or(imm), imm);
                break;
            }
        }
        w.with(A, |_, qp, _| qp.send_stream_end(stream)).unwrap();
        w.with(B, |_, qp, nic| qp.recv_complete(nic, receive)).unwrap();
        w.memory[B].write_at(at, &vec![0x77; len]);
        w.run();
        let mut found = vec![0; len];
        w.memory[B].read_at(at, &mut found);
        assert!(found == vec![0x77; len], "nothing after the completion");
    }
    let counters = w.counters(B);
    (rounds, counters, w.pair.sim.digest())
}

#[test]
fn without_faults_every_message_is_whole_at_once() {
    for channels in [1, 3] {
        let (rounds, counters, _) = transfer("", 1, channels, 20);
        assert_eq!((rounds, counters.duplicates, counters.late(), counters.rejected), (20, 0, 0, 0));
    }
}

#[test]
fn through_loss_duplicates_and_reordering_every_message_fills() {
    for seed in 1..=6 {
        for channels in [1, 2, 4] {
            let (rounds, counters, digest) = transfer("loss=0.05,dup=0.05,jitter=40us", seed, channels, 20);
            assert!(rounds > 20 && counters.duplicates > 0, "{counters:?}");
            assert_eq!(counters.rejected, 0);
            if (seed, channels) == (1, 1) {
                assert_eq!(transfer("loss=0.05,dup=0.05,jitter=40us", seed, channels, 20).2, digest, "the same seed");
            }
        }
    }
}

#[test]
fn through_a_bad_link_too() {
    let (_, counters, _) = transfer("loss=0.3,corrupt=0.05,dup=0.1,jitter=200us", 9, 2, 10);
    assert!(counters.packets > 0);
}
