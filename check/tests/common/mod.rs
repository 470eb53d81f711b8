//! A process for the model: one device, a queue pair with its peer, regions, and memory that can be changed.
#![allow(dead_code, reason = "each file of tests uses some of it")]

use std::cell::RefCell;

use softnic_check::{
    Access, Capacity, Change, Completed, CompletionQueue, Finding, Kind, Mask, Memory, Model, NicId, ObjectId,
    ObjectKind, Outcome, Place, QpState, QpType, QueuePair, ReceiveQueue, ReceiveWork, Refusal, Region, SendOp,
    SendWork, Sge, Tickets,
};

pub(crate) const NIC: NicId = NicId(1);
pub(crate) const DOMAIN: ObjectId = ObjectId(10);
pub(crate) const OTHER_DOMAIN: ObjectId = ObjectId(11);
pub(crate) const CQ: ObjectId = ObjectId(20);
pub(crate) const QP: ObjectId = ObjectId(30);
pub(crate) const PEER: ObjectId = ObjectId(31);
pub(crate) const SRQ: ObjectId = ObjectId(40);
pub(crate) const REGION: ObjectId = ObjectId(50);
pub(crate) const LKEY: u32 = 0x1100;
pub(crate) const RKEY: u32 = 0x2200;
/// Where the region begins, in addresses of work requests and in memory.
pub(crate) const IOVA: u64 = 0x10_0000;
pub(crate) const ADDRESS: u64 = 0x1000;
pub(crate) const LEN: u64 = 0x2000;

/// Memory from `ADDRESS` on.
pub(crate) struct Bytes(RefCell<Vec<u8>>);

impl Memory for Bytes {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let from = (address - ADDRESS) as usize;
        let bytes = self.0.borrow();
        bytes.get(from..from + into.len()).is_some_and(|bytes| {
            into.copy_from_slice(bytes);
            true
        })
    }
}

pub(crate) struct World {
    pub(crate) model: Model,
    pub(crate) memory: Bytes,
    sites: u64,
}

/// An element by its offset in the region.
pub(crate) fn sge(offset: u64, len: u32) -> Sge {
    Sge { address: IOVA + offset, len, lkey: LKEY }
}

pub(crate) fn send(sges: &[Sge]) -> SendWork<'_> {
    SendWork { wr_id: 7, op: SendOp::Send, sges, is_inline: false, is_signaled: true, is_fenced: false, remote: None }
}

pub(crate) fn remote(op: SendOp, sges: &[Sge], address: u64) -> SendWork<'_> {
    SendWork { op, remote: Some((address, RKEY)), ..send(sges) }
}

pub(crate) fn region() -> Region {
    Region {
        nic: NIC,
        domain: DOMAIN,
        lkey: LKEY,
        rkey: RKEY,
        address: ADDRESS,
        iova: IOVA,
        len: LEN,
        is_null: false,
        access: Access { local_write: true, remote_change: false },
    }
}

pub(crate) fn pair(number: u32, kind: QpType) -> QueuePair {
    QueuePair {
        nic: NIC,
        number,
        kind,
        domain: DOMAIN,
        send_cq: CQ,
        recv_cq: CQ,
        srq: None,
        signals_all: false,
        capacity: Capacity { sends: 64, send_sges: 4, receive_sges: 4 },
    }
}

impl World {
    /// Two RC queue pairs that are connected, and a region.
    pub(crate) fn new() -> World {
        World::of(QpType::Rc)
    }

    pub(crate) fn of(kind: QpType) -> World {
        let mut world = World::empty();
        let place = world.place();
        world.model.made(ObjectKind::Domain, DOMAIN, &place);
        world.model.completion_queue_made(CQ, CompletionQueue { capacity: 16 }, &place);
        world.model.region_made(REGION, region(), &place);
        for (id, number, peer) in [(QP, 17, 18), (PEER, 18, 17)] {
            world.model.queue_pair_made(id, pair(number, kind), true, &place);
            world.connect(id, peer, Change::default());
        }
        world
    }

    pub(crate) fn empty() -> World {
        World { model: Model::new(), memory: Bytes(RefCell::new(vec![0; LEN as usize])), sites: 0 }
    }

    /// Takes a queue pair to RTS, as a right program does.
    pub(crate) fn connect(&mut self, id: ObjectId, peer: u32, last: Change) {
        let place = self.place();
        let usual = Change { timeout: Some(14), rnr_retry: Some(7), read_depth: Some(1), ..Change::default() };
        for (state, change) in [
            (QpState::Init, Change::default()),
            (QpState::Rtr, Change { peer: Some(peer), ..Change::default() }),
            (
                QpState::Rts,
                Change {
                    timeout: last.timeout.or(usual.timeout),
                    rnr_retry: last.rnr_retry.or(usual.rnr_retry),
                    read_depth: last.read_depth.or(usual.read_depth),
                    ..usual
                },
            ),
        ] {
            self.model.modified(id, &Change { state: Some(state), ..change }, &place);
        }
    }

    /// A place where no other call was.
    pub(crate) fn place(&mut self) -> Place {
        self.sites += 1;
        Place::new(&[0x40_0000 + self.sites, 0x41_0000])
    }

    pub(crate) fn post(&mut self, qp: ObjectId, work: SendWork<'_>) {
        let place = self.place();
        self.post_at(qp, work, &place);
    }

    pub(crate) fn post_at(&mut self, qp: ObjectId, work: SendWork<'_>, place: &Place) {
        let tickets = self.posting(qp, work, place);
        self.model.sends_taken(qp, tickets);
    }

    /// A verb that does not take it follows.
    pub(crate) fn posting(&mut self, qp: ObjectId, work: SendWork<'_>, place: &Place) -> Tickets {
        let mut tickets = Tickets::default();
        self.model.send_posted(qp, &work, &self.memory, place, &mut tickets);
        tickets
    }

    pub(crate) fn receive(&mut self, qp: ObjectId, wr_id: u64, sges: &[Sge]) -> Tickets {
        let (mut tickets, place) = (Tickets::default(), self.place());
        let work = ReceiveWork { wr_id, sges };
        self.model.receive_posted(ReceiveQueue::Own(qp), &work, None, &place, &mut tickets);
        self.model.receives_taken(ReceiveQueue::Own(qp), tickets, &place);
        tickets
    }

    pub(crate) fn refuse(&mut self, qp: ObjectId, work: SendWork<'_>, why: Refusal) {
        let place = self.place();
        let tickets = self.posting(qp, work, &place);
        self.model.sends_refused(qp, tickets, 0, why, &place);
    }

    pub(crate) fn complete(&mut self, number: u32, wr_id: u64, outcome: Outcome) {
        self.completion(Completed { qp_number: number, wr_id, outcome, is_receive: false });
    }

    pub(crate) fn received(&mut self, number: u32, wr_id: u64) {
        self.completion(Completed { qp_number: number, wr_id, outcome: Outcome::Success, is_receive: true });
    }

    fn completion(&mut self, completion: Completed) {
        self.model.completed(CQ, &completion, &self.memory);
    }

    /// The program writes a byte of the region.
    pub(crate) fn write(&self, offset: u64) {
        self.memory.0.borrow_mut()[offset as usize] ^= 0xff;
    }

    /// A verb takes an object away.
    pub(crate) fn destroy(&mut self, kind: ObjectKind, id: ObjectId) {
        let place = self.place();
        self.model.going(kind, id, |_| None, &place);
        if kind == ObjectKind::QueuePair {
            self.model.queue_pair_going(id);
        }
        self.model.gone(kind, id);
    }

    pub(crate) fn modify(&mut self, qp: ObjectId, state: QpState) {
        let place = self.place();
        self.model.modified(qp, &Change { state: Some(state), ..Change::default() }, &place);
    }

    pub(crate) fn by_mask(&mut self, qp: ObjectId, state: QpState, bits: &[u32]) {
        let place = self.place();
        let mask = Mask(bits.iter().fold(1, |mask, bit| mask | 1 << bit));
        let change = Change { mask, state: Some(state), is_the_programs: true, ..Change::default() };
        self.model.modified(qp, &change, &place);
    }

    /// The kinds that were found since the last time.
    pub(crate) fn found(&mut self) -> Vec<Kind> {
        self.model.take_findings().iter().map(|finding| finding.kind).collect()
    }

    /// The only finding.
    pub(crate) fn one(&mut self) -> Finding {
        let mut findings = self.model.take_findings();
        assert_eq!(findings.len(), 1, "{findings:#?}");
        findings.remove(0)
    }
}
