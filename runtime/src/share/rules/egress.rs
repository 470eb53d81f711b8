//! The classifier on the outer end of a client's veth: which packets the client may send, and to which destination.

use std::mem::offset_of;

use softnic_nic::sharing::Process;
use softnic_wire::Opcode;
use softnic_wire::mad::{Attribute, Class, vendor};

use super::super::maps::{Client, MapFds, Maps, Port};
use super::addressee::{Addressee, is_mad, is_refusal, load_u24};
use super::delivery::{
    Length, begin_classifier, copy_to_member, copy_to_members, deliver, drop_for_nobody, find_client, redirect,
};
use super::{COMM_ID_BITS, GSI, QPN_BITS, TC_ACT_SHOT, field, function, skb};
use crate::bpf::assembler::{Assembler, Code, Label, Reg, Size, When};
use crate::bpf::look::{Look, loaded, need};

/// The location of the packet's source address on the stack. Other uses of the stack are closer to its end.
const SOURCE: i16 = -24;

const PORT_MAC: i16 = offset_of!(Port, mac) as i16;

/// The interval in nanoseconds after which a client may send one more datagram to QP1, and the burst: 2048 a second, and 1024 at once. That
/// is half of what a NIC accepts from one address, and all clients share one address: a client that floods QP1 leaves the other half to the
/// others.
const GSI_INTERVAL: i32 = 1_000_000_000 / 2048;
const GSI_BURST: i32 = 1023 * GSI_INTERVAL;

/// The program for the packets of one client.
///
/// A client may send RoCE packets from the port's addresses, and from its own queue pairs and connections. RC and UC packets do not name
/// their source queue pair, so of these only the addresses are checked. The receiver's queue pair number and its expected PSN are the only
/// protection against other senders behind the peer's address, as on any wire. Once the client's number is freed, its packets are dropped,
/// and nothing is counted for the next owner of the number.
pub(crate) fn egress(maps: &Maps, process: Process) -> Code {
    use Reg::{R0, R1, R2, R3, R5, R6, R7, R8, R9, R10};
    let maps = maps.fds();
    let mut a = Assembler::default();
    let [deny, over_rate, remote, group, drop, copy] = [(); 6].map(|()| a.label());

    let cut_off = begin_classifier(&mut a, deny);
    a.copy(R9, R2);
    need(&mut a, 14, cut_off);
    a.load(Size::U32, R0, R6, skb::VLAN_PRESENT);
    a.jump_if(When::NotEqual, R0, 0, deny);
    is_mac_of_port(&mut a, &maps, 6, deny);
    Look { tags: false, source: Some(SOURCE), cut_off, other: deny }.for_roce(&mut a);
    a.copy(R7, R2);
    is_from_own_queue_pair(&mut a, process, cut_off, deny);

    a.copy(R2, R10);
    a.add(R2, SOURCE.into());
    a.set_map(R1, maps.addresses);
    a.call(function::MAP_LOOKUP);
    a.jump_if(When::Equal, R0, 0, deny);
    a.set(R0, process.number() as i32);
    find_client(&mut a, &maps, R0, drop);
    a.copy(R8, R0);
    police_gsi(&mut a, over_rate);
    police(&mut a, over_rate);
    a.load(Size::U32, R1, R6, skb::LEN);
    a.atomic_add(R8, offset_of!(Client, tx_bytes) as i16, R1);
    a.set(R1, 1);
    a.atomic_add(R8, offset_of!(Client, tx_frames) as i16, R1);

    // Find the destination.
    is_mac_of_port(&mut a, &maps, 0, remote);
    let [receiver, nobody, everybody] = [(); 3].map(|()| a.label());
    a.copy(R2, R7);
    a.load(Size::U32, R3, R6, skb::DATA_END);
    Addressee { process: receiver, everybody, nobody, cut_off: nobody }.find(&mut a, &maps);
    a.place(receiver);
    deliver(&mut a, &maps, Length::Skb, nobody);
    a.place(nobody);
    drop_for_nobody(&mut a, &maps, TC_ACT_SHOT);
    a.place(everybody);
    a.set(R9, 0);
    a.jump(group);

    a.place(remote);
    let one = a.label();
    a.load(Size::U8, R0, R9, 0);
    a.set_map_value(R5, maps.port);
    a.load(Size::U32, R9, R5, offset_of!(Port, ifindex) as i16);
    a.jump_if(When::AnySet, R0, 1, group);
    a.place(one);
    a.copy(R1, R9);
    redirect(&mut a);
    a.place(group);
    copy_to_members(&mut a, &maps, copy);
    a.jump_if(When::NotEqual, R9, 0, one);
    a.jump(drop);

    a.place(deny);
    a.set(R0, process.number() as i32);
    find_client(&mut a, &maps, R0, drop);
    count_and_drop(&mut a, R0, offset_of!(Client, tx_denied));
    a.place(over_rate);
    count_and_drop(&mut a, R8, offset_of!(Client, tx_policed));
    a.place(drop);
    a.set(R0, TC_ACT_SHOT);
    a.exit();

    copy_to_member(&mut a, &maps, copy, Some(process));
    a.finish()
}

/// Ends a program: counts a packet for a client, and drops it.
fn count_and_drop(a: &mut Assembler, client: Reg, counter: usize) {
    a.set(Reg::R1, 1);
    a.atomic_add(client, counter as i16, Reg::R1);
    a.set(Reg::R0, TC_ACT_SHOT);
    a.exit();
}

/// Jumps to `no` unless the address at `offset` from the start of the packet, in `R9`, is the port's. `R0`, `R1` and `R5` are used.
fn is_mac_of_port(a: &mut Assembler, maps: &MapFds, offset: i16, no: Label) {
    use Reg::{R0, R1, R5, R9};
    a.set_map_value(R5, maps.port);
    for (size, at) in [(Size::U32, 0), (Size::U16, 4)] {
        a.load(size, R0, R9, offset + at);
        a.load(size, R1, R5, PORT_MAC + at);
        a.jump_unless_same(R0, R1, no);
    }
}

/// Jumps to `no` unless the source queue pair, or connection, that the packet names belongs to this process. `R2` is the BTH and `R3` the
/// end of the packet; `R0`, `R1`, `R4` and `R5` are used.
fn is_from_own_queue_pair(a: &mut Assembler, process: Process, cut_off: Label, no: Label) {
    use Reg::{R0, R1, R2, R5};
    let number = process.number() as i32;
    let [datagram, mad, cm, own_queue_pair, yes] = [(); 5].map(|()| a.label());
    need(a, field::BTH, cut_off);
    load_u24(a, R5, field::DEST_QP);
    a.load(Size::U8, R1, R2, field::OPCODE);
    a.and(R1, 0xe0);
    a.jump_if(When::Equal, R1, (Opcode::UD_SEND_ONLY.0 & 0xe0).into(), datagram);
    // Only datagrams are sent to QP1.
    a.jump_if(When::Equal, R5, GSI, no);
    a.jump(yes);

    a.place(datagram);
    need(a, field::DETH, cut_off);
    load_u24(a, R0, field::SRC_QP);
    a.jump_if(When::Equal, R5, GSI, mad);
    a.place(own_queue_pair);
    a.shift_right(R0, QPN_BITS);
    a.jump_if(When::Equal, R0, number, yes);
    a.jump(no);

    a.place(mad);
    a.jump_if(When::NotEqual, R0, GSI, no);
    need(a, field::LOOKED_AT, cut_off);
    is_mad(a, no);
    a.load(Size::U8, R1, R2, field::CLASS);
    a.jump_if(When::Equal, R1, Class::CM.0.into(), cm);
    // No client of softnic sends MADs of other classes.
    a.jump_if(When::NotEqual, R1, vendor::CLASS.0.into(), no);
    // A refusal does not contain the sender's queue pair number.
    is_refusal(a, yes);
    load_u24(a, R0, field::SENDER_QPN);
    a.jump(own_queue_pair);

    a.place(cm);
    a.load(Size::U16, R1, R2, field::ATTRIBUTE);
    // A SIDR_REP has the id of the request, and none of the sender's.
    a.jump_if(When::Equal, R1, loaded(Attribute::CM_SIDR_REP.0), yes);
    a.load(Size::U32, R0, R2, field::LOCAL_ID);
    a.number_of_u32(R0);
    let id = a.label();
    a.jump_if(When::NotEqual, R0, 0, id);
    // A REJ of a request has no local id yet.
    a.jump_if(When::Equal, R1, loaded(Attribute::CM_REJ.0), yes);
    a.place(id);
    a.shift_right(R0, COMM_ID_BITS);
    a.jump_if(When::NotEqual, R0, number, no);
    a.place(yes);
}

/// Jumps to `over` with a packet that exceeds the rate of the client in `R8`. The algorithm is GCRA: a packet is early if the packets
/// before it would not have been sent yet at that rate, and too early if it is early by more than the burst. Two cores that send for one
/// client at the same moment may both start from the same `due`; then one of the packets is not counted. A lock would cost every packet
/// more than that.
fn police(a: &mut Assembler, over: Label) {
    use Reg::{R1, R2, R3, R4, R6, R8};
    let [cost, due, burst] = [offset_of!(Client, cost), offset_of!(Client, due), offset_of!(Client, burst)];
    let unlimited = a.label();
    a.load(Size::U64, R1, R8, cost as i16);
    a.jump_if(When::Equal, R1, 0, unlimited);
    a.call(function::KTIME_GET_NS);
    a.load(Size::U64, R4, R8, burst as i16);
    begin_of_next(a, due, over);
    a.load(Size::U64, R1, R8, cost as i16);
    a.load(Size::U32, R2, R6, skb::LEN);
    a.multiply(R1, R2);
    a.shift_right(R1, 16);
    a.add_register(R3, R1);
    a.store(Size::U64, R8, due as i16, R3);
    a.place(unlimited);
}

/// As `police`, for datagrams to QP1, whose number is limited rather than their bytes. `R7` is the BTH.
fn police_gsi(a: &mut Assembler, over: Label) {
    use Reg::{R2, R3, R4, R5, R7, R8};
    let due = offset_of!(Client, gsi_due);
    let another = a.label();
    a.copy(R2, R7);
    load_u24(a, R5, field::DEST_QP);
    a.jump_if(When::NotEqual, R5, GSI, another);
    a.call(function::KTIME_GET_NS);
    a.set(R4, GSI_BURST);
    begin_of_next(a, due, over);
    a.add(R3, GSI_INTERVAL);
    a.store(Size::U64, R8, due as i16, R3);
    a.place(another);
}

/// Sets `R3` to the time at which the next packet may start at a rate, from the field at `due` of the client in `R8`. Jumps to `over` if
/// that time is more than `R4` nanoseconds after the current time, which is in `R0`.
fn begin_of_next(a: &mut Assembler, due: usize, over: Label) {
    use Reg::{R0, R3, R4, R8};
    let late = a.label();
    a.load(Size::U64, R3, R8, due as i16);
    a.add_register(R4, R0);
    a.jump_if_above(R3, R4, over);
    a.jump_if_above(R3, R0, late);
    a.copy(R3, R0);
    a.place(late);
}
