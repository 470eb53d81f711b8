//! The two ends: a shim that sends, and one that receives for a queue pair that takes packets in their turn and no others.

use softnic_transports::Counters;
use softnic_transports::lowar::{Code, Lowar};
use softnic_transports::negotiation::Agreed;
use softnic_transports::qp::{ExpectedPsns, PayloadMode};
use softnic_transports::shim::{ReceivedFrame, Shim, ShimAction, ShimPools, ShimResources};
use softnic_wire::lowar::{LowarSettings, RepairHeader, Type};
use softnic_wire::mad::vendor::{Extensions, Settings};
use softnic_wire::{Instant, Layout, Opcode, Psn, Template, TxFrame, bth, icrc};

use crate::messages::{MTU, Packet, headers};

/// A shim with what it is lent.
pub(crate) struct End {
    shim: Lowar,
    pub(crate) pools: ShimPools,
    pub(crate) counters: Counters,
    pub(crate) now: Instant,
}

macro_rules! resources {
    ($end:expr) => {
        ShimResources { pools: &mut $end.pools, counters: &mut $end.counters }
    };
}

impl End {
    /// Sends blocks of `ours`, and knows that the peer sends `theirs`.
    pub(crate) fn new(template: &Template, ours: Code, theirs: Option<Code>) -> End {
        End::with_room(template, ours, theirs, 512, 1024)
    }

    /// The same, with so many coding units and places in the ring.
    pub(crate) fn with_room(template: &Template, ours: Code, theirs: Option<Code>, units: u16, packets: u32) -> End {
        let mut pools = ShimPools::default();
        pools.lowar.provide_some(MTU, units, packets);
        let mut shim = Lowar::new(ours, template, MTU, PayloadMode::Real);
        let theirs = theirs.map_or_else(Default::default, |code| LowarSettings { r: code.r(), c: code.c() });
        shim.on_agreement(&Agreed { extensions: Extensions::LOWAR, settings: Settings::NONE.with(theirs) });
        End { shim, pools, counters: Counters::default(), now: Instant::from_nanos(0) }
    }

    pub(crate) fn request_code(&mut self, code: Code) {
        self.shim.request_code(code);
    }

    pub(crate) fn sends(&self) -> Option<Code> {
        self.shim.sends()
    }

    /// What goes over the wire when the queue pair sends this: the packet, then what the shim adds.
    pub(crate) fn send(&mut self, frame: &[u8]) -> Vec<Vec<u8>> {
        let mut buffer = vec![0; frame.len()];
        let mut tx = TxFrame::new(&mut buffer);
        tx.put_frame(frame).unwrap();
        self.shim.on_transmit(self.now, &tx, resources!(self));
        let mut out = vec![frame.to_vec()];
        out.extend(self.own_frames());
        out
    }

    /// What the shim sends of its own accord.
    pub(crate) fn own_frames(&mut self) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        let mut room = [0; 5000];
        loop {
            let mut tx = TxFrame::new(&mut room);
            if !self.shim.poll_transmit(self.now, &mut tx, resources!(self)) {
                return out;
            }
            let (a, b) = tx.segments();
            out.push([a, b].concat());
        }
    }

    /// All that goes over the wire for these packets.
    pub(crate) fn send_all(&mut self, packets: &[Packet]) -> Vec<Vec<u8>> {
        let before = self.own_frames();
        before.into_iter().chain(packets.iter().flat_map(|p| self.send(&p.frame)).collect::<Vec<_>>()).collect()
    }

    pub(crate) fn reset(&mut self) {
        self.shim.reset(resources!(self));
    }
}

/// The receiving end with a queue pair above it.
pub(crate) struct Receiver {
    pub(crate) end: End,
    /// Packets of each sequence that are still to come, in order.
    expected: [Vec<Packet>; 2],
    turn: [usize; 2],
    /// What the queue pair was handed, from the BTH on.
    pub(crate) handed: Vec<Vec<u8>>,
    /// What it took.
    pub(crate) taken: [Vec<Vec<u8>>; 2],
}

impl Receiver {
    pub(crate) fn new(end: End, packets: &[Packet]) -> Receiver {
        let of = |responses| packets.iter().filter(|p| p.responses == responses).cloned().collect();
        let (handed, taken) = Default::default();
        Receiver { end, expected: [of(false), of(true)], turn: [0; 2], handed, taken }
    }

    fn awaited(&self) -> ExpectedPsns {
        let next = |stream: usize| self.expected[stream].get(self.turn[stream]).map(|p| p.psn);
        let end = self.expected[0].last().map_or(Psn::new(0), |p| p.psn.add(p.uses));
        ExpectedPsns { request: Some(next(0).unwrap_or(end)), response: next(1) }
    }

    /// A frame comes.
    pub(crate) fn receive(&mut self, frame: &[u8]) {
        let layout = Layout::locate(frame).unwrap();
        let arrival = ReceivedFrame { frame, bth: layout.bth, end: layout.end };
        let awaited = self.awaited();
        let verdict = self.end.shim.on_receive(self.end.now, &arrival, awaited, resources!(self.end));
        if matches!(verdict, ShimAction::Deliver | ShimAction::DeliverAndPoll) {
            self.hand(frame.to_vec());
        }
        if verdict != ShimAction::Deliver {
            self.hand_held();
        }
    }

    pub(crate) fn receive_all<'f>(&mut self, frames: impl IntoIterator<Item = &'f Vec<u8>>) {
        frames.into_iter().for_each(|frame| self.receive(frame));
    }

    /// The next clock strikes; whether there was one.
    pub(crate) fn time_out(&mut self) -> bool {
        let Some(at) = self.end.shim.poll_timeout() else { return false };
        self.end.now = at;
        self.end.shim.handle_timeout(at, resources!(self.end));
        self.hand_held();
        true
    }

    fn hand_held(&mut self) {
        let mut out = [0; 5000];
        loop {
            let awaited = self.awaited();
            let Some(len) = self.end.shim.poll_deliver(self.end.now, awaited, &mut out, resources!(self.end)) else {
                return;
            };
            self.hand(out[..len].to_vec());
        }
    }

    fn hand(&mut self, mut frame: Vec<u8>) {
        let layout = Layout::locate(&frame).unwrap();
        layout.check(frame.len()).unwrap();
        assert!(icrc::verify(&mut frame, &layout).is_ok(), "what is handed over has a right ICRC");
        let body = frame[headers(&frame)..].to_vec();
        for stream in [0, 1] {
            let due = self.expected[stream].get(self.turn[stream]);
            if due.is_some_and(|p| psn_of(&body) == p.psn && (stream == 1) == is_response(&body)) {
                self.turn[stream] += 1;
                self.taken[stream].push(body.clone());
                break;
            }
        }
        self.handed.push(body);
    }

    /// Whether all came, each what was sent, in order.
    pub(crate) fn has_all(&self) -> bool {
        [0, 1].iter().all(|&stream| {
            let sent: Vec<_> = self.expected[stream].iter().map(Packet::body).collect();
            self.taken[stream] == sent
        })
    }

    /// What it was handed that was never sent.
    pub(crate) fn invented(&self, sent: &[Packet]) -> Option<&Vec<u8>> {
        self.handed.iter().find(|body| sent.iter().all(|p| p.body() != &body[..]))
    }
}

fn psn_of(body: &[u8]) -> Psn {
    Psn::new(u32::from_be_bytes([0, body[9], body[10], body[11]]))
}

fn is_response(body: &[u8]) -> bool {
    Opcode(body[0]).is_response()
}

/// The Repair Header of a frame, and its PSN, if it is a repair packet.
pub(crate) fn repair_of(frame: &[u8]) -> Option<(RepairHeader, Psn)> {
    let body = &frame[headers(frame)..];
    let header = RepairHeader::parse(body.get(bth::LEN..)?.first_chunk()?)?;
    (Opcode(body[0]) == Opcode::LOWAR && header.kind == Type::Repair).then_some((header, psn_of(body)))
}
