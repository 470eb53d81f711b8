//! The packets that a device sends, told to somebody by the names that scripts have for them: above its faults, and in their order.

use std::fmt;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use softnic_fault_injector::{PacketName, PacketNames};
use softnic_wire::TxFrame;

use crate::io::{PacketIo, TakeLocated};

/// Is told of each packet that a device sends, before faults decide over it: its name, and how long the frame is.
///
/// It is called by whoever moves frames, so it must be short, and must not call the NIC.
#[derive(Clone)]
pub struct PacketSink(Arc<dyn Fn(PacketName, usize) + Send + Sync>);

impl PacketSink {
    /// Calls `tell` with each packet.
    pub fn new(tell: impl Fn(PacketName, usize) + Send + Sync + 'static) -> PacketSink {
        PacketSink(Arc::new(tell))
    }
}

impl fmt::Debug for PacketSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PacketSink")
    }
}

/// A backend whose packets are told. Each counts by itself, as scripts do.
pub(crate) struct Told<I> {
    inner: I,
    names: PacketNames,
    sink: PacketSink,
}

impl<I: PacketIo> Told<I> {
    pub(crate) fn new(inner: I, sink: PacketSink) -> Told<I> {
        Told { inner, names: PacketNames::with_room(), sink }
    }
}

impl<I: PacketIo> PacketIo for Told<I> {
    fn receive(&mut self, limit: usize, take: &mut dyn FnMut(&mut [u8])) -> io::Result<usize> {
        self.inner.receive(limit, take)
    }

    fn receive_located(&mut self, limit: usize, take: &mut TakeLocated<'_>) -> io::Result<usize> {
        self.inner.receive_located(limit, take)
    }

    fn transmit(&mut self, limit: usize, next: &mut dyn FnMut(&mut TxFrame<'_>) -> bool) -> io::Result<usize> {
        let Told { inner, names, sink } = self;
        inner.transmit(limit, &mut |frame| {
            let is_one = next(frame);
            // All headers lie in the first segment.
            if is_one && let Some(name) = names.name(frame.segments().0) {
                sink.0(name, frame.len());
            }
            is_one
        })
    }

    fn wait(&mut self, timeout: Duration) -> io::Result<()> {
        self.inner.wait(timeout)
    }

    fn readiness(&self) -> io::Result<Vec<OwnedFd>> {
        self.inner.readiness()
    }

    fn prepare_sleep(&mut self) -> bool {
        self.inner.prepare_sleep()
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
        self.inner.lost()
    }

    fn joined(&self) -> u64 {
        self.inner.joined()
    }

    fn descriptors(&self) -> Vec<RawFd> {
        self.inner.descriptors()
    }

    fn max_frame(&self) -> usize {
        self.inner.max_frame()
    }
}
