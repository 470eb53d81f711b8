//! A socket of smoltcp: its buffers and timers, and how its stream ended.

use smoltcp::socket::tcp::{Socket, SocketBuffer, State};
use softnic_wire::Instant;

use super::{BUFFER, HANDSHAKE, Stream, StreamError};

/// What made smoltcp act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cause {
    Segment { resets: bool },
    Time,
}

/// Converts a time for smoltcp.
pub(super) fn smol(now: Instant) -> smoltcp::time::Instant {
    smoltcp::time::Instant::from_micros((now.as_nanos() / 1000) as i64)
}

/// Converts a time of smoltcp: the earliest time that [`smol`] converts to `at`.
pub(super) fn ours(at: smoltcp::time::Instant) -> Instant {
    Instant::from_nanos(u64::try_from(at.total_micros()).unwrap_or(0).saturating_mul(1000))
}

/// A socket with its buffers.
pub(super) fn new_socket() -> Socket<'static> {
    let buffer = || SocketBuffer::new(vec![0; BUFFER]);
    let mut socket = Socket::new(buffer(), buffer());
    // Programs write whole messages, and the peer waits for each.
    socket.set_nagle_enabled(false);
    socket.set_timeout(Some(HANDSHAKE.into()));
    socket
}

/// Whether a connection is past its handshake, and not at its end.
pub(super) fn is_open(state: State) -> bool {
    use State::{CloseWait, Closing, Established, FinWait1, FinWait2, LastAck};
    matches!(state, Established | CloseWait | FinWait1 | FinWait2 | Closing | LastAck)
}

/// Whether the peer has something to acknowledge.
pub(super) fn is_outstanding(socket: &Socket<'_>) -> bool {
    socket.send_queue() > 0 || matches!(socket.state(), State::FinWait1 | State::Closing | State::LastAck)
}

impl Stream {
    /// Handles a possible change of state of a program's stream: when the stream ends, records how.
    pub(super) fn note_change(&mut self, socket: &mut Socket<'_>, old: State, cause: Cause) {
        let opening = |state| matches!(state, State::SynSent | State::SynReceived);
        match self.state {
            State::TimeWait => {
                // The buffer is a ring: data that wraps around is in the next slice.
                while socket.can_recv() {
                    self.rest.extend(socket.recv(|bytes| (bytes.len(), bytes.to_vec())).unwrap_or_default());
                }
            }
            State::Closed if old != State::Closed && self.error.is_none() => {
                self.error = match (cause, old) {
                    (Cause::Segment { resets: true }, old) if opening(old) => Some(StreamError::Refused),
                    (Cause::Segment { resets: true }, _) => Some(StreamError::Reset),
                    // The last acknowledgement ends a connection in the normal way.
                    (Cause::Segment { .. }, _) | (_, State::TimeWait) => None,
                    (_, old) if opening(old) => Some(StreamError::NoAnswer),
                    _ => Some(StreamError::TimedOut),
                };
            }
            _ => {}
        }
    }
}
