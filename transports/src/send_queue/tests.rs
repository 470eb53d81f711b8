//! Tests of the send queue.

use super::*;
use crate::posting::{Operations, Supported};
use crate::qp::Caps;
use crate::{SendFlags, SendOp};

fn queue(deadlines: bool) -> SendQueue {
    let caps = Caps { max_send_wr: 2, max_recv_wr: 0, max_send_sge: 1, max_recv_sge: 0, max_inline: 0 };
    SendQueue::new(2, SendRules::new(&caps, Supported { operations: Operations::Unanswered, deadlines }))
}

fn wr(deadline: Option<Instant>) -> SendWr<'static> {
    let (op, data, flags) = (SendOp::Send, Data::Gather(&[]), SendFlags::default());
    SendWr { wr_id: 1, op, data, flags, deadline, to: None }
}

#[test]
fn a_deadline_is_kept_as_long_as_its_work_request_and_no_longer() {
    let (mut queue, deadline) = (queue(true), Some(Instant::from_nanos(7)));
    for deadline in [deadline, None, None, deadline] {
        queue.rules().check(&wr(deadline)).unwrap();
        queue.write(&wr(deadline), false).unwrap();
        queue.publish(PathMtu::B256, Numbering::Standard);
        assert_eq!(queue.deadline(queue.head_position()), deadline);
        queue.drop_head();
        queue.note_end();
    }
}

#[test]
fn a_queue_without_deadlines_refuses_them() {
    let queue = queue(false);
    assert_eq!(queue.rules().check(&wr(Some(Instant::from_nanos(7)))), Err(PostError::NoDeadlines));
}
