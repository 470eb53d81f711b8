//! Delivers a packet to a client, or to every member of a group.

use std::mem::offset_of;

use softnic_nic::sharing::Process;

use super::super::maps::{Client, MapFds, Port};
use super::{field, function, skb};
use crate::bpf::assembler::{Assembler, Label, Reg, Size, When};

/// Number of bytes that are made contiguous if fewer are: the inspected fields, behind the longest headers.
const HEADERS: i32 = 14 + 2 * 4 + 40 + 8 + field::LOOKED_AT;

/// How a program gets the length of a packet.
#[derive(Debug, Clone, Copy)]
pub(super) enum Length {
    /// XDP: by a call to the kernel.
    Xdp,
    /// Classifier: from its argument.
    Skb,
}

/// Sets `R0` to the client with the number in `number`, and `R2` to its interface. `R0` to `R5` are used, and four bytes of the stack.
/// Jumps to `nobody` if no client has that number.
pub(super) fn find_client(a: &mut Assembler, maps: &MapFds, number: Reg, nobody: Label) {
    a.store(Size::U32, Reg::R10, -4, number);
    a.copy(Reg::R2, Reg::R10);
    a.add(Reg::R2, -4);
    a.set_map(Reg::R1, maps.clients);
    a.call(function::MAP_LOOKUP);
    a.jump_if(When::Equal, Reg::R0, 0, nobody);
    a.load(Size::U32, Reg::R2, Reg::R0, offset_of!(Client, ifindex) as i16);
    a.jump_if(When::Equal, Reg::R2, 0, nobody);
}

/// Ends a program by delivering the packet to the client with the number in `R0`; `R6` is the program's argument. `R7` is used.
pub(super) fn deliver(a: &mut Assembler, maps: &MapFds, length: Length, nobody: Label) {
    use Reg::{R0, R1, R6, R7};
    find_client(a, maps, R0, nobody);
    a.copy(R7, R0);
    match length {
        Length::Xdp => {
            a.copy(R1, R6);
            a.call(function::XDP_GET_BUFF_LEN);
        }
        Length::Skb => a.load(Size::U32, R0, R6, skb::LEN),
    }
    count_received(a, R7, R0);
    a.load(Size::U32, R1, R7, offset_of!(Client, ifindex) as i16);
    redirect(a);
}

/// Counts a packet of `bytes` bytes for a client. `R1` is used.
fn count_received(a: &mut Assembler, client: Reg, bytes: Reg) {
    a.atomic_add(client, offset_of!(Client, rx_bytes) as i16, bytes);
    a.set(Reg::R1, 1);
    a.atomic_add(client, offset_of!(Client, rx_frames) as i16, Reg::R1);
}

/// Ends a program by sending the packet out by the interface in `R1`.
pub(super) fn redirect(a: &mut Assembler) {
    a.set(Reg::R2, 0);
    a.call(function::REDIRECT);
    a.exit();
}

/// Ends a program for a packet without an addressee, with a verdict.
pub(super) fn drop_for_nobody(a: &mut Assembler, maps: &MapFds, verdict: i32) {
    a.set_map_value(Reg::R1, maps.port);
    a.set(Reg::R2, 1);
    a.atomic_add(Reg::R1, offset_of!(Port, nobody) as i16, Reg::R2);
    a.set(Reg::R0, verdict);
    a.exit();
}

/// Makes a program refer to the maps that it does not use otherwise, because `Maps::of_program` finds all maps by one program. `R1` is
/// used.
pub(super) fn hold_all(a: &mut Assembler, maps: &MapFds) {
    a.set_map(Reg::R1, maps.members);
    a.set_map(Reg::R1, maps.addresses);
}

/// Sends a copy of the packet to every member; `R6` is the program's argument. `R0` to `R5` are used, and eight bytes of the stack.
///
/// The function `copy` follows the program, as [`copy_to_member`] writes it. The verifier follows a function that the kernel calls once. It
/// would follow a thousand rounds of a loop, which took 80 ms.
pub(super) fn copy_to_members(a: &mut Assembler, maps: &MapFds, copy: Label) {
    use Reg::{R1, R2, R3, R4, R6, R10};
    a.set_map_value(R1, maps.port);
    a.load(Size::U32, R1, R1, offset_of!(Port, members) as i16);
    a.set_function(R2, copy);
    a.store(Size::U64, R10, -8, R6);
    a.copy(R3, R10);
    a.add(R3, -8);
    a.set(R4, 0);
    a.call(function::LOOP);
}

/// The function that [`copy_to_members`] has called with the index of every member. Each member gets a copy, except the one that is left
/// out. The copy is counted for the member whether or not its veth has room.
pub(super) fn copy_to_member(a: &mut Assembler, maps: &MapFds, copy: Label, left_out: Option<Process>) {
    use Reg::{R0, R1, R2, R3, R6, R7, R10};
    let next = a.label();
    a.place(copy);
    a.load(Size::U64, R6, R2, 0);
    a.store(Size::U32, R10, -4, R1);
    a.copy(R2, R10);
    a.add(R2, -4);
    a.set_map(R1, maps.members);
    a.call(function::MAP_LOOKUP);
    a.jump_if(When::Equal, R0, 0, next);
    a.load(Size::U32, R0, R0, 0);
    if let Some(process) = left_out {
        a.jump_if(When::Equal, R0, process.number() as i32, next);
    }
    find_client(a, maps, R0, next);
    a.load(Size::U32, R7, R6, skb::LEN);
    count_received(a, R0, R7);
    a.copy(R1, R6);
    a.set(R3, 0);
    a.call(function::CLONE_REDIRECT);
    a.place(next);
    a.set(R0, 0);
    a.exit();
}

/// Starts a classifier: `R6` is its argument, `R2` the start of the packet and `R3` its end. Code that finds fewer bytes than it needs
/// jumps to the returned label.
///
/// The headers of a packet may be in several fragments, of which a program sees the first. Mostly that is enough. Otherwise the program
/// starts over, once, with the headers made contiguous; `R8` counts the passes.
pub(super) fn begin_classifier(a: &mut Assembler, too_short: Label) -> Label {
    use Reg::{R0, R1, R2, R3, R6, R8};
    let [look, cut_off, short] = [(); 3].map(|()| a.label());
    a.copy(R6, R1);
    a.set(R8, 0);
    a.jump(look);

    a.place(cut_off);
    a.jump_if(When::NotEqual, R8, 0, too_short);
    a.set(R8, 1);
    a.load(Size::U32, R2, R6, skb::LEN);
    a.set(R0, HEADERS);
    a.jump_if_at_least(R0, R2, short);
    a.copy(R2, R0);
    a.place(short);
    a.copy(R1, R6);
    a.call(function::SKB_PULL_DATA);

    a.place(look);
    a.load(Size::U32, R2, R6, skb::DATA);
    a.load(Size::U32, R3, R6, skb::DATA_END);
    cut_off
}
