//! Two NICs over the wire in memory, with a connected queue pair each.

use std::time::{Duration, Instant};

use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::{Completion, Data, PostError, RecvWr, SendFlags, SendOp, SendWr, Sge, Status};
use softnic_runtime::api::{
    CompletionQueue, Connection, Context, MemoryRegion, OpenOptions, PeerPath, Progress, ProtectionDomain, QpOptions,
    QueuePair,
};
use softnic_wire::Psn;

/// Long enough for the slowest machine; no test that passes waits for it.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);
pub(crate) const SIZE: usize = 1 << 20;

pub(crate) struct Side {
    pub(crate) context: Context,
    pub(crate) pd: ProtectionDomain,
    pub(crate) cq: CompletionQueue,
    pub(crate) qp: QueuePair,
    pub(crate) mr: MemoryRegion,
}

pub(crate) fn side(context: Context) -> Side {
    let cq = context.create_cq(256).unwrap();
    side_with(context, cq)
}

pub(crate) fn side_with(context: Context, cq: CompletionQueue) -> Side {
    let pd = context.alloc_pd();
    let mr = pd.alloc_mr(SIZE, Access::LOCAL_WRITE | Access::REMOTE).unwrap();
    let qp = pd.create_qp(&QpOptions::new(QpKind::Rc, &cq)).unwrap();
    Side { context, pd, cq, qp, mr }
}

pub(crate) fn connect(a: &Side, b: &Side) {
    for (me, peer) in [(a, b), (b, a)] {
        let address = peer.context.addresses()[0];
        // The peer must answer who it is.
        let path = std::thread::scope(|s| {
            let path = s.spawn(|| me.context.path_to(address, me.qp.qpn().value()));
            while !path.is_finished() {
                peer.context.progress();
                std::thread::yield_now();
            }
            path.join().unwrap().unwrap()
        });
        me.qp.connect(&Connection::new(path, peer.qp.qpn(), Psn::new(100), Psn::new(100))).unwrap();
    }
}

/// Two NICs, and the paths to each other.
pub(crate) fn contexts_and_paths(options: [&OpenOptions; 2]) -> ([Context; 2], [PeerPath; 2]) {
    let contexts = Context::open_pair(options).unwrap();
    let addresses = [0, 1].map(|i: usize| contexts[i].addresses()[0]);
    // Who asks for the way is answered by the other end.
    let paths = [0, 1].map(|i: usize| {
        std::thread::scope(|s| {
            let path = s.spawn(|| contexts[i].path_to(addresses[1 - i], 7));
            while !path.is_finished() {
                contexts[1 - i].progress();
                std::thread::yield_now();
            }
            path.join().unwrap().unwrap()
        })
    });
    (contexts, paths)
}

pub(crate) fn world(progress: [Progress; 2]) -> [Side; 2] {
    let options = progress.map(|p| OpenOptions { progress: Some(p), ..OpenOptions::default() });
    let [a, b] = Context::open_pair([&options[0], &options[1]]).unwrap();
    let sides = [side(a), side(b)];
    connect(&sides[0], &sides[1]);
    sides
}

pub(crate) fn write(from: &Side, to: &Side, wr_id: u64, len: usize) -> Result<(), PostError> {
    let op = SendOp::Write { remote_addr: to.mr.addr(), rkey: to.mr.rkey() };
    from.qp.post_send(&SendWr { wr_id, ..request(op, &[from.mr.sge(0, len)]) })
}

fn request(op: SendOp, sges: &[Sge]) -> SendWr<'_> {
    SendWr { wr_id: 0, op, data: Data::Gather(sges), flags: SendFlags::default(), best_effort: None, to: None }
}

pub(crate) fn post(qp: &QueuePair, op: SendOp, sges: &[Sge]) -> Result<(), PostError> {
    qp.post_send(&request(op, sges))
}

pub(crate) fn completion(side: &Side, mut meanwhile: impl FnMut()) -> Completion {
    let start = Instant::now();
    loop {
        if let Some(completion) = side.cq.poll_one().unwrap() {
            return completion;
        }
        meanwhile();
        assert!(start.elapsed() < LIMIT, "no completion");
        std::thread::yield_now();
    }
}

pub(crate) fn filled(side: &Side, seed: u8) -> Vec<u8> {
    let bytes: Vec<u8> = (0..SIZE).map(|i| ((i * 31) >> 3) as u8 ^ seed).collect();
    side.mr.write_at(0, &bytes);
    bytes
}

pub(crate) fn contents(side: &Side) -> Vec<u8> {
    let mut bytes = vec![0; SIZE];
    side.mr.read_at(0, &mut bytes);
    bytes
}

/// Somewhere that nobody is: only its address and key matter.
pub(crate) fn side_of(a: &Side) -> Side {
    Side { context: a.context.clone(), pd: a.pd.clone(), cq: a.cq.clone(), qp: a.qp.clone(), mr: a.mr.clone() }
}

/// Rounds of a WRITE, a READ and a hundred SENDs from `a` to `b`: data compared, completions in order.
pub(crate) fn rounds(a: &Side, b: &Side, count: u8) {
    for round in 0..count {
        let bytes = filled(a, round);
        write(a, b, 7, SIZE).unwrap();
        assert_eq!(completion(a, || ()).status, Status::Success);
        assert!(contents(b) == bytes, "WRITE in round {round}");
        let bytes = filled(b, 100 + round);
        let op = SendOp::Read { remote_addr: b.mr.addr(), rkey: b.mr.rkey() };
        post(&a.qp, op, &[a.mr.sge(0, SIZE)]).unwrap();
        assert_eq!(completion(a, || ()).status, Status::Success);
        assert!(contents(a) == bytes, "READ in round {round}");
        for i in 0..100 {
            b.qp.post_recv(&RecvWr { wr_id: i, sges: &[b.mr.sge(0, 5000)], best_effort: None }).unwrap();
        }
        for i in 0..100 {
            post(&a.qp, SendOp::SendImm { imm: i }, &[a.mr.sge(0, 40 * i as usize)]).unwrap();
        }
        for i in 0..100 {
            let got = completion(b, || {
                a.context.progress();
            });
            let expected = (u64::from(i), Status::Success, 40 * i, Some(i));
            assert_eq!((got.wr_id, got.status, got.byte_len, got.imm), expected);
            assert_eq!(completion(a, || ()).status, Status::Success);
        }
    }
}
