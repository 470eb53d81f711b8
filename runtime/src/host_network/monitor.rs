//! The kernel's notifications: changes of links, addresses, routes and neighbours.

use std::net::IpAddr;

use rustix::io::Errno;
use rustix::net::{SocketFlags, sockopt};
use softnic_wire::MacAddr;

use super::netlink::Socket;
use super::resolver;
use super::rtnetlink::link::LinkMessage;
use super::rtnetlink::neighbour::NeighbourMessage;
use super::rtnetlink::route::RTM_F_CLONED;
use super::rtnetlink::{AF_UNSPEC, Message, Payload};

/// The groups of <linux/rtnetlink.h>: links, neighbours, and addresses, routes and rules of both IP versions.
const GROUPS: [u32; 8] = [1, 3, 5, 7, 8, 9, 11, 19];
/// A burst of changes is kept, not lost, while the control thread does something else.
const ROOM: usize = 1 << 20;
/// Datagrams taken at a time: who is flooded with changes still gets on with its work.
const BATCH: usize = 256;

/// Something that may have changed for one interface.
#[derive(Debug)]
pub(super) enum Change {
    Link(LinkMessage),
    Gone,
    Addresses,
    Neighbour(IpAddr, Option<MacAddr>),
    Routes,
    /// Some changes were lost, or not understood: everything must be read again.
    Lost,
}

/// A socket that hears of changes.
#[derive(Debug)]
pub(super) struct Monitor {
    pub(super) socket: Socket,
    index: u32,
}

impl Monitor {
    /// For the interface with this number.
    pub(super) fn open(index: u32) -> Result<Monitor, Errno> {
        let mask = GROUPS.iter().fold(0, |mask, group| mask | 1 << (group - 1));
        let socket = Socket::open(mask, SocketFlags::NONBLOCK)?;
        // The limit of the system may be lower; an overrun is taken care of anyway.
        let _ = sockopt::set_socket_recv_buffer_size(&socket.fd, ROOM);
        Ok(Monitor { socket, index })
    }

    /// Notifications since the last call.
    pub(super) fn drain(&mut self) -> Result<Vec<Change>, Errno> {
        let mut changes = Vec::new();
        for _ in 0..BATCH {
            match self.socket.receive() {
                Ok(messages) => {
                    changes.extend(messages.into_iter().filter_map(|message| match message.payload {
                        Payload::Message(message) => self.change(message),
                        Payload::End(_) | Payload::Nothing => None,
                        Payload::Unreadable => Some(Change::Lost),
                    }));
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(Errno::NOBUFS) => return self.discard(),
                Err(error) => return Err(error),
            }
        }
        Ok(changes)
    }

    /// Throws away what is older than the overrun: what is read afterwards is newer than all of it.
    fn discard(&mut self) -> Result<Vec<Change>, Errno> {
        loop {
            match self.socket.receive() {
                Ok(_) | Err(Errno::INTR | Errno::NOBUFS) => {}
                Err(Errno::AGAIN) => return Ok(vec![Change::Lost]),
                Err(error) => return Err(error),
            }
        }
    }

    /// `None` if it is not about our interface.
    fn change(&self, message: Message) -> Option<Change> {
        use Message as M;
        match message {
            M::NewLink(link) if self.is_ours(&link) => Some(Change::Link(link)),
            M::DelLink(link) if self.is_ours(&link) => Some(Change::Gone),
            M::Address(a) => (a.index == self.index).then_some(Change::Addresses),
            M::NewNeighbour(neighbour) => self.neighbour(&neighbour, resolver::mac(&neighbour)),
            M::DelNeighbour(neighbour) => self.neighbour(&neighbour, None),
            // A clone is what the kernel remembers of a path, not a route.
            M::NewRoute(r) | M::DelRoute(r) => (r.flags & RTM_F_CLONED == 0).then_some(Change::Routes),
            M::Rule => Some(Change::Routes),
            _ => None,
        }
    }

    /// Bridges talk about their ports too, in messages of their own family.
    fn is_ours(&self, link: &LinkMessage) -> bool {
        link.index == self.index && link.family == AF_UNSPEC
    }

    fn neighbour(&self, message: &NeighbourMessage, mac: Option<MacAddr>) -> Option<Change> {
        let ip = message.ip.filter(|_| message.index == self.index)?;
        Some(Change::Neighbour(ip, mac))
    }
}
