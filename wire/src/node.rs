//! The trait of anything that has ports and timers: a host NIC, a switch, a bump in the wire.

use crate::{Instant, Layout, TxFrame};

/// A Node. It takes frames and time as arguments and hands out frames; it reads no clock and opens no socket.
pub trait Node {
    /// A frame came in at `port`. It may be written to during the call and is free afterwards.
    ///
    /// Poll for frames to send, and for the timer, afterwards; a driver feeds a batch of frames before it does so.
    fn handle_frame(&mut self, now: Instant, port: usize, frame: &mut [u8]);

    /// [`Node::handle_frame`] of a frame whose layout its driver has found already; a Node that reads the layout need not find it again.
    fn handle_located(&mut self, now: Instant, port: usize, frame: &mut [u8], _: Layout) {
        self.handle_frame(now, port, frame);
    }

    /// Writes the next frame that `port` sends now; `false` when there is none. What one port sends can be a reason for
    /// another to send: a driver is done when it asked them all and none had anything.
    fn poll_transmit(&mut self, now: Instant, port: usize, tx: &mut TxFrame<'_>) -> bool;

    /// Whether [`Node::poll_transmit`] may have a frame for `port`: a driver of several ports need not ask for those that certainly have none.
    fn may_transmit(&self, _port: usize) -> bool {
        true
    }

    /// When [`Node::handle_timeout`] wants to be called; it may turn out to be too early, never too late.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Time has passed.
    fn handle_timeout(&mut self, now: Instant);
}
