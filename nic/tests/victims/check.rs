//! What must hold after every step: each completion was due, and no byte was written that nobody may write.

use softnic_nic::transports::qp::QpState;
use softnic_nic::transports::{Completion, Status};
use softnic_nic::{CqError, QpKind};
use softnic_wire::Node;

use super::{Fuzz, MEMORY, RECEIVES, WRITABLE};
use crate::common::*;

impl Fuzz {
    fn take_completion(&mut self, receive: bool, c: &Completion) {
        let victim = self.victims.iter_mut().find(|v| v.qpn == c.qpn).expect("a victim's");
        if !receive {
            while let Some((id, signaled)) = victim.sends.pop_front() {
                if id == c.wr_id {
                    return;
                }
                assert!(!signaled, "{id} was to complete before {c:?}");
            }
            panic!("not posted, or completed before: {c:?}");
        }
        victim.used += 1;
        if victim.shared {
            assert!(self.shared.remove(&c.wr_id), "not posted, or completed before: {c:?}");
        } else {
            assert_eq!(victim.receives.pop_front(), Some(c.wr_id), "{c:?}");
        }
        assert_ne!(c.status, Status::LocProtErr, "all receives are right: {c:?}");
    }

    pub fn collect(&mut self) {
        let Host { send_cq, recv_cq, .. } = self.w.hosts[B];
        for (cq, receive) in [(send_cq, false), (recv_cq, true)] {
            loop {
                match self.w.hosts[B].nic.poll_cq(cq) {
                    Ok(Some(c)) => self.take_completion(receive, &c),
                    Ok(None) => break,
                    // From the first that is lost on there are no more.
                    Err(e) => {
                        assert_eq!(e, CqError::Overflow);
                        self.overflowed = true;
                        break;
                    }
                }
            }
        }
        for v in (0..self.victims.len()).filter(|_| !self.overflowed) {
            let (state, victim) = (self.state(v), &self.victims[v]);
            let sends_flushed = matches!(state, QpState::Error | QpState::SendQueueError);
            assert!(!sends_flushed || victim.sends.iter().all(|s| !s.1), "all sends are flushed");
            assert!(state != QpState::Error || victim.receives.is_empty(), "all receives are flushed");
            assert!(state != QpState::SendQueueError || victim.kind != QpKind::Rc);
        }
        for cq in self.w.completion_events(B) {
            assert!(self.armed.remove(&cq), "an event that nobody asked for");
        }
        for event in self.w.events(B) {
            self.events.insert(event.to_string());
        }
        let due = self.w.hosts[B].nic.poll_timeout();
        assert!(due.is_none_or(|at| at.as_nanos() < self.w.now.as_nanos() + (1 << 50)), "a timer for never: {due:?}");
    }

    /// Nobody answers any more: all work ends by itself, and everything can be destroyed.
    pub fn end(&mut self) {
        self.w.hosts[B].nic.set_link(true);
        let mut turns = 0;
        while self.listen() || self.w.wait_for_timer(B).is_some() {
            self.collect();
            turns += 1;
            assert!(turns < 10_000, "it never becomes quiet");
        }
        self.collect();
        for v in (0..self.victims.len()).filter(|_| !self.overflowed) {
            let (drained, victim) = (self.state(v) == QpState::SendQueueDrain, &self.victims[v]);
            assert!(drained || victim.sends.iter().all(|s| !s.1), "{:?}: not all sends ended", victim.kind);
        }
        self.check_memory();
        let Host { nic, qpn, srq, send_cq, recv_cq, .. } = &mut self.w.hosts[B];
        for qpn in self.victims.iter().map(|v| v.qpn).chain([*qpn]) {
            nic.destroy_qp(qpn).unwrap();
        }
        assert!(nic.shim_pools().lowar.are_unused(), "coding units or places in the ring were lost");
        nic.destroy_srq(srq.unwrap()).unwrap();
        nic.destroy_cq(*send_cq).unwrap();
        nic.destroy_cq(*recv_cq).unwrap();
        assert!(self.w.transmit(B).is_empty(), "nobody is left who could send");
    }

    pub fn check_memory(&self) {
        let memory = self.w.read(B, 0, MEMORY);
        for part in [0..WRITABLE.start, WRITABLE.end..RECEIVES.start, RECEIVES.end..MEMORY] {
            assert!(is_all(&memory[part.clone()], UNTOUCHED), "a byte in {part:?} that nobody may name was written");
        }
        for (buffer, _) in &self.private {
            let mut bytes = vec![1; buffer.len()];
            buffer.read_at(0, &mut bytes);
            assert!(is_all(&bytes, 0), "private memory was written");
        }
    }
}

/// Whether all bytes have this value. Compares the slice with itself, one byte on: a fuzzer watches every comparison of a
/// loop, and that would take most of its time.
fn is_all(bytes: &[u8], value: u8) -> bool {
    bytes[0] == value && bytes[1..] == bytes[..bytes.len() - 1]
}
