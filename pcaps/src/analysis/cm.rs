//! What messages of communication management and negotiations say about connections.

use std::collections::HashMap;
use std::net::IpAddr;

use softnic_wire::mad::cm::Message;
use softnic_wire::mad::vendor::Negotiation;
use softnic_wire::{Opcode, Qpn};

use super::Packets;
use super::direction::At;
use crate::decode::Dissection;

/// Connections that are remembered by their communication ids; of more, the pairing is found by answers.
const KNOWN: usize = 1 << 16;
/// Messages that are remembered until their answer comes.
const WAITING: usize = 1024;
/// An answer that takes longer, in nanoseconds, is missed.
const PATIENCE: i64 = 1_000_000_000;

/// Two ends that a message names: the sender's address and queue pair, then the receiver's.
pub(super) type Ends = [(IpAddr, Qpn); 2];

/// What a management datagram says about a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    /// These are the ends of a new connection, with this path MTU.
    Connected(Ends, Option<u32>),
    /// These negotiate: they are the ends of one connection.
    Negotiated(Ends),
    /// The connection between these has ended.
    Disconnected(Ends),
}

/// Follows the messages of communication management.
#[derive(Debug, Default)]
pub(super) struct ConnectionManager {
    /// Queue pair and path MTU of a REQ, by sender, receiver and communication id.
    requests: HashMap<(IpAddr, IpAddr, u32), (Qpn, Option<u32>)>,
    /// The ends of a connection, by one's address and communication id.
    connections: HashMap<(IpAddr, u32), Ends>,
    waiting: Vec<Waiting>,
}

/// A message that wants an answer.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) message: &'static str,
    pub(super) packets: Packets,
    /// When it was sent last.
    pub(super) time: i64,
    src: IpAddr,
    dst: IpAddr,
    id: u32,
}

impl ConnectionManager {
    /// Takes a packet; `None` where it says nothing that matters here.
    pub(super) fn follow(&mut self, d: &Dissection<'_>, at: At) -> Option<Said> {
        if d.dest_qp != Some(Qpn::GSI) || d.opcode != Some(Opcode::UD_SEND_ONLY) {
            return None;
        }
        if let Ok(n) = Negotiation::parse(d.payload) {
            return Some(Said::Negotiated([(d.src, Qpn::new(n.sender_qpn)), (d.dst, Qpn::new(n.receiver_qpn))]));
        }
        let (_, message) = Message::parse(d.payload).ok()?;
        match message {
            Message::Req(req) => {
                self.waits("REQ", d, req.local_comm_id, at);
                if self.requests.len() < KNOWN {
                    let mtu = req.path_mtu.bytes().map(|n| n as u32);
                    self.requests.insert((d.src, d.dst, req.local_comm_id), (Qpn::new(req.local_qpn), mtu));
                }
                None
            }
            Message::Rep(rep) => {
                self.is_answered(d, rep.remote_comm_id);
                self.waits("REP", d, rep.local_comm_id, at);
                // A REP that is sent again, alone or behind its REQ, is no new connection.
                let (asked, mtu) = self.requests.remove(&(d.dst, d.src, rep.remote_comm_id))?;
                let ends = [(d.src, Qpn::new(rep.local_qpn)), (d.dst, asked)];
                if self.connections.get(&(d.src, rep.local_comm_id)) == Some(&ends) {
                    return None;
                }
                if self.connections.len() < KNOWN {
                    self.connections.insert((d.src, rep.local_comm_id), ends);
                    self.connections.insert((d.dst, rep.remote_comm_id), ends);
                }
                Some(Said::Connected(ends, mtu))
            }
            Message::Rtu(m) => self.is_answered(d, m.remote_comm_id),
            Message::Mra(m) => self.is_answered(d, m.remote_comm_id),
            Message::Rej(m) => self.is_answered(d, m.remote_comm_id),
            Message::Dreq(m) => self.waits("DREQ", d, m.local_comm_id, at),
            Message::Drep(m) => {
                self.is_answered(d, m.remote_comm_id);
                let other = self.connections.remove(&(d.dst, m.remote_comm_id));
                self.connections.remove(&(d.src, m.local_comm_id)).or(other).map(Said::Disconnected)
            }
            Message::SidrReq(m) => self.waits("SIDR_REQ", d, m.request_id, at),
            Message::SidrRep(m) => self.is_answered(d, m.request_id),
            Message::Other { .. } => None,
        }
    }

    /// Data on a connection says what an RTU does.
    pub(super) fn data_from(&mut self, src: IpAddr, dst: IpAddr) {
        if !self.waiting.is_empty() {
            self.waiting.retain(|w| !(w.message == "REP" && w.src == dst && w.dst == src));
        }
    }

    fn waits(&mut self, message: &'static str, d: &Dissection<'_>, id: u32, at: At) -> Option<Said> {
        let same = |w: &&mut Waiting| (w.message, w.src, w.dst, w.id) == (message, d.src, d.dst, id);
        if let Some(again) = self.waiting.iter_mut().find(same) {
            again.packets.push(at.number);
            again.time = at.time;
        } else if self.waiting.len() < WAITING {
            let packets = [at.number].into_iter().collect();
            self.waiting.push(Waiting { message, packets, time: at.time, src: d.src, dst: d.dst, id });
        }
        None
    }

    fn is_answered(&mut self, d: &Dissection<'_>, id: u32) -> Option<Said> {
        self.waiting.retain(|w| !(w.src == d.dst && w.dst == d.src && w.id == id));
        None
    }

    /// Messages without an answer: sent more than once, or long before the end of the capture.
    pub(super) fn unanswered(&self, end: i64) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter().filter(move |w| w.packets.count() > 1 || end - w.time > PATIENCE)
    }
}
