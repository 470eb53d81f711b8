//! A NIC that is watched: its frames as they come and go, and what has changed after each.

use std::collections::HashMap;
use std::net::IpAddr;

use softnic_nic::Nic;
use softnic_nic::transports::Counters;
use softnic_pcaps::decode::{Decoder, Dissection};
use softnic_wire::{Instant, Qpn};

use crate::event::Event;
use crate::packet::Packet;
use crate::qlog::Trace;
use crate::watched::Watched;

/// Watches one NIC. Whoever drives it calls [`Observer::received`] before it takes a frame, [`Observer::sent`] after it has written one, and
/// [`Observer::settled`] after a batch of frames, after timers, and after work was posted.
pub struct Observer {
    trace: Trace,
    nic: String,
    epoch: u64,
    decoder: Decoder,
    counters: Counters,
    queue_pairs: HashMap<Qpn, Watched>,
    /// Which of our queue pairs sends to a peer's.
    senders: HashMap<(IpAddr, Qpn), Qpn>,
    /// The queue pair of the frame that the NIC took last.
    touched: Option<Qpn>,
}

impl Observer {
    pub(crate) fn new(trace: Trace, nic: &str, epoch: u64) -> Observer {
        Observer {
            trace,
            nic: nic.into(),
            epoch,
            decoder: Decoder::default(),
            counters: Counters::default(),
            queue_pairs: HashMap::new(),
            senders: HashMap::new(),
            touched: None,
        }
    }

    /// The trace that it writes to.
    pub fn trace(&self) -> &Trace {
        &self.trace
    }

    /// The NIC is about to take a frame.
    pub fn received(&mut self, now: Instant, nic: &Nic, frame: &[u8]) {
        self.look_at_touched(now, nic);
        let mut decoder = std::mem::take(&mut self.decoder);
        if let Ok(d) = decoder.decode_ethernet(frame)
            && let (Some(packet), Some(qpn)) = (Packet::of(&d), d.dest_qp)
        {
            self.tell(now, nic, Some(qpn), &Event::PacketReceived(packet));
            self.touched = Some(qpn);
        }
        self.decoder = decoder;
    }

    /// The NIC has written a frame.
    pub fn sent(&mut self, now: Instant, nic: &Nic, frame: &[u8]) {
        self.look_at_touched(now, nic);
        let mut decoder = std::mem::take(&mut self.decoder);
        if let Ok(d) = decoder.decode_ethernet(frame)
            && let Some(mut packet) = Packet::of(&d)
        {
            let qpn = self.sender(nic, &d);
            if qpn.is_some_and(|qpn| !self.queue_pairs.contains_key(&qpn)) {
                self.meet(nic);
            }
            // What was posted comes before the packet that carries it.
            self.look(now, nic, qpn);
            let resent = qpn.and_then(|qpn| self.queue_pairs.get_mut(&qpn)).and_then(|known| known.resent(&d));
            (packet.retransmission, packet.reason) = (resent.is_some(), resent);
            self.tell(now, nic, qpn, &Event::PacketSent(packet));
        }
        self.decoder = decoder;
    }

    /// The NIC is done with all that was given to it.
    pub fn settled(&mut self, now: Instant, nic: &Nic) {
        self.look_at_touched(now, nic);
        self.meet(nic);
        let all: Vec<Qpn> = self.queue_pairs.keys().copied().collect();
        for qpn in all {
            self.look(now, nic, Some(qpn));
        }
    }

    /// What the frame that came last has changed.
    fn look_at_touched(&mut self, now: Instant, nic: &Nic) {
        let touched = self.touched.take();
        self.count(now, nic, touched);
        self.look(now, nic, touched);
    }

    /// Queue pairs that are new.
    fn meet(&mut self, nic: &Nic) {
        let new: Vec<Qpn> = nic.queue_pairs().filter(|qpn| !self.queue_pairs.contains_key(qpn)).collect();
        for qpn in new {
            self.queue_pairs.insert(qpn, Watched::new(&self.nic, qpn));
        }
    }

    /// The counters that have risen, by what this queue pair did; without one, by timers that ran out.
    fn count(&mut self, now: Instant, nic: &Nic, touched: Option<Qpn>) {
        if *nic.counters() == self.counters {
            return;
        }
        let before = std::mem::replace(&mut self.counters, *nic.counters());
        for ((counter, is), (_, was)) in self.counters.iter().zip(before.iter()) {
            let Some(event) = (is > was).then(|| Event::of_counter(counter, is - was)).flatten() else { continue };
            let mut of: Vec<Option<Qpn>> = match event {
                Event::LossDetected { .. } if touched.is_none() => self.expired(nic, |_| true),
                Event::RetriesExhausted { .. } if touched.is_none() => self.expired(nic, |gave_up| gave_up),
                _ => Vec::new(),
            };
            if of.is_empty() {
                of.push(touched);
            }
            for qpn in of {
                if let (Some(reason), Some(known)) =
                    (event.reason(), qpn.and_then(|qpn| self.queue_pairs.get_mut(&qpn)))
                {
                    known.loss = Some(reason);
                }
                self.tell(now, nic, qpn, &event);
            }
        }
    }

    /// The queue pairs whose timers ran out since they were looked at, in order of their numbers, as far as `wanted` takes them by whether they gave up.
    fn expired(&mut self, nic: &Nic, wanted: fn(bool) -> bool) -> Vec<Option<Qpn>> {
        self.meet(nic);
        let gave_up = |(&qpn, known): (&Qpn, &Watched)| known.expired(nic, qpn).map(|gave_up| (qpn, gave_up));
        let expired = self.queue_pairs.iter().filter_map(gave_up).filter(|(_, gave_up)| wanted(*gave_up));
        let mut expired: Vec<Option<Qpn>> = expired.map(|(qpn, _)| Some(qpn)).collect();
        expired.sort_unstable();
        expired
    }

    /// What has changed of a queue pair.
    fn look(&mut self, now: Instant, nic: &Nic, qpn: Option<Qpn>) {
        let Some(qpn) = qpn else { return };
        let (trace, nanos) = (&self.trace, self.epoch + now.as_nanos());
        let Some(known) = self.queue_pairs.get_mut(&qpn) else { return };
        if !known.look(nic, qpn, &mut |group, event| trace.write(nanos, group, event)) {
            let gone = self.queue_pairs.remove(&qpn);
            self.senders.retain(|_, sender| *sender != qpn);
            if let Some(gone) = gone {
                trace.write(
                    nanos,
                    &gone.group,
                    &Event::StateUpdated { old: Some(gone.state.name().into()), new: None },
                );
            }
        }
    }

    /// The queue pair of ours that a frame is from. Only datagrams say that themselves; a connection's is the one with this peer.
    fn sender(&mut self, nic: &Nic, d: &Dissection<'_>) -> Option<Qpn> {
        if let Some(deth) = d.ext.deth {
            return Some(deth.src_qp);
        }
        let peer = (d.dst, d.dest_qp?);
        if let Some(&qpn) = self.senders.get(&peer) {
            return Some(qpn);
        }
        let is_peer = |qpn: &Qpn| {
            let attr = nic.query_qp(*qpn).map(|(_, attr)| attr);
            attr.is_some_and(|a| a.dest_qp == Some(peer.1) && a.path.is_some_and(|p| p.addresses.dst() == peer.0))
        };
        let qpn = nic.queue_pairs().find(is_peer)?;
        self.senders.insert(peer, qpn);
        Some(qpn)
    }

    fn tell(&mut self, now: Instant, nic: &Nic, qpn: Option<Qpn>, event: &Event) {
        let nanos = self.epoch + now.as_nanos();
        let known = qpn.filter(|&qpn| nic.qp_state(qpn).is_some());
        match known {
            Some(qpn) => {
                let known = self.queue_pairs.entry(qpn).or_insert_with(|| Watched::new(&self.nic, qpn));
                self.trace.write(nanos, &known.group, event);
            }
            // Of no queue pair that there is.
            None => self.trace.write(nanos, &self.nic, event),
        }
    }
}
