//! Classifier on the interface: RoCE for groups goes to every member.

use super::super::maps::Maps;
use super::addressee::load_u24;
use super::delivery::{begin_classifier, copy_to_member, copy_to_members};
use super::{MULTICAST, TC_ACT_SHOT, TC_ACT_UNSPEC, field};
use crate::bpf::assembler::{Assembler, Code, Reg, When};
use crate::bpf::look::{Look, need};

/// The program for what [`ingress`](super::ingress()) leaves to the kernel.
pub(crate) fn spread(maps: &Maps) -> Code {
    let maps = maps.fds();
    let mut a = Assembler::default();
    let [other, copy] = [(); 2].map(|()| a.label());
    let cut_off = begin_classifier(&mut a, other);
    Look { tags: true, source: None, cut_off, other }.for_roce(&mut a);
    need(&mut a, field::BTH, cut_off);
    load_u24(&mut a, Reg::R0, field::DEST_QP);
    a.jump_if(When::NotEqual, Reg::R0, MULTICAST, other);
    copy_to_members(&mut a, &maps, copy);
    a.set(Reg::R0, TC_ACT_SHOT);
    a.exit();

    a.place(other);
    a.set(Reg::R0, TC_ACT_UNSPEC);
    a.exit();

    copy_to_member(&mut a, &maps, copy, None);
    a.finish()
}
