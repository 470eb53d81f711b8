//! What a packet costs in `wire`: headers read, ICRC checked, frames built, against the bare CRC of the same bytes.
#![allow(missing_docs, clippy::print_stdout)]

use std::hint::black_box;

use softnic_benches::rows::Rows;
use softnic_wire::ext::Reth;
use softnic_wire::opcode::Service;
use softnic_wire::segment::{MessageKind, PathMtu, Reassembly, Segmentation};
use softnic_wire::{
    Addresses, ExtHeaders, Layout, MacAddr, Opcode, PacketFields, Path, Psn, Qpn, RocePacket, Template, TxFrame, icrc,
};

const SIZES: [usize; 3] = [64, 1024, 4096];
/// A shared machine is slow for seconds on end: measured several times, each row gets its share of quiet ones.
const ROUNDS: usize = 3;

const BARE: &str = "bare CRC of the same bytes";
const ALONE: &str = "the same, each waiting for the last";
const PARSE: &str = "parse all headers";
const VERIFY: &str = "verify ICRC";
const VERIFY_MIDDLE: &str = "verify ICRC, WRITE_MIDDLE";
const RECEIVE: &str = "locate + verify + parse";
const START: &str = "start";
const SEAL: &str = "start + finish";
const START_COPY: &str = "start + copy";
const BUILD: &str = "start + copy + finish";
const COPY: &str = "the copy alone";
const COPY_BARE: &str = "the copy, then the bare CRC over it";
const CUT: &str = "segmentation, a packet";
const JOIN: &str = "reassembly, a packet";

fn main() {
    let mut b = Rows::new();
    for _ in 0..ROUNDS {
        for size in SIZES {
            packets(&mut b, size);
        }
        messages(&mut b);
    }
    b.end();
    table(
        &mut b,
        &[
            BARE,
            ALONE,
            PARSE,
            VERIFY,
            VERIFY_MIDDLE,
            RECEIVE,
            START,
            SEAL,
            START_COPY,
            BUILD,
            COPY,
            COPY_BARE,
            CUT,
            JOIN,
        ],
        &[
            ("finish without the copy before it", SEAL, START),
            ("finish behind the copy", BUILD, START_COPY),
            ("the bare CRC behind the copy", COPY_BARE, COPY),
        ],
    );
}

/// `measured` are rows as they were timed, `differences` what one of them takes more than another.
fn table(rows: &mut Rows, measured: &[&'static str], differences: &[(&'static str, &'static str, &'static str)]) {
    println!("\n{:<42} {:>16} {:>16} {:>16}", "ns a packet (ratio to bare CRC)", SIZES[0], SIZES[1], SIZES[2]);
    let lines = measured.iter().map(|&row| (row, row, None));
    let lines = lines.chain(differences.iter().map(|&(name, whole, part)| (name, whole, Some(part))));
    for (name, whole, part) in lines {
        let mut line = format!("{name:<42}");
        for size in SIZES {
            let less = part.map_or(Some(0.0), |part| rows.typical(part, size));
            let cell = match (rows.typical(whole, size), less, rows.typical(BARE, size)) {
                (Some(t), Some(less), Some(bare)) => format!("{:.1} ({:.2})", t - less, (t - less) / bare),
                _ => "-".into(),
            };
            line += &format!(" {cell:>16}");
        }
        println!("{line}");
    }
}

/// An RC WRITE_ONLY over IPv4 with `size` bytes of payload.
fn packets(b: &mut Rows, size: usize) {
    let path = Path {
        src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
        dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
        tags: [None, None],
        addresses: Addresses::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() },
        traffic_class: 2,
        flow_label: 0,
        hop_limit: 64,
        src_port: 0xc001,
    };
    let template = Template::new(&path, Qpn::new(0x1234), 0xffff);
    let ext = ExtHeaders { reth: Some(Reth { va: 0x7f00_1000, rkey: 0xabcd, len: size as u32 }), ..Default::default() };
    let mut fields = PacketFields {
        opcode: Opcode::RC_RDMA_WRITE_ONLY,
        psn: Psn::new(0),
        ack_req: true,
        solicited: false,
        becn: false,
        payload_len: size,
    };
    let payload: Vec<u8> = (0..size).map(|i| (i * 7) as u8).collect();
    let mut room = vec![0; 8192];
    let mut tx = TxFrame::new(&mut room);
    template.build(&mut tx, &fields, &ext, &payload).expect("room for a frame");
    let mut frame = tx.segments().0.to_vec();
    let layout = Layout::locate(&frame).expect("our own frame");

    let covered = frame[layout.network..layout.end - icrc::LEN].to_vec();
    b.run(BARE, size, || crc32fast::hash(black_box(&covered)));
    // The next CRC begins where the last one says, which is always 0 and which the compiler does not know.
    let (zero, mut from) = (black_box(0), 0);
    b.run(ALONE, size, || {
        from = crc32fast::hash(&black_box(&covered)[from..]) as usize & zero;
        from
    });
    b.run(PARSE, size, || RocePacket::parse(black_box(&frame)));
    b.run(VERIFY, size, || icrc::verify(black_box(&mut frame), black_box(&layout)));
    let mut middle = frame_of(&template, &PacketFields { opcode: Opcode::RC_RDMA_WRITE_MIDDLE, ..fields }, &payload);
    let middle_layout = Layout::locate(&middle).expect("our own frame");
    b.run(VERIFY_MIDDLE, size, || icrc::verify(black_box(&mut middle), black_box(&middle_layout)));
    b.run(RECEIVE, size, || {
        let frame = black_box(&mut frame[..]);
        let layout = Layout::locate(frame)?;
        icrc::verify(frame, &layout)?;
        RocePacket::parse_at(frame, layout)
    });
    let mut build = |name, copy: bool, finish: bool| {
        b.run(name, size, || {
            let mut tx = TxFrame::new(black_box(&mut room));
            fields.psn = fields.psn.next();
            let started = black_box(&template).start(&mut tx, black_box(&fields), black_box(&ext))?;
            if copy {
                tx.put(started.payload, black_box(&payload));
            }
            if finish {
                template.finish(&mut tx, started);
            }
            Ok::<_, softnic_wire::Error>(tx.len())
        });
    };
    build(START, false, false);
    build(SEAL, false, true);
    build(START_COPY, true, false);
    build(BUILD, true, true);
    // To the offset in the covered bytes that the payload has in a frame, so that both ends lie as they do there.
    let (mut to, at) = (covered.clone(), covered.len() - size);
    b.run(COPY, size, || black_box(&mut to[at..]).copy_from_slice(black_box(&payload)));
    b.run(COPY_BARE, size, || {
        black_box(&mut to[at..]).copy_from_slice(black_box(&payload));
        crc32fast::hash(black_box(&to))
    });
}

/// A frame without extension headers.
fn frame_of(template: &Template, fields: &PacketFields, payload: &[u8]) -> Vec<u8> {
    let mut room = vec![0; 8192];
    let mut tx = TxFrame::new(&mut room);
    template.build(&mut tx, fields, &ExtHeaders::default(), payload).expect("room for a frame");
    tx.segments().0.to_vec()
}

/// A long WRITE, packet by packet, with the payload sizes that are path MTUs.
fn messages(b: &mut Rows) {
    for mtu in [PathMtu::B1024, PathMtu::B4096] {
        let size = mtu.bytes() as usize;
        let len = 1 << 30;
        let Some(s) = Segmentation::new(Service::Rc, MessageKind::Write, len, mtu, Psn::new(7)) else { return };
        let mut i = 0;
        b.run(CUT, size, || {
            i = if i + 1 == s.packets() { 0 } else { i + 1 };
            black_box(&s).get(i)
        });
        let mut r = Reassembly::new(mtu);
        let _ = r.accept(Opcode(0x06), mtu.bytes(), Some(len));
        let fresh = r;
        b.run(JOIN, size, || {
            if r.received().is_some_and(|n| n + mtu.bytes() >= len) {
                r = fresh;
            }
            r.accept(black_box(Opcode::RC_RDMA_WRITE_MIDDLE), mtu.bytes(), None)
        });
    }
}
