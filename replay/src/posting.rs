//! The work requests of a requester: rebuilt messages, their data in registered memory, posted as the capture goes on.

use std::collections::HashMap;
use std::net::IpAddr;

use softnic_nic::transports::Datagram;
use softnic_nic::transports::memory::Access;
use softnic_wire::Qpn;

use crate::capture::Packet;
use crate::messages::Message;
use crate::rig::Rig;

/// Memory that the messages of a flow may take.
const MOST: usize = 256 << 20;
/// Where they lie.
const BASE: u64 = 0x1000;

pub(crate) struct Posting<'a> {
    packets: &'a [Packet],
    messages: &'a [Message],
    /// Where each message lies, and the key of all.
    places: Vec<u64>,
    key: u32,
    posted: usize,
    addresses: HashMap<(IpAddr, Qpn, u32), Datagram>,
}

impl<'a> Posting<'a> {
    /// Registers memory with the data of messages. `None` where that is too much.
    pub(crate) fn new(rig: &mut Rig, messages: &'a [Message], packets: &'a [Packet]) -> Option<Posting<'a>> {
        let total: usize = messages.iter().filter(|m| !m.awaits_data()).map(|m| m.len as usize).sum();
        if total > MOST {
            return None;
        }
        let (key, buffer) = rig.register(BASE, total.max(1), Access::NONE)?;
        let (mut at, mut places) = (0, Vec::with_capacity(messages.len()));
        for m in messages {
            places.push(BASE + at as u64);
            if !m.awaits_data() {
                buffer.write_at(at, &m.data);
                at += m.len as usize;
            }
        }
        Some(Posting { packets, messages, places, key, posted: 0, addresses: HashMap::new() })
    }

    /// Posts the work requests that have begun by a PSN; `false` when our NIC does not take one.
    pub(crate) fn post_until(&mut self, rig: &mut Rig, psn: i64) -> bool {
        while let Some(m) = self.messages.get(self.posted).filter(|m| m.first <= psn) {
            let p = &self.packets[m.at];
            let to = match p.ext.deth {
                None => None,
                Some(deth) => {
                    let key = (p.dst, p.dest_qp, deth.qkey);
                    let known = self.addresses.get(&key).copied();
                    let Some(to) = known.or_else(|| rig.address(p.dst, p.dest_qp, deth.qkey)) else {
                        return false;
                    };
                    self.addresses.insert(key, to);
                    Some(to)
                }
            };
            let source = (!m.awaits_data()).then_some((self.places[self.posted], self.key));
            if !rig.post_send(m.op, m.len, source, m.solicited, to) {
                return false;
            }
            self.posted += 1;
        }
        true
    }
}
