//! The thread of a connection manager: it carries MADs between QP1 and the state machine, and sleeps when there is nothing to do.

use std::os::fd::AsFd;
use std::sync::Arc;

use softnic_cm::{Event, MraTime};
use softnic_nic::Notify;
use softnic_nic::transports::Completion;
use softnic_wire::failover::Side;
use softnic_wire::mad::MAD_LEN;
use softnic_wire::mad::cm::TimeoutCode;

use super::backup::Backup;
use super::gsi::Gsi;
use super::paths::Paths;
use super::{CmOpenError, Managed, Shared};
use crate::api::context::Context;
use crate::api::manager_news::News;
use crate::background::{Background, Stop};

/// Completions taken at a time.
const BATCH: usize = 64;
/// How long a program may take to answer a request, as Linux says it: 69 s.
const PATIENCE: TimeoutCode = TimeoutCode::new(24);

pub(super) fn start(context: &Context, shared: &Arc<Shared>) -> Result<Background, CmOpenError> {
    let gsi = Gsi::open(context)?;
    let paths = Paths::new(context, &gsi.pd, shared.first_data.clone())?;
    let backup = Backup::open(context, shared.first_data.clone());
    let service = Service { shared: Arc::clone(shared), gsi, paths, backup, completions: Vec::with_capacity(BATCH) };
    Ok(Background::start("softnic-cm", move |stop| service.run(stop))?)
}

struct Service {
    shared: Arc<Shared>,
    gsi: Gsi,
    paths: Paths,
    backup: Option<Backup>,
    completions: Vec<Completion>,
}

impl Service {
    fn run(mut self, stop: &Stop) {
        let shared = Arc::clone(&self.shared);
        let wake = &shared.first_data.0.wake;
        while !stop.is_told() {
            wake.drain();
            // Armed before the last look: what comes after it wakes.
            self.gsi.cq.arm(Notify::Next);
            let wanted = shared.managed().wanted;
            let busy = self.step();
            self.tell_senders(wanted);
            if !busy {
                let due = shared.managed().cm.poll_timeout();
                let limit = due.map(|at| at.saturating_since(shared.now()));
                let came = self.gsi.cq.descriptor();
                stop.wait_on(&came.into_iter().chain([wake.as_fd()]).collect::<Vec<_>>(), limit);
            }
        }
    }

    /// Does what there is to do; whether there was anything from the wire.
    fn step(&mut self) -> bool {
        let taken = self.receive();
        self.hear_from_backup();
        let first = std::mem::take(&mut *self.shared.first_data.0.qpns.lock().unwrap_or_else(|p| p.into_inner()));
        self.pass_on_round_trips();
        let now = self.shared.now();
        {
            let mut managed = self.shared.managed();
            first.into_iter().for_each(|qpn| managed.cm.handle_comm_est(qpn));
            managed.cm.handle_timeout(now);
            managed.deliver(now);
        }
        self.transmit();
        taken > 0
    }

    /// Tells the NIC how far away peers are, before programs hear of their answers and connect queue pairs to them.
    fn pass_on_round_trips(&self) {
        let measured: Vec<_> = {
            let mut managed = self.shared.managed();
            std::iter::from_fn(|| managed.cm.poll_round_trip()).collect()
        };
        for (peer, rtt) in measured {
            for engine in self.gsi.pd.inner().engines() {
                engine.control().nic().note_round_trip(peer, rtt);
            }
        }
    }

    fn receive(&mut self) -> usize {
        // A queue that overflowed brings nothing any more: it has room for all that can be outstanding.
        let taken = self.gsi.cq.poll(&mut self.completions, BATCH).unwrap_or(0);
        for done in self.completions.drain(..) {
            if let Some((route, mad)) = self.gsi.complete(&done) {
                self.shared.managed().cm.handle_mad(self.shared.now(), &route, &mad);
            }
        }
        taken
    }

    /// Takes what came by the backup, and what is to be known of it.
    fn hear_from_backup(&mut self) {
        let Some(backup) = &self.backup else { return };
        for news in backup.news() {
            let mut managed = self.shared.managed();
            match news {
                News::Proven(qpn, route) => managed.cm.set_backup(qpn, &route),
                News::Moved(qpn, side) => managed.cm.set_side(qpn, side),
                News::Came(route, mad) => managed.cm.handle_mad(self.shared.now(), &route, &*mad),
            }
        }
    }

    fn transmit(&mut self) {
        let mut mad = [0; MAD_LEN];
        if let Some(backup) = &self.backup {
            let ports = backup.ports_up();
            self.shared.managed().cm.set_ports(ports);
        }
        while self.gsi.has_room() {
            if let Some((handle, route, mad)) = self.paths.next_ready() {
                self.gsi.send(&handle, route.qpn, &mad);
                continue;
            }
            // Not locked while the NIC is called: others may wait for the manager with the NIC in their hands.
            let next = self.shared.managed().cm.poll_transmit(self.shared.now(), &mut mad);
            let Some(route) = next else { return };
            if route.side == Side::Backup {
                self.backup.iter().for_each(|backup| backup.send(&route, &mad));
                continue;
            }
            if let Some(handle) = self.paths.handle(&route, &mad) {
                self.gsi.send(&handle, route.qpn, &mad);
            }
        }
    }

    /// Wakes threads that wait until all is sent.
    fn tell_senders(&self, wanted: u64) {
        if self.gsi.is_idle() && self.paths.is_idle() {
            let mut managed = self.shared.managed();
            if managed.done < wanted {
                managed.done = wanted;
                self.shared.sent.notify_all();
            }
        }
    }
}

impl Managed {
    /// Hands out events. With the manager locked, so that after [`super::ConnectionManager::destroy`] none is told any more.
    fn deliver(&mut self, now: softnic_wire::Instant) {
        let mut told = Vec::new();
        while let Some(event) = self.cm.poll_event() {
            let id = event.id();
            told.push(id);
            let new = match &event {
                Event::ConnectRequest { listener, .. } | Event::SidrRequest { listener, .. } => Some(*listener),
                _ => None,
            };
            match new {
                Some(listener) => match self.listeners.get(&listener).and_then(|(sink, _)| (sink.0)(event)) {
                    Some(sink) => {
                        self.conns.insert(id, sink);
                        // A program may take its time; as in Linux a peer hears of that when it asks again. Resolutions know no such.
                        let _ = self.cm.mra(id, PATIENCE, MraTime::OnDuplicate);
                    }
                    // Who listened is gone.
                    None => {
                        let _ = self.cm.destroy(now, id);
                    }
                },
                None => {
                    if let Some(sink) = self.conns.get(&id) {
                        (sink.0)(event);
                    }
                }
            }
        }
        for id in told {
            if self.cm.state(id).is_none() {
                self.conns.remove(&id);
            }
        }
    }
}
