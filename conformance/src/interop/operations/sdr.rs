//! SDR-RDMA with rxe, which knows nothing of it: UC queue pairs, and memory windows that begin with 0 for root keys, are all that it
//! takes. What an SDR of the guest's own would say to ours, the scenario has rxe say.

mod receiving;
mod refused;
mod sending;

use std::time::{Duration, Instant};

use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::{SendOp, Status, WcOpcode};
use softnic_sdr::attr::packets;
use softnic_sdr::control::{Control, Kind, LEN};
use softnic_sdr::info::{Contact, Generation};
use softnic_sdr::{QpAttr, QpInfo, SdrError, SdrQp, SdrSettings};
use softnic_wire::{Psn, Qpn};

use super::{LIMIT, TO, UNTOUCHED, ends, expect_done, fail, pattern};
use crate::guest::Error;
use crate::interop::session::{BindAt, RecvAt, SendAt, Session};
use crate::interop::setup::{Done, Queue, Setup, Side};

pub(super) use refused::refused;

const SLOTS: u32 = 2;
const GENERATIONS: u8 = 3;
/// The queue pair of control messages, behind those of the generations.
const CONTROL: usize = GENERATIONS as usize;
/// Packets that a slot has room for.
const PACKETS: u32 = 16;
/// Receives at each queue pair of rxe: more than a message has packets, also when some come twice.
const RECEIVES: usize = 40;
/// Names of work requests are this times the queue pair, and then a number.
const QP: u64 = 100;
/// Where rxe has the control message that it sends, and behind it those that come.
const CONTROLS: usize = 96 << 10;
/// What our control messages to rxe carry.
const TOKEN: u32 = 0x5d12_0a7e;
/// How long is waited before somebody asks again, or sends again what is missing.
const SLICE: Duration = Duration::from_millis(50);

pub(super) fn setup(s: Setup) -> Setup {
    let attr = QpAttr {
        max_message: (PACKETS * s.mtu.bytes()).into(),
        chunk: 2 * s.mtu.bytes(),
        slots: SLOTS,
        generations: GENERATIONS,
        mtu: s.mtu,
        ..QpAttr::default()
    };
    Setup { service: QpKind::Uc, qps: CONTROL + 1, sdr: Some(attr), ..s }
}

/// Messages that go through all generations.
pub(super) fn messages(s: &mut Session) -> Result<(), Error> {
    match ends(s).0 {
        Side::Softnic => sending::messages(s),
        Side::Rxe => receiving::messages(s),
    }
}

/// Whether packets get lost.
fn is_lossy(s: &Session) -> bool {
    s.setup.faults.contains("loss")
}

/// Bytes of the messages. What goes over a wire that loses packets has all pieces of its immediate in packets that can be sent again.
fn lengths(s: &Session) -> Vec<usize> {
    let mtu = s.setup.mtu.bytes() as usize;
    match (is_lossy(s), s.small) {
        (true, true) => vec![9 * mtu],
        (true, false) => vec![10 * mtu + 3; 6],
        (false, true) => vec![2 * mtu + 3, 0],
        (false, false) => vec![10 * mtu + 3, 0, 1, mtu, 8 * mtu, 3 * mtu + 1],
    }
}

/// A message, and what its packets are.
struct Message {
    number: u64,
    slot: u32,
    generation: usize,
    imm: Option<u32>,
    data: Vec<u8>,
    /// Immediate and bytes of each, in order.
    packets: Vec<(u32, u32)>,
}

impl Message {
    /// The message of this number to an end that says this of itself. One of three has no immediate.
    fn new(to: &QpInfo, number: u64, len: usize) -> Message {
        let slot = (number % u64::from(SLOTS)) as u32;
        let generation = (number / u64::from(SLOTS) % u64::from(GENERATIONS)) as usize;
        let imm = (number % 3 != 2).then_some(0x89ab_cdef_u32.rotate_left(4 * number as u32));
        let own = packets(len as u64, to.mtu) as u32;
        let all = if imm.is_some() { own.max(to.split.pieces()) } else { own };
        let packet = |p: u32| {
            let bytes = (len as u32).saturating_sub(p * to.mtu.bytes()).min(to.mtu.bytes());
            (to.split.pack(slot, p, to.split.piece(imm.unwrap_or(0), p)), bytes)
        };
        let data = pattern(number, len);
        Message { number, slot, generation, imm, data, packets: (0..all).map(packet).collect() }
    }

    /// Where the slot lies at either end: at rxe by its window, and where our receive is posted.
    fn place(&self, s: &Session) -> (usize, usize) {
        let len = (PACKETS * s.setup.mtu.bytes()) as usize;
        (TO + self.slot as usize * len, len)
    }

    /// Makes the slot forget what it held.
    fn clear(&self, s: &mut Session, side: Side) -> Result<(), Error> {
        let (at, len) = self.place(s);
        s.fill(side, at, &vec![UNTOUCHED; len])
    }

    /// The slot holds these bytes and no others.
    fn expect(&self, s: &mut Session, side: Side, data: &[u8]) -> Result<(), Error> {
        let (at, len) = self.place(s);
        let found = s.read(side, at, len)?;
        let expected = data.iter().copied().chain(std::iter::repeat(UNTOUCHED));
        match found.iter().zip(expected).position(|(a, b)| *a != b) {
            None => Ok(()),
            Some(at) => fail(format!("{}'s slot of message {} differs from byte {at}", side.name(), self.number)),
        }
    }
}

/// What came to rxe.
#[derive(Default)]
struct Came {
    /// Completions of data, each with its queue pair.
    data: Vec<(usize, Done)>,
    controls: Vec<Control>,
}

/// rxe as an end of SDR.
struct Peer {
    /// What it says of itself, and what we said of us.
    info: QpInfo,
    ours: QpInfo,
    /// Control messages that it sent.
    sequence: u32,
}

impl Peer {
    /// Gives each generation of rxe a root key, and our SDR what it must know of them.
    fn connect(s: &mut Session) -> Result<Peer, Error> {
        let Some(attr) = s.setup.sdr else { return fail("the scenario is none of SDR".into()) };
        let contact = |&qpn: &u32| Contact { qpn: Qpn::new(qpn), psn: Psn::new(s.setup.psn) };
        let contacts: Vec<Contact> = s.qpns(Side::Rxe)?.iter().map(contact).collect();
        let len = attr.slot_len() as usize * SLOTS as usize;
        let mut generations = Vec::new();
        for (qp, &contact) in contacts[..CONTROL].iter().enumerate() {
            // A window of type 2 is for one queue pair.
            let (wr_id, offset, access) = (qp as u64, TO, Access::REMOTE_WRITE);
            let key = s.bind(Side::Rxe, &BindAt { qp, wr_id, offset, len, access, zero_based: true })?;
            expect_done(s, Side::Rxe, wr_id, Status::Success, WcOpcode::BindWindow)?;
            generations.push(Generation { key, channels: vec![contact] });
        }
        let all: Vec<RecvAt> =
            (0..=CONTROL).flat_map(|qp| (0..RECEIVES as u64).map(move |i| receive(qp as u64 * QP + i))).collect();
        s.recv_all(Side::Rxe, &all)?;
        let info = QpInfo {
            mtu: attr.mtu,
            split: attr.split,
            slots: SLOTS,
            slot_len: attr.slot_len(),
            max_message: attr.max_message,
            token: TOKEN,
            control: contacts[CONTROL],
            scheme: SdrSettings::SDK,
            chunk_packets: 0,
            generations,
        };
        s.connect_sdr(&info)?;
        let ours = s.sdr(|_, qp, _| Ok(qp.info().clone()))?;
        Ok(Peer { info, ours, sequence: 0 })
    }

    /// What comes to rxe next, at most so much. Its receives are posted anew.
    fn take(&self, s: &mut Session, count: usize) -> Result<Came, Error> {
        let found = s.poll(Side::Rxe, Queue::Recv, count, SLICE)?;
        let mut came = Came::default();
        for done in &found {
            if done.status != Status::Success {
                return fail(format!("a receive of rxe failed: {done:?}"));
            }
            match (done.wr_id / QP) as usize {
                CONTROL => came.controls.push(read_control(s, done)?),
                qp => came.data.push((qp, *done)),
            }
        }
        s.recv_all(Side::Rxe, &found.iter().map(|d| receive(d.wr_id)).collect::<Vec<_>>())?;
        Ok(came)
    }

    /// rxe sends a control message: a plain SEND.
    fn say(&mut self, s: &mut Session, kind: Kind, count: u64) -> Result<(), Error> {
        let message = Control { kind, token: self.ours.token, sequence: self.sequence, count };
        self.sequence += 1;
        s.fill(Side::Rxe, CONTROLS, &message.encode())?;
        let wr_id = CONTROL as u64 * QP;
        s.send_all(Side::Rxe, &[SendAt { qp: CONTROL, wr_id, op: SendOp::Send, offset: CONTROLS, len: LEN }])?;
        expect_done(s, Side::Rxe, wr_id, Status::Success, WcOpcode::Send)
    }
}

/// The receive of this name. Those of data get no bytes: a WRITE has its place from its key.
fn receive(wr_id: u64) -> RecvAt {
    let (qp, i) = ((wr_id / QP) as usize, (wr_id % QP) as usize);
    RecvAt { qp, wr_id, offset: CONTROLS + (1 + i) * LEN, len: LEN }
}

fn read_control(s: &mut Session, done: &Done) -> Result<Control, Error> {
    let bytes = s.read(Side::Rxe, receive(done.wr_id).offset, LEN)?;
    let is_message = (done.opcode, done.len as usize) == (Some(WcOpcode::Recv), LEN);
    match Control::decode(&bytes).filter(|message| is_message && message.token == TOKEN) {
        Some(message) => Ok(message),
        None => fail(format!("rxe received {done:?} with {bytes:x?}, which is no control message to it")),
    }
}

/// Waits until our SDR says yes.
fn until(
    s: &mut Session,
    what: &str,
    mut is_so: impl FnMut(&mut SdrQp, &mut softnic_nic::Nic) -> Result<bool, SdrError>,
) -> Result<(), Error> {
    let begin = Instant::now();
    while !s.sdr(|_, qp, nic| is_so(qp, nic))? {
        if begin.elapsed() >= LIMIT {
            let counters = s.sdr(|_, qp, nic| Ok(qp.counters(nic)))?;
            return fail(format!("softnic waited in vain for {what}, with {counters:?}"));
        }
        s.pause(Duration::from_millis(1))?;
    }
    Ok(())
}
