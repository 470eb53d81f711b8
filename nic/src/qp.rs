//! Queue pairs as a NIC holds them: what they are made with, and what it knows of each beside its transport.

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
    /// It is QP1.
    pub gsi: bool,
    /// Its protection domain.
    pub pd: PdId,
    /// Where sends complete.
    pub send_cq: CqId,
    /// Where receives complete.
    pub recv_cq: CqId,
    /// The shared queue that its receives come from, instead of one of its own.
    pub srq: Option<SrqId>,
    /// How much it holds.
    pub caps: Caps,
    /// Every send is signaled.
    pub sig_all: bool,
    /// Nothing goes ahead of an acknowledgement, and none waits: for programs that sleep until an event comes.
    pub prompt_acks: bool,
    /// Packets outstanding on a reliable connection with Go-Back-N, or on one of best effort, are limited to what a receiver in software has room for.
    pub limit_flight: bool,
    /// A reliable connection that runs out of retries halts, with its work in place, instead of flushing it ([`Event::QpHalted`]).
    ///
    /// [`Event::QpHalted`]: softnic_transports::Event::QpHalted
    pub halt_on_retry_exceeded: bool,
    /// Its packets carry their payload even where the NIC's others do not ([`PayloadMode::Elided`]): somebody reads them.
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

    /// The kind of queue pair that it is to a program.
    pub fn kind(&self) -> QpKind {
        if self.gsi { QpKind::Gsi } else { self.transport.kind() }
    }
}

/// A queue pair in its slot.
pub(crate) struct Slot {
    pub(crate) endpoint: Endpoint,
    pub(crate) init: QpInit,
    /// The peer's address once connected; packets from elsewhere are dropped. Datagrams come from anywhere.
    pub(crate) peer: Option<IpAddr>,
    /// Our own address towards the peer: what comes for another one, of this port or not, is dropped as well (IBA A17.4.2).
    pub(crate) local: Option<IpAddr>,
    /// The port of the Node by which a connection's frames leave.
    pub(crate) port: usize,
    pub(crate) pkey: u16,
    /// Of the packets that it takes as the standard has them.
    pub(crate) service: Service,
    /// The port in whose list of those that may have something to send it waits.
    pub(crate) queued: Option<usize>,
    /// Bytes that it sent beyond its last turn.
    pub(crate) debt: u32,
    /// Packets that did not fit by their PSN, and by their key.
    misfits: [u64; 2],
    /// The program was told that the peer speaks no extension.
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

    /// A packet to it did not fit: all of the NIC before it, and behind it.
    #[cold]
    pub(crate) fn note_misfits(&mut self, before: [u64; 2], after: [u64; 2]) {
        self.misfits.iter_mut().zip(before.iter().zip(after)).for_each(|(n, (before, after))| *n += after - before);
    }

    /// All packets that did not fit.
    pub(crate) fn misfits(&self) -> Misfits {
        let [psn, rkey] = self.misfits;
        Misfits { psn, rkey, tag: self.endpoint.rejected() }
    }

    /// Whether a frame with these addresses, by this port of the Node, is one of the connection's.
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
