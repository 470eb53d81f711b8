//! As a program uses it, over the wire in memory: a time limit goes in, a partial completion comes out.

use std::time::Duration;

use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::{Completion, Data, PartialReason, RecvWr, SendFlags, SendOp, SendWr, Transport};
use softnic_runtime::api::{
    CompletionQueue, Connection, Context, MemoryRegion, OpenOptions, Progress, QpOptions, QueuePair,
};
use softnic_wire::Psn;

/// Long enough for the slowest machine; no test that passes waits for it.
const LIMIT: Duration = Duration::from_secs(60);

struct Side {
    context: Context,
    cq: CompletionQueue,
    qp: QueuePair,
    mr: MemoryRegion,
}

fn pair(progress: Progress) -> [Side; 2] {
    let options = OpenOptions { progress: Some(progress), ..OpenOptions::default() };
    let sides = Context::open_pair([&options, &options]).unwrap().map(|context| {
        let cq = context.create_cq(16).unwrap();
        let pd = context.alloc_pd();
        let mr = pd.alloc_mr(4096, Access::LOCAL_WRITE).unwrap();
        let options = QpOptions { transport: Transport::Timed, ..QpOptions::new(QpKind::Uc, &cq) };
        Side { qp: pd.create_qp(&options).unwrap(), context, cq, mr }
    });
    for (me, peer) in [(&sides[0], &sides[1]), (&sides[1], &sides[0])] {
        assert_eq!(me.qp.transport(), Transport::Timed);
        // The peer must answer who it is.
        let path = std::thread::scope(|s| {
            let path = s.spawn(|| me.context.path_to(peer.context.addresses()[0], 1));
            while !path.is_finished() {
                peer.context.progress();
                std::thread::yield_now();
            }
            path.join().unwrap().unwrap()
        });
        me.qp.connect(&Connection::new(path, peer.qp.qpn(), Psn::new(100), Psn::new(100))).unwrap();
    }
    sides
}

/// The next completion of `side`, while both make progress.
fn completion(side: &Side, other: &Side) -> Completion {
    let start = std::time::Instant::now();
    loop {
        if let Some(completion) = side.cq.poll_one().unwrap() {
            return completion;
        }
        other.context.progress();
        assert!(start.elapsed() < LIMIT, "no completion");
        std::thread::yield_now();
    }
}

#[test]
fn a_receive_within_a_time_completes_whole_or_with_what_was_placed() {
    for progress in [Progress::Inline, Progress::Dedicated] {
        let [a, b] = pair(progress);
        let recv = |wr_id, limit| {
            let wr = RecvWr { wr_id, sges: &[b.mr.sge(0, 4096)], deadline: None };
            b.qp.post_recv_within(&wr, limit).unwrap();
        };
        recv(1, LIMIT);
        let (flags, sges) = (SendFlags::default(), [a.mr.sge(0, 3000)]);
        let op = SendOp::Send;
        let wr = SendWr { wr_id: 7, op, data: Data::Gather(&sges), flags, deadline: None, to: None };
        a.qp.post_send_within(&wr, LIMIT).unwrap();
        let got = completion(&b, &a);
        assert_eq!((got.wr_id, got.byte_len, got.partial), (1, 3000, None));
        let sent = completion(&a, &b);
        assert_eq!((sent.wr_id, sent.partial), (7, None));
        // Nobody sends anything more.
        recv(2, Duration::from_millis(1));
        let got = completion(&b, &a);
        assert_eq!((got.wr_id, got.byte_len, got.partial), (2, 0, Some(PartialReason::Deadline)));
    }
}
