//! The sender's way of a group: each packet copied to every branch, each copy made a receiver's own (MC-RDMA §IV-B, §IV-E).

use softnic_fault_injector::QueueDecision;
use softnic_wire::aeth::NakCode;
use softnic_wire::opcode::Kind;
use softnic_wire::rewrite::{Passing, RethRewrite, Rewrite};
use softnic_wire::transit::{CE, NOT_ECT};
use softnic_wire::{
    Addresses, ExtHeaders, Instant, Layout, Opcode, PacketFields, Path, Psn, Qpn, Template, TxFrame, bth, ethernet,
    icrc, opcode,
};

use crate::group::{Answer, Egress, Found, Group, Looked, Memory};
use crate::planted::{Bug, planted};
use crate::switch::Switch;
use crate::tables::FlowKey;

/// Hops of an answer of the switch's own.
const HOPS: u8 = 64;
/// Room for an answer: two tags, IPv6, AETH, ICRC.
const ANSWER: usize = 128;

/// What of a packet's memory differs from receiver to receiver.
#[derive(Debug, Clone, Copy)]
enum Names {
    Nothing,
    Range(Found),
    Key(Found),
}

impl Switch {
    /// Takes a RoCE packet that belongs to a group; `false` when it does not, and is forwarded as any other.
    #[inline]
    pub(crate) fn handle_group(&mut self, now: Instant, port: usize, frame: &mut [u8], layout: &Layout) -> bool {
        let Some((src, dst)) = layout.addresses(frame) else { return false };
        let Ok(header) = bth::Packet::new_checked(frame.get(layout.bth..).unwrap_or_default()) else { return false };
        let dest_qp = header.dest_qp();
        if let Some(group) = self.groups.of_sender(src, dest_qp)
            && self.groups.get_mut(group).is_some_and(|group| group.is_to(dst))
        {
            self.copy_out(port, frame, layout, group);
            return true;
        }
        if let Some(group) = self.groups.to_sender(dst, dest_qp) {
            self.merge_back(now, port, frame, layout, group, src);
            return true;
        }
        false
    }

    /// A packet of a group's sender.
    fn copy_out(&mut self, port: usize, frame: &[u8], layout: &Layout, index: u32) {
        let Some(passing) = self.parse_passing(frame, layout) else {
            return self.count_bad(index);
        };
        // For acknowledgements that were marked: nobody sends these any slower.
        if passing.opcode().kind() == Kind::CongestionNotification {
            return;
        }
        let Some(group) = self.groups.get_mut(index) else { return };
        group.counters.packets_in += 1;
        let (opcode, psn) = (passing.opcode(), passing.bth(frame).map_or(Psn::default(), |bth| bth.psn()));
        let names = match group.names(&passing, frame) {
            Ok(names) => names,
            // Whatever is refused ends the connection, so it has to be what the sender sent.
            Err(_) if !is_right(frame, &passing) => return self.count_bad(index),
            Err(None) => return self.count_bad(index),
            Err(Some(code)) => {
                group.counters.refused += 1;
                if let Some(merge) = &mut group.merge {
                    let answer = match merge.sent(psn) {
                        (_, Some(again)) => Some(again),
                        _ => merge.refuse(psn, code),
                    };
                    self.answer(index, port, frame, &passing, answer);
                }
                return;
            }
        };
        debug_assert!(opcode.is_request());
        if let Some(merge) = &mut group.merge {
            // A PSN ahead of all others moves what may be acknowledged: then damage matters.
            if psn.is_after(merge.next()) && !is_right(frame, &passing) {
                return self.count_bad(index);
            }
            let (passes, again) = merge.sent(psn);
            let over = !passes || again.is_some();
            self.answer(index, port, frame, &passing, again);
            if over {
                return;
            }
        }
        self.copy(index, frame, &passing, names);
    }

    /// Queues a copy for every branch.
    fn copy(&mut self, index: u32, frame: &[u8], passing: &Passing, names: Names) {
        let wire_len = self.wire_len(frame);
        let src_port = passing.layout().src_port(frame).unwrap_or(0);
        self.find_ways(index, src_port);
        let Some(group) = self.groups.get_mut(index) else { return };
        let Some(shared) = self.held.share(frame, passing) else {
            self.counters.no_buffer += 1;
            return;
        };
        let to_us = ethernet::Packet::new_unchecked(frame).dst() == self.config.mac;
        let capable = passing.layout().traffic_class(frame).is_some_and(|class| class & CE != NOT_ECT);
        for (i, branch) in group.branches.iter().enumerate() {
            let Some(Egress { port, mac, routed }) = branch.egress else {
                group.counters.unresolved += 1;
                if let Some(aside) = group.aside.branches.get_mut(i) {
                    aside.unresolved += 1;
                }
                continue;
            };
            let Some(out) = self.ports.get_mut(port as usize) else { continue };
            let decision = out.decide(wire_len, &mut self.random);
            if decision == QueueDecision::Drop {
                continue;
            }
            group.counters.copies += 1;
            let routed = routed || to_us;
            let mut rewrite = Rewrite {
                dst_mac: Some(mac),
                src_mac: routed.then_some(self.config.mac),
                take_hop: routed,
                dst_ip: Some(branch.to),
                ..Rewrite::default()
            };
            if let Some(receiver) = branch.last {
                rewrite.dest_qp = Some(branch.qpn);
                names.rewrite(&group.memory, receiver.into(), &mut rewrite);
            }
            let marked = decision == QueueDecision::Mark;
            // It has no hop left.
            let Ok(kept) = shared.copy(&rewrite, marked) else {
                self.counters.hops_exceeded += 1;
                continue;
            };
            out.stats.marked += u64::from(marked && capable);
            out.push(kept, wire_len, self.pfc.tag());
            if planted(Bug::CopyToAnother)
                && let Some(other) = self.ports.get_mut(port as usize + 1)
                && let Ok(kept) = shared.copy(&rewrite, marked)
            {
                other.push(kept, wire_len, self.pfc.tag());
            }
        }
        let place = shared.place();
        self.held.settle(place);
    }

    /// Where the branches of a group leave; looked up again when tables have changed, or when the sender chose another source port.
    #[inline]
    fn find_ways(&mut self, index: u32, src_port: u16) {
        let now = Looked { epoch: self.epoch, src_port };
        if self.groups.get_mut(index).is_some_and(|group| group.looked != Some(now)) {
            self.find_ways_anew(index, now);
        }
    }

    #[cold]
    fn find_ways_anew(&mut self, index: u32, now: Looked) {
        let (mut branch, mut all) = (0, true);
        while let Some(group) = self.groups.get_mut(index)
            && let (Some(to), Some(aside)) = (group.branches.get(branch), group.aside.branches.get(branch))
        {
            let (sender, to, mac) = (group.aside.spec.sender, to.to, aside.mac);
            let found = match mac {
                Some(mac) => {
                    let port = self.macs.port(mac);
                    if port.is_none() {
                        // Who is asked for speaks, and then it is known where it is.
                        self.neighbours.mac(to);
                    }
                    port.map(|port| (port, mac, false))
                }
                None => self.next_hop(to, || Some(FlowKey::roce(sender, to, now.src_port))).ok(),
            };
            all &= found.is_some();
            if let Some(group) = self.groups.get_mut(index) {
                let egress = found.map(|(port, mac, routed)| Egress { port: port as u32, mac, routed });
                group.branches[branch].egress = egress;
            }
            branch += 1;
        }
        if let Some(group) = self.groups.get_mut(index) {
            group.looked = all.then_some(now);
        }
    }

    /// Sends an answer of the switch's own to a group's sender, whose packet came in at `port`.
    fn answer(&mut self, index: u32, port: usize, frame: &[u8], passing: &Passing, answer: Option<Answer>) {
        let Some(answer) = answer else { return };
        let Some(group) = self.groups.get_mut(index) else { return };
        let Some(merge) = group.aside.spec.merge else { return };
        let Some((src, dst)) = passing.layout().addresses(frame) else { return };
        let Some(addresses) = Addresses::new(dst, src) else { return };
        let header = ethernet::Packet::new_unchecked(frame);
        let path = Path {
            src_mac: header.dst(),
            dst_mac: header.src(),
            tags: [header.tag(0), header.tag(1)],
            addresses,
            traffic_class: passing.layout().traffic_class(frame).unwrap_or(0) & !CE,
            flow_label: 0,
            hop_limit: HOPS,
            src_port: passing.layout().src_port(frame).unwrap_or(0),
        };
        group.counters.acks_out += 1;
        let mut buffer = [0; ANSWER];
        let mut tx = TxFrame::new(&mut buffer);
        if build_answer(&path, merge.qpn, answer, &mut tx).is_ok() {
            let len = tx.len();
            self.enqueue(port, &buffer[..len]);
        }
    }

    /// Reads a frame that may be changed.
    #[inline]
    pub(crate) fn parse_passing(&self, frame: &[u8], layout: &Layout) -> Option<Passing> {
        match Passing::parse_at(frame, layout) {
            Ok(passing) => Some(passing),
            Err(_) if self.config.elided => Passing::parse_elided(frame).ok(),
            Err(_) => None,
        }
    }

    pub(crate) fn count_bad(&mut self, group: u32) {
        if let Some(group) = self.groups.get_mut(group) {
            group.counters.bad += 1;
        }
    }
}

impl Group {
    /// What a packet names that differs among receivers; why no receiver gets it, and nothing where it is no request at all.
    fn names(&self, passing: &Passing, frame: &[u8]) -> Result<Names, Option<NakCode>> {
        let opcode = passing.opcode();
        if opcode.service() != opcode::Service::Rc {
            return Err(None);
        }
        match opcode.kind() {
            Kind::Send | Kind::Write => {}
            _ if opcode.is_request() => return Err(Some(NakCode::INVALID_REQUEST)),
            _ => return Err(None),
        }
        if let Some(reth) = passing.reth(frame) {
            return match self.memory.find(reth.rkey, reth.va, reth.len) {
                Some(found) => Ok(Names::Range(found)),
                // No memory is touched, so none is looked for (IBA 9.7.4.1.3).
                None if reth.len == 0 => Ok(Names::Nothing),
                None => Err(Some(NakCode::REMOTE_ACCESS_ERROR)),
            };
        }
        if let Some(rkey) = passing.ieth(frame) {
            let found = self.memory.with_key(rkey).ok_or(Some(NakCode::REMOTE_ACCESS_ERROR))?;
            return Ok(Names::Key(found));
        }
        Ok(Names::Nothing)
    }
}

impl Names {
    /// What of it a receiver's copy says instead.
    #[inline]
    fn rewrite(self, memory: &Memory, receiver: usize, rewrite: &mut Rewrite) {
        match self {
            Names::Nothing => {}
            Names::Range(found) => {
                let (offset, rkey) = memory.target(found, receiver);
                let offset = offset.wrapping_add(u64::from(planted(Bug::RethOffByOne)));
                rewrite.reth = Some(RethRewrite { offset, rkey });
            }
            Names::Key(_) if planted(Bug::IethUnchanged) => {}
            Names::Key(found) => rewrite.ieth = Some(memory.target(found, receiver).1),
        }
    }
}

/// Whether a packet is what was sent; one without payload has no ICRC to say so.
pub(crate) fn is_right(frame: &[u8], passing: &Passing) -> bool {
    passing.icrc_at().is_none() || icrc::verify_shared(frame, passing.layout()).is_ok()
}

fn build_answer(path: &Path, to: Qpn, answer: Answer, tx: &mut TxFrame<'_>) -> Result<(), softnic_wire::Error> {
    let fields = PacketFields {
        opcode: Opcode::RC_ACKNOWLEDGE,
        psn: answer.psn,
        ack_req: false,
        solicited: false,
        becn: false,
        payload_len: 0,
    };
    let ext = ExtHeaders { aeth: Some(answer.aeth), ..ExtHeaders::default() };
    Template::new(path, to, bth::DEFAULT_PKEY).build(tx, &fields, &ext, &[])
}
