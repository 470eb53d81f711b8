//! ARP and NDP of a switch's own: answers for its addresses, and the MAC addresses of next hops that are not fixed.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use softnic_switch::Switch;
use softnic_wire::ethernet::{self, ethertype};
use softnic_wire::{Instant, MacAddr, Node, TxFrame, ipv4, ipv6};

use crate::neighbours::Neighbours;

/// Next hops that are known or asked for at a time; packets for others are dropped as unresolved.
const MAX_NEIGHBOURS: usize = 1024;
/// How often it is looked whether a neighbour that is known has to be asked again.
const LOOK: Duration = Duration::from_secs(1);
/// The longest frame of its own: an answer to an echo request.
const MAX_OWN: usize = 2048;

/// Neighbours of a switch.
pub(super) struct Resolver {
    mac: MacAddr,
    neighbours: Neighbours,
    /// Those that were asked for, and their MAC addresses as the switch was told them.
    known: BTreeMap<IpAddr, Option<MacAddr>>,
    /// Something was heard that may be an answer.
    heard: bool,
    /// When a question is to be asked again; and when all are looked at.
    next: Option<Instant>,
    look: Instant,
}

impl Resolver {
    pub(super) fn new(mac: MacAddr, addresses: Vec<IpAddr>) -> Resolver {
        Resolver {
            mac,
            neighbours: Neighbours::answering(mac, addresses),
            known: BTreeMap::new(),
            heard: false,
            next: None,
            look: Instant::ZERO,
        }
    }

    /// Neighbours that are known.
    pub(super) fn known(&self) -> usize {
        self.known.values().flatten().count()
    }

    /// Looks at a frame that came in; `true` when it is for the switch itself, and for nobody else.
    #[inline]
    pub(super) fn hear(&mut self, now: Instant, frame: &mut [u8]) -> bool {
        let Ok(header) = ethernet::Packet::new_checked(&*frame) else { return false };
        let dst = header.dst();
        let ours = dst == self.mac && self.is_ours(frame);
        // To many: a question for one of our addresses may be among these.
        if ours || dst.0[0] & 1 == 1 {
            self.neighbours.handle_frame(now, 0, frame);
            self.heard = true;
        }
        ours
    }

    /// Whether a frame to our MAC address ends here; else it is routed.
    fn is_ours(&self, frame: &[u8]) -> bool {
        let Ok((kind, at)) = ethernet::network_layer(frame) else { return true };
        let packet = frame.get(at..).unwrap_or_default();
        match kind {
            ethertype::IPV4 => ipv4::Packet::new_checked(packet).is_ok_and(|ip| self.neighbours.is_ours(ip.dst())),
            ethertype::IPV6 => ipv6::Packet::new_checked(packet).is_ok_and(|ip| {
                let dst = ip.dst();
                // What is link-local is not routed (RFC 4291, 2.5.6).
                dst.is_unicast_link_local() || self.neighbours.is_ours(dst)
            }),
            _ => true,
        }
    }

    /// Asks for what the switch wants, tells it what is known, and sends what is to be sent. Whether there was anything.
    pub(super) fn turn(&mut self, now: Instant, switch: &mut Switch) -> bool {
        let mut any = false;
        while let Some(address) = switch.take_wanted() {
            any |= self.want(now, address);
        }
        if self.next.is_some_and(|at| at <= now) {
            self.neighbours.handle_timeout(now);
            any = true;
        }
        let look = now >= self.look;
        if !any && !self.heard && !look {
            return false;
        }
        self.heard = false;
        if look {
            self.look = now + LOOK;
        }
        self.tell(now, switch, look);
        let mut room = [0; MAX_OWN];
        loop {
            let mut tx = TxFrame::new(&mut room);
            if !self.neighbours.poll_transmit(now, 0, &mut tx) {
                break;
            }
            let len = tx.len();
            switch.send_own(&mut room[..len]);
            any = true;
        }
        self.next = self.neighbours.poll_timeout();
        any
    }

    /// When [`Resolver::turn`] has something to do.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    fn want(&mut self, now: Instant, address: IpAddr) -> bool {
        if self.known.contains_key(&address) || self.known.len() >= MAX_NEIGHBOURS {
            return false;
        }
        // Without an address of ours to ask from it stays unknown.
        let asked = self.neighbours.mac_of(now, address).is_ok();
        if asked {
            self.known.insert(address, None);
        }
        asked
    }

    /// Tells the switch what has changed: of those that are asked for, or of all.
    fn tell(&mut self, now: Instant, switch: &mut Switch, all: bool) {
        let neighbours = &mut self.neighbours;
        self.known.retain(|address, told| {
            if told.is_some() && !all {
                return true;
            }
            match neighbours.mac_of(now, *address) {
                Ok(mac) => {
                    if mac != *told {
                        switch.set_neighbour(*address, mac);
                        *told = mac;
                    }
                    true
                }
                // Asked in vain; the next packet asks again.
                Err(_) => {
                    if told.is_some() {
                        switch.set_neighbour(*address, None);
                    }
                    false
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use softnic_fault_injector::Policy;
    use softnic_switch::{NextHop, Prefix, SwitchConfig};

    use super::*;

    const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 0xfe]);
    const HOST: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn switch() -> Switch {
        let mut switch =
            Switch::new(SwitchConfig { mac: OWN, max_frame: 1600, max_frames: 64, elided: false, seed: 1 });
        for _ in 0..2 {
            switch.add_port(Policy { limit: 1 << 20, red: None });
        }
        switch.add_route(Prefix { addr: ip("10.1.0.0"), len: 24 }, vec![NextHop::Direct]);
        switch
    }

    fn sent(switch: &mut Switch, port: usize) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut room = [0; 1600];
        loop {
            let mut tx = TxFrame::new(&mut room);
            if !switch.poll_transmit(Instant::ZERO, port, &mut tx) {
                return all;
            }
            all.push(tx.segments().0.to_vec());
        }
    }

    /// An IPv4 packet for the switch to route.
    fn packet(to: [u8; 4]) -> Vec<u8> {
        let mut frame =
            [&OWN.0[..], &[2, 0, 0, 0, 0, 9], &[0x08, 0x00, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]].concat();
        frame.extend([10, 2, 0, 1]);
        frame.extend(to);
        frame.extend([0, 1, 0, 2, 0, 8, 0, 0]);
        frame
    }

    fn arp_reply(from: [u8; 4]) -> Vec<u8> {
        let mut frame = [&OWN.0[..], &HOST.0, &[0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 2]].concat();
        frame.extend(HOST.0);
        frame.extend(from);
        frame.extend(OWN.0);
        frame.extend([10, 1, 0, 254]);
        frame
    }

    #[test]
    fn a_next_hop_is_asked_for_from_the_address_of_its_subnet_and_packets_then_reach_it() {
        let mut switch = switch();
        let mut resolver = Resolver::new(OWN, vec![ip("10.2.0.254"), ip("10.1.0.254")]);
        let now = Instant::from_nanos(1);
        switch.handle_frame(now, 0, &mut packet([10, 1, 0, 7]));
        assert_eq!(switch.counters().unresolved, 1);
        assert!(resolver.turn(now, &mut switch));
        for port in 0..2 {
            let asked = sent(&mut switch, port);
            assert_eq!(asked.len(), 1, "to all");
            // Who asks, and for whom.
            assert_eq!((&asked[0][28..32], &asked[0][38..42]), (&[10, 1, 0, 254][..], &[10, 1, 0, 7][..]));
        }
        let mut reply = arp_reply([10, 1, 0, 7]);
        assert!(resolver.hear(now, &mut reply), "it is for the switch alone");
        switch.take_own(1, &reply);
        resolver.turn(now, &mut switch);
        assert_eq!(resolver.known(), 1);
        switch.handle_frame(now, 0, &mut packet([10, 1, 0, 7]));
        let passed = sent(&mut switch, 1);
        assert_eq!((passed.len(), &passed[0][..12]), (1, &[HOST.0, OWN.0].concat()[..]));
    }

    #[test]
    fn a_next_hop_that_is_silent_is_forgotten_and_asked_for_again() {
        let mut switch = switch();
        let mut resolver = Resolver::new(OWN, vec![ip("10.1.0.254")]);
        let mut now = Instant::from_nanos(1);
        let mut questions = 0;
        for round in 1..=2 {
            switch.handle_frame(now, 0, &mut packet([10, 1, 0, 7]));
            for _ in 0..100 {
                resolver.turn(now, &mut switch);
                questions += sent(&mut switch, 1).len();
                now = now + Duration::from_millis(100);
            }
            assert_eq!((questions, resolver.known.len()), (4 * round, 0));
        }
        assert_eq!(resolver.next(), None);
    }

    #[test]
    fn frames_of_others_are_not_the_switchs_and_nobody_is_asked_without_an_address() {
        let mut switch = switch();
        let mut resolver = Resolver::new(OWN, Vec::new());
        let now = Instant::from_nanos(1);
        assert!(!resolver.hear(now, &mut packet([10, 1, 0, 7])));
        let mut other = packet([10, 1, 0, 7]);
        other[5] = 9;
        assert!(!resolver.hear(now, &mut other));
        switch.handle_frame(now, 0, &mut packet([10, 1, 0, 7]));
        resolver.turn(now, &mut switch);
        assert!(sent(&mut switch, 0).is_empty() && sent(&mut switch, 1).is_empty());
    }
}
