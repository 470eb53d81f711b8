//! Work that is posted: what is wrong with it when it is, and what is remembered until it completes.

use super::{About, Model, Queue};
use crate::calls::{ObjectId, QpType, ReceiveQueue, ReceiveWork, Refusal, SendOp, SendWork, Sge, Tickets};
use crate::finding::{Kind, Place, Severity};
use crate::memory::Memory;
use crate::queue_pair::{Buffer, Pair, Receive, Send};

/// Bytes that every datagram brings before its own.
const GLOBAL_ROUTE_HEADER: u64 = 40;

impl Tickets {
    fn add(&mut self, ticket: u64) {
        if self.count == 0 {
            self.first = ticket;
        }
        self.count += 1;
    }

    /// Those behind the first so many.
    fn behind(self, done: u64) -> std::ops::Range<u64> {
        self.first + done.min(self.count)..self.first + self.count
    }
}

impl Model {
    /// A call posts a send; told before the verb is carried out, one work request of a list after the other, with nothing in between.
    pub fn send_posted(
        &mut self,
        qp: ObjectId,
        work: &SendWork<'_>,
        memory: &(impl Memory + ?Sized),
        place: &Place,
        tickets: &mut Tickets,
    ) {
        let ticket = self.next_ticket();
        tickets.add(ticket);
        let Some(pair) = self.pairs.get(&qp) else { return };
        let mut found = Vec::new();
        check_send(pair, work, &mut found);
        for (kind, about, message) in found {
            self.report(kind, place, about, message);
        }
        let buffers = match work.is_inline || work.op == SendOp::Local {
            true => Vec::new(),
            false => self.buffers(qp, work.sges, work.op.writes_locally(), (work.wr_id, work.op.name()), place),
        };
        self.check_results(qp, work, &buffers, place);
        let is_source = matches!(work.op, SendOp::Send | SendOp::Write);
        // What a READ before it brings, with a fence, is no change of the program's.
        let awaits = buffers.iter().any(|buffer| self.result_spans.overlapping(buffer.span).is_some());
        let sum = match is_source && !awaits && !buffers.is_empty() {
            true => self.scratch.digest(memory, buffers.iter().map(|buffer| buffer.span), ticket),
            false => None,
        };
        let others_write = buffers.iter().any(|buffer| self.work_writes(buffer.span));
        if work.op.writes_locally() {
            buffers.iter().for_each(|buffer| self.result_spans.insert(buffer.span, ticket));
        }
        let Some(pair) = self.pairs.get_mut(&qp) else { return };
        let takes_receive = work.op == SendOp::Send;
        pair.messages += u64::from(takes_receive);
        let is_signaled = work.is_signaled || pair.attributes.signals_all;
        pair.sends.push_back(Send {
            ticket,
            wr_id: work.wr_id,
            op: work.op,
            is_signaled,
            is_taken: false,
            buffers,
            sum,
            others_write,
            remote: work.remote,
            place: place.clone(),
            message: takes_receive.then_some(pair.messages),
        });
    }

    /// The verb took all sends of a call.
    pub fn sends_taken(&mut self, qp: ObjectId, tickets: Tickets) {
        self.take_sends(qp, tickets, tickets.count);
    }

    /// The verb took the first `done` sends of a call.
    fn take_sends(&mut self, qp: ObjectId, tickets: Tickets, done: u64) {
        let taken = tickets.first..tickets.first + done.min(tickets.count);
        let Some(pair) = self.pairs.get_mut(&qp) else { return };
        let queue = pair.attributes.send_cq;
        let mut signaled = Vec::new();
        // The newest are the last.
        for send in pair.sends.iter_mut().rev() {
            if send.ticket < taken.start {
                break;
            }
            if taken.contains(&send.ticket) {
                send.is_taken = true;
                if send.is_signaled {
                    signaled.push((send.wr_id, send.place.clone()));
                }
            }
        }
        for (wr_id, place) in signaled.into_iter().rev() {
            self.count_signaled(qp, queue, wr_id, &place);
        }
        self.check_room(qp);
    }

    /// Whether there is more outstanding than the queue holds. softnic has room again when work is done, others when that was polled.
    fn check_room(&mut self, qp: ObjectId) {
        let Some(pair) = self.pairs.get(&qp) else { return };
        let capacity = pair.attributes.capacity.sends as usize;
        if capacity == 0 || pair.sends.len() <= capacity {
            return;
        }
        // Those of other threads may be refused yet.
        let outstanding = pair.sends.iter().filter(|send| send.is_taken).count();
        let Some(last) = pair.sends.iter().rfind(|send| send.is_taken) else { return };
        if outstanding <= capacity {
            return;
        }
        let (wr_id, place) = (last.wr_id, &last.place.clone());
        if self.was_told(Kind::SendQueueStuck, place) || self.was_told(Kind::SendQueueOverrun, place) {
            // A program that never asks would fill the model, too.
            return if outstanding > 4 * capacity {
                self.forget_oldest(qp)
            };
        }
        let is_stuck = pair.sends.iter().all(|send| !send.is_signaled);
        let (kind, message) = match is_stuck {
            true => (
                Kind::SendQueueStuck,
                format!(
                    "{outstanding} sends are outstanding on a queue for {capacity}, and none of them asks for a completion: other NICs refuse \
                     this one (ENOMEM), and all that follow"
                ),
            ),
            false => (
                Kind::SendQueueOverrun,
                format!(
                    "{outstanding} sends are outstanding on a queue for {capacity}: other NICs have room again when completions are polled, \
                     and refuse this one (ENOMEM)"
                ),
            ),
        };
        let about = About { wr_id: Some(wr_id), ..About::pair(pair) };
        self.report(kind, place, about, message);
    }

    fn forget_oldest(&mut self, qp: ObjectId) {
        let Some(pair) = self.pairs.get_mut(&qp) else { return };
        let queue = pair.attributes.send_cq;
        if let Some(oldest) = pair.sends.pop_front() {
            self.release_send(queue, &oldest);
        }
    }

    /// A call posts a receive; told before the verb is carried out.
    pub fn receive_posted(
        &mut self,
        to: ReceiveQueue,
        work: &ReceiveWork<'_>,
        domain_of_shared: Option<(crate::NicId, ObjectId)>,
        place: &Place,
        tickets: &mut Tickets,
    ) {
        let ticket = self.next_ticket();
        tickets.add(ticket);
        let (buffers, is_datagram) = match to {
            ReceiveQueue::Own(qp) => {
                let Some(pair) = self.pairs.get(&qp) else { return };
                let is_datagram = pair.attributes.kind == QpType::Ud;
                let room: u64 = work.sges.iter().map(|sge| u64::from(sge.len)).sum();
                if is_datagram && room < GLOBAL_ROUTE_HEADER {
                    let about = About { wr_id: Some(work.wr_id), ..About::pair(pair) };
                    let message = format!(
                        "a receive of {room} bytes on a UD queue pair: the first 40 bytes of each are taken by the header (GRH), so no \
                         datagram fits"
                    );
                    self.report(Kind::DatagramReceiveTooShort, place, about, message);
                }
                (self.buffers(qp, work.sges, true, (work.wr_id, "receive"), place), is_datagram)
            }
            ReceiveQueue::Shared(_) => {
                let Some((nic, domain)) = domain_of_shared else { return };
                (self.buffers_of(nic, domain, work.sges, true, (work.wr_id, "receive"), None, place), true)
            }
        };
        self.check_overlap(to, work, &buffers, is_datagram, place);
        buffers.iter().for_each(|buffer| self.receive_spans.insert(buffer.span, ticket));
        let receive = Receive { ticket, wr_id: work.wr_id, buffers, counted: None };
        let queue = match to {
            ReceiveQueue::Own(qp) => self.pairs.get_mut(&qp).map(|pair| &mut pair.receives),
            ReceiveQueue::Shared(srq) => self.shared.get_mut(&srq),
        };
        match queue {
            Some(queue) => queue.push_back(receive),
            None => self.release_receive(&receive),
        }
    }

    /// The verb took all receives of a call.
    pub fn receives_taken(&mut self, to: ReceiveQueue, tickets: Tickets, place: &Place) {
        self.take_receives(to, tickets, tickets.count, place);
    }

    /// The verb took the first `done` receives of a call.
    fn take_receives(&mut self, to: ReceiveQueue, tickets: Tickets, done: u64, place: &Place) {
        let ReceiveQueue::Own(qp) = to else { return };
        let taken = tickets.first..tickets.first + done.min(tickets.count);
        let Some(pair) = self.pairs.get_mut(&qp) else { return };
        let id = pair.attributes.recv_cq;
        let Some(queue) = self.queues.get_mut(&id) else { return };
        let mut last = None;
        for receive in pair.receives.iter_mut().rev().take_while(|receive| receive.ticket >= taken.start) {
            if taken.contains(&receive.ticket) {
                receive.counted = Some(id);
                queue.receives += 1;
                last = last.or(Some(receive.wr_id));
            }
        }
        if let Some(wr_id) = last {
            self.check_completions(qp, id, wr_id, place);
        }
    }

    /// The verb took the first `done` sends of a call and refused the next one; those behind it were not looked at.
    pub fn sends_refused(&mut self, qp: ObjectId, tickets: Tickets, done: u64, why: Refusal, place: &Place) {
        let refused = tickets.behind(done);
        self.take_sends(qp, tickets, done);
        let Some(pair) = self.pairs.get_mut(&qp) else { return };
        let queue = pair.attributes.send_cq;
        let (gone, kept): (Vec<Send>, Vec<Send>) =
            std::mem::take(&mut pair.sends).into_iter().partition(|send| refused.contains(&send.ticket));
        pair.sends = kept.into();
        pair.messages -= gone.iter().filter(|send| send.message.is_some()).count() as u64;
        let wr_id = gone.first().map(|send| send.wr_id);
        gone.iter().for_each(|send| self.release_send(queue, send));
        let Some(pair) = self.pairs.get(&qp) else { return };
        let about = About { wr_id, ..About::pair(pair) };
        let outstanding = pair.sends.len();
        match why {
            Refusal::State(state) => {
                let message = format!(
                    "a send posted in {}: softnic refuses it (EINVAL), a ConnectX takes it and never sends it",
                    state.name()
                );
                self.report(Kind::PostInWrongState, place, about, message);
            }
            Refusal::Full if outstanding > 0 && pair.sends.iter().all(|send| !send.is_signaled) => {
                let message = format!(
                    "the send queue is full with {outstanding} work requests, and none of them asks for a completion: it can never be found \
                     to have room again"
                );
                self.report(Kind::SendQueueStuck, place, about, message);
            }
            Refusal::Full | Refusal::Other => {}
        }
    }

    /// The verb took the first `done` receives of a call and refused the next one.
    pub fn receives_refused(&mut self, to: ReceiveQueue, tickets: Tickets, done: u64, why: Refusal, place: &Place) {
        let refused = tickets.behind(done);
        self.take_receives(to, tickets, done, place);
        let queue = match to {
            ReceiveQueue::Own(qp) => self.pairs.get_mut(&qp).map(|pair| &mut pair.receives),
            ReceiveQueue::Shared(srq) => self.shared.get_mut(&srq),
        };
        let Some(queue) = queue else { return };
        let (gone, kept): (Vec<Receive>, Vec<Receive>) =
            std::mem::take(queue).into_iter().partition(|receive| refused.contains(&receive.ticket));
        *queue = kept.into();
        gone.iter().for_each(|receive| self.release_receive(receive));
        if let (Refusal::State(state), ReceiveQueue::Own(qp)) = (why, to)
            && let Some(pair) = self.pairs.get(&qp)
        {
            let about = About { wr_id: gone.first().map(|receive| receive.wr_id), ..About::pair(pair) };
            let message = format!(
                "a receive posted in {}: softnic and Soft-RoCE refuse it (EINVAL), a ConnectX takes it and loses it",
                state.name()
            );
            self.report(Kind::PostInWrongState, place, about, message);
        }
    }

    /// The memory of elements, where they are right; what is wrong with the others is told.
    fn buffers(
        &mut self,
        qp: ObjectId,
        sges: &[Sge],
        is_written: bool,
        work: (u64, &'static str),
        place: &Place,
    ) -> Vec<Buffer> {
        let Some(pair) = self.pairs.get(&qp) else { return Vec::new() };
        let (nic, domain, name) = (pair.attributes.nic, pair.attributes.domain, pair.name);
        self.buffers_of(nic, domain, sges, is_written, work, Some(name), place)
    }

    #[expect(clippy::too_many_arguments, reason = "what a work request is, whatever its queue")]
    fn buffers_of(
        &mut self,
        nic: crate::NicId,
        domain: ObjectId,
        sges: &[Sge],
        is_written: bool,
        (wr_id, what): (u64, &'static str),
        queue_pair: Option<crate::QueuePairName>,
        place: &Place,
    ) -> Vec<Buffer> {
        let mut buffers = Vec::with_capacity(sges.len());
        for sge in sges {
            match self.regions.locate(nic, domain, sge, is_written) {
                Ok(Some((region, span))) => {
                    self.regions.count(region, true);
                    buffers.push(Buffer { region, span });
                }
                Ok(None) => {}
                Err(wrong) => {
                    let related = wrong.ended.map(|ended| ("deregistered", ended.clone()));
                    let about = About { queue_pair, wr_id: Some(wr_id), made: wrong.made, related, ..About::default() };
                    let (kind, message) = (wrong.kind, format!("{what}: {}", wrong.what));
                    self.report(kind, place, about, message);
                }
            }
        }
        buffers
    }

    /// Whether outstanding work may change the bytes.
    pub(super) fn work_writes(&self, span: (u64, u64)) -> bool {
        self.receive_spans.overlapping(span).is_some() || self.result_spans.overlapping(span).is_some()
    }

    /// Whether data are sent that a READ or atomic has yet to bring.
    fn check_results(&mut self, qp: ObjectId, work: &SendWork<'_>, buffers: &[Buffer], place: &Place) {
        if self.result_spans.is_empty() || !matches!(work.op, SendOp::Send | SendOp::Write) {
            return;
        }
        let overlapping = match work.is_inline {
            // They are read at once, by plain addresses.
            true => work.sges.iter().find_map(|sge| self.result_spans.overlapping((sge.address, u64::from(sge.len)))),
            false => buffers.iter().find_map(|buffer| self.result_spans.overlapping(buffer.span)),
        };
        let Some(ticket) = overlapping else { return };
        let writer = self.pairs.iter().find_map(|(id, pair)| {
            let send = pair.sends.iter().find(|send| send.ticket == ticket)?;
            Some((*id, pair.is_over(), send.op, send.place.stack.clone()))
        });
        let (Some((at, false, op, posted)), Some(pair)) = (writer, self.pairs.get(&qp)) else { return };
        if at == qp && work.is_fenced && !work.is_inline {
            return;
        }
        let mend = match (work.is_inline, at == qp) {
            (true, _) => "inline data are taken when they are posted: poll for its completion before",
            (false, true) => "poll for its completion before, or post it with IBV_SEND_FENCE",
            (false, false) => "it is of another queue pair, so poll for its completion before",
        };
        let message =
            format!("a {} of memory that an outstanding {} has yet to write: {mend}", work.op.name(), op.name());
        let related = Some(("the other is posted", posted));
        let about = About { wr_id: Some(work.wr_id), related, ..About::pair(pair) };
        self.report(Kind::ResultNotAwaited, place, about, message);
    }

    /// Whether a receive is for memory that another one is for.
    fn check_overlap(
        &mut self,
        to: ReceiveQueue,
        work: &ReceiveWork<'_>,
        buffers: &[Buffer],
        is_datagram: bool,
        place: &Place,
    ) {
        if self.was_told(Kind::ReceiveOverlap, place) {
            return;
        }
        // The 40 bytes before datagrams are often of one place, where nobody looks.
        let mut skip = if is_datagram { GLOBAL_ROUTE_HEADER } else { 0 };
        let overlapping = buffers.iter().find(|buffer| {
            let (address, len) = buffer.span;
            let skipped = skip.min(len);
            skip -= skipped;
            self.receive_spans.overlapping((address + skipped, len - skipped)).is_some()
        });
        let Some(Buffer { span: (address, len), .. }) = overlapping else { return };
        let message = format!(
            "a receive into {len} bytes at {address:#x}, of which another posted receive has some: the message that comes later \
             overwrites the other"
        );
        let about = match to {
            ReceiveQueue::Own(qp) => self.pairs.get(&qp).map(About::pair).unwrap_or_default(),
            ReceiveQueue::Shared(_) => About::default(),
        };
        self.report(Kind::ReceiveOverlap, place, About { wr_id: Some(work.wr_id), ..about }, message);
    }

    /// Counts a send that will have a completion.
    fn count_signaled(&mut self, qp: ObjectId, id: ObjectId, wr_id: u64, place: &Place) {
        let Some(queue) = self.queues.get_mut(&id) else { return };
        queue.signaled += 1;
        queue.posted += 1;
        self.check_completions(qp, id, wr_id, place);
    }

    /// Whether more completions may come to a queue than it holds.
    fn check_completions(&mut self, qp: ObjectId, id: ObjectId, wr_id: u64, place: &Place) {
        let Some(&Queue { signaled, receives, capacity, .. }) = self.queues.get(&id) else { return };
        if signaled + receives <= u64::from(capacity) || self.was_told(Kind::CompletionQueueTooSmall, place) {
            return;
        }
        // Sends complete whatever the peer does. How many messages come is what both programs agree on.
        let (severity, work) = match signaled > u64::from(capacity) {
            true => (Severity::Error, format!("{signaled} signaled sends")),
            false => (Severity::Warning, format!("{signaled} signaled sends and {receives} receives")),
        };
        let message = format!(
            "{work} are outstanding that complete on one completion queue, which was made for {capacity}: it may overrun"
        );
        let related = self.objects.get(&(crate::ObjectKind::CompletionQueue, id));
        let related = related.map(|object| ("the completion queue is made", object.made.stack.clone()));
        let Some(pair) = self.pairs.get(&qp) else { return };
        let about = About { wr_id: Some(wr_id), related, severity: Some(severity), ..About::pair(pair) };
        self.report(Kind::CompletionQueueTooSmall, place, about, message);
    }
}

/// What is wrong with a send whatever its memory.
fn check_send(pair: &Pair, work: &SendWork<'_>, found: &mut Vec<(Kind, About, String)>) {
    let about = || About { wr_id: Some(work.wr_id), ..About::pair(pair) };
    if let (SendOp::Atomic, Some((address, _))) = (work.op, work.remote)
        && address % 8 != 0
    {
        let message = format!("an atomic at the peer's address {address:#x}, which is no multiple of 8: it fails");
        found.push((Kind::AtomicNotAligned, about(), message));
    }
    if work.op.writes_locally() && pair.attributes.kind == QpType::Rc && pair.read_depth == Some(0) {
        let message =
            format!("a {} on a queue pair that became RTS with max_rd_atomic 0: it is never sent", work.op.name());
        found.push((Kind::ReadDepthZero, about(), message));
    }
}
