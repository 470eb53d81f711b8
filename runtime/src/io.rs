//! What the loop needs of a packet IO backend.

use std::io;
use std::time::Duration;

/// The longest frame that backends carry: path MTU 4096 with every header, and room for tags.
pub const MAX_FRAME: usize = 4096 + 256;

/// What became of a frame that was to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// It is on its way.
    Yes,
    /// There is no room at the moment: the same frame must be offered again later.
    Full,
    /// It is lost, as on a cable that is not plugged in; the backend counts it.
    Lost,
}

/// Where frames come from and go to.
pub trait PacketIo {
    /// Takes the next frame into `buffer`; waits for one as long as `wait` says. `None` when there is none.
    ///
    /// `buffer` must be longer than any frame: one that fills it may have been longer, and is dropped.
    fn receive(&mut self, buffer: &mut [u8], wait: Duration) -> io::Result<Option<usize>>;

    /// Sends a frame; never waits.
    fn send(&mut self, frame: &[u8]) -> io::Result<Sent>;
}
