//! Which messages to QP1 belong together: everything from a REQ or SIDR_REQ on.

use std::net::IpAddr;

use softnic_wire::mad::Repr;
use softnic_wire::mad::cm::Message;

use crate::capture::Packet;

/// A message of an exchange, as it was captured.
#[derive(Debug, Clone)]
pub(crate) struct CapturedMad {
    /// Frame number.
    pub(crate) number: u64,
    /// Whether the side that asked first says it.
    pub(crate) of_asking: bool,
    pub(crate) header: Repr,
    pub(crate) message: Message,
    /// The whole MAD.
    pub(crate) mad: Vec<u8>,
}

/// A connection, or a resolution, as the connection managers made it.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) asking: IpAddr,
    pub(crate) asked: IpAddr,
    /// The asking side's id.
    pub(crate) asking_id: u32,
    /// The asked side's id; 0 where it never said it.
    pub(crate) asked_id: u32,
    /// In the order of the capture; the first is the request.
    pub(crate) messages: Vec<CapturedMad>,
}

/// Both ids of a message, its sender's first; 0 where it has none.
fn ids(message: &Message) -> Option<(u32, u32)> {
    Some(match message {
        Message::Req(m) => (m.local_comm_id, 0),
        Message::Mra(m) => (m.local_comm_id, m.remote_comm_id),
        Message::Rej(m) => (m.local_comm_id, m.remote_comm_id),
        Message::Rep(m) => (m.local_comm_id, m.remote_comm_id),
        Message::Rtu(m) => (m.local_comm_id, m.remote_comm_id),
        Message::Dreq(m) => (m.local_comm_id, m.remote_comm_id),
        Message::Drep(m) => (m.local_comm_id, m.remote_comm_id),
        Message::SidrReq(m) => (m.request_id, 0),
        Message::SidrRep(m) => (0, m.request_id),
        Message::Other { .. } => return None,
    })
}

/// Sorts messages into exchanges, and counts those that belong to none.
pub(crate) fn survey(management: &[Packet]) -> (Vec<Exchange>, u64) {
    let mut exchanges: Vec<Exchange> = Vec::new();
    let mut others = 0;
    for p in management {
        let read = Message::parse(p.payload()).ok().filter(|_| p.whole);
        let Some(((header, message), (local, remote))) = read.and_then(|m| Some((m, ids(&m.1)?))) else {
            others += 1;
            continue;
        };
        let captured =
            |of_asking| CapturedMad { number: p.number, of_asking, header, message, mad: p.payload().to_vec() };
        let begins = matches!(message, Message::Req(_) | Message::SidrReq(_));
        let found = exchanges.iter_mut().rev().find_map(|e| {
            let of_asking = (e.asking, e.asked) == (p.src, p.dst) && (e.asking, e.asked) != (p.dst, p.src)
                || e.asking == e.asked && local == e.asking_id;
            let between = of_asking || (e.asking, e.asked) == (p.dst, p.src);
            (between && e.has(of_asking, begins, (local, remote), header.transaction_id)).then_some((e, of_asking))
        });
        match found {
            Some((e, of_asking)) => {
                if !of_asking && e.asked_id == 0 {
                    e.asked_id = local;
                }
                e.messages.push(captured(of_asking));
            }
            None if begins => exchanges.push(Exchange {
                asking: p.src,
                asked: p.dst,
                asking_id: local,
                asked_id: 0,
                messages: vec![captured(true)],
            }),
            None => others += 1,
        }
    }
    (exchanges, others)
}

impl Exchange {
    /// Whether a message between the two belongs here: one id is enough, for the other one may be wrong; else the transaction.
    fn has(&self, of_asking: bool, begins: bool, (local, remote): (u32, u32), tid: u64) -> bool {
        let (own, other) = if of_asking { (self.asking_id, self.asked_id) } else { (self.asked_id, self.asking_id) };
        if begins {
            return of_asking && local == own;
        }
        let named = local != 0 && local == own || remote != 0 && remote == other;
        named || self.messages.iter().any(|m| m.header.transaction_id == tid)
    }
}
