//! What the tests share: random paths, packets and frames, and an ICRC computed the slow way.
#![allow(dead_code)] // each test binary uses a part

use proptest::prelude::*;
use softnic_wire::aeth::{Aeth, Syndrome};
use softnic_wire::ethernet::{VlanTag, ethertype};
use softnic_wire::ext::{AtomicEth, Deth, Feth, Reth, XrcEth};
use softnic_wire::opcode::HeaderSet;
use softnic_wire::sr::SrEth;
use softnic_wire::xp::{XpCredit, XpEth, XpFeedback, XpReport};
use softnic_wire::{Addresses, ExtHeaders, MacAddr, Opcode, PacketFields, Path, Psn, Qpn, Template, TxFrame};

/// A queue pair's path and one packet on it.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) path: Path,
    pub(crate) dest_qp: Qpn,
    pub(crate) pkey: u16,
    pub(crate) fields: PacketFields,
    pub(crate) ext: ExtHeaders,
    pub(crate) payload: Vec<u8>,
}

impl Case {
    pub(crate) fn template(&self) -> Template {
        Template::new(&self.path, self.dest_qp, self.pkey)
    }

    /// The frame, built into one segment with room to spare that held other bytes before.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let mut room = vec![0xa5; 4400];
        let mut tx = TxFrame::new(&mut room);
        self.template().build(&mut tx, &self.fields, &self.ext, &self.payload).unwrap();
        let (len, rest) = (tx.len(), tx.segments().1.len());
        assert_eq!(rest, 0);
        room.truncate(len);
        room
    }

    pub(crate) fn is_v4(&self) -> bool {
        matches!(self.path.addresses, Addresses::V4 { .. })
    }

    /// Offset of the IP header, from what the path says.
    pub(crate) fn network(&self) -> usize {
        14 + 4 * self.path.tags.iter().flatten().count()
    }

    /// Offset of the UDP header, from what the path says.
    pub(crate) fn udp(&self) -> usize {
        self.network() + if self.is_v4() { 20 } else { 40 }
    }
}

pub(crate) fn any_mac() -> impl Strategy<Value = MacAddr> {
    any::<[u8; 6]>().prop_map(MacAddr)
}

pub(crate) fn any_tag() -> impl Strategy<Value = VlanTag> {
    let tpid = prop::sample::select(vec![ethertype::VLAN, ethertype::QINQ, ethertype::QINQ_OLD]);
    (tpid, any::<u16>()).prop_map(|(tpid, tci)| VlanTag { tpid, tci })
}

pub(crate) fn any_tags() -> impl Strategy<Value = [Option<VlanTag>; 2]> {
    prop_oneof![
        Just([None, None]),
        any_tag().prop_map(|t| [Some(t), None]),
        (any_tag(), any_tag()).prop_map(|(a, b)| [Some(a), Some(b)]),
    ]
}

pub(crate) fn any_addresses() -> impl Strategy<Value = Addresses> {
    prop_oneof![
        any::<([u8; 4], [u8; 4])>().prop_map(|(s, d)| Addresses::V4 { src: s.into(), dst: d.into() }),
        any::<([u8; 16], [u8; 16])>().prop_map(|(s, d)| Addresses::V6 { src: s.into(), dst: d.into() }),
    ]
}

prop_compose! {
    pub(crate) fn any_path()(
        src_mac in any_mac(), dst_mac in any_mac(), tags in any_tags(), addresses in any_addresses(),
        traffic_class: u8, flow_label in 0u32..1 << 20, hop_limit: u8, src_port: u16,
    ) -> Path {
        Path { src_mac, dst_mac, tags, addresses, traffic_class, flow_label, hop_limit, src_port }
    }
}

pub(crate) fn any_aeth() -> impl Strategy<Value = Aeth> {
    (any::<u8>(), 0u32..1 << 24).prop_map(|(s, msn)| Aeth { syndrome: Syndrome::from_byte(s), msn })
}

prop_compose! {
    pub(crate) fn any_reth()(va: u64, rkey: u32, len: u32) -> Reth { Reth { va, rkey, len } }
}

prop_compose! {
    pub(crate) fn any_atomic()(va: u64, rkey: u32, swap_add: u64, compare: u64) -> AtomicEth {
        AtomicEth { va, rkey, swap_add, compare }
    }
}

prop_compose! {
    pub(crate) fn any_deth()(qkey: u32, src_qp: u32) -> Deth { Deth { qkey, src_qp: Qpn::new(src_qp) } }
}

prop_compose! {
    pub(crate) fn any_feth()(placement in 0u8..16, selectivity in 0u8..4) -> Feth { Feth { placement, selectivity } }
}

prop_compose! {
    pub(crate) fn any_sr()(flags: u8, number in 0u32..1 << 24, offset: u32) -> SrEth {
        SrEth { flags, number, offset }
    }
}

prop_compose! {
    pub(crate) fn any_xp()(flags: u8, wqe_seq in 0u32..1 << 24, offset: u32, len: u32, stride: u16, receive: u16) -> XpEth {
        XpEth { flags, wqe_seq, offset, len, stride, receive }
    }
}

prop_compose! {
    pub(crate) fn any_feedback()(held: u32, marks: u32, bytes: u64, credit: u32) -> XpFeedback {
        XpFeedback { held, marks, bytes, credit }
    }
}

prop_compose! {
    /// Every header at once; [`only`] leaves those that an opcode has.
    pub(crate) fn all_headers()(
        deth in any_deth(), srq in 0u32..1 << 24, feth in any_feth(), reth in any_reth(), atomic in any_atomic(),
        aeth in any_aeth(), (atomic_ack, imm, ieth, time) in any::<(u64, u32, u32, u32)>(), sr in any_sr(), xp in any_xp(),
        feedback in any_feedback(),
    ) -> ExtHeaders {
        ExtHeaders {
            sr: Some(sr), xp: Some(xp), xp_report: Some(XpReport::Feedback(feedback)), xp_time: Some(time), deth: Some(deth), xrceth: Some(XrcEth { srq }), feth: Some(feth), reth: Some(reth), atomic: Some(atomic),
            aeth: Some(aeth), atomic_ack: Some(atomic_ack), imm: Some(imm), ieth: Some(ieth),
        }
    }
}

/// Of all the headers those that `opcode` has.
pub(crate) fn only(opcode: Opcode, all: &ExtHeaders) -> ExtHeaders {
    let has = |h| opcode.headers().contains(h);
    ExtHeaders {
        sr: all.sr.filter(|_| has(HeaderSet::SR)),
        xp: all.xp.filter(|_| has(HeaderSet::XP)),
        xp_report: all.xp_report.and_then(|report| match report {
            XpReport::Feedback(f) if has(HeaderSet::XP_CREDIT) => {
                let giver = f.held & 0x00ff_ffff;
                Some(XpReport::Credit(XpCredit {
                    flags: (f.held >> 24) as u8,
                    giver,
                    granted: f.marks,
                    wanted: f.credit,
                }))
            }
            report => has(HeaderSet::XP_FEEDBACK).then_some(report),
        }),
        xp_time: all.xp_time.filter(|_| has(HeaderSet::XP_TIME)),
        deth: all.deth.filter(|_| has(HeaderSet::DETH)),
        xrceth: all.xrceth.filter(|_| has(HeaderSet::XRCETH)),
        feth: all.feth.filter(|_| has(HeaderSet::FETH)),
        reth: all.reth.filter(|_| has(HeaderSet::RETH)),
        atomic: all.atomic.filter(|_| has(HeaderSet::ATOMIC)),
        aeth: all.aeth.filter(|_| has(HeaderSet::AETH)),
        atomic_ack: all.atomic_ack.filter(|_| has(HeaderSet::ATOMIC_ACK)),
        imm: all.imm.filter(|_| has(HeaderSet::IMM)),
        ieth: all.ieth.filter(|_| has(HeaderSet::IETH)),
    }
}

pub(crate) fn known_opcodes() -> Vec<Opcode> {
    (0..=255).map(Opcode).filter(|o| o.is_known()).collect()
}

/// Bytes that look random, from a seed: cheaper to draw and to shrink than a vector.
pub(crate) fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut s = Seeded(seed);
    (0..len).map(|_| s.draw() as u8).collect()
}

/// SplitMix64: enough randomness for tests, the same everywhere.
pub(crate) struct Seeded(pub(crate) u64);

impl Seeded {
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.draw() % n as u64) as usize
    }
}

prop_compose! {
    /// A packet of a known opcode with up to `max` bytes of payload.
    pub(crate) fn any_case(max: usize)(
        path in any_path(), opcode in prop::sample::select(known_opcodes()), all in all_headers(),
        (dest_qp, pkey, psn) in any::<(u32, u16, u32)>(),
        (ack_req, solicited, becn) in any::<(bool, bool, bool)>(),
        (len, seed) in (0..=max, any::<u64>()),
    ) -> Case {
        Case {
            path, dest_qp: Qpn::new(dest_qp), pkey, ext: only(opcode, &all), payload: noise(len, seed),
            fields: PacketFields { opcode, psn: Psn::new(psn), ack_req, solicited, becn, payload_len: len },
        }
    }
}

/// The ICRC of a packet, bit by bit from the rule in words: `packet` runs from the IP header or GRH up to where the ICRC
/// begins, `udp` is the offset of its UDP header (`None` in RoCEv1), `bth` that of its BTH.
pub(crate) fn slow_icrc(packet: &[u8], udp: Option<usize>, bth: usize) -> [u8; 4] {
    let mut masked = packet.to_vec();
    if packet[0] >> 4 == 4 {
        for i in [1, 8, 10, 11] {
            masked[i] = 0xff;
        }
    } else {
        masked[0] = 0x6f;
        for i in [1, 2, 3, 7] {
            masked[i] = 0xff;
        }
    }
    if let Some(udp) = udp {
        masked[udp + 6] = 0xff;
        masked[udp + 7] = 0xff;
    }
    masked[bth + 4] = 0xff;
    let mut remainder = 0xffff_ffffu32;
    for byte in [0xff; 8].into_iter().chain(masked) {
        for bit in 0..8 {
            let carry = remainder & 1 != u32::from(byte >> bit & 1);
            remainder >>= 1;
            if carry {
                remainder ^= 0xedb8_8320; // 0x04c11db7 with its bits in the order of the wire
            }
        }
    }
    (!remainder).to_le_bytes()
}
