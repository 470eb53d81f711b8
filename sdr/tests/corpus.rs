//! The captures of SDR in the corpus: what they show is what the SDK and the reliable schemes on top of it send, byte for byte.
//!
//! Where the wire changes on purpose, `SOFTNIC_WRITE_CORPUS=1 cargo test -p softnic-sdr --test sdr corpus` writes them anew.

mod reliable;

use std::path::Path;
use std::time::Duration;

use softnic_pcaps::{LinkType, PcapWriter, Precision, Timestamp};
use softnic_sdr::QpAttr;
use softnic_wire::{Layout, Opcode};

use crate::world::{A, B, MTU, World, attr, path};

/// Every frame that leaves an end takes so long to the other one.
const DELAY: Duration = Duration::from_micros(5);

struct Recorder {
    world: World,
    file: PcapWriter<Vec<u8>>,
}

impl Recorder {
    /// Carries what both ends send, until that is nothing; `is_lost` says what does not arrive. All of it is in the capture.
    fn carry(&mut self, mut is_lost: impl FnMut(&[u8]) -> bool) {
        loop {
            let frames = [A, B].map(|side| self.world.frames(side));
            if frames.iter().all(Vec::is_empty) {
                return;
            }
            let time = Timestamp::from_nanos(self.world.now.as_nanos().into());
            self.world.now = self.world.now + DELAY;
            for (side, frames) in frames.iter().enumerate() {
                for frame in frames {
                    self.file.write(time, frame, frame.len() as u32).unwrap();
                    if !is_lost(frame) {
                        self.world.deliver(1 - side, frame);
                    }
                }
            }
        }
    }
}

/// Two ends meet by number. A stream of seven packets by two channels follows, of which the third one on the wire is lost and sent again; then
/// a short message with an immediate of the program's.
fn record() -> Vec<u8> {
    let attr = QpAttr { channels: 2, generations: 2, chunk: MTU as u32, slots: 2, ..attr() };
    let mut recorder = Recorder { world: World::apart(&attr), file: new_file() };
    let numbers = [A, B].map(|side| recorder.world.qps[side].info().control.qpn);
    for side in [A, B] {
        let World { nics, qps, .. } = &mut recorder.world;
        let path = path(&nics[side], 1 - side);
        qps[side].meet(&mut nics[side], 1, &path, numbers[1 - side]).unwrap();
    }
    recorder.carry(|_| false);
    for side in [A, B] {
        let World { nics, qps, .. } = &mut recorder.world;
        let (port, path, link) = qps[side].met(&nics[side]).unwrap().expect("the peer told");
        qps[side].connect_link(&mut nics[side], port, &path, &link).unwrap();
    }

    let receives = [recorder.world.recv(0, 1700), recorder.world.recv(2048, 600)];
    recorder.carry(|_| false);
    let World { nics, qps, now, .. } = &mut recorder.world;
    let stream = qps[A].send_stream_start(*now, &mut nics[A], 1700, None).unwrap();
    let all = recorder.world.local(A, 0, 1700);
    let World { nics, qps, now, .. } = &mut recorder.world;
    qps[A].send_stream_continue(*now, &mut nics[A], stream, 0, all).unwrap();
    let mut data = 0;
    recorder.carry(|frame| {
        data += u32::from(is_data(frame));
        is_data(frame) && data == 3
    });
    let missing: Vec<usize> = (0..7).filter(|&chunk| !recorder.world.bits(receives[0])[chunk]).collect();
    let [chunk] = missing[..] else { panic!("one packet was lost: {missing:?}") };
    let again = recorder.world.local(A, chunk * MTU, MTU.min(1700 - chunk * MTU));
    let World { nics, qps, now, .. } = &mut recorder.world;
    qps[A].send_stream_continue(*now, &mut nics[A], stream, (chunk * MTU) as u64, again).unwrap();
    qps[A].send_stream_end(stream).unwrap();
    recorder.carry(|_| false);
    assert_eq!(recorder.world.bytes(B, 0, 1700), recorder.world.bytes(A, 0, 1700));
    recorder.world.complete(receives[0]);

    recorder.world.send(4000, 600, Some(0x8765_4321));
    recorder.carry(|_| false);
    assert_eq!(recorder.world.bytes(B, 2048, 600), recorder.world.bytes(A, 4000, 600));
    assert_eq!(recorder.world.qps[B].recv_bitmap_get(receives[1]).unwrap().imm(), Some(0x8765_4321));
    recorder.world.complete(receives[1]);
    recorder.file.into_inner()
}

fn new_file() -> PcapWriter<Vec<u8>> {
    PcapWriter::with_precision(Vec::new(), LinkType::Ethernet, Precision::Micros).unwrap()
}

fn is_data(frame: &[u8]) -> bool {
    let layout = Layout::locate(frame).expect("a packet");
    Opcode(frame[layout.bth]).to_string() == "UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE"
}

#[test]
fn the_capture_of_the_corpus_is_what_the_sdk_sends() {
    hold("sdr_stream_loss.pcap", &record());
}

/// A capture of the corpus has these bytes; where it is to be written anew, it gets them.
fn hold(name: &str, recorded: &[u8]) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pcaps/corpus").join(name);
    if std::env::var_os("SOFTNIC_WRITE_CORPUS").is_some() {
        std::fs::write(&file, recorded).unwrap();
    }
    assert!(std::fs::read(&file).unwrap() == recorded, "other bytes than in {}", file.display());
}
