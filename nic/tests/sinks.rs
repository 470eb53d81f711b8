//! Completion queues that are values: each completion when it happens, in order, and WRITEs with immediate without receives.

use std::any::Any;

use crate::common::*;
use softnic_nic::transports::qp::Caps;
use softnic_nic::transports::{Completion, CqId, SendOp, Status, Transport, WcOpcode};
use softnic_nic::{CqError, Notify, QpInit, Sink};
use softnic_wire::Qpn;

const KINDS: [Transport; 3] = [Transport::Rc, Transport::Sr { window: 256 }, Transport::Uc];
/// Two packets.
const LEN: usize = 300;

/// Keeps what it gets.
#[derive(Default)]
struct Kept(Vec<Completion>);

impl Sink for Kept {
    fn on_completion(&mut self, completion: &Completion) {
        self.0.push(*completion);
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }
}

/// Two connected queue pairs, of which that of B receives in a sink and has room for so many receives.
struct Pair {
    w: World,
    a: Qpn,
    b: Qpn,
    sink: CqId,
}

impl Pair {
    fn new(transport: Transport, max_recv_wr: u32) -> Pair {
        let kind = transport.kind();
        let mut w = World::new(Options { kind, ..Options::default() });
        let sink = w.hosts[B].nic.create_cq_sink(Box::new(Kept::default()));
        let caps = Caps { max_recv_wr, ..w.options.caps };
        let [a, b] = [A, B].map(|h| {
            let Host { pd, send_cq, recv_cq, .. } = w.hosts[h];
            let recv_cq = if h == B { sink } else { recv_cq };
            let init = QpInit { transport, ..QpInit::new(kind, pd, send_cq, recv_cq, caps) };
            w.hosts[h].nic.create_qp(&init).unwrap()
        });
        w.connect((A, a), kind, (B, b));
        w.connect((B, b), kind, (A, a));
        w.settle(30_000);
        Pair { w, a, b, sink }
    }

    fn write_imm(&mut self, imm: u32) {
        let (op, at) = (self.w.write_imm_to(B, imm as usize * LEN, imm), imm as usize * LEN);
        self.w.send_on(A, self.a, imm.into(), op, at, LEN);
    }

    /// What the sink got since the last time.
    fn taken(&mut self) -> Vec<Completion> {
        let sink = self.w.hosts[B].nic.sink_mut(self.sink).unwrap();
        std::mem::take(&mut sink.as_any_mut().downcast_mut::<Kept>().unwrap().0)
    }

    fn expected(&self, imm: u32) -> Completion {
        let nameless = Completion::new(0, Status::Success, WcOpcode::RecvWriteImm, self.b);
        Completion { byte_len: LEN as u32, imm: Some(imm), ..nameless }
    }
}

#[test]
fn writes_with_immediate_need_no_receive_and_come_in_order() {
    const COUNT: u32 = 20;
    for (kind, room) in KINDS.into_iter().flat_map(|kind| [(kind, 0), (kind, 16)]) {
        let mut p = Pair::new(kind, room);
        p.w.fill(A, 0, &pattern(7, COUNT as usize * LEN));
        (0..COUNT).for_each(|imm| p.write_imm(imm));
        p.w.settle(30_000);
        let expected: Vec<Completion> = (0..COUNT).map(|imm| p.expected(imm)).collect();
        assert_eq!(p.taken(), expected, "{kind:?}");
        assert_eq!(p.w.read(B, 0, COUNT as usize * LEN), pattern(7, COUNT as usize * LEN));
        let done: Vec<(Qpn, u64, Status)> = (0..COUNT).map(|i| (p.a, i.into(), Status::Success)).collect();
        assert_eq!(p.w.all_sent(A), done, "{kind:?}");
        let counters = [A, B].map(|h| p.w.counters(h));
        assert_eq!((counters[B].out_of_buffer, counters[A].rnr_nak_retry_err), (0, 0), "{kind:?}");
    }
}

#[test]
fn a_sink_is_not_polled_and_not_armed_and_raises_no_event() {
    let mut p = Pair::new(KINDS[0], 0);
    p.write_imm(1);
    p.w.settle(30_000);
    assert_eq!(p.w.completion_events(B), []);
    let nic = &mut p.w.hosts[B].nic;
    assert_eq!(nic.poll_cq(p.sink), Err(CqError::IsSink));
    assert_eq!(nic.req_notify_cq(p.sink, Notify::Next), Err(CqError::IsSink));
    assert_eq!(nic.resize_cq(p.sink, 16), Err(CqError::IsSink));
    assert_eq!(nic.destroy_cq(p.sink), Err(CqError::Busy));
    assert!(nic.sink_mut(p.w.hosts[B].recv_cq).is_none());
    assert_eq!(p.taken().len(), 1);
}

#[test]
fn a_send_takes_its_receive_which_writes_before_it_left_alone() {
    for kind in KINDS {
        let mut p = Pair::new(kind, 4);
        p.w.recv_on(B, p.b, 9, 8000, LEN);
        p.write_imm(0);
        p.write_imm(1);
        p.w.send_on(A, p.a, 2, SendOp::Send, 0, LEN);
        p.write_imm(3);
        p.w.settle(30_000);
        let got: Vec<(u64, Option<u32>)> = p.taken().iter().map(|c| (c.wr_id, c.imm)).collect();
        assert_eq!(got, [(0, Some(0)), (0, Some(1)), (9, None), (0, Some(3))], "{kind:?}");
    }
}

#[test]
fn a_send_without_a_receive_waits_for_one() {
    for kind in &KINDS[..2] {
        let mut p = Pair::new(*kind, 4);
        p.w.send_on(A, p.a, 1, SendOp::Send, 0, LEN);
        p.write_imm(2);
        // Not so far that the requester tries again.
        p.w.run();
        assert_eq!((p.taken(), p.w.counters(B).out_of_buffer), (vec![], 1), "{kind:?}");
        p.w.recv_on(B, p.b, 9, 8000, LEN);
        for _ in 0..3 {
            p.w.wait(1_000_000);
            p.w.settle(30_000);
        }
        let got: Vec<(u64, Option<u32>)> = p.taken().iter().map(|c| (c.wr_id, c.imm)).collect();
        assert_eq!(got, [(9, None), (0, Some(2))], "{kind:?}");
    }
    let mut p = Pair::new(KINDS[2], 4);
    p.w.send_on(A, p.a, 1, SendOp::Send, 0, LEN);
    p.w.settle(30_000);
    assert_eq!((p.taken(), p.w.counters(B).out_of_buffer), (vec![], 1));
}

#[test]
fn selective_repeat_completes_in_order_what_came_in_any() {
    for room in [0, 4] {
        let mut p = Pair::new(KINDS[1], room);
        (0..8).for_each(|imm| p.write_imm(imm));
        let mut frames = p.w.transmit(A);
        frames.reverse();
        p.w.deliver_all(B, &frames);
        p.w.settle(30_000);
        let expected: Vec<Completion> = (0..8).map(|imm| p.expected(imm)).collect();
        assert_eq!(p.taken(), expected);
    }
}
