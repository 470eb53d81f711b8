//! What the two ends of a run tell each other beside the wire: lines of JSON over a stream.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use softnic_runtime::api::{self, Context};

use super::best_effort::Delivered;
use super::plan::Plan;
use super::reliable::ReliableOutcome;
use super::sdr::Chunks;
use super::stop;

/// Changes whenever an older end would misunderstand a newer one. tools/perf_peer.py speaks it too.
pub(crate) const VERSION: u32 = 1;
/// How long the peer may be silent where it has nothing to do but answer.
const PATIENCE: Duration = Duration::from_secs(30);
/// Longer lines are no peer's of ours: with 16,384 queue pairs one has about 600,000 bytes.
const LONGEST_LINE: usize = 1 << 20;

/// A queue pair, as the peer must know it.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct QpInfo {
    pub(crate) qpn: u32,
    pub(crate) psn: u32,
}

/// Everything that an end tells of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) version: u32,
    pub(crate) plan: Plan,
    /// Where its NIC is: not where the stream goes.
    pub(crate) address: IpAddr,
    pub(crate) mac: [u8; 6],
    /// The longest payload that its device carries.
    pub(crate) max_mtu: u32,
    /// The longest IP packet that its link carries, where it says so.
    #[serde(default)]
    pub(crate) link_mtu: Option<u32>,
    pub(crate) queue_pairs: Vec<QpInfo>,
    pub(crate) memory: u64,
    pub(crate) rkey: u32,
    /// It has reliable messages over SDR, and a plan that asks for them has them.
    #[serde(default)]
    pub(crate) reliable: bool,
}

/// A line.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Message {
    /// The first line each way.
    Hello(Box<Hello>),
    /// The client begins with a size, after so many messages that do not count.
    Go { size: u32, warm_up: u64 },
    /// The server is ready for it.
    Ready,
    /// The client sent so many on each queue pair.
    Done { sent: Vec<u64> },
    /// What became of it at the server: messages that came and count, and the time from the first of them to the last.
    Outcome {
        received: u64,
        seconds: f64,
        /// Where messages may come in part.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        delivered: Option<Delivered>,
    },
    /// The SDR queue pair of a size: its number, and all that its peer must know. The client's, then the server's.
    Sdr { qpn: u32, info: Vec<u8> },
    /// What became of a size of an SDR run at the server.
    Chunks(Chunks),
    /// The round trip that the client of a run of reliable messages measured.
    RoundTrip { ns: u64 },
    /// The NICs did not agree on what the plan asks for: the transport below it is used.
    Fallback,
    /// What became of a size of reliable messages at the server.
    Reliable(ReliableOutcome),
    /// Something went wrong.
    Failed { reason: String },
    /// That was all.
    Bye,
}

trait Stream: Read + Write + Send {}
impl<T: Read + Write + Send> Stream for T {}

/// One end of the stream; it never waits by itself.
pub(crate) struct Control {
    stream: Box<dyn Stream>,
    buffer: Vec<u8>,
    /// Bytes of the buffer in which there is no end of a line.
    searched: usize,
    /// Where the peer is in the network of the stream, if it is another process.
    pub(crate) peer: Option<IpAddr>,
    /// Whether Ctrl-C ends a wait: of two ends in one process only the client looks at it.
    pub(crate) interruptible: bool,
}

impl Control {
    pub(crate) fn tcp(stream: TcpStream) -> io::Result<Control> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let peer = Some(stream.peer_addr()?.ip().to_canonical());
        Ok(Control { stream: Box::new(stream), buffer: Vec::new(), searched: 0, peer, interruptible: true })
    }

    /// By the NIC's own TCP.
    pub(crate) fn own(stream: api::Stream) -> Control {
        let peer = Some(stream.peer().ip().to_canonical());
        Control { stream: Box::new(stream), buffer: Vec::new(), searched: 0, peer, interruptible: true }
    }

    /// The two ends of a stream inside this process: the client's and the server's.
    pub(crate) fn pair() -> io::Result<(Control, Control)> {
        let (a, b) = UnixStream::pair()?;
        a.set_nonblocking(true)?;
        b.set_nonblocking(true)?;
        let end = |stream, interruptible| Control {
            stream: Box::new(stream),
            buffer: Vec::new(),
            searched: 0,
            peer: None,

            interruptible,
        };
        Ok((end(a, true), end(b, false)))
    }

    pub(crate) fn send(&mut self, message: &Message) -> Result<(), String> {
        let mut line = serde_json::to_vec(message).map_err(|e| e.to_string())?;
        line.push(b'\n');
        let mut rest = &line[..];
        let start = Instant::now();
        while !rest.is_empty() {
            match self.stream.write(rest) {
                Ok(n) => rest = &rest[n..],
                Err(e) if e.kind() == ErrorKind::WouldBlock && start.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(gone(&e.to_string())),
            }
        }
        Ok(())
    }

    /// The next line, if it is there. What the peer says of its own failure is an error here.
    pub(crate) fn try_receive(&mut self) -> Result<Option<Message>, String> {
        loop {
            if let Some(end) = self.buffer[self.searched..].iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=self.searched + end).collect();
                self.searched = 0;
                return match serde_json::from_slice(&line) {
                    Ok(Message::Failed { reason }) => Err(format!("the peer says: {reason}")),
                    Ok(message) => Ok(Some(message)),
                    Err(_) => Err("the peer speaks another language: is it softnic perf of the same version?".into()),
                };
            }
            self.searched = self.buffer.len();
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err(gone("it closed the connection")),
                Ok(n) if self.buffer.len() + n <= LONGEST_LINE => self.buffer.extend_from_slice(&bytes[..n]),
                Ok(_) => return Err("the peer's line never ends".into()),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(gone(&e.to_string())),
            }
        }
    }

    /// Waits for the next line, while the NIC goes on where there is one. The stream may be carried by that NIC's own interface, and would say
    /// nothing of its end.
    pub(crate) fn receive(&mut self, nic: Option<&Context>) -> Result<Message, String> {
        let start = Instant::now();
        loop {
            if let Some(message) = self.try_receive()? {
                return Ok(message);
            }
            if self.interruptible && stop::requested() {
                return Err(stop::MESSAGE.into());
            }
            if start.elapsed() > PATIENCE {
                return Err(format!("the peer said nothing for {} seconds", PATIENCE.as_secs()));
            }
            let mut busy = false;
            if let Some(nic) = nic {
                must_work(nic)?;
                (0..64).for_each(|_| busy |= nic.progress());
            }
            if !busy {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
    }
}

/// A NIC that has stopped brings nothing more, and ends every wait.
pub(crate) fn must_work(nic: &Context) -> Result<(), String> {
    nic.failure().map_or(Ok(()), |failure| Err(format!("the device failed: {failure}")))
}

fn gone(why: &str) -> String {
    format!("the peer is gone: {why}")
}

/// What is said when a line comes that has no place here.
pub(crate) fn unexpected(message: &Message) -> String {
    format!("the peer said something out of turn: {message:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time, and no end of a line.
    struct Drip(u64);

    impl Read for Drip {
        fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
            self.0 += 1;
            bytes[0] = b'x';
            Ok(1)
        }
    }

    impl Write for Drip {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_line_without_an_end_is_given_up_and_no_byte_of_it_is_searched_twice() {
        // A search of all that came after each byte would take an hour.
        let drip = Box::new(Drip(0));
        let mut control = Control { stream: drip, buffer: Vec::new(), searched: 0, peer: None, interruptible: false };
        assert!(control.try_receive().unwrap_err().contains("never ends"));
        assert_eq!(control.buffer.len(), LONGEST_LINE);
    }

    #[test]
    fn lines_are_taken_apart_however_they_come() {
        let (mut a, mut b) = Control::pair().unwrap();
        for _ in 0..3 {
            a.send(&Message::Ready).unwrap();
            a.send(&Message::Bye).unwrap();
        }
        for _ in 0..3 {
            assert!(matches!(b.try_receive(), Ok(Some(Message::Ready))));
            assert!(matches!(b.try_receive(), Ok(Some(Message::Bye))));
        }
        assert!(matches!(b.try_receive(), Ok(None)));
    }
}
