//! The verbs of a NIC in the same thread: of a host in the simulator.

use softnic_nic::{Buffer, Nic, QpInit};
use softnic_transports::memory::{Access, PdId};
use softnic_transports::qp::{Caps, PayloadMode};
use softnic_transports::{Completion, CqId, PostError, RecvWr, SendWr, Transport};
use softnic_wire::{Instant, Qpn};

use crate::endpoint::{Endpoint, Memory, Verbs};
use crate::fabric::Refused;

/// What a rank has of its own on a NIC.
#[derive(Debug, Clone, Copy)]
pub struct NicPlace {
    pd: PdId,
    cq: CqId,
}

impl NicPlace {
    /// Room for so many completions.
    pub fn new(nic: &mut Nic, completions: usize) -> NicPlace {
        NicPlace { pd: nic.alloc_pd(), cq: nic.create_cq(completions) }
    }

    /// Of a domain and a completion queue that are there.
    pub fn of(pd: PdId, cq: CqId) -> NicPlace {
        NicPlace { pd, cq }
    }

    /// Whether something has completed.
    pub fn has_news(self, nic: &mut Nic) -> bool {
        nic.cq_len(self.cq).is_ok_and(|len| len > 0)
    }

    /// Its verbs.
    pub fn verbs(self, nic: &mut Nic) -> NicVerbs<'_> {
        NicVerbs { nic, place: self }
    }

    /// What a queue pair for data is made with.
    pub fn data(self, end: &Endpoint, limit_flight: bool) -> QpInit {
        QpInit { limit_flight, ..self.init(end.transport(), end.data_caps()) }
    }

    /// What a queue pair for warm-ups is made with; `None` where there are none.
    pub fn warm_up(self, end: &Endpoint, limit_flight: bool) -> Option<QpInit> {
        end.warms_up().then(|| QpInit { limit_flight, ..self.init(Transport::Rc, end.warm_up_caps()) })
    }

    /// What a queue pair for words is made with: somebody reads them, whatever frames carry.
    pub fn words(self, end: &Endpoint) -> QpInit {
        QpInit { never_elided: true, ..self.init(Transport::Rc, end.word_caps()) }
    }

    fn init(self, transport: Transport, caps: Caps) -> QpInit {
        QpInit { transport, ..QpInit::new(transport.kind(), self.pd, self.cq, self.cq, caps) }
    }
}

/// The verbs of a rank on a NIC.
pub struct NicVerbs<'n> {
    nic: &'n mut Nic,
    place: NicPlace,
}

impl Verbs for NicVerbs<'_> {
    fn has_payload(&self) -> bool {
        self.nic.payload_mode() == PayloadMode::Real
    }

    fn register(&mut self, base: u64, len: u64, real: bool) -> Result<Memory, Refused> {
        let (pd, access) = (self.place.pd, Access::LOCAL_WRITE);
        let buffer = real.then(|| Buffer::new(base, len.max(8) as usize));
        let key = match &buffer {
            Some(buffer) => self.nic.reg_mr(pd, buffer, access),
            None => self.nic.alloc_null_mr(pd, access),
        };
        Ok(Memory { base, key: key.map_err(|e| Refused(e.to_string()))?, buffer })
    }

    fn deregister(&mut self, memory: &Memory) -> Result<(), Refused> {
        self.nic.dereg_mr(memory.key).map_err(|e| Refused(e.to_string()))
    }

    fn open_key(&mut self, memory: &Memory) -> Result<u32, Refused> {
        let (pd, access) = (self.place.pd, Access::LOCAL_WRITE | Access::REMOTE_WRITE);
        let key = match &memory.buffer {
            Some(buffer) => self.nic.reg_mr(pd, buffer, access),
            None => self.nic.alloc_null_mr(pd, access),
        };
        key.map_err(|e| Refused(e.to_string()))
    }

    fn close_key(&mut self, key: u32) {
        let _ = self.nic.dereg_mr(key);
    }

    fn post_receive(&mut self, _: Instant, qpn: Qpn, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.nic.post_recv(qpn, wr)
    }

    fn post_send(&mut self, now: Instant, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), PostError> {
        self.nic.post_send(now, qpn, wr)
    }

    fn poll(&mut self) -> Option<Completion> {
        self.nic.poll_cq(self.place.cq).ok().flatten()
    }
}
