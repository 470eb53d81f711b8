//! The receive path: from a frame to the queue pair that it is for.

use std::net::IpAddr;

use softnic_transports::planted::{Bug, planted};
use softnic_transports::qp::{Inbound, PayloadMode, QueuePair};
use softnic_wire::grh::Grh;
use softnic_wire::opcode::Service;
use softnic_wire::{Carrier, Error, Instant, Layout, Opcode, Qpn, RoceHeaders, bth, ethernet, icrc, ipv4};

use super::{Nic, Shared};

impl Nic {
    /// Handles a frame. Errors are counted, and are answered only by the rules of the queue pair.
    pub(super) fn receive(&mut self, now: Instant, port: usize, frame: &mut [u8]) {
        match Layout::locate(frame) {
            Ok(layout) => self.receive_located(now, port, frame, layout),
            Err(error) => {
                let counters = &mut self.shared.counters;
                counters.rcvd_pkts += 1;
                counters.rcvd_bytes += frame.len() as u64;
                match error {
                    Error::NotRoce(_) => counters.rx_not_for_us += 1,
                    _ => counters.rx_malformed += 1,
                }
            }
        }
    }

    /// Handles a frame whose layout is known.
    #[inline(always)]
    pub(super) fn receive_located(&mut self, now: Instant, port: usize, frame: &mut [u8], layout: Layout) {
        let counters = &mut self.shared.counters;
        counters.rcvd_pkts += 1;
        counters.rcvd_bytes += frame.len() as u64;
        // A complete frame has an ICRC in any case.
        let elided = self.payload == PayloadMode::Elided && frame.len() < layout.end;
        let lengths = if elided { layout.check_elided() } else { layout.check(frame.len()) };
        // RoCEv1 is supported for decoding only: this NIC has no GIDs of that kind.
        if lengths.is_err() || layout.carrier == Carrier::RoceV1 || !ip_checksum_is_right(frame, &layout) {
            counters.rx_malformed += 1;
            return;
        }
        let Some((src, dst)) = layout.addresses(frame) else {
            counters.rx_malformed += 1;
            return;
        };
        let Ok(header) = bth::Packet::new_checked(frame.get(layout.bth..).unwrap_or_default()) else {
            counters.rx_malformed += 1;
            return;
        };
        let dest_qp = header.dest_qp();
        if dst.is_multicast() {
            // A network may return multicast packets to the sender, but the members on this NIC received them when they left.
            if port != Nic::LOOPBACK && self.is_ours_alone(src) {
                self.shared.counters.rx_wrong_source += 1;
                return;
            }
            self.receive_for_group(now, dst, dest_qp, frame, layout);
            return;
        }
        let ours = match self.wire(port) {
            Some(wire) => wire.has(dst),
            None => self.is_ours(dst),
        };
        if !ours {
            self.shared.counters.rx_not_for_us += 1;
            return;
        }
        if dest_qp == Qpn::GSI
            && (self.receive_negotiation(now, port, (src, dst), frame, &layout)
                || !self.admit_to_gsi(now, port, src)
                || self.takes_cm_mads && self.receive_cm_mad(port, (src, dst), frame, &layout))
        {
            return;
        }
        let Some(index) = self.index_of(dest_qp) else {
            self.shared.counters.rx_bad_qp += 1;
            return;
        };
        let Some(Some(slot)) = self.slots.get(index as usize) else { return };
        if !slot.endpoint.qp.state().receives() && !slot.endpoint.qp.owes_answers() {
            self.shared.counters.rx_bad_qp += 1;
            return;
        }
        // No other NIC has these addresses: packets from them arrive by loopback only.
        let right = match slot.peer {
            Some(_) => slot.is_between(src, dst, port),
            None => port == Nic::LOOPBACK || !self.is_ours_alone(src),
        };
        if !right {
            self.shared.counters.rx_wrong_source += 1;
            return;
        }
        if !elided && icrc::verify(frame, &layout).is_err() && !planted(Bug::IcrcUnchecked) {
            self.shared.counters.rx_icrc_encapsulated += 1;
            return;
        }
        let active = match slot.endpoint.is_plain() {
            true => self.deliver(now, index, frame, layout),
            false => self.receive_through_layers(now, index, frame, layout),
        };
        if active {
            self.activate(index);
        }
    }

    /// Whether a source may send one more datagram to QP1. If not, the datagram takes no receive, so that no source can block QP1 for
    /// others.
    fn admit_to_gsi(&mut self, now: Instant, port: usize, source: IpAddr) -> bool {
        // NICs that share an address would share its rate; the carrier of their frames can tell them apart and limits each.
        if self.shares_addresses && self.is_ours(source) {
            return true;
        }
        let Some(rates) = &mut self.source_rates else { return true };
        // Datagrams of this NIC's own programs are not limited.
        let admitted = port == Nic::LOOPBACK || rates.take(now, source);
        self.shared.counters.rx_source_over_rate += u64::from(!admitted);
        admitted
    }

    /// Handles a datagram for all members of a group (IBA 10.5.2.1).
    fn receive_for_group(&mut self, now: Instant, group: IpAddr, dest_qp: Qpn, frame: &mut [u8], layout: Layout) {
        let counters = &mut self.shared.counters;
        let Some(found) = self.groups.iter().position(|g| g.address == group) else {
            counters.rx_no_group += 1;
            return;
        };
        if dest_qp != Qpn::MULTICAST {
            counters.rx_bad_qp += 1;
            return;
        }
        if self.payload == PayloadMode::Real && icrc::verify(frame, &layout).is_err() {
            counters.rx_icrc_encapsulated += 1;
            return;
        }
        for i in 0..self.groups[found].members.len() {
            let index = self.groups[found].members[i];
            let Some(Some(slot)) = self.slots.get(index as usize) else { continue };
            if slot.endpoint.qp.state().receives() {
                self.deliver(now, index, frame, layout);
                if planted(Bug::DatagramTwice) && i == 0 {
                    self.deliver(now, index, frame, layout);
                }
            }
        }
    }

    /// Passes a frame whose ICRC is right to its queue pair; returns whether the queue pair may have frames to send now.
    pub(super) fn deliver(&mut self, now: Instant, index: u32, frame: &[u8], layout: Layout) -> bool {
        let done = match self.payload {
            PayloadMode::Real => RoceHeaders::read(frame, &layout, |h| self.hand_over(now, index, frame, &layout, h)),
            PayloadMode::Elided => {
                RoceHeaders::read_elided(frame, &layout, |h| self.hand_over(now, index, frame, &layout, h))
            }
        };
        done.unwrap_or_else(|_| {
            self.shared.counters.rx_malformed += 1;
            false
        })
    }

    #[inline(never)] // each kind of extension headers is passed on where it was parsed
    fn hand_over(&mut self, now: Instant, index: u32, frame: &[u8], layout: &Layout, packet: &RoceHeaders<'_>) -> bool {
        let counters = &mut self.shared.counters;
        let Some(Some(slot)) = self.slots.get_mut(index as usize) else { return false };
        // The membership bit is ignored: it is enough that one of the two is a full member, and this NIC is one (IBA 10.9.1.1).
        if (packet.bth.pkey ^ slot.pkey) & 0x7fff != 0 {
            counters.rx_bad_pkey += 1;
            return false;
        }
        // Packets of another service, and of an undefined header version, are dropped (IBA 9.6.1).
        let opcode = packet.bth.opcode;
        let service = slot.service;
        let of_packet = opcode.service();
        let fits = of_packet == service || opcode == Opcode::CNP || slot.endpoint.qp.takes(of_packet);
        if !fits || packet.bth.tver != 0 {
            // A queue pair of a reliable connection may support credit, but did not agree on it.
            match opcode == Opcode::XP_CREDIT && slot.init.transport.has_credit() {
                true => counters.eqds_credit_rejected += 1,
                false => counters.rx_malformed += 1,
            }
            return false;
        }
        let ecn_ce = layout.traffic_class(frame).is_some_and(|c| c & 3 == 3);
        counters.np_ecn_marked_roce_packets += u64::from(ecn_ce);
        let grh = if service == Service::Ud { Grh::of_frame(frame, layout).ok() } else { None };
        let inbound = Inbound {
            bth: packet.bth,
            ext: packet.ext,
            payload_len: packet.payload.len() as u32,
            // An elided payload is missing; the bitmap of an acknowledgement is always present.
            payload: frame.get(packet.payload.clone()).unwrap_or_default(),
            grh: grh.as_ref().map(|grh| (grh, ethernet::Packet::new_unchecked(&*frame).src())),
            ecn_ce,
        };
        let misfits = |shared: &Shared| [shared.misfits.psn, shared.misfits.rkey];
        let before = misfits(&self.shared);
        let active = slot.endpoint.qp.handle_packet(now, &inbound, &mut self.shared);
        if misfits(&self.shared) != before {
            slot.note_misfits(before, misfits(&self.shared));
        }
        active
    }
}

#[inline]
fn ip_checksum_is_right(frame: &[u8], layout: &Layout) -> bool {
    layout.carrier != Carrier::Ipv4 || ipv4::Packet::new_unchecked(&frame[layout.network..]).verify_checksum()
}
