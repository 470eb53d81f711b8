//! Frames for the victims: mostly such as their peer might send next, with something wrong in them now and then.

use softnic_nic::transports::QKEY_GSI;
use softnic_nic::{AddressAttr, QpKind};
use softnic_wire::aeth::Syndrome;
use softnic_wire::ext::{AtomicEth, Deth, Reth};
use softnic_wire::lowar::{LowarSettings, RepairHeader, Type, digest};
use softnic_wire::mad::MAD_LEN;
use softnic_wire::mad::Status;
use softnic_wire::mad::vendor::{self, Extensions, Kind, Negotiation, Settings};
use softnic_wire::opcode::HeaderSet as H;
use softnic_wire::sr::{SrEth, SrSettings};
use softnic_wire::xp::XpEth;
use softnic_wire::{Aeth, ExtHeaders, Layout, MacAddr, Opcode, Qpn, Template, bth};

use super::{Fuzz, Victim, WRITABLE, group};
use crate::common::*;

/// Bytes of all headers up to the BTH, over IPv4.
const HEADERS: u32 = 54;

impl Fuzz {
    /// A place that may be written, or one that may not be.
    pub(super) fn target(&mut self, len: u32) -> (u64, u32) {
        let at = self.below(WRITABLE.len() as u32 - len.min(2000));
        let (base, key) = (self.w.hosts[B].buffer.addr(), self.w.hosts[B].key);
        match self.below(20) {
            0 => (base + u64::from(at), self.numbers.any()),
            // Just before the beginning; a longer message so far before it that all of its packets are: with Selective Repeat each of them
            // stands for itself, and what lies inside may be written though the message is refused.
            1 => (base - if len <= 256 { 1 } else { 4096 }, key),
            2 => (u64::MAX - u64::from(at), key),
            // About as much before the end as is written: it may just reach beyond.
            3 => (self.edge.0 - u64::from(at % (len + 2)), self.edge.1),
            4 => {
                let i = self.below(2) as usize;
                (self.private[i].0.addr(), self.private[i].1)
            }
            5..7 if !self.windows.is_empty() => {
                let i = self.below(self.windows.len() as u32) as usize;
                let at = u64::from(at % 1100);
                (if self.chance(20) { at } else { base + WRITABLE.start as u64 + at }, self.windows[i])
            }
            _ => (base + WRITABLE.start as u64 + u64::from(at), key),
        }
    }

    /// A frame for a victim: of its kind, mostly, and mostly the next of a message.
    pub(super) fn frame(&mut self, v: usize) -> Vec<u8> {
        let Victim { kind, psn, open, .. } = self.victims[v];
        let connected = matches!(kind, QpKind::Rc | QpKind::Uc);
        let (selective, lowar) = (self.victims[v].selective, self.victims[v].lowar);
        if lowar && self.chance(25) {
            return self.repair(v);
        }
        if self.victims[v].best_effort && self.chance(90) {
            return self.best_effort_frame(v);
        }
        let service = match kind {
            QpKind::Rc if selective => 0xc0,
            QpKind::Rc => 0x00,
            QpKind::Uc => 0x20,
            QpKind::Ud | QpKind::Gsi => 0x60,
        };
        let mut len = [0, 1, 20, 256, 256][self.below(5) as usize];
        let mut reth_len = len;
        let mut low = self.below(32) as u8;
        if connected && self.chance(80) {
            let (first, (send, left)) = match open {
                Some(open) => (false, open),
                None => (true, (self.chance(50), self.below(900))),
            };
            (len, reth_len) = (left.min(256), left);
            let last = left <= 256;
            let write = if send { 0 } else { 6 };
            low = match (first, last) {
                (true, false) => write,
                (false, false) => write + 1,
                (false, true) => write + 2 + self.below(2) as u8,
                (true, true) => write + 4 + self.below(2) as u8,
            };
            self.victims[v].open = (!last).then_some((send, left - len));
        } else if !connected && self.chance(80) {
            low = 4 + self.below(2) as u8;
        }
        let opcode = match self.below(100) {
            0..2 => self.below(256) as u8,
            // As if it had agreed on Selective Repeat, or had not.
            2..4 => (service ^ 0xc0) & 0xc0 | low,
            _ => service | low,
        };
        let near = if selective || lowar { 40 } else { 5 };
        let at = if self.chance(near) { psn + self.below(7) as i32 - 3 } else { psn };
        self.victims[v].psn += 1;
        self.packet(v, opcode, at, len, reth_len)
    }

    /// What a reliable peer might answer to what the victim sent last, or before.
    pub(super) fn answer(&mut self, v: usize) -> Vec<u8> {
        if self.victims[v].best_effort && self.chance(80) {
            return self.best_effort_answer(v);
        }
        let opcode = [0x11, 0x11, 0x11, 0x0d, 0x0e, 0x0f, 0x10, 0x12][self.below(8) as usize];
        let opcode = if self.victims[v].selective { 0xc0 | opcode } else { opcode };
        let psn = self.victims[v].sent - self.below(8) as i32;
        let len = match opcode {
            0x11 | 0x12 | 0xd2 => 0,
            0xd1 => self.below(12),
            _ => [256, 256, 1, 188][self.below(4) as usize],
        };
        self.packet(v, opcode, psn, len, len)
    }

    /// A packet for a victim, with what its opcode has in it.
    fn packet(&mut self, v: usize, opcode: u8, psn: i32, len: u32, reth_len: u32) -> Vec<u8> {
        self.packet_of(v, opcode, psn, (len, reth_len), XpEth { stride: 1, ..XpEth::default() })
    }

    /// The same with this header, where it is one of XP.
    pub(super) fn packet_of(
        &mut self,
        v: usize,
        opcode: u8,
        psn: i32,
        (len, reth_len): (u32, u32),
        xp: XpEth,
    ) -> Vec<u8> {
        let Victim { kind, qpn, looped, .. } = self.victims[v];
        // Parts of a packet with a stride are far apart.
        let (va, rkey) = self.target(if xp.stride > 1 { 1024 } else { reth_len });
        let h = Opcode(opcode).headers();
        let qkey = match (self.below(10), kind) {
            (0, _) => self.numbers.any(),
            (_, QpKind::Gsi) => QKEY_GSI,
            _ => QKEY,
        };
        let syndrome = [0x1f, 0x1f, 0x1f, 0x03, 0x60, 0x21, 0x62, 0x7f][self.below(8) as usize];
        let aeth = Aeth { syndrome: Syndrome::from_byte(syndrome), msn: self.below(1 << 24) };
        let sr = self.sr_header(v, opcode, psn);
        let ext = ExtHeaders {
            sr: h.contains(H::SR).then_some(sr),
            xp: h.contains(H::XP).then_some(xp),
            xp_time: h.contains(H::XP_TIME).then(|| self.below(2000)),
            xp_report: self.report(h),
            reth: h.contains(H::RETH).then_some(Reth { va, rkey, len: reth_len }),
            aeth: h.contains(H::AETH).then_some(aeth),
            atomic_ack: h.contains(H::ATOMIC_ACK).then_some(5),
            imm: h.contains(H::IMM).then_some(rkey),
            ieth: h.contains(H::IETH).then_some(rkey),
            atomic: h.contains(H::ATOMIC).then_some(AtomicEth { va: va & !7, rkey, swap_add: 1, compare: 0 }),
            deth: h.contains(H::DETH).then_some(Deth { qkey, src_qp: Qpn::new(9) }),
            ..ExtHeaders::default()
        };
        let (ip, mac) = address(B);
        let mut path = self.w.hosts[if looped { B } else { A }].nic.path_to(ip, mac, 5).unwrap();
        let mut dest = if self.chance(1) { Qpn::new(self.numbers.any()) } else { qpn };
        if kind == QpKind::Ud && self.chance(20) {
            let attr = AddressAttr::new(group(), MacAddr([0; 6]), 0, 1);
            path = attr.path(self.w.hosts[A].nic.port()).unwrap();
            dest = if self.chance(95) { Qpn::MULTICAST } else { qpn };
        }
        let pkey = if self.chance(1) { self.numbers.any() as u16 } else { bth::DEFAULT_PKEY };
        let (template, ack_req) = (Template::new(&path, dest, pkey), self.chance(50));
        let mut frame = self.w.forge_with(&template, opcode, psn, ack_req, ext, &vec![3; len as usize]);
        match self.below(33) {
            // A bit flipped under way.
            0 => {
                let at = self.below(frame.len() as u32) as usize;
                frame[at] ^= 1 << self.below(8);
            }
            // Any header up to the BTH, with the ICRC that goes with it. Not those behind it: they name memory.
            1 => {
                let at = self.below(HEADERS) as usize;
                frame[at] = self.numbers.below(256) as u8;
                if Layout::locate(&frame).is_ok_and(|l| l.check(frame.len()).is_ok()) {
                    resign(&mut frame);
                }
            }
            _ => {}
        }
        frame
    }

    /// The header of Selective Repeat: near what the victim may take for right.
    fn sr_header(&mut self, v: usize, opcode: u8, psn: i32) -> SrEth {
        let Victim { used, sent, .. } = self.victims[v];
        let flags = if self.chance(70) { SrEth::FURTHEST } else { self.below(256) as u8 };
        let near = |n: i32| self.w.options.psn.wrapping_add_signed(n) & 0x00ff_ffff;
        let (of_ack, of_answer) = (near(psn), near(sent));
        let (number, offset) = match opcode {
            0xd1 => (of_ack.wrapping_add(self.below(4)) & 0x00ff_ffff, self.below(100)),
            0xcd..=0xd2 => (of_answer.wrapping_sub(self.below(3)) & 0x00ff_ffff, self.below(4) * 256),
            _ => (used.wrapping_add(self.below(12) / 4) & 0x00ff_ffff, self.below(4) * 256),
        };
        match self.below(40) {
            0 => SrEth { flags, number: self.below(1 << 24), offset },
            1 => SrEth { flags, number, offset: self.numbers.any() },
            _ if Opcode(opcode).begins_message() && opcode < 0xcd => SrEth { flags, number, offset: 0 },
            _ => SrEth { flags, number, offset },
        }
    }

    /// A repair packet for a victim, of one packet that its peer might send, which then is as if it had come; or one that lies.
    fn repair(&mut self, v: usize) -> Vec<u8> {
        let Victim { qpn, looped, psn, sent, .. } = self.victims[v];
        let responses = self.chance(30);
        let (opcode, psn) = match responses {
            true => (0x10, sent - self.below(4) as i32),
            false => ([0x04, 0x0a, 0x0b, 0x00, 0x06][self.below(5) as usize], psn + self.below(3) as i32),
        };
        let inner = self.packet(v, opcode, psn, 256, 256);
        let Ok(layout) = Layout::locate(&inner) else { return inner };
        let Some((body, &tail)) = inner.get(layout.bth..).and_then(|b| Some((b, b.last_chunk()?))) else {
            return inner;
        };
        let mut bytes = [0; RepairHeader::LEN];
        let header = RepairHeader {
            kind: Type::Repair,
            has_first: true,
            has_last: Opcode(opcode).ends_message(),
            responses,
            isn: 0,
            r: if Opcode(opcode).ends_message() { 4 } else { 1 },
            c: 1,
            n: 1,
            last_len: body.len() as u16,
            digest: digest(u32::from_le_bytes(tail)),
        };
        header.emit(&mut bytes);
        let mut payload = [&bytes, body].concat();
        if self.chance(50) {
            let at = self.below(RepairHeader::LEN as u32) as usize;
            payload[at] = if self.chance(50) { self.below(10) as u8 } else { self.below(256) as u8 };
        }
        let (ip, mac) = address(B);
        let path = self.w.hosts[if looped { B } else { A }].nic.path_to(ip, mac, 5).unwrap();
        let template = Template::new(&path, qpn, bth::DEFAULT_PKEY);
        self.w.forge_with(&template, Opcode::LOWAR.0, psn, false, ExtHeaders::default(), &payload)
    }

    /// The peer agrees to all that a victim offers.
    pub(super) fn consent_frame(&mut self, offer: &Negotiation<'_>) -> Vec<u8> {
        let (kind, sender_qpn, receiver_qpn) = (Kind::Answer(Status::SUCCESS), offer.receiver_qpn, offer.sender_qpn);
        self.mad_frame(&Negotiation { kind, sender_qpn, receiver_qpn, ..*offer })
    }

    /// The peer offers Selective Repeat, LoWAR or XP.
    pub(super) fn offer_frame(&mut self, v: usize) -> Vec<u8> {
        let Victim { lowar, best_effort, .. } = self.victims[v];
        let offer = Negotiation {
            transaction_id: u64::from(self.numbers.any()),
            kind: Kind::Offer,
            version: vendor::VERSION,
            sender_qpn: 0x1000 + v as u32,
            receiver_qpn: self.victims[v].qpn.value(),
            extensions: match (lowar, best_effort) {
                (true, _) => Extensions::LOWAR,
                (_, true) => Extensions::XP,
                _ => Extensions::SR,
            },
            settings: match lowar {
                true => {
                    let r = [4, 8, 1, 0][self.below(4) as usize];
                    Settings::NONE.with(LowarSettings { r, c: self.below(4) as u8 })
                }
                false => Settings::NONE.with(SrSettings { window: self.below(300) }),
            },
            sdr: None,
        };
        self.mad_frame(&offer)
    }

    fn mad_frame(&mut self, negotiation: &Negotiation<'_>) -> Vec<u8> {
        let mut mad = [0; MAD_LEN];
        negotiation.emit(&mut mad);
        let (ip, mac) = address(B);
        let path = self.w.hosts[A].nic.path_to(ip, mac, 5).unwrap();
        let ext = ExtHeaders { deth: Some(Deth { qkey: QKEY_GSI, src_qp: Qpn::GSI }), ..ExtHeaders::default() };
        self.w.forge_with(&Template::new(&path, Qpn::GSI, bth::DEFAULT_PKEY), 0x64, 0, false, ext, &mad)
    }

    /// Any bytes, some of them behind the beginning of a frame.
    pub(super) fn noise(&mut self, v: usize) -> Vec<u8> {
        let mut frame = if self.chance(50) { self.answer(v) } else { Vec::new() };
        let keep = self.below(frame.len() as u32 + 1) as usize;
        frame.truncate(keep);
        frame.extend((0..self.below(60)).map(|_| self.numbers.below(256) as u8).collect::<Vec<_>>());
        frame
    }
}
