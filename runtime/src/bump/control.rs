//! Other faults for a wire that runs: over an abstract socket that vanishes with the process.
//!
//! A wire listens at `softnic-wire/PID/N`. Whoever connects, as the same user or as root, sends a SPEC and ends the stream, and gets one line:
//! `ok`, or why the SPEC is refused.

use std::io::{self, ErrorKind, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::time::Duration;

use super::{Faults, Shared};
use crate::api::RunningNic;
use crate::api::status::{may_ask, read_line, take_clients};
use crate::background::Background;

/// How every name begins.
const PREFIX: &str = "softnic-wire/";
/// How long the other side may take.
const PATIENCE: Duration = Duration::from_secs(1);
/// Wires of one process.
const MAX_WIRES: u32 = 64;

/// Why a wire did not take other faults.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The SPEC is not understood there.
    #[error("the wire of process {0} refuses: {1}")]
    Refused(u32, String),
    /// It belongs to another user.
    #[error("the wire of process {0} belongs to another user")]
    AnotherUser(u32),
    /// It is gone, or does not answer.
    #[error("the wire of process {0} does not answer: {1}")]
    Silent(u32, io::Error),
}

/// A wire that can be told of other faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RunningWire {
    /// Its process.
    pub pid: u32,
    index: u32,
}

impl RunningWire {
    /// The first wire of a process.
    pub fn of(pid: u32) -> RunningWire {
        RunningWire { pid, index: 0 }
    }

    fn address(self) -> io::Result<SocketAddr> {
        SocketAddr::from_abstract_name(format!("{PREFIX}{}/{}", self.pid, self.index))
    }

    /// Other faults from now on.
    ///
    /// # Errors
    /// When it refuses them, is another user's, or is gone.
    pub fn set_faults(self, text: &str) -> Result<(), WireError> {
        let silent = |e| WireError::Silent(self.pid, e);
        let mut stream = UnixStream::connect_addr(&self.address().map_err(silent)?).map_err(silent)?;
        RunningNic { pid: self.pid, index: self.index }.check_answerer(&stream).map_err(silent)?;
        let sent = stream.write_all(text.as_bytes()).and_then(|()| stream.shutdown(Shutdown::Write));
        match sent.and_then(|()| read_line(&stream)).map_err(silent)?.trim_end() {
            "ok" => Ok(()),
            "" => Err(WireError::AnotherUser(self.pid)),
            why => Err(WireError::Refused(self.pid, why.into())),
        }
    }
}

/// Takes other faults from now on, as long as the result lives.
pub(super) fn serve(shared: &Arc<Shared>) -> io::Result<Background> {
    let shared = Arc::clone(shared);
    let listener = bind()?;
    let fd = listener.as_raw_fd();
    let thread = Background::start("softnic-control", move |stop| {
        // Whoever asked may be gone.
        let serve = |stream: UnixStream| drop(may_ask(&stream).then(|| change(&stream, &shared)));
        take_clients(&listener, stop, serve, |pause| stop.wait_on(&[], Some(pause)));
    })?;
    Ok(thread.holding(fd))
}

fn bind() -> io::Result<UnixListener> {
    for index in 0..MAX_WIRES {
        let wire = RunningWire { pid: std::process::id(), index };
        match UnixListener::bind_addr(&wire.address()?) {
            Ok(listener) => return listener.set_nonblocking(true).map(|()| listener),
            Err(e) if e.kind() == ErrorKind::AddrInUse => {}
            Err(e) => return Err(e),
        }
    }
    Err(ErrorKind::AddrInUse.into())
}

fn change(mut stream: &UnixStream, shared: &Shared) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let text = read_line(stream)?;
    match text.trim().parse::<Faults>().and_then(|faults| faults.spec.check_link().map(|()| faults)) {
        Ok(faults) => {
            shared.set_faults(faults);
            stream.write_all(b"ok\n")
        }
        Err(e) => writeln!(stream, "{e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wire_takes_another_spec_and_refuses_a_wrong_one() {
        let shared = Arc::new(Shared::default());
        let control = serve(&shared).unwrap();
        let wire = RunningWire::of(std::process::id());
        assert!(shared.take_change().is_none());
        wire.set_faults("loss=1e-3,ba.delay=5ms").unwrap();
        let faults = shared.take_change().unwrap();
        assert_eq!(faults.text, "loss=1e-3,ba.delay=5ms");
        assert_eq!(faults.spec, faults.text.parse().unwrap());
        assert!(shared.take_change().is_none(), "once");
        for (wrong, words) in [("loss=2", "loss"), ("rx.loss=1", "rx."), ("nonsense", "nonsense")] {
            let error = wire.set_faults(wrong).unwrap_err().to_string();
            assert!(error.contains("refuses") && error.contains(words), "{error}");
        }
        assert!(shared.take_change().is_none() && shared.faults().text.starts_with("loss=1e-3"));
        wire.set_faults("").unwrap();
        assert_eq!(shared.take_change().unwrap(), Faults::default());
        drop(control);
        assert!(matches!(wire.set_faults(""), Err(WireError::Silent(..))));
    }
}
