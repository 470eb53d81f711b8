//! Streams by a port's own TCP, for NICs whose packets no kernel sees: programs on two of them talk by these before they connect queue pairs.
//!
//! They never wait: a read or a write that finds nothing to do says [`ErrorKind::WouldBlock`], as a socket of the kernel's does that does
//! not block. Progress is the NIC's.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use softnic_nic::Nic;

use super::context::Context;
use crate::stack::{Stack, StreamError, StreamId, StreamState};

/// Connections that may wait to be accepted.
const BACKLOG: usize = 8;
/// How long a stream that ends waits until the peer has what was written: its NIC may be closed right behind it.
const LINGER: Duration = Duration::from_millis(500);
/// How often to look meanwhile.
const LOOK: Duration = Duration::from_micros(200);

/// A port of the NIC's own TCP at which connections come in.
#[derive(Debug)]
pub struct StreamListener {
    context: Context,
    port: u16,
}

/// A connection of the NIC's own TCP.
#[derive(Debug)]
pub struct Stream {
    context: Context,
    id: StreamId,
    peer: SocketAddr,
}

impl From<StreamError> for io::Error {
    fn from(error: StreamError) -> io::Error {
        let kind = match error {
            StreamError::Refused => ErrorKind::ConnectionRefused,
            StreamError::Reset => ErrorKind::ConnectionReset,
            StreamError::NoAnswer | StreamError::TimedOut => ErrorKind::TimedOut,
            StreamError::ShutDown => ErrorKind::BrokenPipe,
            StreamError::NoStreams => ErrorKind::Unsupported,
            StreamError::PortInUse(_) => ErrorKind::AddrInUse,
            StreamError::NoEndpoint => ErrorKind::InvalidInput,
            StreamError::Neighbour(_) => ErrorKind::HostUnreachable,
            StreamError::NoSuchStream | StreamError::TooManyListeners | StreamError::TooManyStreams => ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

impl Context {
    /// Does something with the stack of the port, and lets what follows leave.
    fn with_stack<T>(
        &self,
        what: impl FnOnce(&mut Stack, softnic_wire::Instant) -> Result<T, StreamError>,
    ) -> io::Result<T> {
        // What is no RoCE comes to the first engine, and leaves there.
        let engine = &self.inner().engines()[0];
        let mut core = engine.control();
        if let Some(why) = engine.failure() {
            return Err(io::Error::other(why.to_string()));
        }
        let now = core.driver.now();
        let stack = core.driver.stack(Nic::WIRE).ok_or(StreamError::NoStreams)?;
        let result = what(stack, now);
        engine.progress(&mut core);
        Ok(result?)
    }

    /// Whether streams reach an address: the port has a TCP of its own, and the address is on its link or behind its gateway.
    pub fn reaches_by_streams(&self, address: IpAddr) -> bool {
        let reaches = |stack: &mut Stack, _| {
            stack.streams()?;
            Ok(!stack.neighbours().is_ours(address) && stack.neighbours().next_hop(address).is_ok())
        };
        !address.is_loopback() && self.with_stack(reaches).unwrap_or(false)
    }

    /// Takes connections to a port of the NIC's own TCP.
    ///
    /// # Errors
    /// When the NIC has none ([`ErrorKind::Unsupported`]), or the port is taken.
    pub fn listen_stream(&self, port: u16) -> io::Result<StreamListener> {
        self.with_stack(|stack, _| stack.streams()?.listen(port, BACKLOG))?;
        Ok(StreamListener { context: self.clone(), port })
    }

    /// Connects to a peer by the NIC's own TCP; waits until that is done.
    ///
    /// # Errors
    /// When the NIC has none, nobody listens there, or nobody answers.
    pub fn connect_stream(&self, peer: SocketAddr) -> io::Result<Stream> {
        let id = self.with_stack(|stack, _| stack.connect(peer))?;
        let stream = Stream { context: self.clone(), id, peer };
        loop {
            match self.with_stack(|stack, _| stack.streams()?.state(id))? {
                StreamState::Connecting => std::thread::sleep(LOOK),
                StreamState::Failed(error) => return Err(error.into()),
                StreamState::Open | StreamState::Closed => return Ok(stream),
            }
        }
    }
}

impl StreamListener {
    /// The next connection, if there is one.
    ///
    /// # Errors
    /// [`ErrorKind::WouldBlock`] where there is none.
    pub fn accept(&self) -> io::Result<Stream> {
        match self.context.with_stack(|stack, _| Ok(stack.streams()?.accept(self.port)))? {
            Some((id, peer)) => Ok(Stream { context: self.context.clone(), id, peer }),
            None => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

impl Drop for StreamListener {
    fn drop(&mut self) {
        // A wire that failed has no listeners.
        let _ = self.context.with_stack(|stack, _| {
            stack.streams()?.unlisten(self.port);
            Ok(())
        });
    }
}

impl Stream {
    /// Who is at the other end.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }
}

impl Read for Stream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let read = self.context.with_stack(|stack, _| stack.streams()?.read(self.id, room))?;
        read.ok_or_else(|| ErrorKind::WouldBlock.into())
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.context.with_stack(|stack, _| stack.streams()?.write(self.id, bytes))? {
            0 if !bytes.is_empty() => Err(ErrorKind::WouldBlock.into()),
            written => Ok(written),
        }
    }

    /// Waits until the peer has acknowledged what was written, for a while.
    fn flush(&mut self) -> io::Result<()> {
        let start = Instant::now();
        while self.context.with_stack(|stack, _| stack.streams()?.unacknowledged(self.id))? > 0 {
            if start.elapsed() > LINGER {
                return Err(ErrorKind::TimedOut.into());
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // A peer that is gone takes nothing any more.
        let _ = self.flush();
        let _ = self.context.with_stack(|stack, now| {
            stack.streams()?.close(now, self.id);
            Ok(())
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::OpenOptions;

    /// Two NICs with sockets between them, and a folder that goes with them.
    struct Pair(std::path::PathBuf, [Context; 2]);

    impl Drop for Pair {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn pair(name: &str) -> Pair {
        let folder = std::env::temp_dir().join(format!("softnic-streams-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let at = |name: &str| folder.join(name).display().to_string();
        let open = |ours: &str, theirs: &str, n: u8| {
            let device = format!("dgram:{},{},ip=10.9.0.{n}/24", at(ours), at(theirs)).parse().unwrap();
            Context::open(&device, &OpenOptions::default()).unwrap()
        };
        let contexts = [open("a", "b", 1), open("b", "a", 2)];
        Pair(folder, contexts)
    }

    fn accepted(listener: &StreamListener) -> Stream {
        loop {
            match listener.accept() {
                Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::sleep(LOOK),
                stream => return stream.unwrap(),
            }
        }
    }

    #[test]
    fn two_nics_talk_by_their_own_tcp() {
        let Pair(_, [a, b]) = &pair("talk");
        let listener = b.listen_stream(18515).unwrap();
        assert_eq!(b.listen_stream(18515).unwrap_err().kind(), ErrorKind::AddrInUse);
        assert!(a.reaches_by_streams([10, 9, 0, 2].into()) && !a.reaches_by_streams([127, 0, 0, 1].into()));
        let mut client = a.connect_stream(SocketAddr::from(([10, 9, 0, 2], 18515))).unwrap();
        let mut server = accepted(&listener);
        assert_eq!(server.peer().ip(), IpAddr::from([10, 9, 0, 1]));
        let sent: Vec<u8> = (0..1 << 20).map(|n: u32| n.wrapping_mul(0x9e37_79b9).to_be_bytes()[0]).collect();
        let (mut rest, mut came, mut room) = (&sent[..], Vec::new(), [0; 4096]);
        while came.len() < sent.len() {
            match client.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(e) => assert!(e.kind() == ErrorKind::WouldBlock, "{e}"),
            }
            match server.read(&mut room) {
                Ok(n) => came.extend_from_slice(&room[..n]),
                Err(e) => assert!(e.kind() == ErrorKind::WouldBlock, "{e}"),
            }
        }
        assert!(came == sent);
        drop(client);
        let end = loop {
            match server.read(&mut room) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => std::thread::sleep(LOOK),
                end => break end,
            }
        };
        assert_eq!(end.unwrap(), 0, "the other end is over");
    }

    #[test]
    fn who_does_not_listen_refuses_and_who_is_not_there_is_unreachable() {
        let Pair(_, [a, _b]) = &pair("none");
        let refused = a.connect_stream(SocketAddr::from(([10, 9, 0, 2], 1))).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
        let absent = a.connect_stream(SocketAddr::from(([10, 9, 0, 3], 1))).unwrap_err();
        assert_eq!(absent.kind(), ErrorKind::HostUnreachable, "{absent}");
    }

    #[test]
    fn a_nic_without_a_tcp_of_its_own_says_so() {
        let options = OpenOptions::default();
        let [a, _b] = Context::open_pair([&options, &options]).unwrap();
        assert_eq!(a.listen_stream(18515).unwrap_err().kind(), ErrorKind::Unsupported);
        assert!(!a.reaches_by_streams([10, 0, 0, 2].into()));
    }
}
