//! Objects that are destroyed, and the end of the process.

use std::collections::BTreeMap;

use super::{About, Going, Model, Wait, finding_of};
use crate::calls::{ObjectId, ObjectKind, QpState, QpType, SendOp};
use crate::finding::{Finding, Kind, Place, Severity};
use crate::queue_pair::{Pair, Send};
use crate::regions::Gone;

impl Model {
    /// A verb is about to take an object away: from here on nobody may use it. `state` is that of a queue pair now, if it can be told.
    /// What is returned says that the verb waits: [`Model::waits_long`] wants it after a time that no program would mean.
    pub fn going(
        &mut self,
        kind: ObjectKind,
        id: ObjectId,
        state: impl Fn(ObjectId) -> Option<QpState>,
        place: &Place,
    ) -> Option<Wait> {
        if kind == ObjectKind::QueuePair {
            self.check_waiting(id);
        }
        let object = self.objects.remove(&(kind, id))?;
        let mut waiting = None;
        if object.unacknowledged > 0 {
            let what = kind.words();
            let message = format!(
                "{} is called with {} of the {}'s events taken and not acknowledged: it waits until another thread does that, and none did",
                what.2, object.unacknowledged, what.0
            );
            let about = About { made: Some(object.made.stack.clone()), ..About::default() };
            let finding = finding_of(Kind::EventNotAcknowledged, place, about, message);
            waiting = Some((Wait(self.next_ticket()), finding));
        }
        let wait = waiting.as_ref().map(|(wait, _)| *wait);
        let mut going = Going { object, region: None, queue: None, finding: None, waiting, ended: place.clone() };
        match kind {
            ObjectKind::Region => {
                let in_use = self.regions.get(id).is_some_and(|known| known.uses > 0);
                going.finding = if in_use { self.region_in_use(id, state, place) } else { None };
                going.region = self.regions.take(id);
            }
            ObjectKind::CompletionQueue => {
                going.finding = self.not_polled(id, &going.object.made).map(|f| (going.object.made.site, f));
                going.queue = self.queues.remove(&id);
            }
            _ => {}
        }
        self.going.insert((kind, id), going);
        wait
    }

    /// A verb that was about to wait has waited for long: if it still does, nobody acknowledges the events.
    pub fn waits_long(&mut self, kind: ObjectKind, id: ObjectId, wait: Wait) {
        let Some(going) = self.going.get_mut(&(kind, id)) else { return };
        let site = going.ended.site;
        if going.object.unacknowledged > 0
            && let Some((_, finding)) = going.waiting.take_if(|(of, _)| *of == wait)
        {
            self.tell(site, finding);
        }
    }

    /// The verb refused: the object stays.
    pub fn stays(&mut self, kind: ObjectKind, id: ObjectId) {
        let Some(Going { object, region, queue, .. }) = self.going.remove(&(kind, id)) else { return };
        self.objects.insert((kind, id), object);
        if let Some(known) = region {
            self.regions.insert(id, known);
        }
        if let Some(queue) = queue {
            self.queues.insert(id, queue);
        }
    }

    /// The object is gone.
    pub fn gone(&mut self, kind: ObjectKind, id: ObjectId) {
        let Some(Going { region, finding, ended, .. }) = self.going.remove(&(kind, id)) else { return };
        if let Some((site, finding)) = finding {
            self.tell(site, finding);
        }
        if let Some(known) = region {
            self.regions.bury(Gone {
                region: known.region,
                made: known.made,
                ended: ended.stack,
                ticket: self.tickets,
            });
        }
    }

    /// A queue pair goes, with all that is outstanding, by whichever library: told before the verb is carried out.
    pub fn queue_pair_going(&mut self, id: ObjectId) {
        self.check_waiting(id);
        self.clear_pair(id);
        if let Some(pair) = self.pairs.remove(&id) {
            for queue in [pair.attributes.send_cq, pair.attributes.recv_cq] {
                let key = (queue, pair.attributes.number);
                if self.by_queue.get(&key) == Some(&id) {
                    self.by_queue.remove(&key);
                }
            }
        }
    }

    /// A shared receive queue goes.
    pub fn shared_receive_going(&mut self, id: ObjectId) {
        let receives = self.shared.remove(&id).unwrap_or_default();
        receives.iter().for_each(|receive| self.release_receive(receive));
    }

    /// The process ends by itself.
    pub fn ended(&mut self) {
        let waits = self.going.iter().filter_map(|(of, going)| Some((*of, going.waiting.as_ref()?.0)));
        for ((kind, id), wait) in waits.collect::<Vec<_>>() {
            self.waits_long(kind, id, wait);
        }
        let pairs: Vec<ObjectId> = self.pairs.keys().copied().collect();
        pairs.into_iter().for_each(|id| self.check_waiting(id));
        let queues: Vec<ObjectId> = self.queues.keys().copied().collect();
        for id in queues {
            let Some(made) = self.objects.get(&(ObjectKind::CompletionQueue, id)).map(|object| object.made.clone())
            else {
                continue;
            };
            if let Some(finding) = self.not_polled(id, &made) {
                self.tell(made.site, finding);
            }
        }
        let mut left: BTreeMap<(ObjectKind, u64), (u64, Place, &str)> = BTreeMap::new();
        let mut unacknowledged = Vec::new();
        for ((kind, _), object) in &self.objects {
            let verb = if object.is_of_connection { kind.of_connection() } else { kind.words().2 };
            left.entry((*kind, object.made.site)).or_insert_with(|| (0, object.made.clone(), verb)).0 += 1;
            if object.unacknowledged > 0 {
                unacknowledged.push((*kind, object.unacknowledged, object.made.clone(), verb));
            }
        }
        for (kind, count, made, verb) in unacknowledged {
            let (one, ..) = kind.words();
            let (article, events) = (article(one), if count == 1 { "event of" } else { "events of" });
            let message =
                format!("{count} {events} {article} {one} taken and never acknowledged: {verb} would wait for ever");
            self.tell(made.site, at_end(Kind::EventNotAcknowledged, &made, message));
        }
        for ((kind, site), (count, made, verb)) in left {
            let (one, many, _) = kind.words();
            let message = match count {
                1 => format!("{} {one} is left: nobody called {verb}", article(one)),
                n => format!("{n} {many} made here are left: nobody called {verb}"),
            };
            // Objects of two kinds can be made by one call.
            self.tell(site ^ (kind as u64 + 1) << 56, at_end(Kind::Leak, &made, message));
        }
    }

    /// Work that is outstanding with the key of a region.
    fn region_in_use(
        &self,
        id: ObjectId,
        state: impl Fn(ObjectId) -> Option<QpState>,
        place: &Place,
    ) -> Option<(u64, Finding)> {
        let made = self.regions.get(id).map(|known| known.made.clone());
        let uses = |buffers: &[crate::queue_pair::Buffer]| buffers.iter().any(|buffer| buffer.region == id);
        let is_alive = |of: ObjectId, pair: &Pair| {
            !pair.is_over() && state(of).is_none_or(|now| !matches!(now, QpState::Reset | QpState::Err))
        };
        let tell = |pair: Option<&Pair>, wr_id, severity, message, related| {
            let about = pair.map(About::pair).unwrap_or_default();
            let about = About { wr_id: Some(wr_id), made: made.clone(), severity: Some(severity), related, ..about };
            Some((place.site, finding_of(Kind::RegionInUse, place, about, message)))
        };
        let mut receives = None;
        for (of, pair) in &self.pairs {
            let send = pair.sends.iter().find(|send| uses(&send.buffers));
            if let Some(send) = send.filter(|_| is_alive(*of, pair)) {
                let message = format!(
                    "ibv_dereg_mr of a region that an outstanding {} uses: no completion of it, or of one after it, was polled",
                    send.op.name()
                );
                let related = Some(("the work is posted", send.place.stack.clone()));
                return tell(Some(pair), send.wr_id, Severity::Error, message, related);
            }
            let receive = pair.receives.iter().find(|receive| uses(&receive.buffers));
            if receives.is_none() && receive.is_some() && is_alive(*of, pair) {
                receives = receive.map(|receive| (Some(pair), receive));
            }
        }
        // Of a shared queue that no queue pair uses any more nothing is taken.
        let is_served = |queue: ObjectId| {
            self.pairs.iter().any(|(of, pair)| pair.attributes.srq == Some(queue) && is_alive(*of, pair))
        };
        let shared = || {
            let served = self.shared.iter().filter(|(queue, _)| is_served(**queue));
            served.flat_map(|(_, receives)| receives).find(|receive| uses(&receive.buffers))
        };
        let (pair, receive) = receives.or_else(|| Some((None, shared()?)))?;
        let message = "ibv_dereg_mr of a region that a posted receive is for: a message that comes ends the connection with an error";
        tell(pair, receive.wr_id, Severity::Warning, message.to_owned(), None)
    }

    /// Signaled work, and no poll.
    fn not_polled(&self, id: ObjectId, made: &Place) -> Option<Finding> {
        let queue = self.queues.get(&id).filter(|queue| !queue.polled && queue.posted > 0)?;
        let message = format!(
            "{} signaled sends complete on a completion queue that was never polled: nobody knows whether they succeeded",
            queue.posted
        );
        Some(at_end(Kind::CompletionsNotPolled, made, message))
    }

    /// Whether a SEND waits for a receive for ever: its peer is in this process, and has none.
    fn check_waiting(&mut self, id: ObjectId) {
        let Some((pair, send, peer)) = self.waiting(id) else { return };
        let message = format!(
            "a SEND has not completed, and queue pair {:#x} (number {} of the process), its peer, has no receive posted: with rnr_retry 7 it \
             is tried for ever",
            peer.name.number, peer.name.order
        );
        let about = About { wr_id: Some(send.wr_id), ..About::pair(pair) };
        let place = send.place.clone();
        self.report(Kind::ReceiverNeverReady, &place, about, message);
    }

    fn waiting(&self, id: ObjectId) -> Option<(&Pair, &Send, &Pair)> {
        let pair = self.pairs.get(&id)?;
        let waits = pair.attributes.kind == QpType::Rc && pair.rnr_retry == Some(7) && pair.state == QpState::Rts;
        if !waits || !self.queues.get(&pair.attributes.send_cq)?.polled {
            return None;
        }
        // Numbers are each NIC's own: only one that names us in turn is the peer.
        let number = pair.peer?;
        let is_peer = |other: &&Pair| {
            other.attributes.number == number
                && other.peer == Some(pair.attributes.number)
                && other.attributes.kind == QpType::Rc
        };
        let mut peers = self.pairs.values().filter(is_peer);
        let (peer, None) = (peers.next()?, peers.next()) else { return None };
        if peer.is_over() || !peer.receives.is_empty() || peer.attributes.srq.is_some() {
            return None;
        }
        let send = pair.sends.iter().find(|send| {
            send.op == SendOp::Send && send.is_signaled && send.message.is_some_and(|message| message > peer.received)
        })?;
        Some((pair, send, peer))
    }
}

fn article(word: &str) -> &'static str {
    if word.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" }
}

/// A finding without a call: where an object was made.
fn at_end(kind: Kind, made: &Place, message: String) -> Finding {
    Finding {
        kind,
        severity: kind.severity(),
        message,
        queue_pair: None,
        wr_id: None,
        stack: None,
        made: Some(made.stack.clone()),
        related: None,
    }
}
