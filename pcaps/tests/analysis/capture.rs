//! Captures made for one question, and what the analysis says of them.

use std::fs::File;
use std::path::Path;

use softnic_pcaps::analysis::Analysis;
use softnic_pcaps::decode::Decoder;
use softnic_pcaps::summary::Summary;
use softnic_pcaps::{LinkType, PcapWriter, Reader, Timestamp};
use softnic_wire::{Error, Layout, icrc};

pub(crate) const SEND_MIDDLE: u8 = 0x01;
pub(crate) const SEND_ONLY: u8 = 0x04;
pub(crate) const WRITE_FIRST: u8 = 0x06;
pub(crate) const WRITE_ONLY: u8 = 0x0a;
pub(crate) const READ_REQUEST: u8 = 0x0c;
pub(crate) const READ_FIRST: u8 = 0x0d;
pub(crate) const ACK: u8 = 0x11;

/// An acknowledgement's AETH without a credit limit.
pub(crate) const GOOD: [u8; 4] = [0x1f, 0, 0, 1];

/// A packet to be put into a capture: from 10.0.0.1 to 10.0.0.2, or back.
#[derive(Debug, Clone)]
pub(crate) struct Packet {
    pub(crate) forth: bool,
    pub(crate) opcode: u8,
    pub(crate) qp: u8,
    pub(crate) psn: u32,
    pub(crate) ack_req: bool,
    pub(crate) port: u16,
    /// DSCP and ECN.
    pub(crate) tos: u8,
    /// Extension headers.
    pub(crate) ext: Vec<u8>,
    pub(crate) payload: usize,
}

impl Packet {
    fn new(forth: bool, opcode: u8, qp: u8, psn: u32) -> Packet {
        let (tos, ext, payload) = (2, Vec::new(), 0);
        Packet { forth, opcode, qp, psn, ack_req: true, port: 0xc001, tos, ext, payload }
    }

    /// From 10.0.0.1.
    pub(crate) fn forth(opcode: u8, qp: u8, psn: u32) -> Packet {
        Packet::new(true, opcode, qp, psn)
    }

    /// From 10.0.0.2.
    pub(crate) fn back(opcode: u8, qp: u8, psn: u32) -> Packet {
        Packet::new(false, opcode, qp, psn)
    }

    pub(crate) fn ext(mut self, bytes: &[u8]) -> Packet {
        self.ext.extend(bytes);
        self
    }

    /// Address 0x1000 with rkey 0xabcd.
    pub(crate) fn reth(self, len: u32) -> Packet {
        let reth = [&[0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0xab, 0xcd], &len.to_be_bytes()[..]].concat();
        self.ext(&reth)
    }

    pub(crate) fn payload(mut self, len: usize) -> Packet {
        self.payload = len;
        self
    }

    /// The frame, with a right ICRC.
    pub(crate) fn frame(&self) -> Vec<u8> {
        let len = 8 + 12 + self.ext.len() + self.payload + 4;
        let [src, dst] = if self.forth { [1, 2] } else { [2, 1] };
        let mut f = vec![2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, src, 0x08, 0x00, 0x45, self.tos];
        f.extend((20 + len as u16).to_be_bytes());
        f.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, src, 10, 0, 0, dst]);
        f.extend(self.port.to_be_bytes());
        f.extend([0x12, 0xb7]);
        f.extend((len as u16).to_be_bytes());
        f.extend([0, 0, self.opcode, 0x40, 0xff, 0xff, 0, 0, 0, self.qp]);
        f.extend((u32::from(self.ack_req) << 31 | self.psn).to_be_bytes());
        f.extend(&self.ext);
        f.resize(f.len() + self.payload + icrc::LEN, 0);
        let layout = Layout::locate(&f).unwrap();
        let Err(Error::Icrc { expected, .. }) = icrc::verify_shared(&f, &layout) else { panic!("lengths contradict") };
        let at = f.len() - icrc::LEN;
        f[at..].copy_from_slice(&expected.to_le_bytes());
        f
    }
}

/// Packets with their times in microseconds.
#[derive(Debug, Clone, Default)]
pub(crate) struct Capture(pub(crate) Vec<(u64, Vec<u8>)>);

impl Capture {
    pub(crate) fn of(packets: impl IntoIterator<Item = (u64, Packet)>) -> Capture {
        Capture(packets.into_iter().map(|(us, p)| (us, p.frame())).collect())
    }

    /// As a pcap file.
    pub(crate) fn file(&self) -> Vec<u8> {
        let mut w = PcapWriter::new(Vec::new(), LinkType::Ethernet).unwrap();
        for (us, frame) in &self.0 {
            w.write(Timestamp::from_nanos(i128::from(*us) * 1000), frame, frame.len() as u32).unwrap();
        }
        w.into_inner()
    }

    pub(crate) fn analyse(&self) -> Analysis {
        analyse(&self.file()[..])
    }
}

/// The analysis of a capture of Ethernet.
pub(crate) fn analyse(source: impl std::io::Read) -> Analysis {
    let mut reader = Reader::new(source).unwrap();
    let (mut decoder, mut summary, mut analysis) = (Decoder::default(), Summary::default(), Analysis::default());
    while let Some(f) = reader.next_frame().unwrap() {
        let Ok(d) = decoder.decode_ethernet(f.data) else { continue };
        let order = summary.add(&d, f.time.nanos(), f.original_len);
        analysis.add(f.number, f.time, &d, order);
    }
    analysis.finish();
    analysis
}

pub(crate) fn corpus(name: &str) -> Analysis {
    analyse(File::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name)).unwrap())
}

/// The frames of a capture of the corpus.
pub(crate) fn corpus_frames(name: &str) -> Vec<Vec<u8>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut reader = Reader::new(File::open(path).unwrap()).unwrap();
    let mut all = Vec::new();
    while let Some(f) = reader.next_frame().unwrap() {
        all.push(f.data.to_vec());
    }
    all
}
