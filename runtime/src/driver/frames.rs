//! Frames between the ports of a driver and its Node, in batches.

use std::ops::RangeInclusive;

use softnic_wire::{Error, Instant, Node, TxFrame};

use super::recorder::Recorder;
use super::{BATCH, BURST, BURST_BYTES, Driver, DriverError, DriverPort, failed};
use crate::io::{MAX_FRAME, PacketIo};

impl<N: Node, I: PacketIo> Driver<N, I> {
    /// Receives a batch of frames from the ports with these indexes: RoCE packets go to the Node, all other frames to the port's stack.
    /// Reads the clock only if a frame arrived.
    pub(super) fn receive(
        &mut self,
        ports: RangeInclusive<usize>,
        now: Option<Instant>,
        before: &mut dyn FnMut(&mut N, Instant),
    ) -> Result<bool, DriverError> {
        let (mut now, start) = (now, self.start);
        let mut record = Recorder::new(&mut self.shown, self.epoch);
        let (node, mut any) = (&mut self.node, false);
        for place in ports {
            let DriverPort { number, io, stack } = &mut self.ports[place];
            let taken = io.receive_located(BATCH, &mut |frame, layout| {
                let now = *now.get_or_insert_with(|| Instant::ZERO + start.elapsed());
                before(node, now);
                record.received(now, node, *number, frame);
                match layout {
                    Ok(layout) => node.handle_located(now, *number, frame, layout),
                    Err(Error::NotRoce(_)) => stack.handle_frame(now, 0, frame),
                    Err(_) => node.handle_frame(now, *number, frame),
                }
            });
            if taken.map_err(failed(*number))? > 0 {
                (any, self.latest) = (true, place);
            }
        }
        if let Some(now) = now.filter(|_| any) {
            record.settled(now, node);
        }
        record.result.map(|()| any)
    }

    /// Frames between queue pairs of one NIC never reach the wire, but the capture includes them.
    pub(super) fn loop_back(&mut self, now: Instant) -> Result<bool, DriverError> {
        let Some(loopback) = self.loopback else { return Ok(false) };
        let mut record = Recorder::new(&mut self.shown, self.epoch);
        let mut busy = false;
        for _ in 0..BURST {
            let mut tx = TxFrame::new(&mut self.scratch);
            if !self.node.poll_transmit(now, loopback, &mut tx) {
                break;
            }
            busy = true;
            let len = tx.len();
            record.sent_whole(now, &self.node, loopback, &self.scratch[..len]);
            record.received_back(now, &self.node, loopback, &self.scratch[..len]);
            self.node.handle_frame(now, loopback, &mut self.scratch[..len]);
        }
        record.result.map(|()| busy)
    }

    /// Sends a burst of at most `limit` frames at each port. A backend asks for frames only while it has room, so no frame is ever kept
    /// here.
    pub(super) fn transmit(&mut self, now: Instant, limit: usize) -> Result<bool, DriverError> {
        let looks_at_all = self.looks_at_all();
        let mut record = Recorder::new(&mut self.shown, self.epoch);
        let (node, scratch) = (&mut self.node, &mut self.scratch);
        let (mut any, mut all_drained) = (false, true);
        for DriverPort { number, io, stack } in &mut self.ports {
            if !(looks_at_all || node.may_transmit(*number) || stack.may_transmit(0)) {
                continue;
            }
            let (mut bytes, mut drained) = (0, false);
            let mut next = |tx: &mut TxFrame<'_>| {
                if bytes >= BURST_BYTES {
                    return false;
                }
                if !stack.poll_transmit(now, 0, tx) && !node.poll_transmit(now, *number, tx) {
                    drained = true;
                    return false;
                }
                bytes += tx.len();
                // A frame that is lost on the way out is in the capture: it left the Node, and so the capture explains the peer's silence.
                record.sent(now, node, *number, tx, scratch);
                true
            };
            let cut = !self.cut.is_empty() && self.cut.contains(number);
            let sent = if cut { Ok(lose(limit, &mut next)) } else { io.transmit(limit, &mut next) };
            any |= sent.map_err(failed(*number))? > 0;
            // A backend without room did not ask the Node for a frame.
            all_drained &= drained;
        }
        record.settled(now, node);
        record.result?;
        self.drained = all_drained;
        Ok(any)
    }
}

/// Takes at most `limit` frames and drops them; returns their number.
#[cold]
fn lose(limit: usize, next: &mut dyn FnMut(&mut TxFrame<'_>) -> bool) -> usize {
    let mut nowhere = [0; MAX_FRAME];
    (0..limit).take_while(|_| next(&mut TxFrame::new(&mut nowhere))).count()
}
