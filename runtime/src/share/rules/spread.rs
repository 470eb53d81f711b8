//! The classifier on the interface: copies RoCE packets for groups to every member, and delivers the packets that XDP left to their
//! clients.

use super::super::maps::Maps;
use super::addressee::Addressee;
use super::delivery::{Length, begin_classifier, copy_to_member, copy_to_members, deliver, drop_for_nobody, hold_all};
use super::{TC_ACT_SHOT, TC_ACT_UNSPEC};
use crate::bpf::assembler::{Assembler, Code, Reg, When};
use crate::bpf::look::Look;

/// The program for the packets that [`ingress`](super::ingress()) leaves to the kernel, or for all packets if the driver of the interface
/// does not run XDP. XDP behind the driver is not used instead, because it would copy every packet, and kernels (6.18) then show a
/// classifier no Ethernet header.
pub(crate) fn spread(maps: &Maps) -> Code {
    let maps = maps.fds();
    let mut a = Assembler::default();
    let [other, cut_off_behind_udp, process, everybody, nobody, copy] = [(); 6].map(|()| a.label());
    let cut_off = begin_classifier(&mut a, other);
    Look { tags: true, source: None, cut_off, other }.for_roce(&mut a);
    Addressee { process, everybody, nobody, cut_off: cut_off_behind_udp }.find(&mut a, &maps);

    // On the second pass, too: the packet is RoCE, so the kernel does not get it.
    a.place(cut_off_behind_udp);
    a.jump_if(When::Equal, Reg::R8, 0, cut_off);
    a.jump(nobody);

    a.place(process);
    deliver(&mut a, &maps, Length::Skb, nobody);

    a.place(nobody);
    hold_all(&mut a, &maps);
    drop_for_nobody(&mut a, &maps, TC_ACT_SHOT);

    a.place(everybody);
    copy_to_members(&mut a, &maps, copy);
    a.set(Reg::R0, TC_ACT_SHOT);
    a.exit();

    a.place(other);
    a.set(Reg::R0, TC_ACT_UNSPEC);
    a.exit();

    copy_to_member(&mut a, &maps, copy, None);
    a.finish()
}
