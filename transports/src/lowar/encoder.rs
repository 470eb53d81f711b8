//! The sending half: computes sums of the packets sent, and repair packets from them (algorithm 1).
//!
//! Line 5 of the algorithm has i mod c = 0; the end of a block is meant, i mod r = 0, as figure 6 and the text show.

use softnic_wire::lowar::{RepairHeader, Type};
use softnic_wire::{ExtHeaders, Opcode, PacketFields, Psn, Template, TxFrame, bth};

use super::buffers::{Body, Pool, Unit};
use super::{Code, MAX_DEPTH, Stream, psn_of};
use crate::qp::PayloadMode;
use crate::shim::ShimResources;

/// The block of a stream that is being sent.
struct Outgoing {
    code: Code,
    base: Psn,
    /// The next packet of the block.
    next: Psn,
    /// Number of packets so far; 0 means that there is no block.
    n: u8,
    has_first: bool,
    has_last: bool,
    last_len: u16,
    /// There were units for all packets of the block.
    protected: bool,
    units: [Unit; MAX_DEPTH as usize],
}

impl Outgoing {
    fn new(code: Code) -> Outgoing {
        Outgoing {
            code,
            base: Psn::new(0),
            next: Psn::new(0),
            n: 0,
            has_first: false,
            has_last: false,
            last_len: 0,
            protected: false,
            units: [Unit::NONE; MAX_DEPTH as usize],
        }
    }

    fn end(&mut self, pool: &mut Pool) {
        pool.end_block(&mut self.units[..usize::from(self.code.c())]);
        self.n = 0;
    }

    /// Starts with the packet `base`.
    fn begin(&mut self, base: Psn, code: Code, has_first: bool, pool: &mut Pool) {
        if code != self.code {
            pool.release(&mut self.units);
        }
        (self.base, self.code, self.has_first, self.protected) = (base, code, has_first, true);
    }

    /// Number of repair packets of the block.
    fn repairs(&self) -> u8 {
        self.code.c().min(self.n)
    }
}

/// A block whose repair packets are to be sent.
#[derive(Clone, Copy)]
struct Due {
    stream: Stream,
    isn: u8,
}

/// The sending half.
pub(super) struct Encoder {
    pub(super) template: Template,
    /// The code of the next blocks.
    code: Code,
    /// The peer has agreed.
    on: bool,
    streams: [Outgoing; 2],
    due: Option<Due>,
    /// An announcement of the code is due.
    notice: bool,
    /// The code to request from the peer.
    pub(super) request_code: Option<Code>,
}

impl Encoder {
    pub(super) fn new(code: Code, template: &Template) -> Encoder {
        let streams = [Outgoing::new(code), Outgoing::new(code)];
        Encoder { template: *template, code, on: false, streams, due: None, notice: false, request_code: None }
    }

    /// The peer has agreed: the next block is protected.
    pub(super) fn start(&mut self) {
        (self.on, self.notice) = (true, !self.on);
    }

    #[inline]
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    pub(super) fn sends(&self) -> Option<Code> {
        self.on.then_some(self.code)
    }

    /// The peer requests another code, for the blocks that start from now on.
    pub(super) fn set_code(&mut self, code: Code) {
        if self.on && self.code != code {
            (self.code, self.notice) = (code, true);
        }
    }

    pub(super) fn reset(&mut self, pool: &mut Pool) {
        for stream in &mut self.streams {
            pool.release(&mut stream.units);
            stream.n = 0;
        }
        (self.on, self.due, self.notice, self.request_code) = (false, None, false, None);
    }

    /// A packet of the queue pair is sent, while the encoder is on. Returns whether repair packets are due.
    #[inline]
    pub(super) fn add(&mut self, body: &Body<'_>, resources: ShimResources<'_>) -> bool {
        let Some(head) = body.parts.0.first_chunk::<{ bth::LEN }>() else { return false };
        let opcode = Opcode(head[0]);
        let Some(stream) = Stream::of(opcode) else { return false };
        let psn = psn_of(head);
        let pool = &mut resources.pools.lowar.encoding;
        let block = &mut self.streams[stream as usize];
        // A retransmission starts a new block at its first packet; so does the first packet that the receiver accepts after it.
        if block.n > 0 && (psn != block.next || opcode.begins_message()) {
            block.end(pool);
        }
        if block.n == 0 {
            block.begin(psn, self.code, opcode.begins_message(), pool);
        }
        if block.protected {
            let isn = if block.code.c() == 1 { 0 } else { block.n % block.code.c() };
            let unit = &mut block.units[usize::from(isn)];
            if block.n < block.code.c() {
                pool.renew(unit);
            }
            block.protected = *unit != Unit::NONE && pool.add(*unit, body);
        }
        block.n += 1;
        block.next = psn.next();
        if block.n == block.code.r() || opcode.ends_message() {
            (block.has_last, block.last_len) = (opcode.ends_message(), body.wire_len as u16);
            if block.protected {
                self.due = Some(Due { stream, isn: 0 });
            } else {
                resources.counters.lowar_unprotected_blocks += 1;
                block.end(pool);
            }
        }
        self.due.is_some()
    }

    /// Writes the next packet with a Repair Header.
    #[inline]
    pub(super) fn poll_transmit(
        &mut self,
        tx: &mut TxFrame<'_>,
        payload: PayloadMode,
        resources: ShimResources<'_>,
    ) -> bool {
        if self.due.is_some() {
            return self.transmit_repair(tx, payload, resources);
        }
        // Only between blocks: later repair packets of a block in progress would announce the old code.
        let notice = self.notice && self.streams.iter().all(|block| block.n == 0);
        if notice || self.request_code.is_some() {
            return self.transmit_negotiation(tx);
        }
        false
    }

    #[inline(never)]
    fn transmit_repair(&mut self, tx: &mut TxFrame<'_>, payload: PayloadMode, resources: ShimResources<'_>) -> bool {
        let Some(due) = &mut self.due else { return false };
        let block = &mut self.streams[due.stream as usize];
        let pool = &mut resources.pools.lowar.encoding;
        let unit = block.units[usize::from(due.isn)];
        let (bytes, wire_len, digest) = pool.sum(unit);
        let header = RepairHeader {
            kind: Type::Repair,
            has_first: block.has_first,
            has_last: block.has_last,
            responses: due.stream == Stream::Responses,
            isn: due.isn,
            r: block.code.r(),
            c: block.code.c(),
            n: block.n,
            last_len: block.last_len,
            digest,
        };
        let sent = write(tx, &self.template, payload, block.base, &header, bytes, wire_len);
        resources.counters.lowar_repairs_sent += u64::from(sent);
        due.isn += 1;
        // If there is no room for one repair packet, there is none for the others.
        if due.isn == block.repairs() || !sent {
            block.end(pool);
            self.due = None;
        }
        sent
    }

    #[inline(never)]
    fn transmit_negotiation(&mut self, tx: &mut TxFrame<'_>) -> bool {
        let (kind, code) = match self.request_code.take() {
            Some(code) => (Type::Request, code),
            None => (Type::Notice, self.code),
        };
        self.notice &= kind != Type::Notice;
        let header = RepairHeader {
            kind,
            has_first: false,
            has_last: false,
            responses: false,
            isn: 0,
            r: code.r(),
            c: code.c(),
            n: code.r(),
            last_len: 0,
            digest: 0,
        };
        // Complete even if payload is elided.
        write(tx, &self.template, PayloadMode::Real, Psn::new(0), &header, &[], 0)
    }
}

/// Writes a packet with a Repair Header, followed by a sum of length `wire_len` on the wire.
fn write(
    tx: &mut TxFrame<'_>,
    template: &Template,
    payload: PayloadMode,
    psn: Psn,
    header: &RepairHeader,
    sum: &[u8],
    wire_len: usize,
) -> bool {
    let fields = PacketFields {
        opcode: Opcode::LOWAR,
        psn,
        ack_req: false,
        solicited: false,
        becn: false,
        payload_len: RepairHeader::LEN + wire_len,
    };
    let mut bytes = [0; RepairHeader::LEN];
    header.emit(&mut bytes);
    let ext = ExtHeaders::default();
    if payload == PayloadMode::Elided {
        let built = template.build_elided(tx, &fields, &ext).is_ok();
        if built {
            tx.append_to_elided(&bytes);
            tx.append_to_elided(sum);
        }
        return built;
    }
    let Ok(started) = template.start(tx, &fields, &ext) else { return false };
    tx.put(started.payload, &bytes);
    tx.put(started.payload + RepairHeader::LEN, sum);
    template.finish(tx, started);
    true
}
