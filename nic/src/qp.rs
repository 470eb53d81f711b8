//! Queue pairs as a NIC holds them: their initial attributes, and the NIC's state of each besides its transport.

use std::net::IpAddr;

use softnic_transports::memory::PdId;
use softnic_transports::qp::{Caps, QpKind};
use softnic_transports::{CqId, Endpoint, Misfits, SrqId, Transport};
use softnic_wire::bth;
use softnic_wire::opcode::Service;

/// The attributes of a new queue pair.
#[derive(Debug, Clone, Copy)]
pub struct QpInit {
    /// Its transport.
    pub transport: Transport,
    /// Whether this is QP1.
    pub gsi: bool,
    /// Its protection domain.
    pub pd: PdId,
    /// The completion queue of sends.
    pub send_cq: CqId,
    /// The completion queue of receives.
    pub recv_cq: CqId,
    /// The shared receive queue that its receives come from, instead of a queue of its own.
    pub srq: Option<SrqId>,
    /// Its capacities.
    pub caps: Caps,
    /// Every send is signaled.
    pub sig_all: bool,
    /// Nothing is sent before an acknowledgement, and no acknowledgement is delayed: for programs that sleep until an event.
    pub prompt_acks: bool,
    /// The number of outstanding packets on a reliable connection with Go-Back-N, or on one of best effort, is limited to the buffer of a
    /// software receiver.
    pub limit_flight: bool,
    /// A reliable connection that runs out of retries halts, with its work in place, instead of flushing it ([`Event::QpHalted`]).
    ///
    /// [`Event::QpHalted`]: softnic_transports::Event::QpHalted
    pub halt_on_retry_exceeded: bool,
    /// Its packets carry their payload even if the NIC's others do not ([`PayloadMode::Elided`]), because the payload is read.
    ///
    /// [`PayloadMode::Elided`]: softnic_transports::qp::PayloadMode::Elided
    pub never_elided: bool,
}

impl QpInit {
    /// A queue pair of the standard's transport of that kind, with receives of its own, and sends signaled one by one.
    pub fn new(kind: QpKind, pd: PdId, send_cq: CqId, recv_cq: CqId, caps: Caps) -> QpInit {
        QpInit {
            transport: Transport::standard(kind),
            gsi: kind == QpKind::Gsi,
            pd,
            send_cq,
            recv_cq,
            srq: None,
            caps,
            sig_all: false,
            prompt_acks: false,
            limit_flight: false,
            halt_on_retry_exceeded: false,
            never_elided: false,
        }
    }

    /// The kind of queue pair that a program sees.
    pub fn kind(&self) -> QpKind {
        if self.gsi { QpKind::Gsi } else { self.transport.kind() }
    }
}

/// A queue pair in its slot.
pub(crate) struct Slot {
    pub(crate) endpoint: Endpoint,
    pub(crate) init: QpInit,
    /// The peer's address once connected; packets from other addresses are dropped. Datagrams may come from any address.
    pub(crate) peer: Option<IpAddr>,
    /// The local address towards the peer: packets to another address, of this port or not, are dropped as well (IBA A17.4.2).
    pub(crate) local: Option<IpAddr>,
    /// The port of the Node by which a connection's frames leave.
    pub(crate) port: usize,
    pub(crate) pkey: u16,
    /// The service of the standard packets that it accepts.
    pub(crate) service: Service,
    /// The port in whose list of active queue pairs it is.
    pub(crate) queued: Option<usize>,
    /// Number of bytes that it sent beyond its last turn.
    pub(crate) debt: u32,
    /// Numbers of packets whose PSN, and whose key, did not fit.
    misfits: [u64; 2],
    /// Whether the program was notified that the peer does not support an extension.
    pub(crate) told_fallback: bool,
}

impl Slot {
    pub(crate) fn new(init: &QpInit, endpoint: Endpoint) -> Slot {
        Slot {
            endpoint,
            init: *init,
            peer: None,
            local: None,
            port: 1,
            pkey: bth::DEFAULT_PKEY,
            service: init.kind().service(),
            queued: None,
            debt: 0,
            misfits: [0; 2],
            told_fallback: false,
        }
    }

    /// Counts the packet as a misfit if the NIC's counters grew from `before` to `after`.
    #[cold]
    pub(crate) fn note_misfits(&mut self, before: [u64; 2], after: [u64; 2]) {
        self.misfits.iter_mut().zip(before.iter().zip(after)).for_each(|(n, (before, after))| *n += after - before);
    }

    /// The numbers of packets that did not fit.
    pub(crate) fn misfits(&self) -> Misfits {
        let [psn, rkey] = self.misfits;
        Misfits { psn, rkey, tag: self.endpoint.rejected() }
    }

    /// Whether a frame with these addresses, by this port of the Node, belongs to the connection.
    #[inline(always)]
    pub(crate) fn is_between(&self, src: IpAddr, dst: IpAddr, port: usize) -> bool {
        self.peer == Some(src) && self.local == Some(dst) && self.port == port
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/performance.md has the figures of release builds.
    #[test]
    fn a_slot_stays_small() {
        let size = size_of::<Slot>();
        assert!(size <= 352, "{size}");
    }
}
