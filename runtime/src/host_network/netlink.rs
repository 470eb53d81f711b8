//! Netlink sockets: requests with their answers, and the kernel's notifications.

use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::rtnetlink::{Incoming, Message, NLM_F_ACK, NLM_F_DUMP, NLM_F_DUMP_INTR, Payload, Request, split};

/// Longer than any datagram of the kernel: dumps come in pieces of at most 32 KiB.
const BUFFER: usize = 64 * 1024;
/// The kernel answers inside the call that asks; this is for one that does not answer at all.
const PATIENCE: Duration = Duration::from_secs(2);
/// A dump during which something changed is asked for again, this often.
const DUMP_TRIES: usize = 8;

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
    pub(crate) fn ask(&mut self, question: &Request, flags: u16) -> Result<Vec<Message>, Errno> {
        self.exchange(question, flags | NLM_F_ACK).map(|(answers, _)| answers)
    }

    /// Asks for all things of a kind. Those that cannot be read are left out.
    pub(crate) fn dump(&mut self, question: &Request) -> Result<Vec<Message>, Errno> {
        for _ in 0..DUMP_TRIES {
            let (answers, interrupted) = self.exchange(question, NLM_F_DUMP)?;
            if !interrupted {
                return Ok(answers);
            }
        }
        Err(Errno::INTR)
    }

    fn exchange(&mut self, question: &Request, flags: u16) -> Result<(Vec<Message>, bool), Errno> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = question.bytes(flags, self.sequence);
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
                    Payload::Message(answer) => answers.push(answer),
                    Payload::End(code) => return result(code).map(|()| (answers, interrupted)),
                    Payload::Nothing | Payload::Unreadable => {}
                }
            }
        }
    }
}

/// From the negative error numbers of the kernel.
fn result(code: i32) -> Result<(), Errno> {
    match code {
        0.. => Ok(()),
        -4095..0 => Err(Errno::from_raw_os_error(-code)),
        _ => Err(Errno::BADMSG),
    }
}
