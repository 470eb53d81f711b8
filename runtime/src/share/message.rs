//! The messages between clients and the daemon: datagrams of a UNIX socket that keeps their order. Descriptors are attached to them.

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg,
};
use softnic_nic::sharing::Process;
use softnic_wire::mad::ip_cm::ServiceId;

use super::{ClientStatus, Limits, Served};
use crate::afxdp::Shape;

/// The version of the protocol. Increase it whenever the messages become incompatible.
const VERSION: u8 = 1;
/// Maximum number of queues of a client; each has two descriptors.
pub(super) const MAX_QUEUES: u32 = 16;
const MAX_FDS: usize = 2 * MAX_QUEUES as usize;
/// Buffer sizes that every request and every reply fits; a reply has one entry for each possible client.
const REQUEST: usize = 64;
const REPLY: usize = 128 << 10;

/// A request of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Request {
    /// Register as a client, with this many queues, or with the daemon's default.
    Attach { queues: Option<u32> },
    /// Register again as a known client, with a new daemon.
    Return { process: Process, secret: [u8; 16] },
    /// Claim a service, so that the client gets the requests for it.
    Claim(ServiceId),
    /// Release that service.
    Release(ServiceId),
    /// Start or stop receiving frames to multicast groups.
    Groups(bool),
    /// List all clients.
    List,
}

/// The daemon's reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    /// A port was created. For each queue, a socket and its memory are attached.
    Attached { process: Process, secret: [u8; 16], limits: Limits, queues: u32, shape: Shape },
    /// The request was carried out.
    Done,
    /// Another client has the service.
    Taken,
    /// The request was refused, with a reason for the user.
    Refused(String),
    /// All clients.
    Listed(Served),
}

/// Encodes a message.
struct Writer(Vec<u8>);

impl Writer {
    fn new(kind: u8) -> Writer {
        Writer(vec![VERSION, kind])
    }

    fn put(mut self, bytes: &[u8]) -> Writer {
        self.0.extend_from_slice(bytes);
        self
    }

    fn u32(self, number: u32) -> Writer {
        self.put(&number.to_be_bytes())
    }

    fn u64(self, number: u64) -> Writer {
        self.put(&number.to_be_bytes())
    }
}

/// Decodes a message.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_be_bytes)
    }

    fn process(&mut self) -> Option<Process> {
        self.u32().and_then(Process::new)
    }

    fn end<T>(self, read: T) -> Option<T> {
        self.0.is_empty().then_some(read)
    }
}

impl Request {
    fn write(&self) -> Vec<u8> {
        match self {
            Request::Attach { queues } => Writer::new(1).u32(queues.unwrap_or(0)),
            Request::Return { process, secret } => Writer::new(2).u32(process.number()).put(secret),
            Request::Claim(service) => Writer::new(3).u64(service.0),
            Request::Release(service) => Writer::new(4).u64(service.0),
            Request::Groups(wanted) => Writer::new(5).u32((*wanted).into()),
            Request::List => Writer::new(6),
        }
        .0
    }

    fn read(message: &[u8]) -> Option<Request> {
        let mut r = Reader(message);
        let [VERSION, kind] = r.bytes()? else { return None };
        let request = match kind {
            1 => Request::Attach { queues: Some(r.u32()?).filter(|&n| n > 0) },
            2 => Request::Return { process: r.process()?, secret: r.bytes()? },
            3 => Request::Claim(ServiceId(r.u64()?)),
            4 => Request::Release(ServiceId(r.u64()?)),
            5 => Request::Groups(r.u32()? != 0),
            6 => Request::List,
            _ => return None,
        };
        r.end(request)
    }

    pub(super) fn send(&self, to: impl AsFd) -> io::Result<()> {
        send(to.as_fd(), &self.write(), &[])
    }

    /// Receives the next request; `None` at the end of the connection.
    pub(super) fn receive(from: impl AsFd) -> io::Result<Option<Request>> {
        match receive(from.as_fd(), RecvFlags::DONTWAIT, REQUEST)? {
            (said, _) if said.is_empty() => Ok(None),
            (said, _) => Request::read(&said).map(Some).ok_or(ErrorKind::InvalidData.into()),
        }
    }
}

impl Reply {
    fn write(&self) -> Vec<u8> {
        match self {
            Reply::Attached { process, secret, limits, queues, shape } => Writer::new(1)
                .u32(process.number())
                .put(secret)
                .u32(limits.queue_pairs)
                .u32(limits.regions)
                .u64(limits.rate)
                .u32(*queues)
                .u32(shape.rx_chunks)
                .u32(shape.tx_chunks)
                .u32(shape.multi_buffer.into())
                .u32(shape.fragments.into()),
            Reply::Done => Writer::new(2),
            Reply::Taken => Writer::new(3),
            Reply::Refused(why) => Writer::new(4).put(why.as_bytes()),
            Reply::Listed(served) => served.clients.iter().fold(Writer::new(5).u64(served.nobody), |writer, client| {
                let numbers = [client.process, client.pid, client.uid];
                let writer = numbers.iter().fold(writer, |writer, &number| writer.u32(number));
                client.counters().iter().fold(writer, |writer, &(_, count)| writer.u64(count))
            }),
        }
        .0
    }

    fn read(message: &[u8]) -> Option<Reply> {
        let mut r = Reader(message);
        let [VERSION, kind] = r.bytes()? else { return None };
        let reply = match kind {
            1 => Reply::Attached {
                process: r.process()?,
                secret: r.bytes()?,
                limits: Limits { queue_pairs: r.u32()?, regions: r.u32()?, rate: r.u64()? },
                queues: r.u32()?,
                shape: Shape {
                    rx_chunks: r.u32()?,
                    tx_chunks: r.u32()?,
                    multi_buffer: r.u32()? != 0,
                    fragments: r.u32()? != 0,
                },
            },
            2 => Reply::Done,
            3 => Reply::Taken,
            4 => Reply::Refused(String::from_utf8(std::mem::take(&mut r.0).to_vec()).ok()?),
            5 => {
                let (nobody, mut clients) = (r.u64()?, Vec::new());
                while !r.0.is_empty() {
                    clients.push(ClientStatus {
                        process: r.u32()?,
                        pid: r.u32()?,
                        uid: r.u32()?,
                        tx_frames: r.u64()?,
                        tx_bytes: r.u64()?,
                        tx_denied: r.u64()?,
                        tx_policed: r.u64()?,
                        rx_frames: r.u64()?,
                        rx_bytes: r.u64()?,
                    });
                }
                Reply::Listed(Served { nobody, clients })
            }
            _ => return None,
        };
        r.end(reply)
    }

    pub(super) fn send(&self, to: impl AsFd, beside: &[BorrowedFd<'_>]) -> io::Result<()> {
        send(to.as_fd(), &self.write(), beside)
    }

    /// Waits for the next reply; returns it with the attached descriptors.
    pub(super) fn receive(from: impl AsFd) -> io::Result<(Reply, Vec<OwnedFd>)> {
        match receive(from.as_fd(), RecvFlags::empty(), REPLY)? {
            (said, _) if said.is_empty() => Err(ErrorKind::UnexpectedEof.into()),
            (said, _) if said[0] != VERSION => {
                let why = format!("its messages are of version {}, ours of version {VERSION}", said[0]);
                Err(io::Error::new(ErrorKind::InvalidData, why))
            }
            (said, beside) => Reply::read(&said).map(|reply| (reply, beside)).ok_or(ErrorKind::InvalidData.into()),
        }
    }
}

fn send(to: BorrowedFd<'_>, said: &[u8], beside: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !beside.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(beside)) {
        return Err(ErrorKind::InvalidInput.into());
    }
    sendmsg(to, &[IoSlice::new(said)], &mut ancillary, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?;
    Ok(())
}

fn receive(from: BorrowedFd<'_>, flags: RecvFlags, longest: usize) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut said = vec![0; longest];
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let got = recvmsg(from, &mut [IoSliceMut::new(&mut said)], &mut ancillary, flags)?;
    let fds = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(fds) => Some(fds),
        _ => None,
    });
    // All attached descriptors are collected, so that the unwanted ones are closed.
    let fds = fds.flatten().collect();
    said.truncate(got.bytes);
    Ok((said, fds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood_and_nothing_that_is_cut_off_or_longer() {
        let process = Process::new(7).unwrap();
        let shape = Shape { rx_chunks: 4096, tx_chunks: 512, multi_buffer: true, fragments: false };
        let limits = Limits { queue_pairs: 5, regions: 6, rate: 7 };
        let status = ClientStatus { process: 7, pid: 1, uid: 2, rx_bytes: 9, ..ClientStatus::default() };
        for request in [
            Request::Attach { queues: None },
            Request::Attach { queues: Some(2) },
            Request::Return { process, secret: [3; 16] },
            Request::Claim(ServiceId(u64::MAX)),
            Request::Release(ServiceId(1)),
            Request::Groups(true),
            Request::List,
        ] {
            let said = request.write();
            assert_eq!(Request::read(&said), Some(request));
            assert_eq!(Request::read(&said[..said.len() - 1]), None);
            assert_eq!(Request::read(&[&said[..], &[0]].concat()), None);
            assert_eq!(Request::read(&[&[VERSION + 1], &said[1..]].concat()), None);
        }
        for reply in [
            Reply::Attached { process, secret: [1; 16], limits, queues: 2, shape },
            Reply::Done,
            Reply::Taken,
            Reply::Refused("no".into()),
            Reply::Listed(Served { nobody: 3, clients: vec![status, status] }),
        ] {
            let said = reply.write();
            assert_eq!(Reply::read(&said), Some(reply));
            assert_eq!(Reply::read(&[&[VERSION + 1], &said[1..]].concat()), None);
        }
    }
}
