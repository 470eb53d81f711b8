//! Captures of reliable connections: two ends meet by number, carry messages of which named packets are lost, and complete them.

use std::sync::Arc;
use std::time::Duration;

use softnic_nic::transports::memory::Access;
use softnic_nic::{Buffer, Nic};
use softnic_pcaps::{PcapWriter, Timestamp};
use softnic_sdr::reliable::{Outcome, ReliableAttr, ReliableCounters, ReliableQp, Scheme};
use softnic_sdr::{Local, QpAttr};
use softnic_wire::{Instant, Node, TxFrame};

use super::{DELAY, hold, is_data, new_file};
use crate::world::{A, B, BASE, MTU, attr, nic, path};

struct End {
    nic: Nic,
    qp: ReliableQp,
    memory: Arc<Buffer>,
    key: u32,
}

impl End {
    fn new(side: usize, attr: &ReliableAttr, bytes: &[u8]) -> End {
        let mut nic = nic(side);
        let (pd, memory) = (nic.alloc_pd(), Buffer::new(BASE, bytes.len()));
        memory.write_at(0, bytes);
        let key = nic.reg_mr(pd, &memory, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        let qp = ReliableQp::create(&mut nic, pd, attr).unwrap();
        End { nic, qp, memory, key }
    }

    fn frames(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let (mut frames, mut room) = (Vec::new(), [0; 1024]);
        loop {
            self.qp.progress(now, &mut self.nic);
            let mut tx = TxFrame::new(&mut room);
            if !self.nic.poll_transmit(now, Nic::WIRE, &mut tx) {
                self.qp.progress(now, &mut self.nic);
                return frames;
            }
            let (a, b) = tx.segments();
            frames.push([a, b].concat());
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        [self.nic.poll_timeout(), self.qp.poll_timeout()].into_iter().flatten().min()
    }
}

struct Recorder {
    ends: [End; 2],
    now: Instant,
    file: PcapWriter<Vec<u8>>,
    /// Packets with data that A has sent.
    data: usize,
}

impl Recorder {
    /// Carries what both ends send now; whether that was anything. Of the packets with data those of these numbers, from 1, are lost. All
    /// of it is in the capture.
    fn carry(&mut self, lost: &[usize]) -> bool {
        let frames = [A, B].map(|side| self.ends[side].frames(self.now));
        if frames.iter().all(Vec::is_empty) {
            return false;
        }
        let time = Timestamp::from_nanos(self.now.as_nanos().into());
        self.now = self.now + DELAY;
        for (side, frames) in frames.iter().enumerate() {
            for frame in frames {
                self.file.write(time, frame, frame.len() as u32).unwrap();
                self.data += usize::from(is_data(frame));
                if !is_data(frame) || !lost.contains(&self.data) {
                    self.ends[1 - side].nic.handle_frame(self.now, Nic::WIRE, &mut frame.clone());
                }
            }
        }
        true
    }

    /// Goes to the next time at which an end has something to do.
    fn wait(&mut self) {
        let next = self.ends.iter().filter_map(End::poll_timeout).min().expect("something is waited for");
        self.now = self.now.max(next);
        self.ends.iter_mut().for_each(|end| end.nic.handle_timeout(self.now));
    }
}

/// Two ends meet, one WRITEs messages of these lengths into the receives of the other, and the packets with data of these numbers are lost; the
/// capture, and what both ends counted.
fn record(scheme: Scheme, lengths: &[usize], lost: &[usize]) -> (Vec<u8>, [ReliableCounters; 2]) {
    let qp = QpAttr { chunk: MTU as u32, slots: 4, generations: 2, ..attr() };
    let attr = ReliableAttr { qp, scheme, rtt: 2 * DELAY, timeout: Duration::from_secs(1), ..ReliableAttr::default() };
    let total = lengths.iter().sum();
    let bytes: Vec<u8> = (0..total).map(|i| (i * 7 + i / 251) as u8).collect();
    let ends = [End::new(A, &attr, &bytes), End::new(B, &attr, &vec![0; total])];
    let mut recorder = Recorder { ends, now: Instant::from_nanos(1), file: new_file(), data: 0 };
    let numbers = [A, B].map(|side| recorder.ends[side].qp.qp().info().control.qpn);
    for side in [A, B] {
        let End { nic, qp, .. } = &mut recorder.ends[side];
        let path = path(nic, 1 - side);
        qp.qp().meet(nic, 1, &path, numbers[1 - side]).unwrap();
    }
    while recorder.carry(&[]) {}
    for End { nic, qp, .. } in &mut recorder.ends {
        let (port, path, link) = qp.qp().met(nic).unwrap().expect("the peer told");
        qp.qp().connect_link(nic, port, &path, &link).unwrap();
    }
    let mut at = 0;
    for &len in lengths {
        let now = recorder.now;
        let [a, b] = &mut recorder.ends;
        let local = |key: u32| Local { key, addr: BASE + at, len: len as u64 };
        b.qp.receive(now, &mut b.nic, local(b.key)).unwrap();
        a.qp.write(now, &mut a.nic, local(a.key)).unwrap();
        at += len as u64;
    }
    let mut written = Vec::new();
    while written.len() < lengths.len() {
        if !recorder.carry(lost) {
            recorder.wait();
        }
        while let Some(outcome) = recorder.ends[A].qp.poll() {
            written.push(outcome);
        }
    }
    // A later one may be complete before one that lost something.
    let of = |id| written.contains(&Outcome::Written { id, outcome: Ok(()) });
    assert!((0..lengths.len() as u64).all(of), "{written:?}");
    let mut received = vec![0; total];
    recorder.ends[B].memory.read_at(0, &mut received);
    assert!(received == bytes, "other bytes than were sent");
    let counters = [A, B].map(|side| recorder.ends[side].qp.counters());
    (recorder.file.into_inner(), counters)
}

/// A message of twelve packets and a short one; the third packet is lost, and the receiver asks for it.
#[test]
fn a_loss_that_the_receiver_asks_for() {
    let (capture, [sent, told]) = record(Scheme::Nack, &[11 * MTU + 100, 300], &[3]);
    assert_eq!((sent.chunks_asked_for, sent.packets_repeated, sent.timeouts), (1, 1, 0));
    assert_eq!(told.nacks_sent, 1);
    hold("sdr_nack_loss.pcap", &capture);
}

/// The same by timeouts. Of the message's second packet also what is sent again is lost.
#[test]
fn losses_that_the_sender_waits_for() {
    let (capture, [sent, told]) = record(Scheme::Sr, &[7 * MTU], &[2, 5, 8]);
    assert_eq!((sent.timeouts, sent.packets_repeated, told.nacks_sent), (3, 3, 0));
    hold("sdr_sr_loss.pcap", &capture);
}

/// A WRITE of two submessages of four chunks, with two chunks of parity each. What the first one loses parity repairs; the second loses more
/// than that, and falls back.
#[test]
fn parity_repairs_one_submessage_and_the_other_falls_back() {
    let scheme = "sdr-ec:4,2".parse().unwrap();
    let (capture, [sent, told]) = record(scheme, &[8 * MTU], &[2, 7, 8, 9]);
    assert_eq!((told.chunks_recovered, told.fallbacks, told.failed_submessages), (1, 1, 1));
    assert!(sent.parity_packets == 4 && sent.packets_repeated > 0 && told.nacks_sent > 0, "{sent:?}, {told:?}");
    hold("sdr_ec_fallback.pcap", &capture);
}
