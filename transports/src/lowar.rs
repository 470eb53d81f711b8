//! LoWAR: forward error correction for reliable connections over lossy wide-area networks (the shim layer of its paper).
//!
//! The sender computes parity over the packets of each block of a message, with an interleaving depth, and sends the sums after the block.
//! The receiver adds up the packets that arrive. If one packet of a sum is missing, the remainder is that packet. Packets after a missing
//! one wait in the reordering ring until the block is repaired, so that the queue pair sees no loss. If a block cannot be repaired, the
//! queue pair gets the packets that arrived, and Go-Back-N recovers the rest. Data packets are those of RC, unchanged.
//!
//! The shim has no clock, and does not queue packets of the connection: the expected PSNs of the queue pair are passed with every packet,
//! so that both always agree on what has arrived.

mod block;
mod buffers;
mod decoder;
mod encoder;
mod recovery;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use buffers::Body;
pub use buffers::Buffers;
use decoder::Decoder;
use encoder::Encoder;
use softnic_wire::lowar::{LowarSettings, RepairHeader, Type, digest};
use softnic_wire::mad::vendor::{ExtensionSettings, Extensions, Settings};
use softnic_wire::opcode::{Kind, Service};
use softnic_wire::{Instant, Opcode, PathMtu, Psn, Template, TxFrame, bth, icrc};

use crate::negotiation::{Agreed, Extension, FallbackReason, Offer};
use crate::qp::{ExpectedPsns, PathProps, PayloadMode};
use crate::shim::{LONGEST_HOLD, ReceivedFrame, Shim, ShimAction, ShimResources};

/// The deepest interleaving.
pub const MAX_DEPTH: u8 = 64;
/// The maximum time that packets wait for the repair of an earlier one, while no other packet arrives.
const REPAIR_TIMEOUT: Duration = LONGEST_HOLD;

/// The (r, c) of the paper: number of packets in a block, and the interleaving depth, which is the number of repair packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Code {
    r: u8,
    c: u8,
}

impl Code {
    /// Blocks of `r` packets with `c` repair packets; `None` unless 1 ≤ c ≤ r and c ≤ [`MAX_DEPTH`].
    pub const fn new(r: u8, c: u8) -> Option<Code> {
        if c >= 1 && c <= r && c <= MAX_DEPTH { Some(Code { r, c }) } else { None }
    }

    /// Number of packets in a block.
    #[inline]
    pub const fn r(self) -> u8 {
        self.r
    }

    /// Number of repair packets of a block.
    #[inline]
    pub const fn c(self) -> u8 {
        self.c
    }
}

/// Formats as `32,1`.
impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.r, self.c)
    }
}

/// Why a text is not a valid code.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` are no blocks of lowar: it must be R,C as in 32,1: R packets in a block, at most 255, and C repair packets behind it, at most R and {MAX_DEPTH}"
)]
pub struct CodeError(String);

impl FromStr for Code {
    type Err = CodeError;

    fn from_str(text: &str) -> Result<Code, CodeError> {
        let parsed = text.split_once(',').and_then(|(r, c)| Code::new(r.parse().ok()?, c.parse().ok()?));
        parsed.ok_or_else(|| CodeError(text.into()))
    }
}

/// The MTU that a link needs for connections of this path MTU.
pub const fn link_mtu(path_mtu: u32) -> u32 {
    path_mtu + RepairHeader::MTU_ROOM
}

/// The settings that the negotiation exchanges.
pub(crate) const EXTENSION: Extension = Extension {
    bit: Extensions::LOWAR,
    range: LowarSettings::RANGE,
    is_usable: |settings| {
        let LowarSettings { r, c } = settings.get();
        Code::new(r, c).is_some()
    },
};

/// The offer of a queue pair that sends these blocks. If the link MTU has no room for repair packets, nothing is offered.
pub(crate) fn offer(code: Code, mtu: PathMtu, props: &PathProps) -> Result<Offer, FallbackReason> {
    let needed = link_mtu(mtu.bytes());
    if props.link_mtu.is_some_and(|mtu| mtu < needed) {
        return Err(FallbackReason::LinkMtu(needed));
    }
    let settings = Settings::NONE.with(LowarSettings { r: code.r, c: code.c });
    Ok(Offer { extensions: Extensions::LOWAR, settings })
}

/// A sequence of PSNs: that of the sender's requests, or that of its READ responses, which use the PSNs of the receiver's requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Requests = 0,
    Responses = 1,
}

impl Stream {
    /// The stream of a packet, if packets of its kind are protected. Acknowledgements are not, because the next one contains the same
    /// information.
    #[inline]
    fn of(opcode: Opcode) -> Option<Stream> {
        match opcode.kind() {
            _ if opcode.service() != Service::Rc => None,
            Kind::ReadResponse | Kind::AtomicAcknowledge => Some(Stream::Responses),
            Kind::Acknowledge | Kind::Repair | Kind::Unknown => None,
            _ => Some(Stream::Requests),
        }
    }

    fn of_responses(responses: bool) -> Stream {
        if responses { Stream::Responses } else { Stream::Requests }
    }

    fn expected(self, expected: ExpectedPsns) -> Option<Psn> {
        match self {
            Stream::Requests => expected.request,
            Stream::Responses => expected.response,
        }
    }
}

/// The LoWAR shim of one queue pair.
pub struct Lowar {
    encoder: Encoder,
    decoder: Decoder,
    payload: PayloadMode,
    /// The offset of the BTH in an own frame.
    bth: usize,
}

impl Lowar {
    /// For a queue pair whose frames start like `template` and carry up to `mtu` bytes of payload. Nothing is sent before the peer has
    /// agreed.
    pub fn new(code: Code, template: &Template, mtu: usize, payload: PayloadMode) -> Lowar {
        Lowar {
            encoder: Encoder::new(code, template),
            decoder: Decoder::new(code, mtu, payload),
            payload,
            bth: template.headers_len() - bth::LEN,
        }
    }

    /// Asks the peer to use another code from now on (section IV-C of the paper); the peer changes with its next block.
    pub fn request_code(&mut self, code: Code) {
        self.encoder.request_code = Some(code);
    }

    /// The code of the blocks that are sent, if any are.
    pub fn sends(&self) -> Option<Code> {
        self.encoder.sends()
    }
}

/// The last bytes of a frame in two pieces.
#[cold]
fn straddling(a: &[u8], b: &[u8]) -> [u8; icrc::LEN] {
    let mut tail = [0; icrc::LEN];
    let bytes = a.iter().chain(b).rev();
    tail.iter_mut().rev().zip(bytes).for_each(|(t, byte)| *t = *byte);
    tail
}

/// A packet's contribution to the digest: its scattered ICRC, or the substitute if the ICRC is elided.
#[inline]
fn digest_of(head: &[u8], tail: [u8; icrc::LEN], payload: PayloadMode) -> u32 {
    match (payload, head.first_chunk::<{ bth::LEN }>()) {
        (PayloadMode::Elided, Some(&[opcode, .., a, p, s, n])) => {
            digest(u32::from_be_bytes([a, p, s, n]) ^ u32::from(opcode) << 24)
        }
        _ => digest(u32::from_le_bytes(tail)),
    }
}

impl Shim for Lowar {
    fn on_agreement(&mut self, agreed: &Agreed) {
        self.encoder.start();
        let LowarSettings { r, c } = agreed.settings.get();
        if let Some(code) = Code::new(r, c) {
            self.decoder.set_code(code);
        }
    }

    fn set_template(&mut self, template: &Template) {
        self.encoder.template = *template;
        self.bth = template.headers_len() - bth::LEN;
    }

    #[inline]
    fn on_transmit(&mut self, _: Instant, frame: &TxFrame<'_>, resources: ShimResources<'_>) -> bool {
        let (a, b) = frame.segments();
        let (true, Some(head)) = (self.encoder.is_on(), a.get(self.bth..)) else { return false };
        let tail = match head.last_chunk() {
            Some(&tail) if b.is_empty() => tail,
            _ => straddling(a, b),
        };
        let digest = digest_of(head, tail, self.payload);
        let body = Body { parts: (head, b), wire_len: frame.wire_len() - self.bth, digest };
        self.encoder.add(&body, resources)
    }

    #[inline]
    fn poll_transmit(&mut self, _: Instant, tx: &mut TxFrame<'_>, resources: ShimResources<'_>) -> bool {
        self.encoder.poll_transmit(tx, self.payload, resources)
    }

    #[inline]
    fn on_receive(
        &mut self,
        now: Instant,
        received: &ReceivedFrame<'_>,
        expected: ExpectedPsns,
        resources: ShimResources<'_>,
    ) -> ShimAction {
        let Some(&opcode) = received.frame.get(received.bth) else { return ShimAction::Deliver };
        let opcode = Opcode(opcode);
        if opcode == Opcode::LOWAR {
            self.on_repair_header(now, received, expected, resources);
            return ShimAction::Consume;
        }
        match Stream::of(opcode) {
            Some(stream) => self.decoder.on_data(now, received, opcode, stream, stream.expected(expected), resources),
            None => ShimAction::Deliver,
        }
    }

    fn poll_deliver(
        &mut self,
        _: Instant,
        expected: ExpectedPsns,
        out: &mut [u8],
        resources: ShimResources<'_>,
    ) -> Option<usize> {
        self.decoder.poll_deliver(expected, out, resources)
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.decoder.poll_timeout()
    }

    fn handle_timeout(&mut self, now: Instant, resources: ShimResources<'_>) {
        self.decoder.handle_timeout(now, resources);
    }

    fn reset(&mut self, resources: ShimResources<'_>) {
        self.encoder.reset(&mut resources.pools.lowar.encoding);
        self.decoder.reset(resources);
    }
}

impl Lowar {
    /// Handles a packet with a Repair Header.
    #[inline(never)]
    fn on_repair_header(
        &mut self,
        now: Instant,
        received: &ReceivedFrame<'_>,
        expected: ExpectedPsns,
        resources: ShimResources<'_>,
    ) {
        let body = received.frame.get(received.bth..received.end.min(received.frame.len())).unwrap_or_default();
        let header = body.get(bth::LEN..).and_then(|b| b.first_chunk()).and_then(RepairHeader::parse);
        let (Some(header), Some(base)) = (header, body.first_chunk::<{ bth::LEN }>().map(psn_of)) else {
            resources.counters.lowar_rejected += 1;
            return;
        };
        let Some(code) = Code::new(header.r, header.c) else {
            resources.counters.lowar_rejected += 1;
            return;
        };
        match header.kind {
            Type::Repair => {
                resources.counters.lowar_repairs_received += 1;
                let stream = Stream::of_responses(header.responses);
                let repair = recovery::Repair { header, code, base, received };
                self.decoder.on_repair(now, &repair, stream, stream.expected(expected), resources);
            }
            Type::Notice => self.decoder.set_code(code),
            Type::Request => self.encoder.set_code(code),
        }
    }
}

/// The PSN in a BTH.
#[inline]
fn psn_of(bth: &[u8; bth::LEN]) -> Psn {
    Psn::new(u32::from_be_bytes([0, bth[9], bth[10], bth[11]]))
}
