//! The observers of a loop's frames: a capture, a trace, or none.

use std::io::{self, Write};

use softnic_pcaps::{PcapWriter, Timestamp};
use softnic_shift::DualNic;
use softnic_trace::Observer;
use softnic_wire::{Instant, TxFrame};

use super::DriverError;

/// Sees each frame of a Node, and the Node itself after all frames of a batch.
pub(crate) trait Watch<N>: Send {
    /// The Node is about to handle a frame that arrived at a port.
    fn received(&mut self, now: Instant, node: &N, port: usize, frame: &[u8]);
    /// The Node has written a frame, for a port.
    fn sent(&mut self, now: Instant, node: &N, port: usize, frame: &[u8]);
    /// The Node has handled the batch.
    fn settled(&mut self, now: Instant, node: &N);
    /// Writes out buffered data; returns the first error since the last call.
    fn flush(&mut self) -> io::Result<()>;
}

/// A trace covers the queue pairs that programs see: those of the default NIC. The backup numbers its own queue pairs from the same start.
impl Watch<DualNic> for Observer {
    fn received(&mut self, now: Instant, node: &DualNic, port: usize, frame: &[u8]) {
        if port != DualNic::BACKUP {
            Observer::received(self, now, &node.nic, frame);
        }
    }

    fn sent(&mut self, now: Instant, node: &DualNic, port: usize, frame: &[u8]) {
        if port != DualNic::BACKUP {
            Observer::sent(self, now, &node.nic, frame);
        }
    }

    fn settled(&mut self, now: Instant, node: &DualNic) {
        Observer::settled(self, now, &node.nic);
    }

    fn flush(&mut self) -> io::Result<()> {
        self.trace().flush()
    }
}

/// The capture and the observer of a loop.
pub(super) struct Shown<N> {
    pub(super) capture: Option<PcapWriter<Box<dyn Write + Send>>>,
    pub(super) watch: Option<Box<dyn Watch<N>>>,
}

/// Shows the frames of one batch to the observers, and keeps the first error.
pub(super) struct Recorder<'a, N> {
    /// `None` without observers: then each frame costs one check.
    shown: Option<&'a mut Shown<N>>,
    epoch: u64,
    pub(super) result: Result<(), DriverError>,
}

impl<'a, N> Recorder<'a, N> {
    pub(super) fn new(shown: &'a mut Option<Box<Shown<N>>>, epoch: u64) -> Recorder<'a, N> {
        Recorder { shown: shown.as_deref_mut(), epoch, result: Ok(()) }
    }

    /// Records a frame that the Node is about to handle.
    #[inline]
    pub(super) fn received(&mut self, now: Instant, node: &N, port: usize, frame: &[u8]) {
        if self.shown.is_some() {
            self.write(now, frame);
            if let Some(watch) = self.watch() {
                watch.received(now, node, port, frame);
            }
        }
    }

    /// Records a frame that the Node has written. A frame that lies in two pieces is joined in `scratch`.
    #[inline]
    pub(super) fn sent(&mut self, now: Instant, node: &N, port: usize, tx: &TxFrame<'_>, scratch: &mut [u8]) {
        if self.shown.is_none() {
            return;
        }
        let frame = match tx.segments() {
            (all, []) => all,
            (first, second) => {
                let joined = &mut scratch[..first.len() + second.len()];
                joined[..first.len()].copy_from_slice(first);
                joined[first.len()..].copy_from_slice(second);
                joined
            }
        };
        self.sent_whole(now, node, port, frame);
    }

    /// Records a frame that the Node has written, and that lies in one piece.
    pub(super) fn sent_whole(&mut self, now: Instant, node: &N, port: usize, frame: &[u8]) {
        self.write(now, frame);
        if let Some(watch) = self.watch() {
            watch.sent(now, node, port, frame);
        }
    }

    /// A frame that was recorded when the Node wrote it is looped back to the Node.
    pub(super) fn received_back(&mut self, now: Instant, node: &N, port: usize, frame: &[u8]) {
        if let Some(watch) = self.watch() {
            watch.received(now, node, port, frame);
        }
    }

    /// The batch is complete.
    #[inline]
    pub(super) fn settled(&mut self, now: Instant, node: &N) {
        if let Some(watch) = self.watch() {
            watch.settled(now, node);
        }
    }

    fn watch(&mut self) -> Option<&mut (dyn Watch<N> + 'static)> {
        self.shown.as_mut()?.watch.as_deref_mut()
    }

    fn write(&mut self, now: Instant, frame: &[u8]) {
        let Some(capture) = self.shown.as_mut().and_then(|shown| shown.capture.as_mut()) else { return };
        if self.result.is_ok() {
            let time = Timestamp::from_nanos((self.epoch + now.as_nanos()).into());
            self.result = capture.write(time, frame, frame.len() as u32).map_err(DriverError::Capture);
        }
    }
}
