//! The members' way back to a group's sender: acknowledgements merged (MC-RDMA §IV-C), congestion notifications passed on (§IV-D).

use std::net::IpAddr;

use softnic_wire::aeth::Syndrome;
use softnic_wire::opcode::Kind;
use softnic_wire::rewrite::Rewrite;
use softnic_wire::{Instant, Layout, Opcode, ethernet};

use crate::copies::is_right;
use crate::group::Merged;
use crate::planted::{Bug, planted};
use crate::switch::Switch;

impl Switch {
    /// A packet to the queue pair of a group's sender.
    pub(crate) fn merge_back(
        &mut self,
        now: Instant,
        port: usize,
        frame: &mut [u8],
        layout: &Layout,
        index: u32,
        src: IpAddr,
    ) {
        let passing = self.parse_passing(frame, layout);
        // What is damaged moves nothing, and does not go on.
        let Some(passing) = passing.filter(|passing| is_right(frame, passing)) else {
            return self.count_bad(index);
        };
        let Some(member) = self.groups.member(index, src) else {
            return self.count_bad(index);
        };
        let to_us = ethernet::Packet::new_unchecked(&*frame).dst() == self.config.mac;
        let own_mac = ethernet::Packet::new_unchecked(&*frame).src();
        let Some(group) = self.groups.get_mut(index) else { return };
        if member == 0 && !to_us {
            group.aside.first_mac = Some(own_mac);
        }
        let Some(first) = group.aside.spec.receivers.first() else { return };
        // The sender takes packets from its peer alone, which is the first receiver.
        let mut rewrite = Rewrite { src_ip: Some(first.address), ..Rewrite::default() };
        rewrite.src_mac = first.mac.or(group.aside.first_mac).filter(|_| !to_us);
        match (passing.opcode(), passing.aeth(frame), passing.bth(frame)) {
            (opcode, ..) if opcode.kind() == Kind::CongestionNotification => {
                group.counters.cnps_in += 1;
                group.counters.cnps_out += 1;
                if planted(Bug::CnpFromMember) {
                    rewrite.src_ip = None;
                }
            }
            (Opcode::RC_ACKNOWLEDGE, Some(aeth), Some(bth)) => {
                let Some(merge) = &mut group.merge else { return };
                group.counters.acks_in += 1;
                match aeth.syndrome {
                    Syndrome::Nak(_) => group.counters.naks += 1,
                    Syndrome::RnrNak(_) => group.counters.rnr += 1,
                    _ => {}
                }
                match merge.heard(now, member, bth.psn(), aeth) {
                    Merged::Keep => return,
                    Merged::Lie => {
                        group.counters.bad += 1;
                        return;
                    }
                    Merged::Tell(answer) => {
                        rewrite.psn = Some(answer.psn);
                        rewrite.aeth = Some(answer.aeth);
                        group.counters.acks_out += 1;
                    }
                }
            }
            // A group goes one way: what a receiver asks of the sender could not be answered.
            _ => {
                group.counters.bad += 1;
                return;
            }
        }
        if passing.apply(&rewrite, frame).is_ok() {
            self.forward(Some(port), frame);
        }
    }
}
