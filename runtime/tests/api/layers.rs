//! Software in the engine: it answers without the program.

use std::any::Any;

use softnic_nic::transports::{Completion, CqId, Data, RecvWr, SendFlags, SendOp, SendWr, WcOpcode};
use softnic_nic::{Layer, Nic, QpKind, Sink};
use softnic_runtime::api::{Context, OpenOptions, Progress, QpOptions};
use softnic_wire::{Instant, Qpn};

use crate::world::{Side, completion, connect, post, side};

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

/// Answers each WRITE with immediate by an empty one, whose immediate is the number of answers so far.
struct Counting {
    qpn: Qpn,
    sink: CqId,
    peer: (u64, u32),
    answers: u32,
}

impl Layer for Counting {
    fn progress(&mut self, now: Instant, nic: &mut Nic) {
        let numbers = nic.sink_mut(self.sink).unwrap().as_any_mut().downcast_mut::<Numbers>().unwrap();
        let (remote_addr, rkey) = self.peer;
        for _ in std::mem::take(&mut numbers.0) {
            self.answers += 1;
            let (op, flags) = (SendOp::WriteImm { remote_addr, rkey, imm: self.answers }, SendFlags::default());
            let wr = SendWr { wr_id: 0, op, data: Data::Gather(&[]), flags, best_effort: None, to: None };
            nic.post_send(now, self.qpn, &wr).unwrap();
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

#[test]
fn a_layer_answers_in_the_engine_though_its_program_never_polls() {
    let options = [Progress::Inline, Progress::Dedicated]
        .map(|progress| OpenOptions { progress: Some(progress), ..OpenOptions::default() });
    let [a, b] = Context::open_pair([&options[0], &options[1]]).unwrap();
    let sink = b.create_cq_sink(|_| Box::new(Numbers::default()));
    let (a, b) = (side(a), side(b));
    let qp = b.pd.create_qp(&QpOptions { sig_all: false, ..QpOptions::new(QpKind::Rc, &sink) }).unwrap();
    let b = Side { qp, ..b };
    connect(&a, &b);
    let layer = || Counting { qpn: b.qp.qpn(), sink: sink.id(), peer: (a.mr.addr(), a.mr.rkey()), answers: 0 };
    b.context.set_layers(|_| Some(Box::new(layer())));
    for round in 1..=50 {
        a.qp.post_recv(&RecvWr { wr_id: 1, sges: &[], best_effort: None }).unwrap();
        let op = SendOp::WriteImm { remote_addr: b.mr.addr(), rkey: b.mr.rkey(), imm: 7 };
        post(&a.qp, op, &[a.mr.sge(0, 64)]).unwrap();
        let mut answer = completion(&a, || ());
        if answer.opcode == WcOpcode::Write {
            answer = completion(&a, || ());
        } else {
            assert_eq!(completion(&a, || ()).opcode, WcOpcode::Write);
        }
        assert_eq!((answer.opcode, answer.imm), (WcOpcode::RecvWriteImm, Some(round)));
    }
    let engine = (0..b.context.engines()).find_map(|i| {
        b.context.with_layer(i, |layer, _| layer.as_any_mut().downcast_mut::<Counting>().unwrap().answers)
    });
    assert_eq!(engine, Some(50));
    b.context.set_layers(|_| None);
    assert!(b.context.with_layer(0, |_, _| ()).is_none());
}
