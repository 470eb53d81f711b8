//! The schemes of this crate: chunks are acknowledged, sent again and repaired by parity (SDR-RDMA §4.1.1, §4.1.2).

use std::time::Duration;

use softnic_nic::Nic;
use softnic_nic::transports::memory::PdId;
use softnic_wire::Instant;
use softnic_wire::sdr::report::{Report, ReportKind};

use super::receiver::Receiver;
use super::sender::Sender;
use super::{Io, Reliability, ReliableAttr, ReliableError};
use crate::Local;
use crate::error::SdrError;
use crate::qp::LONGEST_CONTROL;

/// Both ends of a connection that is used in both directions.
pub(super) struct ByChunks {
    sender: Sender,
    receiver: Receiver,
    room: Box<[u8; LONGEST_CONTROL]>,
}

impl ByChunks {
    pub(super) fn new(nic: &Nic, pd: PdId, attr: &ReliableAttr) -> ByChunks {
        let room = Box::new([0; LONGEST_CONTROL]);
        ByChunks { sender: Sender::new(nic, pd, attr), receiver: Receiver::new(nic, pd, attr), room }
    }
}

impl Reliability for ByChunks {
    fn write(&mut self, io: &mut Io<'_>, memory: Local) -> Result<u64, SdrError> {
        self.sender.post(io, memory)
    }

    fn receive(&mut self, io: &mut Io<'_>, memory: Local) -> Result<u64, SdrError> {
        self.receiver.post(io, memory)
    }

    fn progress(&mut self, io: &mut Io<'_>) {
        // What has left is known before what the peer says of it.
        self.sender.take_left(io);
        while let Some(len) = io.take_control(&mut self.room) {
            match Report::parse(&self.room[..len]) {
                Some(report) if report.kind == ReportKind::RoundTrip => self.receiver.on_round_trip(report.len),
                Some(report) => self.sender.on_report(io, &report),
                None => io.counters.rejected += 1,
            }
        }
        self.sender.progress(io);
        self.sender.tell_round_trip(io);
        // Of a connection that is about to end nothing is told.
        if io.outcomes.iter().all(|outcome| outcome.error().is_none()) {
            self.receiver.progress(io, self.sender.round_trip.rtt());
        }
    }

    fn poll_timeout(&mut self, io: &mut Io<'_>) -> Option<Instant> {
        let receiver = self.receiver.poll_timeout(io, self.sender.round_trip.rtt());
        [self.sender.poll_timeout(), receiver].into_iter().flatten().min()
    }

    fn fail(&mut self, io: &mut Io<'_>, why: ReliableError) {
        self.sender.fail(why);
        self.receiver.fail(io, why);
        self.sender.progress(io);
    }

    fn destroy(&mut self, nic: &mut Nic) {
        self.sender.destroy(nic);
        self.receiver.destroy(nic);
    }

    fn rtt(&self) -> Duration {
        self.sender.round_trip.rtt()
    }
}
