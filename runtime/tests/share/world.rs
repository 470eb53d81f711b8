//! A shared interface, its clients and a peer, and what tests do with them.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::{Data, SendFlags, SendOp, SendWr, Status};
use softnic_runtime::api::{
    CompletionQueue, Connection, Context, DeviceSpec, MemoryRegion, OpenError, OpenOptions, Progress, ProtectionDomain,
    QpOptions, QueuePair,
};
use softnic_runtime::share::{ClientStatus, Limits, Share, ShareError, ShareOptions, served};
use softnic_wire::Psn;

use crate::veth::Veth;

/// Long enough for the slowest machine; no test that passes waits for it.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// Bytes of each NIC's memory: the first half is sent from, the second half received into.
pub(crate) const SIZE: usize = 1 << 18;
pub(crate) const HALF: usize = SIZE / 2;
const PSN: Psn = Psn::new(0xff_fff0);

/// The side whose interface is shared, and the side of the peer.
pub(crate) const HERE: usize = 0;
pub(crate) const THERE: usize = 1;

/// How the interface is shared where a test does not mind.
pub(crate) fn usual(veth: &Veth) -> ShareOptions {
    ShareOptions {
        interface: veth.interface(HERE).into(),
        group: None,
        mode: 0o666,
        clients: 100,
        clients_of_user: 100,
        queues: 1,
        limits: Limits::default(),
    }
}

/// Shares the interface.
pub(crate) fn share(veth: &Veth, options: ShareOptions) -> Result<Share, ShareError> {
    veth.inside(HERE, || Share::start(options))
}

/// The clients of the interface.
pub(crate) fn clients(veth: &Veth) -> Vec<ClientStatus> {
    veth.inside(HERE, || served(veth.interface(HERE))).unwrap().clients
}

/// Opens a NIC on that device of a side.
pub(crate) fn open(veth: &Veth, side: usize, kind: &str) -> Result<Context, OpenError> {
    let device: DeviceSpec = format!("{kind}:{}", veth.interface(side)).parse().unwrap();
    let options = OpenOptions { progress: Some(Progress::Inline), ..OpenOptions::default() };
    veth.inside(side, || Context::open(&device, &options))
}

/// The devices of the shared interface's namespace beside the interface itself and loopback.
pub(crate) fn devices(veth: &Veth) -> Vec<String> {
    let shown = veth.ip(HERE, "-oneline link show").unwrap();
    let names = shown.lines().filter_map(|line| Some(line.split(": ").nth(1)?.split('@').next()?.to_string()));
    names.filter(|name| name != "lo" && name != veth.interface(HERE)).collect()
}

/// Waits until something holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < LIMIT, "{what}: not after {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A NIC with one queue pair and memory.
pub(crate) struct End {
    pub(crate) context: Context,
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    pub(crate) mr: MemoryRegion,
    pub(crate) qp: QueuePair,
}

impl End {
    pub(crate) fn new(context: Context) -> End {
        let pd = context.alloc_pd();
        let cq = context.create_cq(256).unwrap();
        let mr = pd.alloc_mr(SIZE, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
        let qp = pd.create_qp(&QpOptions::new(QpKind::Rc, &cq)).unwrap();
        End { context, pd, cq, mr, qp }
    }

    /// Another queue pair of the same NIC.
    pub(crate) fn again(&self) -> End {
        End::new(self.context.clone())
    }

    fn connect_to(&self, peer: &End, address: IpAddr) {
        let path = self.context.path_to(address, self.qp.qpn().value()).unwrap();
        let connection = Connection::new(path, peer.qp.qpn(), PSN, PSN);
        self.qp.connect(&Connection { timeout: 17, ..connection }).unwrap();
    }
}

/// Connects two NICs at these addresses.
pub(crate) fn connect(a: &End, b: &End, addresses: [IpAddr; 2]) {
    a.connect_to(b, addresses[1]);
    b.connect_to(a, addresses[0]);
}

/// Writes from one NIC to the other, and says how that ended; data that arrives is the same.
pub(crate) fn write(from: &End, to: &End, len: usize, seed: u8) -> Status {
    let data: Vec<u8> = (0..len).map(|i| ((i * 31) >> 3) as u8 ^ seed).collect();
    from.mr.write_at(0, &data);
    let sges = [from.mr.sge(0, len)];
    let op = SendOp::Write { remote_addr: to.mr.addr() + HALF as u64, rkey: to.mr.rkey() };
    let flags = SendFlags { signaled: true, ..SendFlags::default() };
    let wr = SendWr { wr_id: seed.into(), op, data: Data::Gather(&sges), flags, best_effort: None, to: None };
    from.qp.post_send(&wr).unwrap();
    let begin = Instant::now();
    loop {
        to.context.progress();
        if let Some(done) = from.cq.poll_one().unwrap() {
            let mut got = vec![0; len];
            to.mr.read_at(HALF, &mut got);
            assert!(done.status != Status::Success || got == data, "the data is another");
            return done.status;
        }
        let counters = [from, to].map(|end| end.context.counters());
        assert!(begin.elapsed() < LIMIT, "no completion: {counters:?}");
        std::thread::yield_now();
    }
}
