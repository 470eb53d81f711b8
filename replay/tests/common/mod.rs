//! Captures in memory: read, changed, written again.
#![allow(dead_code, unreachable_pub)] // each test file uses its part of this

use std::path::{Path, PathBuf};

use softnic_pcaps::{LinkType, PcapWriter, Reader, Timestamp};
use softnic_replay::{Options, Report, replay};
use softnic_sim::{Options as Sim, run};
use softnic_wire::opcode::Kind;
use softnic_wire::{Error, Layout, Psn, RocePacket, icrc};

/// A captured frame.
#[derive(Clone)]
pub struct Frame {
    pub time: Timestamp,
    pub data: Vec<u8>,
    pub original_len: u32,
}

impl Frame {
    pub fn packet(&self) -> Option<RocePacket> {
        RocePacket::parse(&self.data).ok()
    }

    /// Changes bytes behind the beginning of the BTH, and makes the ICRC right.
    pub fn is(&self, kind: Kind) -> bool {
        self.packet().is_some_and(|p| p.bth.opcode.kind() == kind)
    }

    pub fn is_request(&self) -> bool {
        self.packet().is_some_and(|p| p.bth.opcode.is_request())
    }

    pub fn change(&mut self, f: impl FnOnce(&mut [u8])) {
        let layout = Layout::locate(&self.data).expect("a RoCE packet");
        f(&mut self.data[layout.bth..]);
        sign(&mut self.data);
    }

    pub fn add_to_psn(&mut self, by: i32) {
        self.change(|bth| {
            let psn = u32::from_be_bytes([0, bth[9], bth[10], bth[11]]);
            let psn = Psn::new(psn.wrapping_add_signed(by)).value();
            bth[9..12].copy_from_slice(&psn.to_be_bytes()[1..]);
        });
    }
}

pub fn sign(frame: &mut [u8]) {
    let layout = Layout::locate(frame).expect("a RoCE packet");
    if let Err(Error::Icrc { expected, .. }) = icrc::verify_shared(frame, &layout) {
        frame[layout.end - icrc::LEN..layout.end].copy_from_slice(&expected.to_le_bytes());
    }
}

pub fn read(pcap: &[u8]) -> Vec<Frame> {
    let mut reader = Reader::new(pcap).unwrap();
    let mut frames = Vec::new();
    while let Some(f) = reader.next_frame().unwrap() {
        frames.push(Frame { time: f.time, data: f.data.to_vec(), original_len: f.original_len });
    }
    frames
}

pub fn write(frames: &[Frame]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = PcapWriter::new(&mut out, LinkType::Ethernet).unwrap();
    for f in frames {
        writer.write(f.time, &f.data, f.original_len).unwrap();
    }
    out
}

pub fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../pcaps/corpus")
}

pub fn load(name: &str) -> Vec<Frame> {
    read(&std::fs::read(corpus().join(name)).unwrap())
}

pub fn play(frames: &[Frame]) -> Report {
    play_with(frames, &Options::default())
}

pub fn play_with(frames: &[Frame], options: &Options) -> Report {
    replay(&write(frames)[..], options).unwrap()
}

/// A capture of a simulated run.
pub fn simulate(options: &Sim) -> Vec<Frame> {
    let mut pcap = Vec::new();
    run(options, Some(&mut pcap), &mut |_| ()).unwrap();
    read(&pcap)
}

/// What a failed test prints.
/// Copies of a capture, each with one frame altered, and what was.
pub struct Altered<'a> {
    frames: &'a [Frame],
    pub copies: Vec<(&'static str, Vec<Frame>)>,
}

impl<'a> Altered<'a> {
    pub fn new(frames: &'a [Frame]) -> Altered<'a> {
        Altered { frames, copies: Vec::new() }
    }

    /// The frame of a sort in the middle, so that there are some before and behind it.
    pub fn middle(&self, wanted: impl Fn(&Frame) -> bool) -> Option<usize> {
        let all: Vec<usize> = (0..self.frames.len()).filter(|&i| wanted(&self.frames[i])).collect();
        (all.len() > 8).then(|| all[all.len() / 2])
    }

    /// A copy with the middle frame of a kind altered, if there is one.
    pub fn alter(&mut self, what: &'static str, wanted: impl Fn(&Frame) -> bool, f: impl FnOnce(&mut Frame)) {
        if let Some(at) = self.middle(wanted) {
            let mut copy = self.frames.to_vec();
            f(&mut copy[at]);
            self.copies.push((what, copy));
        }
    }
}

pub fn explain(report: &Report) -> String {
    format!("{:#?}\n{:#?}\n{:?}", report.differences, report.undetermined, report.counts())
}
