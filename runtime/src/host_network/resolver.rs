//! MAC addresses of neighbours, from the kernel: looked up, asked for, and kept fresh while they are in use.
//!
//! RoCE packets pass by the kernel, so it neither asks for a neighbour's MAC address on their behalf nor notices that
//! one is in use. [`Resolver`] tells it. It never waits: who needs an answer asks again after a change or at the next
//! timeout.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6, UdpSocket};
use std::time::Duration;

use rustix::io::Errno;
use softnic_nic::multicast_mac;
use softnic_wire::{Instant, MacAddr};

use super::error::HostNetworkError;
use super::netlink::Netlink;
use super::rtnetlink::neighbour::{
    NTF_EXT_LEARNED, NTF_EXT_MANAGED, NTF_USE, NUD_DELAY, NUD_NOARP, NUD_PERMANENT, NUD_PROBE, NUD_REACHABLE,
    NUD_STALE, NeighbourMessage, about,
};
use super::rtnetlink::{Message, NLM_F_CREATE, NLM_F_REPLACE, RTM_GETNEIGH, RTM_NEWNEIGH, Request};

/// The discard port: a datagram to it is dropped on arrival (RFC 863).
const DISCARD: u16 = 9;

/// How long to ask, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Patience {
    /// A neighbour that has not answered after this time is given up.
    pub limit: Duration,
    /// The kernel gives up after three questions, a second apart; while `limit` allows it is made to start again, at
    /// this interval.
    pub again: Duration,
    /// The kernel is told this often that a neighbour is in use, and asks it again if it was not heard of for long.
    pub refresh: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        Patience { limit: Duration::from_secs(5), again: Duration::from_secs(1), refresh: Duration::from_secs(5) }
    }
}

/// How far the resolution of a neighbour is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Its MAC address.
    Known(MacAddr),
    /// It was asked for; ask here again when something changed, or at the next timeout.
    Asked,
    /// There was no answer. The next call begins anew.
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Known(MacAddr),
    /// It was known and has gone silent: the kernel is made to ask for it at every refresh, for it may come back.
    Lost,
    Asked {
        since: Instant,
    },
    Failed,
}

#[derive(Debug)]
struct Entry {
    progress: Progress,
    /// When the kernel is to be told next.
    next: Instant,
}

/// A neighbour's entry in the kernel's table.
#[derive(Debug, Clone, Copy)]
struct Found {
    mac: MacAddr,
    /// Somebody else sees to it that it stays.
    is_kept: bool,
}

/// The neighbours in use on one interface.
#[derive(Debug)]
pub(super) struct Resolver {
    index: u32,
    pub(super) patience: Patience,
    entries: BTreeMap<IpAddr, Entry>,
    /// We may not tell the kernel, so we send something for which it must ask.
    by_datagram: bool,
}

impl Resolver {
    pub(super) fn new(index: u32) -> Resolver {
        Resolver { index, patience: Patience::default(), entries: BTreeMap::new(), by_datagram: false }
    }

    /// The MAC address of `ip`, which is on the link; asked for if it is not known.
    pub(super) fn resolve(
        &mut self,
        netlink: &mut Netlink,
        now: Instant,
        ip: IpAddr,
    ) -> Result<State, HostNetworkError> {
        if ip.is_multicast() {
            return Ok(State::Known(multicast_mac(ip)));
        }
        let found = self.look_up(netlink, ip)?;
        let entry = self.entries.entry(ip).or_insert(Entry { progress: Progress::Lost, next: now });
        entry.progress = match (found, entry.progress) {
            (Some(found), _) => Progress::Known(found.mac),
            (None, Progress::Asked { since }) if now >= since + self.patience.limit => Progress::Failed,
            (None, progress @ (Progress::Asked { .. } | Progress::Failed)) => progress,
            (None, Progress::Known(_) | Progress::Lost) => {
                entry.next = now;
                Progress::Asked { since: now }
            }
        };
        let progress = entry.progress;
        if progress == Progress::Failed {
            self.entries.remove(&ip);
            return Ok(State::Failed);
        }
        if entry.next <= now {
            entry.next = now + self.patience.interval(progress);
            if !found.is_some_and(|found| found.is_kept) {
                self.tell(netlink, ip, found.is_some())?;
            }
        }
        Ok(match progress {
            Progress::Known(mac) => State::Known(mac),
            _ => State::Asked,
        })
    }

    /// `ip` is no longer in use: the kernel may forget it.
    pub(super) fn release(&mut self, ip: IpAddr) {
        self.entries.remove(&ip);
    }

    /// The kernel says that `ip` has this MAC address now, or none. Says whether that is news about one in use.
    pub(super) fn learn(&mut self, ip: IpAddr, mac: Option<MacAddr>) -> bool {
        let Some(entry) = self.entries.get_mut(&ip) else { return false };
        let progress = match (mac, entry.progress) {
            (Some(mac), _) => Progress::Known(mac),
            (None, Progress::Known(_)) => Progress::Lost,
            (None, progress) => progress,
        };
        std::mem::replace(&mut entry.progress, progress) != progress
    }

    /// Looks all of them up again; those whose MAC address changed meanwhile.
    pub(super) fn reread(&mut self, netlink: &mut Netlink) -> Result<Vec<(IpAddr, Option<MacAddr>)>, HostNetworkError> {
        let mut news = Vec::new();
        for ip in self.entries.keys().copied().collect::<Vec<_>>() {
            let mac = self.look_up(netlink, ip)?.map(|found| found.mac);
            if self.learn(ip, mac) {
                news.push((ip, mac));
            }
        }
        Ok(news)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let times = self.entries.values().filter_map(|entry| match entry.progress {
            Progress::Known(_) | Progress::Lost => Some(entry.next),
            Progress::Asked { since } => Some(entry.next.min(since + self.patience.limit)),
            Progress::Failed => None,
        });
        times.min()
    }

    /// Asks again and refreshes what is due; hands out those that are given up.
    pub(super) fn handle_timeout(&mut self, netlink: &mut Netlink, now: Instant) -> Vec<IpAddr> {
        let (mut tell, mut failed) = (Vec::new(), Vec::new());
        for (&ip, entry) in &mut self.entries {
            match entry.progress {
                Progress::Asked { since } if now >= since + self.patience.limit => {
                    entry.progress = Progress::Failed;
                    failed.push(ip);
                }
                Progress::Failed => {}
                _ if entry.next <= now => {
                    entry.next = now + self.patience.interval(entry.progress);
                    tell.push(ip);
                }
                _ => {}
            }
        }
        for ip in tell {
            // If it cannot be done now, the next time will do; an interface that is down comes back.
            if let Ok(found) = self.look_up(netlink, ip)
                && !found.is_some_and(|found| found.is_kept)
            {
                let _ = self.tell(netlink, ip, found.is_some());
            }
        }
        failed
    }

    /// A neighbour's entry in the kernel's table.
    fn look_up(&self, netlink: &mut Netlink, ip: IpAddr) -> Result<Option<Found>, HostNetworkError> {
        match netlink.ask(&Request::new(RTM_GETNEIGH, about(self.index, ip, 0)), 0) {
            Ok(answers) => Ok(answers.iter().find_map(|answer| match answer {
                Message::NewNeighbour(message) => mac(message).map(|mac| Found { mac, is_kept: is_kept(message) }),
                _ => None,
            })),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(HostNetworkError::Netlink { what: "about a neighbour", error }),
        }
    }

    /// Tells the kernel that packets are sent to `ip`, whose MAC address it has, or has to ask for.
    ///
    /// For an IPv6 neighbour it asks in the name of its link-local address, and says nothing as long as it has none that is proven (never, where
    /// an administrator wants none): unless a packet waits for the answer, whose source it takes then. So one is sent first; where it cannot be,
    /// or leaves by another interface, the kernel is told all the same.
    fn tell(&mut self, netlink: &mut Netlink, ip: IpAddr, is_known: bool) -> Result<(), HostNetworkError> {
        if !self.by_datagram {
            if ip.is_ipv6() && !is_known {
                let _ = self.send(ip);
            }
            let in_use = Request::new(RTM_NEWNEIGH, about(self.index, ip, NTF_USE));
            match netlink.ask(&in_use, NLM_F_CREATE | NLM_F_REPLACE) {
                Err(Errno::PERM) => self.by_datagram = true,
                result => return result.map(drop).map_err(HostNetworkError::netlink("about a neighbour")),
            }
        }
        self.send(ip).map_err(|error| HostNetworkError::Netlink {
            what: "about a neighbour",
            error: Errno::from_io_error(&error).unwrap_or(Errno::IO),
        })
    }

    /// An empty datagram, for which the kernel needs the MAC address itself. It takes the kernel's own route, which
    /// for IPv4 on a host with two interfaces in one network may be by the other.
    fn send(&self, ip: IpAddr) -> std::io::Result<()> {
        let (any, to) = match ip {
            IpAddr::V4(ip) => (IpAddr::from(Ipv4Addr::UNSPECIFIED), SocketAddr::from((ip, DISCARD))),
            // The scope says on which link, which a link-local address needs.
            IpAddr::V6(ip) => (Ipv6Addr::UNSPECIFIED.into(), SocketAddrV6::new(ip, DISCARD, 0, self.index).into()),
        };
        let socket = UdpSocket::bind((any, 0))?;
        socket.set_nonblocking(true)?;
        match socket.send_to(&[], to) {
            Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }
}

impl Patience {
    fn interval(&self, progress: Progress) -> Duration {
        if matches!(progress, Progress::Asked { .. }) { self.again } else { self.refresh }
    }
}

/// Whether an administrator, another program or the kernel keeps the entry as it is. Such an entry must be left alone:
/// told that it is in use, the kernel takes these marks from it, and a permanent one is no longer permanent.
fn is_kept(message: &NeighbourMessage) -> bool {
    matches!(message.state, NUD_PERMANENT | NUD_NOARP)
        || message.flags & NTF_EXT_LEARNED != 0
        || message.more_flags & NTF_EXT_MANAGED != 0
}

/// Its MAC address, if it is one to send to: also one that the kernel is just having confirmed.
pub(super) fn mac(message: &NeighbourMessage) -> Option<MacAddr> {
    let usable = NUD_REACHABLE | NUD_STALE | NUD_DELAY | NUD_PROBE | NUD_PERMANENT | NUD_NOARP;
    message.mac.filter(|_| message.state & usable != 0)
}
