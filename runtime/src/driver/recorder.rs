//! The capture of a loop: every frame of a batch, and the first error.

use std::io::Write;

use softnic_pcaps::{PcapWriter, Timestamp};
use softnic_wire::{Instant, TxFrame};

use super::DriverError;

/// Writes the frames of one batch to the capture, if there is one, and keeps the first error.
pub(super) struct Recorder<'a> {
    capture: Option<&'a mut PcapWriter<Box<dyn Write + Send>>>,
    epoch: u64,
    pub(super) result: Result<(), DriverError>,
}

impl<'a> Recorder<'a> {
    pub(super) fn new(capture: &'a mut Option<PcapWriter<Box<dyn Write + Send>>>, epoch: u64) -> Recorder<'a> {
        Recorder { capture: capture.as_mut(), epoch, result: Ok(()) }
    }

    pub(super) fn write(&mut self, now: Instant, frame: &[u8]) {
        let Some(capture) = &mut self.capture else { return };
        if self.result.is_ok() {
            let time = Timestamp::from_nanos((self.epoch + now.as_nanos()).into());
            self.result = capture.write(time, frame, frame.len() as u32).map_err(DriverError::Capture);
        }
    }

    /// The same of a frame that may lie in two pieces, which are joined in `scratch`.
    pub(super) fn write_segments(&mut self, now: Instant, tx: &TxFrame<'_>, scratch: &mut [u8]) {
        if self.capture.is_none() {
            return;
        }
        match tx.segments() {
            (all, []) => self.write(now, all),
            (first, second) => {
                let joined = &mut scratch[..first.len() + second.len()];
                joined[..first.len()].copy_from_slice(first);
                joined[first.len()..].copy_from_slice(second);
                self.write(now, joined);
            }
        }
    }
}
