//! Completion queues in the engines.

use std::any::Any;
use std::sync::{Arc, Mutex};

use softnic_nic::transports::{Completion, PostError, SendOp, Status, WcOpcode};
use softnic_nic::{CqError, QpKind, Sink};
use softnic_runtime::api::{Context, OpenOptions, Progress, QpOptions};

use crate::world::{LIMIT, Side, completion, connect, post, side};

/// Keeps what it gets where the test finds it.
struct Kept(Arc<Mutex<Vec<Completion>>>);

impl Sink for Kept {
    fn on_completion(&mut self, completion: &Completion) {
        self.0.lock().unwrap().push(*completion);
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

#[test]
fn writes_with_immediate_complete_in_the_engine_without_receives_and_without_polling() {
    const COUNT: u32 = 100;
    for (kind, progress) in
        [(QpKind::Rc, Progress::Inline), (QpKind::Uc, Progress::Inline), (QpKind::Rc, Progress::Dedicated)]
    {
        let options = OpenOptions { progress: Some(progress), ..OpenOptions::default() };
        let [a, b] = Context::open_pair([&options; 2]).unwrap();
        let kept: Arc<Mutex<Vec<Completion>>> = Arc::default();
        let sink = b.create_cq_sink(|_| Box::new(Kept(Arc::clone(&kept))));
        assert!(sink.is_sink());
        let with_qp = |context: Context, cq: Option<_>| {
            let side = side(context);
            let recv_cq = cq.unwrap_or_else(|| side.cq.clone());
            let qp = side.pd.create_qp(&QpOptions { recv_cq, ..QpOptions::new(kind, &side.cq) }).unwrap();
            Side { qp, ..side }
        };
        let (a, b) = (with_qp(a, None), with_qp(b, Some(sink.clone())));
        connect(&a, &b);
        a.mr.write_at(0, &[7; 64]);
        for imm in 0..COUNT {
            let op = SendOp::WriteImm { remote_addr: b.mr.addr(), rkey: b.mr.rkey(), imm };
            while post(&a.qp, op, &[a.mr.sge(0, 64)]) == Err(PostError::QueueFull) {
                a.context.progress();
            }
        }
        for _ in 0..COUNT {
            let done = completion(&a, || {
                b.context.progress();
            });
            assert_eq!(done.status, Status::Success);
        }
        let start = std::time::Instant::now();
        while kept.lock().unwrap().len() < COUNT as usize && start.elapsed() < LIMIT {
            b.context.progress();
            std::thread::yield_now();
        }
        let got: Vec<_> = kept.lock().unwrap().iter().map(|c| (c.wr_id, c.opcode, c.imm, c.byte_len)).collect();
        let expected: Vec<_> = (0..COUNT).map(|imm| (0, WcOpcode::RecvWriteImm, Some(imm), 64)).collect();
        assert_eq!(got, expected, "{kind:?}");
        assert_eq!(sink.poll_one(), Err(CqError::IsSink));
        assert_eq!(sink.resize(16), Err(CqError::IsSink));
        assert!(sink.wait(LIMIT).is_err());
    }
}
