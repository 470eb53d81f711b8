//! Netlink sockets: requests with their answers, and the kernel's notifications.

use std::os::fd::OwnedFd;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NetlinkBuffer, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::RouteNetlinkMessage;
use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Longer than any datagram of the kernel: dumps come in pieces of at most 32 KiB.
const BUFFER: usize = 64 * 1024;
/// The kernel answers inside the call that asks; this is for one that does not answer at all.
const PATIENCE: Duration = Duration::from_secs(2);
/// A dump during which something changed is asked for again, this often.
const DUMP_TRIES: usize = 8;

/// One message as it came: `None` where its contents are of a kind that the parser does not know.
pub(super) struct Incoming {
    flags: u16,
    sequence: u32,
    pub(super) payload: Option<NetlinkPayload<RouteNetlinkMessage>>,
}

/// A netlink socket with the buffer for what it receives.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) fd: OwnedFd,
    buffer: Box<[u8]>,
}

impl Socket {
    /// `groups` is the mask of notifications to subscribe to.
    pub(super) fn open(groups: u32, flags: SocketFlags) -> Result<Socket, Errno> {
        let flags = flags | SocketFlags::CLOEXEC;
        // NETLINK_ROUTE is protocol 0.
        let fd = net::socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        net::bind(&fd, &SocketAddrNetlink::new(0, groups))?;
        Ok(Socket { fd, buffer: vec![0; BUFFER].into() })
    }

    /// The messages of the next datagram.
    pub(super) fn receive(&mut self) -> Result<Vec<Incoming>, Errno> {
        let len = loop {
            let (_, len, from) = net::recvfrom(&self.fd, &mut self.buffer[..], RecvFlags::TRUNC)?;
            // Another process may send to this socket too; only the kernel has port 0.
            if from.is_some_and(|from| SocketAddrNetlink::try_from(from).is_ok_and(|from| from.pid() == 0)) {
                break len;
            }
        };
        split(self.buffer.get(..len).ok_or(Errno::MSGSIZE)?)
    }
}

fn split(mut datagram: &[u8]) -> Result<Vec<Incoming>, Errno> {
    let mut messages = Vec::new();
    while !datagram.is_empty() {
        let head = NetlinkBuffer::new_checked(datagram).map_err(|_| Errno::BADMSG)?;
        messages.push(Incoming {
            flags: head.flags(),
            sequence: head.sequence_number(),
            payload: NetlinkMessage::deserialize(datagram).ok().map(|message| message.payload),
        });
        let len = (head.length() as usize).next_multiple_of(4);
        datagram = datagram.get(len..).unwrap_or_default();
    }
    Ok(messages)
}

/// A socket for questions.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    pub(crate) fn open() -> Result<Netlink, Errno> {
        let socket = Socket::open(0, SocketFlags::empty())?;
        sockopt::set_socket_timeout(&socket.fd, Timeout::Recv, Some(PATIENCE))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.socket.fd
    }

    /// Asks for one thing, or changes one; `flags` beyond the usual ones.
    pub(crate) fn ask(&mut self, question: RouteNetlinkMessage, flags: u16) -> Result<Vec<RouteNetlinkMessage>, Errno> {
        self.exchange(question, flags | NLM_F_ACK).map(|(answers, _)| answers)
    }

    /// Asks for all things of a kind. Those that the parser does not understand are left out.
    pub(crate) fn dump(&mut self, question: RouteNetlinkMessage) -> Result<Vec<RouteNetlinkMessage>, Errno> {
        for _ in 0..DUMP_TRIES {
            let (answers, interrupted) = self.exchange(question.clone(), NLM_F_DUMP)?;
            if !interrupted {
                return Ok(answers);
            }
        }
        Err(Errno::INTR)
    }

    fn exchange(
        &mut self,
        question: RouteNetlinkMessage,
        flags: u16,
    ) -> Result<(Vec<RouteNetlinkMessage>, bool), Errno> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | flags;
        header.sequence_number = self.sequence;
        let mut message = NetlinkMessage::new(header, question.into());
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        net::sendto(&self.socket.fd, &bytes, SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;

        let (mut answers, mut interrupted) = (Vec::new(), false);
        loop {
            let messages = match self.socket.receive() {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT),
                messages => messages?,
            };
            // An answer to an earlier question was given up for lost.
            for Incoming { flags, payload, .. } in messages.into_iter().filter(|m| m.sequence == self.sequence) {
                interrupted |= flags & NLM_F_DUMP_INTR != 0;
                match payload {
                    Some(NetlinkPayload::InnerMessage(answer)) => answers.push(answer),
                    Some(NetlinkPayload::Done(done)) => return result(done.code).map(|()| (answers, interrupted)),
                    Some(NetlinkPayload::Error(error)) => {
                        let code = error.code.map_or(0, |code| code.get());
                        return result(code).map(|()| (answers, interrupted));
                    }
                    _ => {}
                }
            }
        }
    }
}

/// From the negative error numbers of the kernel.
fn result(code: i32) -> Result<(), Errno> {
    match code {
        0.. => Ok(()),
        code => Err(Errno::from_raw_os_error(-code)),
    }
}
