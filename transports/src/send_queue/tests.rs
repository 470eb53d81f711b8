//! Tests of the send queue.

use super::*;
use crate::posting::{Operations, Supported};
use crate::qp::Caps;
use crate::{SendFlags, SendOp};

fn queue(deadlines: bool) -> SendQueue {
    let caps = Caps { max_send_wr: 2, max_recv_wr: 0, max_send_sge: 1, max_recv_sge: 0, max_inline: 0 };
    SendQueue::new(2, SendRules::new(&caps, Supported { operations: Operations::Unanswered, deadlines }))
}

fn wr(best_effort: Option<&BestEffort>) -> SendWr<'_> {
    let (op, data, flags) = (SendOp::Send, Data::Gather(&[]), SendFlags::default());
    SendWr { wr_id: 1, op, data, flags, best_effort, to: None }
}

#[test]
fn a_deadline_is_kept_as_long_as_its_work_request_and_no_longer() {
    let (mut queue, until) = (queue(true), BestEffort::until(Instant::from_nanos(7)));
    for work in [Some(&until), None, None, Some(&until)] {
        queue.rules().check(&wr(work)).unwrap();
        queue.write(&wr(work), false).unwrap();
        queue.publish(PathMtu::B256, Numbering::Standard);
        let expected = work.map(|_| (queue.head_position(), Instant::from_nanos(7)));
        assert_eq!(queue.first_deadline(), expected);
        queue.drop_head();
        queue.note_end();
    }
}

#[test]
fn a_queue_without_deadlines_refuses_them() {
    let queue = queue(false);
    let until = BestEffort::until(Instant::from_nanos(7));
    assert_eq!(queue.rules().check(&wr(Some(&until))), Err(PostError::NoDeadlines));
}

#[test]
fn a_stride_is_a_power_of_two_and_a_bitmap_is_of_what_reads() {
    let queue = queue(true);
    let check = |work: BestEffort| queue.rules().check(&wr(Some(&work)));
    for (stride, taken) in [(0, true), (1, true), (2, true), (2048, true), (3, false), (4096, false)] {
        let expected = if taken { Ok(()) } else { Err(PostError::Stride) };
        assert_eq!(check(BestEffort { stride, ..BestEffort::default() }), expected, "{stride}");
    }
    let bitmap = Some(Sge::default());
    assert_eq!(check(BestEffort { bitmap, ..BestEffort::default() }), Err(PostError::Bitmap));
}
