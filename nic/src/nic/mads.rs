//! MADs of software on the NIC. They are sent from QP1 whether or not a program has QP1. Received ones are kept if software asked for them,
//! and refused otherwise.

use std::net::IpAddr;

use softnic_transports::negotiation::write_mad;
use softnic_wire::mad::failover::{FAILOVER_HELLO, FAILOVER_PROOF, FAILOVER_REGION};
use softnic_wire::mad::vendor::{self, Oui};
use softnic_wire::mad::{self, Class, MAD_LEN, Method, Status};
use softnic_wire::{Addresses, Layout, MacAddr, Path, Qpn, Template, TxFrame, bth, ethernet, icrc};

use super::Nic;
use super::negotiation::mad_of;
use crate::waiting_mads::{PostedMad, ReceivedMad};

/// Maximum number of waiting MADs, in each direction.
const WAITING: usize = 256;

impl Nic {
    /// Queues a MAD that leaves by a port before other traffic, from the local QP1 to the QP1 at the end of the path. If more than 256
    /// wait, the oldest is lost, as any datagram may be.
    pub fn post_mad(&mut self, port: usize, path: &Path, mad: &[u8; MAD_LEN]) {
        let port = self.port_to(port, path.addresses.dst());
        let Some(turns) = self.turns.get_mut(port) else { return };
        if turns.mads.len() >= WAITING {
            turns.mads.pop_front();
        }
        turns.mads.push_back(PostedMad { template: Template::new(path, Qpn::GSI, bth::DEFAULT_PKEY), mad: *mad });
    }

    /// Whether MADs about failover are kept for [`Nic::poll_mad`], at most 256 of them. When turned off, waiting MADs are dropped. While
    /// software does not take them, requests are refused, so that a peer learns that this NIC has no failover.
    pub fn take_mads(&mut self, on: bool) {
        self.takes_mads = on;
        if !on {
            self.mads.clear();
        }
    }

    /// As `take_mads`, for MADs of the connection manager too: for a NIC whose QP1 is used by software rather than by a program.
    pub fn take_cm_mads(&mut self) {
        self.take_mads(true);
        self.takes_cm_mads = true;
    }

    /// Removes the oldest MAD that waits for software.
    pub fn poll_mad(&mut self) -> Option<ReceivedMad> {
        self.mads.pop_front()
    }

    /// Writes the next MAD that leaves by a port, if there is one.
    #[cold]
    pub(super) fn transmit_mad(&mut self, port: usize, tx: &mut TxFrame<'_>) -> bool {
        while let Some(PostedMad { template, mad }) = self.turns[port].mads.pop_front() {
            if write_mad(tx, &template, &mad) {
                self.shared.counters.sent_pkts += 1;
                self.shared.counters.sent_bytes += tx.wire_len() as u64;
                return true;
            }
        }
        false
    }

    /// Takes a frame to QP1 if it belongs to the connection manager.
    #[cold]
    pub(super) fn receive_cm_mad(
        &mut self,
        port: usize,
        (src, dst): (IpAddr, IpAddr),
        frame: &mut [u8],
        layout: &Layout,
    ) -> bool {
        let Some(at) = mad_of(frame, layout, Class::CM) else { return false };
        if icrc::verify(frame, layout).is_err() {
            self.shared.counters.rx_icrc_encapsulated += 1;
            return true;
        }
        let src_mac = ethernet::Packet::new_unchecked(&*frame).src();
        match frame[at..].first_chunk() {
            Some(&mad) if self.is_strangers(port, src, src_mac) => {
                self.keep_mad(&ReceivedMad { port, src, dst, src_mac, mad });
            }
            _ => self.shared.counters.rx_wrong_source += 1,
        }
        true
    }

    /// Whether these can be the addresses of another station.
    fn is_strangers(&self, port: usize, src: IpAddr, src_mac: MacAddr) -> bool {
        let broadcast = matches!(src, IpAddr::V4(ip) if ip.is_broadcast());
        let unicast = !(src.is_multicast() || src.is_unspecified() || broadcast || src_mac.0[0] & 1 != 0);
        unicast && (port == Nic::LOOPBACK || !self.is_ours_alone(src))
    }

    /// Keeps a MAD for software, unless too many wait.
    fn keep_mad(&mut self, received: &ReceivedMad) {
        if self.takes_mads && self.mads.len() < WAITING {
            self.mads.push_back(*received);
        }
    }

    /// Handles a MAD about failover, whose ICRC is right.
    pub(super) fn receive_mad(&mut self, received: &ReceivedMad) {
        let ReceivedMad { port, src, src_mac, ref mad, .. } = *received;
        if !self.is_strangers(port, src, src_mac) {
            self.shared.counters.rx_wrong_source += 1;
            return;
        }
        let Ok(header) = mad::Repr::parse(mad) else { return };
        let is_refusal = header.method == Method::GET_RESP && header.status != Status::SUCCESS;
        if !is_refusal && receiver_of(mad).is_none() {
            self.shared.counters.rx_malformed += 1;
            return;
        }
        match (self.takes_mads, header.method) {
            (true, _) => self.keep_mad(received),
            (false, Method::GET) => self.refuse_mad(received, &header),
            (false, _) => self.shared.counters.rx_unasked_answers += 1,
        }
    }

    /// Refuses a request: returns the request to its sender, with a status (IBA 13.4.7).
    fn refuse_mad(&mut self, request: &ReceivedMad, header: &mad::Repr) {
        let ReceivedMad { port, src, dst, src_mac, mut mad } = *request;
        // A request by loopback was sent to an address of one of the ports.
        let number = if port == Nic::LOOPBACK { self.port_with(dst) } else { Some(port) };
        let path = number.and_then(|number| Some((number, self.path_from(number, src, src_mac, Qpn::GSI.value())?)));
        // The answer is sent from the address that the request was sent to.
        let (Some((number, path)), Some(addresses)) = (path, Addresses::new(dst, src)) else { return };
        header.refusal(Status::UNSUPPORTED_METHOD_ATTRIB).emit(&mut mad);
        self.post_mad(number, &Path { addresses, ..path }, &mad);
    }
}

/// Whether a complete MAD of softnic's class is about failover.
pub(super) fn is_failover(mad: &[u8]) -> bool {
    matches!(mad::Packet::new_unchecked(mad).attribute_id(), FAILOVER_HELLO | FAILOVER_REGION | FAILOVER_PROOF)
}

/// The queue pair that a MAD about failover is for; none if the MAD names none, or refuses.
pub(super) fn receiver_of(mad: &[u8]) -> Option<Qpn> {
    let packet = vendor::Packet::new_checked(mad).ok()?;
    let method = mad::Packet::new_unchecked(mad).method();
    let (version, receiver) = packet.version_and_receiver();
    let is_ours = packet.oui() == Oui::SOFTNIC && !packet.is_rmpp_active() && version != 0;
    (is_failover(mad) && is_ours && matches!(method, Method::GET | Method::GET_RESP)).then(|| Qpn::new(receiver))
}
