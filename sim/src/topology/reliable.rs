//! Flows of reliable messages over SDR: a queue pair in the layer of each of the two NICs.

use std::collections::BTreeMap;
use std::time::Duration;

use softnic_nic::Nic;
use softnic_nic::transports::memory::PdId;
use softnic_sdr::reliable::{Outcome, ReliableAttr, ReliableCounters, ReliableQp, Scheme, Shortfall};
use softnic_sdr::{Local, QpAttr, QpId, Sdr, SdrError};
use softnic_wire::Instant;

use super::Flow;
use super::world::World;
use crate::workload::SimError;

/// How long a message may take: virtual time costs nothing, and a run that stands still is told by that.
const TIMEOUT: Duration = Duration::from_secs(3600);
/// Receives for each message that may be outstanding: then nobody waits for a CTS.
const AHEAD: u32 = 2;

/// The queue pairs of a flow, and its messages that are not over.
pub(super) struct Reliable {
    ids: [QpId; 2],
    /// Each with the time at which it was posted.
    open: BTreeMap<u64, u64>,
    /// Those that nobody took, because the connection is over.
    refused: u64,
    /// Why the sender's line could not be full, if that is so.
    pub(super) shortfall: Option<Shortfall>,
}

/// Lets a call work on a reliable queue pair of a NIC.
fn with<R>(
    nic: &mut Nic,
    id: QpId,
    call: impl FnOnce(&mut ReliableQp, &mut Nic) -> Result<R, SdrError>,
) -> Result<R, SdrError> {
    let done = nic.with_layer(|layer, nic| {
        let sdr = layer.as_any_mut().downcast_mut::<Sdr>().ok_or(SdrError::NoSuchQp)?;
        call(sdr.reliable(id)?, nic)
    });
    done.unwrap_or(Err(SdrError::NoSuchQp))
}

/// Makes a queue pair in the layer of a NIC, which has none yet if this is the first.
fn make(nic: &mut Nic, pd: PdId, attr: &ReliableAttr) -> Result<QpId, SdrError> {
    if nic.with_layer(|_, _| ()).is_none() {
        nic.set_layer(Some(Box::<Sdr>::default()));
    }
    let qp = ReliableQp::create(nic, pd, attr)?;
    let added = nic.with_layer(|layer, _| layer.as_any_mut().downcast_mut::<Sdr>().map(|sdr| sdr.add_reliable(qp)));
    added.flatten().ok_or(SdrError::NoSuchQp)
}

impl World<'_> {
    /// Makes the queue pairs of a flow and connects them.
    pub(super) fn connect_reliable(&mut self, flow: &Flow, scheme: Scheme) -> Result<Reliable, SimError> {
        let usual = QpAttr::default();
        let most = u32::try_from(usual.split.messages()).unwrap_or(u32::MAX);
        let qp = QpAttr {
            // With parity a message is many.
            max_message: if matches!(scheme, Scheme::Ec(_)) { 1 } else { flow.size.max(1).into() },
            chunk: flow.chunk.unwrap_or(self.topology.mtu.bytes()),
            slots: flow.depth.saturating_mul(AHEAD).min(most),
            mtu: self.topology.mtu,
            ..usual
        };
        let attr = ReliableAttr { qp, scheme, timeout: TIMEOUT, ..ReliableAttr::default() };
        let attr = attr.sized_for(self.line_rate(flow.from), self.longest_round_trip().max(Duration::from_micros(1)));
        // What waits in queues fills no line.
        let shortfall = ReliableAttr { rtt: self.round_trip(Duration::ZERO), ..attr }.shortfall();
        let hosts = [flow.from, flow.to];
        let mut ids = [QpId(0); 2];
        for (id, host) in ids.iter_mut().zip(hosts) {
            *id = make(self.sim.nic(host), self.sides[host].pd, &attr)?;
        }
        let mut infos = Vec::new();
        for (&id, host) in ids.iter().zip(hosts) {
            infos.push(with(self.sim.nic(host), id, |qp, _| Ok(qp.qp().info().encode()))?);
        }
        for side in [0, 1] {
            let (host, peer) = (hosts[side], hosts[1 - side]);
            let path = self.path(host, peer, 0, flow.dscp);
            let path = path.ok_or(SimError::Options("two hosts have no way to each other"))?;
            with(self.sim.nic(host), ids[side], |qp, nic| qp.qp().connect(nic, 1, &path, &infos[1 - side]))?;
        }
        Ok(Reliable { ids, open: BTreeMap::new(), refused: 0, shortfall })
    }
}

impl Reliable {
    /// Messages from the oldest that is not over to the last that was posted.
    pub(super) fn span(&self, posted: u64) -> u64 {
        self.open.first_key_value().map_or(0, |(&oldest, _)| posted - oldest)
    }

    /// Posts a WRITE. One of a connection that is over ends at once.
    pub(super) fn write(&mut self, nic: &mut Nic, now: Instant, memory: Local) {
        match with(nic, self.ids[0], |qp, nic| qp.write(now, nic, memory)) {
            Ok(id) => _ = self.open.insert(id, now.as_nanos()),
            Err(_) => self.refused += 1,
        }
    }

    /// Posts a receive, if there is room for it.
    pub(super) fn receive(&self, nic: &mut Nic, now: Instant, memory: Local) -> bool {
        with(nic, self.ids[1], |qp, nic| qp.receive(now, nic, memory)).is_ok()
    }

    /// A WRITE that is over: its number, and how long it took if it came whole.
    pub(super) fn take_written(&mut self, nic: &mut Nic, now: u64) -> Option<(u64, Option<u64>)> {
        if self.refused > 0 {
            self.refused -= 1;
            return Some((u64::MAX, None));
        }
        loop {
            match with(nic, self.ids[0], |qp, _| Ok(qp.poll())).ok().flatten()? {
                Outcome::Written { id, outcome } => {
                    let posted_at = self.open.remove(&id).unwrap_or(now);
                    return Some((id, outcome.is_ok().then(|| now - posted_at)));
                }
                Outcome::Received { .. } => {}
            }
        }
    }

    /// How many receives are over since the last look.
    pub(super) fn take_received(&self, nic: &mut Nic) -> u32 {
        let poll = || with(nic, self.ids[1], |qp, _| Ok(qp.poll())).ok().flatten();
        std::iter::from_fn(poll).filter(|outcome| matches!(outcome, Outcome::Received { .. })).count() as u32
    }

    /// What the sending end counted.
    pub(super) fn counters(&self, nic: &mut Nic) -> ReliableCounters {
        with(nic, self.ids[0], |qp, _| Ok(qp.counters())).unwrap_or_default()
    }
}
