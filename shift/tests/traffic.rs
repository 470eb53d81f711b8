//! Two hosts with two NICs each whose programs send to each other all the time.

use std::sync::Arc;
use std::time::Duration;

use softnic_nic::Buffer;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::Caps;
use softnic_nic::transports::{Data, PostError, RecvWr, SendFlags, SendOp, SendWr, Sge, Status};
use softnic_shift::{Notice, Times};
use softnic_sim::dual_pair::{DualPair, DualPairConfig};
use softnic_sim::pair::{A, B};
use softnic_sim::{LinkConfig, Time, Transport};
use softnic_wire::failover::Phase;
use softnic_wire::{PathMtu, Qpn};

pub(crate) const SIZE: usize = 600;
const RECVS: u64 = 16;
pub(crate) const MS: Duration = Duration::from_millis(1);

/// Two hosts, a connection, and what was posted and told on each end of it.
pub(crate) struct Traffic {
    pub(crate) pair: DualPair<'static>,
    pub(crate) qpns: [Qpn; 2],
    pub(crate) keys: [u32; 2],
    pub(crate) buffers: [Arc<Buffer>; 2],
    /// Sends that were posted, and that completed; receives that were posted, and that completed.
    pub(crate) posted: [u64; 2],
    pub(crate) done: [u64; 2],
    pub(crate) recvs: [u64; 2],
    pub(crate) heard: [u64; 2],
    /// Completions that were errors.
    pub(crate) errors: [u64; 2],
    /// Sends and receives that the programs have outstanding, at most.
    pub(crate) depths: [u64; 2],
    /// The program posts no more sends, or nothing at all.
    pub(crate) quiet: [bool; 2],
    pub(crate) gone: [bool; 2],
    pub(crate) notices: [Vec<Notice>; 2],
}

pub(crate) fn config() -> DualPairConfig {
    DualPairConfig {
        transport: Transport::Rc,
        link: LinkConfig { rate: 10_000_000_000, delay: Duration::from_micros(10), faults: Default::default() },
        backup: Some(Default::default()),
        mtu: PathMtu::B256,
        timeout: 7,
        retry_cnt: 3,
        rnr_retry: 7,
        caps: Caps { max_send_wr: 8, max_recv_wr: RECVS as u32, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 },
        sig_all: true,
        cq_capacity: 256,
        times: Times { probe: MS, fence: 2 * MS, answer: 50 * MS },
        seed: 5,
    }
}

impl Traffic {
    /// Both ends have met.
    pub(crate) fn new() -> Traffic {
        Traffic::with(config())
    }

    /// The same with other hosts.
    pub(crate) fn with(config: DualPairConfig) -> Traffic {
        Traffic::between(config, |pair| pair.connect().unwrap())
    }

    /// The same with queue pairs that are connected in another way.
    pub(crate) fn between(config: DualPairConfig, connect: impl FnOnce(&mut DualPair<'static>) -> [Qpn; 2]) -> Traffic {
        let depths = [u64::from(config.caps.max_send_wr), u64::from(config.caps.max_recv_wr)];
        let mut pair = DualPair::new(config);
        let buffers = [A, B].map(|host| Buffer::new(0x1000_0000 * (1 + host as u64), 2 * SIZE));
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let keys = [A, B].map(|host| pair.reg_mr(host, &buffers[host], access).unwrap());
        let qpns = connect(&mut pair);
        assert!(pair.protect(qpns));
        Traffic {
            pair,
            qpns,
            keys,
            buffers,
            posted: [0; 2],
            done: [0; 2],
            recvs: [0; 2],
            heard: [0; 2],
            errors: [0; 2],
            depths,
            quiet: [false; 2],
            gone: [false; 2],
            notices: [Vec::new(), Vec::new()],
        }
    }

    pub(crate) fn phase(&mut self, host: usize) -> Option<Phase> {
        let qpn = self.qpns[host];
        self.pair.host(host).machine(qpn).map(|machine| machine.phase())
    }

    /// Takes the default port of a host down, or up.
    pub(crate) fn set_link(&mut self, host: usize, up: bool) {
        self.pair.host(host).nic.set_link(up);
        self.pair.sim.touch(host);
    }

    fn sge(&self, host: usize, at: usize) -> [Sge; 1] {
        [Sge { addr: self.buffers[host].addr() + at as u64, len: SIZE as u32, lkey: self.keys[host] }]
    }

    pub(crate) fn post_recv(&mut self, host: usize) -> Result<(), PostError> {
        let (qpn, sges) = (self.qpns[host], self.sge(host, SIZE));
        let wr = RecvWr { wr_id: self.recvs[host], sges: &sges, best_effort: None };
        self.pair.host(host).post_recv(qpn, &wr)?;
        self.recvs[host] += 1;
        Ok(())
    }

    pub(crate) fn post_send(&mut self, host: usize) -> Result<(), PostError> {
        let (qpn, sges, now) = (self.qpns[host], self.sge(host, 0), self.pair.sim.now().instant());
        let (data, flags, wr_id) = (Data::Gather(&sges), SendFlags::default(), self.posted[host]);
        let wr = SendWr { wr_id, op: SendOp::Send, data, flags, best_effort: None, to: None };
        self.pair.host(host).post_send(now, qpn, &wr)?;
        self.posted[host] += 1;
        Ok(())
    }

    /// Posts what there is room for.
    fn post(&mut self, host: usize) {
        // Behind an error posts are refused, or flushed.
        if self.gone[host] || self.errors[host] > 0 {
            return;
        }
        let [sends, recvs] = self.depths;
        while self.recvs[host] < self.heard[host] + recvs && self.post_recv(host).is_ok() {}
        while !self.quiet[host] && self.posted[host] < self.done[host] + sends && self.post_send(host).is_ok() {}
    }

    /// What completed: once, and in order, and nothing goes well behind an error.
    fn take(&mut self, host: usize) {
        let side = self.pair.sides[host];
        while let Some(completion) = self.pair.host(host).poll_cq(side.recv_cq).unwrap() {
            assert_eq!((completion.wr_id, completion.qpn), (self.heard[host], self.qpns[host]));
            self.heard[host] += 1;
            self.note(host, completion.status);
        }
        while let Some(completion) = self.pair.host(host).poll_cq(side.send_cq).unwrap() {
            assert_eq!((completion.wr_id, completion.qpn), (self.done[host], self.qpns[host]));
            self.done[host] += 1;
            self.note(host, completion.status);
        }
    }

    fn note(&mut self, host: usize, status: Status) {
        match status {
            Status::Success => assert_eq!(self.errors[host], 0, "it goes well behind an error"),
            _ => self.errors[host] += 1,
        }
    }

    /// Does what there is to do and one thing more, as long as a condition does not hold; whether it does in the end.
    pub(crate) fn run_until(&mut self, within: Duration, mut is_so: impl FnMut(&mut Traffic) -> bool) -> bool {
        self.run(within, true, &mut is_so)
    }

    /// The same, with nothing posted.
    pub(crate) fn watch_until(&mut self, within: Duration, mut is_so: impl FnMut(&mut Traffic) -> bool) -> bool {
        self.run(within, false, &mut is_so)
    }

    fn run(&mut self, within: Duration, posts: bool, is_so: &mut dyn FnMut(&mut Traffic) -> bool) -> bool {
        let end = Time(self.pair.sim.now().0 + within.as_nanos() as u64 * 1000);
        self.pair.sim.wake_at(end, A);
        while self.pair.sim.now() < end {
            for host in [A, B] {
                self.take(host);
                if posts {
                    self.post(host);
                }
                self.pair.sim.touch(host);
            }
            if is_so(self) {
                return true;
            }
            let Some(node) = self.pair.sim.step() else { break };
            let told = self.pair.attend(node);
            self.notices[node].extend(told);
        }
        is_so(self)
    }
}
