//! Several engines of one NIC: an engine that receives a frame for a queue pair of another engine hands the frame over.
//!
//! The peer's UDP source port determines the device queue at which a frame arrives, so any engine may receive any frame. The upper bits of
//! a queue pair number identify the engine that owns the queue pair. Frames to a multicast group go to all engines.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use softnic_nic::{Owner, negotiated_qp};
use softnic_wire::{Error, Layout, Qpn, TxFrame, bth};

use crate::engine::Io;
use crate::io::{PacketIo, TakeLocated, sleep_on};
use crate::memory_wire::{Incoming, Outgoing, direction};
use crate::wake::Wake;

/// Capacity, in frames, of the ring from one engine to another.
const HANDED_OVER: usize = 64;

/// A backend that delivers only the frames for its own engine's queue pairs.
pub(crate) struct Steering {
    inner: Io,
    index: u32,
    bits: u32,
    /// The rings from and to each other engine; the engine's own entry is empty.
    incoming: Vec<Option<Incoming>>,
    outgoing: Vec<Option<Outgoing>>,
    /// The wake-ups of all engines, including this one.
    wakes: Vec<Arc<Wake>>,
    /// The descriptors of the backend.
    shown: Vec<OwnedFd>,
    /// The engines that frames were handed to in this batch, one bit each.
    touched: Vec<u64>,
    lost: u64,
}

impl Steering {
    /// Joins the backends of one NIC; a single backend is returned unchanged.
    pub(crate) fn among(ios: Vec<Io>, bits: u32) -> io::Result<Vec<Io>> {
        if ios.len() < 2 {
            return Ok(ios);
        }
        let n = ios.len();
        let wakes = (0..n).map(|_| Wake::new().map(Arc::new)).collect::<io::Result<Vec<_>>>()?;
        let mut incoming: Vec<Vec<Option<Incoming>>> = (0..n).map(|_| (0..n).map(|_| None).collect()).collect();
        let mut outgoing: Vec<Vec<Option<Outgoing>>> = (0..n).map(|_| (0..n).map(|_| None).collect()).collect();
        for from in 0..n {
            for to in (0..n).filter(|&to| to != from) {
                let (out, come) = direction(HANDED_OVER);
                outgoing[from][to] = Some(out);
                incoming[to][from] = Some(come);
            }
        }
        let rings = incoming.into_iter().zip(outgoing);
        let joined = ios.into_iter().zip(rings).enumerate().map(|(i, (inner, (incoming, outgoing)))| {
            let shown = inner.readiness()?;
            let (index, wakes, touched) = (i as u32, wakes.clone(), vec![0; n.div_ceil(64)]);
            let steering = Steering { inner, index, bits, incoming, outgoing, wakes, shown, touched, lost: 0 };
            Ok(Box::new(steering) as Io)
        });
        joined.collect()
    }
}

/// The engine that resolves neighbours: it gets all frames that are not RoCE packets.
const FIRST: u32 = 0;

/// The engine that owns a frame, by the upper bits of its queue pair number; `None` for a frame to a group, which all engines get.
fn owner(frame: &[u8], layout: &Result<Layout, Error>, bits: u32) -> Option<u32> {
    let Ok(layout) = layout else { return Some(FIRST) };
    let Ok(header) = bth::Packet::new_checked(frame.get(layout.bth..).unwrap_or_default()) else { return Some(FIRST) };
    match header.dest_qp() {
        Qpn::MULTICAST => None,
        // A MAD that negotiates for a queue pair is sent to QP1, and is handled by the engine that owns the queue pair.
        Qpn::GSI => Some(Owner::of(negotiated_qp(frame, layout).unwrap_or(Qpn::GSI), bits)),
        qpn => Some(Owner::of(qpn, bits)),
    }
}

impl PacketIo for Steering {
    fn receive(&mut self, limit: usize, take: &mut dyn FnMut(&mut [u8])) -> io::Result<usize> {
        self.receive_located(limit, &mut |frame, _| take(frame))
    }

    fn receive_located(&mut self, limit: usize, take: &mut TakeLocated<'_>) -> io::Result<usize> {
        let Steering { inner, index, bits, incoming, outgoing, wakes, touched, lost, .. } = self;
        let mut taken = 0;
        for from in incoming.iter_mut().flatten() {
            // The rings carry only bytes, so the layout is parsed again.
            taken += from.take(limit - taken, &mut |frame| {
                let layout = Layout::locate(frame);
                take(frame, layout);
            });
        }
        let mut hand_over = |to: usize, frame: &[u8]| {
            let Some(Some(out)) = outgoing.get_mut(to) else { return };
            match out.put(frame) {
                true => touched[to / 64] |= 1 << (to % 64),
                false => *lost += 1,
            }
        };
        let mut own = 0;
        inner.receive_located(limit - taken, &mut |frame, layout| match owner(frame, &layout, *bits) {
            Some(me) if me == *index => {
                take(frame, layout);
                own += 1;
            }
            Some(other) => hand_over(other as usize, frame),
            None => {
                (0..wakes.len()).filter(|&to| to != *index as usize).for_each(|to| hand_over(to, frame));
                take(frame, layout);
                own += 1;
            }
        })?;
        for (word, engines) in touched.iter_mut().enumerate() {
            while *engines != 0 {
                wakes[word * 64 + engines.trailing_zeros() as usize].wake_sleeper();
                *engines &= *engines - 1;
            }
        }
        Ok(taken + own)
    }

    fn transmit(&mut self, limit: usize, next: &mut dyn FnMut(&mut TxFrame<'_>) -> bool) -> io::Result<usize> {
        self.inner.transmit(limit, next)
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        match self.prepare_sleep() {
            true => {
                let wake = PollFd::new(&*self.wakes[self.index as usize], PollFlags::IN);
                sleep_on(self.shown.iter().map(|fd| PollFd::new(fd, PollFlags::IN)).chain([wake]), timeout).map(drop)
            }
            false => Ok(()),
        }
    }

    fn readiness(&self) -> io::Result<Vec<OwnedFd>> {
        let mut shown = self.inner.readiness()?;
        shown.push(self.wakes[self.index as usize].as_fd().try_clone_to_owned()?);
        Ok(shown)
    }

    fn prepare_sleep(&mut self) -> bool {
        self.wakes[self.index as usize].prepare_sleep();
        let nothing = self.incoming.iter_mut().flatten().all(Incoming::is_empty);
        self.inner.prepare_sleep() && nothing
    }

    fn descriptors(&self) -> Vec<RawFd> {
        let mut all = self.inner.descriptors();
        all.extend(self.shown.iter().map(AsRawFd::as_raw_fd));
        all.push(self.wakes[self.index as usize].as_fd().as_raw_fd());
        all
    }

    fn due_in(&self) -> Option<Duration> {
        self.inner.due_in()
    }

    fn leaves_in(&self) -> Option<Duration> {
        self.inner.leaves_in()
    }

    fn unsent(&self) -> usize {
        self.inner.unsent()
    }

    fn lost(&self) -> u64 {
        self.inner.lost() + self.lost
    }

    fn joined(&self) -> u64 {
        self.inner.joined()
    }

    fn max_frame(&self) -> usize {
        self.inner.max_frame()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryWire;
    use crate::io::MAX_FRAME;
    use softnic_nic::transports::negotiation::{self, vendor};
    use softnic_wire::mad::failover::{FAILOVER_HELLO, FAILOVER_PROOF, FAILOVER_REGION};
    use softnic_wire::mad::{Attribute, MAD_LEN, Status};
    use softnic_wire::sr::SrSettings;
    use softnic_wire::{Addresses, ExtHeaders, MacAddr, Opcode, PacketFields, Path, Psn, Template};
    use vendor::{Extensions, Kind, Negotiation, Settings};

    fn path() -> Path {
        Path {
            src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
            tags: [None; 2],
            addresses: Addresses::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() },
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
            src_port: 50_000,
        }
    }

    fn frame_to(qpn: Qpn) -> Vec<u8> {
        let fields = PacketFields {
            opcode: Opcode::RC_SEND_ONLY,
            psn: Psn::new(qpn.value()),
            ack_req: false,
            solicited: false,
            becn: false,
            payload_len: 8,
        };
        let mut bytes = [0; MAX_FRAME];
        let mut tx = TxFrame::new(&mut bytes);
        Template::new(&path(), qpn, 0xffff).build(&mut tx, &fields, &ExtHeaders::default(), &[7; 8]).unwrap();
        let len = tx.len();
        bytes[..len].to_vec()
    }

    fn received(io: &mut Io) -> Vec<Vec<u8>> {
        let mut frames = Vec::new();
        io.receive(64, &mut |frame| frames.push(frame.to_vec())).unwrap();
        frames
    }

    #[test]
    fn a_frame_reaches_the_engine_that_owns_its_queue_pair_and_a_groups_reaches_all() {
        let (mut peers, ours): (Vec<_>, Vec<Io>) =
            (0..3).map(|_| MemoryWire::pair().map(|(a, b)| (a, Box::new(b) as Io)).unwrap()).unzip();
        let mut engines = Steering::among(ours, 2).unwrap();
        // The two upper bits select owners 0, 1, and 2; all frames arrive at engine 1.
        let frames = [5, 0x40_0005, 0x80_0005, 0xff_ffff].map(|n| frame_to(Qpn::new(n)));
        let mut rest = frames.iter();
        peers[1].transmit(8, &mut |tx| rest.next().is_some_and(|f| tx.put_frame(f).is_ok())).unwrap();
        assert_eq!(received(&mut engines[1]), [frames[1].clone(), frames[3].clone()]);
        assert_eq!(received(&mut engines[0]), [frames[0].clone(), frames[3].clone()]);
        assert_eq!(received(&mut engines[2]), [frames[2].clone(), frames[3].clone()]);
        assert!(engines.iter_mut().all(|e| received(e).is_empty() && e.lost() == 0));
    }

    #[test]
    fn what_is_no_roce_goes_to_the_first_engine_which_asks_for_neighbours() {
        let (mut peers, ours): (Vec<_>, Vec<Io>) =
            (0..2).map(|_| MemoryWire::pair().map(|(a, b)| (a, Box::new(b) as Io)).unwrap()).unzip();
        let mut engines = Steering::among(ours, 1).unwrap();
        let mut arp = vec![0xff; 60];
        arp[12..14].copy_from_slice(&[0x08, 0x06]);
        peers[1].transmit(1, &mut |tx| tx.put_frame(&arp).is_ok()).unwrap();
        assert!(received(&mut engines[1]).is_empty());
        assert_eq!(received(&mut engines[0]), [arp]);
    }

    #[test]
    fn more_than_sixty_four_engines_hand_over_and_wake_each_other() {
        let (mut peers, ours): (Vec<_>, Vec<Io>) =
            (0..65).map(|_| MemoryWire::pair().map(|(a, b)| (a, Box::new(b) as Io)).unwrap()).unzip();
        let mut engines = Steering::among(ours, 7).unwrap();
        // The seven upper bits select owner 64.
        let frame = frame_to(Qpn::new(64 << 17 | 5));
        assert!(engines[64].prepare_sleep());
        peers[3].transmit(1, &mut |tx| tx.put_frame(&frame).is_ok()).unwrap();
        assert!(received(&mut engines[3]).is_empty());
        engines[64].wait(Duration::from_secs(60)).unwrap();
        assert_eq!(received(&mut engines[64]), [frame]);
    }

    /// A MAD to QP1 about the receiver's queue pair `qpn`. MADs about failover start as those of the negotiation do.
    fn mad_about(qpn: u32, kind: Kind, attribute: Attribute) -> Vec<u8> {
        let refused = matches!(kind, Kind::Answer(status) if status != Status::SUCCESS);
        let mad = Negotiation {
            transaction_id: 0x1234_5678_9a00_0000 | u64::from(qpn),
            kind,
            version: vendor::VERSION,
            sender_qpn: 0x00_0007,
            // A receiver that refuses returns the fields that it got.
            receiver_qpn: if refused { 0x00_0007 } else { qpn },
            extensions: Extensions::SR,
            settings: Settings::NONE.with(SrSettings { window: 64 }),
            sdr: None,
        };
        let mut bytes = [0; MAX_FRAME];
        let mut tx = TxFrame::new(&mut bytes);
        let mut emitted = [0; MAD_LEN];
        mad.emit(&mut emitted);
        emitted[16..18].copy_from_slice(&attribute.0.to_be_bytes());
        assert!(negotiation::write_mad(&mut tx, &Template::new(&path(), Qpn::GSI, 0xffff), &emitted));
        let len = tx.len();
        bytes[..len].to_vec()
    }

    #[test]
    fn what_is_negotiated_by_mads_to_qp1_reaches_the_engine_that_owns_the_queue_pair() {
        let (mut peers, ours): (Vec<_>, Vec<Io>) =
            (0..2).map(|_| MemoryWire::pair().map(|(a, b)| (a, Box::new(b) as Io)).unwrap()).unzip();
        let mut engines = Steering::among(ours, 1).unwrap();
        let attributes = [vendor::ATTRIBUTE, FAILOVER_HELLO, FAILOVER_REGION, FAILOVER_PROOF];
        let kinds = [Kind::Offer, Kind::Answer(Status::SUCCESS), Kind::Answer(Status::UNSUPPORTED_METHOD_ATTRIB)];
        for came_in in [0, 1] {
            for (kind, attribute) in kinds.into_iter().flat_map(|kind| attributes.map(|attribute| (kind, attribute))) {
                let frames = [0x00_0005, 0x80_0005].map(|qpn| mad_about(qpn, kind, attribute));
                let mut rest = frames.iter();
                peers[came_in].transmit(8, &mut |tx| rest.next().is_some_and(|f| tx.put_frame(f).is_ok())).unwrap();
                let mut got = [Vec::new(), Vec::new()];
                for engine in [came_in, 1 - came_in] {
                    got[engine] = received(&mut engines[engine]);
                }
                assert_eq!(got, frames.map(|f| vec![f]), "{kind:?} of {attribute} at engine {came_in}");
            }
        }
    }

    #[test]
    fn an_engine_that_nobody_runs_loses_frames_and_says_so() {
        let (mut a, b) = MemoryWire::pair().unwrap();
        let (_c, d) = MemoryWire::pair().unwrap();
        let mut engines = Steering::among(vec![Box::new(b), Box::new(d)], 1).unwrap();
        let frame = frame_to(Qpn::new(0x80_0001));
        for _ in 0..3 {
            let mut n = 0;
            a.transmit(50, &mut |tx| {
                n += 1;
                n <= 50 && tx.put_frame(&frame).is_ok()
            })
            .unwrap();
            assert!(received(&mut engines[0]).is_empty());
        }
        assert_eq!(engines[0].lost() + received(&mut engines[1]).len() as u64, 150);
    }
}
