//! Captures made on the spot: every opcode there is, over IPv4, IPv6 and RoCEv1, with 0, 1 and 2 VLAN tags and every pad.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path as FilePath, PathBuf};

use softnic_pcaps::{LinkType, PcapWriter, Timestamp};
use softnic_wire::aeth::{Aeth, Syndrome};
use softnic_wire::ethernet::{VlanTag, ethertype};
use softnic_wire::ext::{AtomicEth, Deth, Feth, Reth, XrcEth};
use softnic_wire::icrc::{self, Icrc};
use softnic_wire::opcode::{HeaderSet, Kind};
use softnic_wire::sr::SrEth;
use softnic_wire::xp::{XpCredit, XpEth, XpFeedback, XpReport};
use softnic_wire::{
    Addresses, ExtHeaders, Layout, MacAddr, Opcode, PacketFields, Path, Psn, Qpn, Template, TxFrame, lowar,
};

/// Writes the captures into `folder` and names them.
pub(super) fn write(folder: &FilePath) -> io::Result<Vec<PathBuf>> {
    let v4 = Addresses::V4 { src: [192, 0, 2, 1].into(), dst: [192, 0, 2, 2].into() };
    let v6 =
        Addresses::V6 { src: [0x2001, 0xdb8, 0, 0, 0, 0, 0, 1].into(), dst: [0x2001, 0xdb8, 0, 0, 0, 0, 0, 2].into() };
    let outer = VlanTag { tpid: ethertype::QINQ, ..VlanTag::new(100, 5) };
    let inner = VlanTag::new(7, 3);
    let tags = [[None, None], [Some(inner), None], [Some(outer), Some(inner)]];
    let mut values = Values(1);
    let mut files = Vec::new();
    for (version, addresses) in [("ipv4", v4), ("ipv6", v6)] {
        for (count, tags) in tags.into_iter().enumerate() {
            let path = path(addresses, tags);
            let file = folder.join(format!("every_opcode_{version}_{count}_tags.pcap"));
            write_file(&file, |each| every_packet(&path, &mut values, each))?;
            files.push(file);
        }
    }
    let file = folder.join("every_opcode_rocev1.pcap");
    let path = path(v6, tags[0]);
    write_file(&file, |each| every_packet(&path, &mut values, &mut |frame| each(&to_roce_v1(frame))))?;
    files.push(file);
    Ok(files)
}

type Each<'a> = dyn FnMut(&[u8]) -> io::Result<()> + 'a;

fn write_file(file: &FilePath, fill: impl FnOnce(&mut Each<'_>) -> io::Result<()>) -> io::Result<()> {
    let mut writer = PcapWriter::new(BufWriter::new(File::create(file)?), LinkType::Ethernet)?;
    let mut nanos = 0;
    fill(&mut |frame| {
        nanos += 1000;
        writer.write(Timestamp::from_nanos(nanos), frame, frame.len() as u32)
    })?;
    writer.flush()
}

fn path(addresses: Addresses, tags: [Option<VlanTag>; 2]) -> Path {
    Path {
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        tags,
        addresses,
        traffic_class: 0x1a,
        flow_label: 0x54321,
        hop_limit: 64,
        src_port: 0xc123,
    }
}

/// Builds a packet of each opcode with each pad that it can have.
fn every_packet(path: &Path, values: &mut Values, each: &mut Each<'_>) -> io::Result<()> {
    for opcode in (0..=255).map(Opcode).filter(|o| o.is_known()) {
        for &payload_len in payload_lens(opcode) {
            // Not QP0 or QP1: what is sent there is taken for a MAD.
            let dest_qp = Qpn::new(values.bits(24) as u32 | 2);
            let template = Template::new(path, dest_qp, values.bits(16) as u16);
            let fields = PacketFields {
                opcode,
                psn: Psn::new(values.bits(24) as u32),
                ack_req: values.bits(1) == 1,
                solicited: values.bits(1) == 1,
                becn: opcode == Opcode::CNP,
                payload_len,
            };
            // A pattern that no dissector of what lies above takes for its own; a CNP has 16 bytes of zero.
            let mut payload = vec![if opcode == Opcode::CNP { 0 } else { 0x5a }; payload_len];
            if opcode == Opcode::LOWAR {
                payload[0] = lowar::Type::Repair.value();
            }
            let mut room = [0; 512];
            let mut tx = TxFrame::new(&mut room);
            let built = template.build(&mut tx, &fields, &headers(opcode, payload_len, values), &payload);
            built.map_err(|e| io::Error::other(format!("{opcode}: {e}")))?;
            each(tx.segments().0)?;
        }
    }
    Ok(())
}

fn payload_lens(opcode: Opcode) -> &'static [usize] {
    match opcode.kind() {
        Kind::Send | Kind::Write | Kind::ReadResponse => &[0, 61, 62, 63, 64],
        Kind::Acknowledge if opcode == Opcode::SR_ACKNOWLEDGE => &[0, 1, 2, 3, 4],
        Kind::AtomicWrite => &[8],
        Kind::CongestionNotification => &[16],
        // A Repair Header and a sum.
        Kind::Repair => &[12, 61, 62, 63, 64],
        _ => &[0],
    }
}

/// The body of feedback or credit.
fn xp_report(has: impl Fn(HeaderSet) -> bool, v: &mut Values) -> Option<XpReport> {
    let mut word = || v.bits(32) as u32;
    if has(HeaderSet::XP_CREDIT) {
        return Some(XpReport::Credit(XpCredit { flags: 0, giver: word() >> 8, granted: word(), wanted: word() }));
    }
    let mut feedback = || XpFeedback { held: word(), marks: word(), bytes: u64::from(word()) << 32 | 1, credit: 0 };
    has(HeaderSet::XP_FEEDBACK).then(|| XpReport::Feedback(feedback()))
}

/// Values for all headers of an opcode. The bitmap of an acknowledgement has as many bits as its payload.
fn headers(opcode: Opcode, payload_len: usize, v: &mut Values) -> ExtHeaders {
    let has = |h| opcode.headers().contains(h);
    let offset = |v: &mut Values| match opcode {
        Opcode::SR_ACKNOWLEDGE => 8 * payload_len as u32,
        _ => v.bits(31) as u32,
    };
    ExtHeaders {
        sr: has(HeaderSet::SR).then(|| SrEth {
            flags: (v.bits(1) as u8) << 7,
            number: v.bits(24) as u32,
            offset: offset(v),
        }),
        xp: has(HeaderSet::XP).then(|| XpEth {
            flags: (v.bits(2) as u8) << 6,
            wqe_seq: v.bits(24) as u32,
            offset: v.bits(31) as u32,
            len: v.bits(31) as u32,
            stride: 1 << v.bits(3),
            receive: v.bits(16) as u16,
        }),
        xp_report: xp_report(has, v),
        xp_time: has(HeaderSet::XP_TIME).then(|| v.bits(32) as u32),
        deth: has(HeaderSet::DETH).then(|| Deth { qkey: v.bits(32) as u32, src_qp: Qpn::new(v.bits(24) as u32 | 2) }),
        xrceth: has(HeaderSet::XRCETH).then(|| XrcEth { srq: v.bits(24) as u32 }),
        feth: has(HeaderSet::FETH).then(|| Feth { placement: 1 + v.bits(1) as u8, selectivity: v.bits(1) as u8 }),
        reth: has(HeaderSet::RETH).then(|| Reth { va: v.bits(64), rkey: v.bits(32) as u32, len: v.bits(31) as u32 }),
        atomic: has(HeaderSet::ATOMIC).then(|| AtomicEth {
            va: v.bits(64) & !7,
            rkey: v.bits(32) as u32,
            swap_add: v.bits(64),
            compare: v.bits(64),
        }),
        aeth: has(HeaderSet::AETH)
            .then(|| Aeth { syndrome: Syndrome::from_byte(v.bits(8) as u8), msn: v.bits(24) as u32 }),
        atomic_ack: has(HeaderSet::ATOMIC_ACK).then(|| v.bits(64)),
        imm: has(HeaderSet::IMM).then(|| v.bits(32) as u32),
        ieth: has(HeaderSet::IETH).then(|| v.bits(32) as u32),
    }
}

/// The same packet as RoCEv1: the IPv6 header becomes a GRH and the UDP header goes.
///
/// # Panics
/// When `frame` is not what [`Template`] makes for IPv6 without tags.
fn to_roce_v1(frame: &[u8]) -> Vec<u8> {
    let l = Layout::locate(frame).expect("a frame from a template");
    let (eth, grh, body) = (&frame[..l.network], &frame[l.network..l.udp], &frame[l.bth..l.end - icrc::LEN]);
    let mut out = [&eth[..12], &ethertype::ROCE_V1.to_be_bytes(), grh, body].concat();
    let grh = l.network;
    out[grh + 4..grh + 6].copy_from_slice(&((body.len() + icrc::LEN) as u16).to_be_bytes());
    out[grh + 6] = 0x1b; // what follows is a BTH
    let mut masked = out[grh..].to_vec();
    masked[0] |= 0x0f;
    masked[1..4].fill(0xff);
    masked[7] = 0xff;
    masked[40 + 4] = 0xff;
    let mut crc = Icrc::new();
    crc.update(&masked);
    out.extend(crc.finish());
    out
}

/// Values that are all different and the same in every run (splitmix64).
struct Values(u64);

impl Values {
    fn bits(&mut self, n: u32) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) >> (64 - n)
    }
}
