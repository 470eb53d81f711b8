//! Two opened NICs, one in each namespace, and what tests do with them.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::{Completion, Data, Event, RecvWr, SendFlags, SendOp, SendWr, Status};
use softnic_runtime::api::{
    CompletionQueue, Connection, Context, DeviceSpec, MemoryRegion, OpenOptions, ProtectionDomain, QpOptions, QueuePair,
};
use softnic_wire::{PathMtu, Psn};

use crate::veth::Veth;

/// Long enough for the slowest machine; no test that passes waits for it.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);
/// Bytes of each side's memory: the first half is sent from, the second half received into.
pub(crate) const SIZE: usize = 1 << 20;
pub(crate) const HALF: usize = SIZE / 2;

/// One NIC with a domain, a completion queue and memory.
pub(crate) struct Side {
    pub(crate) context: Context,
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    pub(crate) mr: MemoryRegion,
}

/// Both NICs. They go before the cable does.
pub(crate) struct World {
    pub(crate) sides: [Side; 2],
    pub(crate) veth: Veth,
}

/// The device of that side.
pub(crate) fn device(veth: &Veth, side: usize) -> DeviceSpec {
    DeviceSpec::afxdp(veth.interface(side))
}

impl World {
    pub(crate) fn new(queues: u32, mtu: u32) -> Option<World> {
        World::with(queues, mtu, [OpenOptions::default(), OpenOptions::default()])
    }

    pub(crate) fn with(queues: u32, mtu: u32, options: [OpenOptions; 2]) -> Option<World> {
        Some(World::on(Veth::new(queues, mtu)?, options))
    }

    pub(crate) fn on(veth: Veth, options: [OpenOptions; 2]) -> World {
        let sides = [0, 1].map(|i| {
            let context = veth.inside(i, || Context::open(&device(&veth, i), &options[i]).unwrap());
            Side::new(context)
        });
        World { sides, veth }
    }

    pub(crate) fn address(&self, side: usize) -> IpAddr {
        self.veth.address(side).into()
    }

    /// A queue pair on each side, with `options` changed at will.
    pub(crate) fn queue_pairs(&self, kind: QpKind, change: impl Fn(&mut QpOptions)) -> [QueuePair; 2] {
        [0, 1].map(|i| {
            let side = &self.sides[i];
            let mut options = QpOptions::new(kind, &side.cq);
            options.caps.max_inline = 128;
            change(&mut options);
            side.pd.create_qp(&options).unwrap()
        })
    }

    /// Connects two queue pairs between these addresses; the path MTU is the one that comes out by itself.
    pub(crate) fn connect(&self, qps: &[QueuePair; 2], addresses: [IpAddr; 2], change: impl Fn(&mut Connection)) {
        for (me, peer) in [(0, 1), (1, 0)] {
            let path = self.sides[me].context.path_to(addresses[peer], qps[me].qpn().value()).unwrap();
            // What is said of timeouts suits a machine whose threads wait long for a core.
            let usual = Connection::new(path, qps[peer].qpn(), Psn::new(0xff_fff0), Psn::new(0xff_fff0));
            let mut connection = Connection { timeout: 17, ..usual };
            change(&mut connection);
            qps[me].connect(&connection).unwrap();
        }
    }

    /// Connected queue pairs over IPv4 at this path MTU, or at the one that comes out.
    pub(crate) fn connected(&self, kind: QpKind, mtu: Option<PathMtu>) -> [QueuePair; 2] {
        let qps = self.queue_pairs(kind, |_| ());
        self.connect(&qps, [self.address(0), self.address(1)], |c| c.mtu = mtu.unwrap_or(c.mtu));
        qps
    }

    /// Lets both NICs go on.
    pub(crate) fn progress(&self) {
        for side in &self.sides {
            side.context.progress();
        }
    }

    /// The next completion at that side.
    pub(crate) fn completion(&self, side: usize) -> Completion {
        let start = Instant::now();
        loop {
            self.progress();
            if let Some(completion) = self.sides[side].cq.poll_one().unwrap() {
                return completion;
            }
            let counters = self.sides.each_ref().map(|s| s.context.counters());
            assert!(start.elapsed() < LIMIT, "no completion at side {side}: {counters:?}");
            std::thread::yield_now();
        }
    }

    /// The next completion at that side, which went well.
    pub(crate) fn success(&self, side: usize, wr_id: u64) -> Completion {
        let done = self.completion(side);
        assert_eq!((done.wr_id, done.status), (wr_id, Status::Success), "{done:?}");
        done
    }

    /// Waits for an event at that side; others are passed over.
    pub(crate) fn event(&self, side: usize, wanted: Event) {
        let start = Instant::now();
        let context = &self.sides[side].context;
        // Nothing here makes progress: events come by themselves.
        while std::iter::from_fn(|| context.poll_event()).all(|event| event != wanted) {
            assert!(start.elapsed() < LIMIT, "{wanted:?} does not come");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// A WRITE of `len` bytes from the first half of one side to the second half of the other, which are the same after it.
    pub(crate) fn write_and_compare(&self, qps: &[QueuePair; 2], from: usize, len: usize, seed: u8) {
        let data = self.sides[from].fill(len, seed);
        let op = self.sides[1 - from].write_op();
        post(&qps[from], u64::from(seed), op, Data::Gather(&[self.sides[from].mr.sge(0, len)]));
        self.success(from, u64::from(seed));
        assert!(self.sides[1 - from].received(len) == data, "the data is another");
    }
}

impl Side {
    pub(crate) fn new(context: Context) -> Side {
        let pd = context.alloc_pd();
        let cq = context.create_cq(16384).unwrap();
        let mr = pd.alloc_mr(SIZE, Access::LOCAL_WRITE | Access::REMOTE | Access::MW_BIND).unwrap();
        Side { context, pd, cq, mr }
    }

    /// Puts bytes that `seed` decides into the first half, and clears the second of other ones.
    pub(crate) fn fill(&self, len: usize, seed: u8) -> Vec<u8> {
        let data: Vec<u8> = (0..len).map(|i| ((i * 31) >> 3) as u8 ^ seed).collect();
        self.mr.write_at(0, &data);
        data
    }

    /// What lies at the beginning of the second half.
    pub(crate) fn received(&self, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        self.mr.read_at(HALF, &mut data);
        data
    }

    /// Forgets what was received.
    pub(crate) fn clear(&self) {
        self.mr.write_at(HALF, &vec![0; HALF]);
    }

    /// A peer's WRITE to the second half.
    pub(crate) fn write_op(&self) -> SendOp {
        SendOp::Write { remote_addr: self.mr.addr() + HALF as u64, rkey: self.mr.rkey() }
    }

    /// A receive of `len` bytes into the second half.
    pub(crate) fn post_recv(&self, qp: &QueuePair, wr_id: u64, len: usize) {
        qp.post_recv(&RecvWr { wr_id, sges: &[self.mr.sge(HALF, len)], best_effort: None }).unwrap();
    }
}

pub(crate) fn send_wr(wr_id: u64, op: SendOp, data: Data<'_>) -> SendWr<'_> {
    SendWr { wr_id, op, data, flags: SendFlags::default(), best_effort: None, to: None }
}

pub(crate) fn post(qp: &QueuePair, wr_id: u64, op: SendOp, data: Data<'_>) {
    qp.post_send(&send_wr(wr_id, op, data)).unwrap();
}
