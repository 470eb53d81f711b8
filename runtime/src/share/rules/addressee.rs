//! Finds the addressee of a packet, by the rules of `softnic_nic::sharing`.

use softnic_nic::transports::QKEY_GSI;
use softnic_wire::Opcode;
use softnic_wire::mad::{Attribute, Class, Method, failover, vendor};

use super::super::maps::{MapFds, Port};
use super::{COMM_ID_BITS, GSI, MULTICAST, QPN_BITS, QPN_MASK, field, function};
use crate::bpf::assembler::{Assembler, Label, Reg, Size, When};
use crate::bpf::look::{loaded, need};

/// The labels to jump to once the addressee of a packet is known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Addressee {
    /// The packet is for the process whose number is in `R0`; that process may not exist.
    pub(super) process: Label,
    /// The packet is for a group.
    pub(super) everybody: Label,
    /// The packet is for no process.
    pub(super) nobody: Label,
    /// The packet ends before its addressee is known.
    pub(super) cut_off: Label,
}

impl Addressee {
    /// Finds the addressee of a packet. `R2` is the BTH and `R3` the end of the packet; `R0` to `R5` are used, and the last eight bytes of
    /// the stack.
    ///
    /// A request for a service without a listener goes to the warden.
    pub(super) fn find(&self, a: &mut Assembler, maps: &MapFds) {
        use Reg::{R0, R1, R2, R10};
        let Addressee { process, everybody, nobody, cut_off } = *self;
        let [mad, cm, service, of_queue_pair, id] = [(); 5].map(|()| a.label());
        need(a, field::BTH, cut_off);
        load_u24(a, R0, field::DEST_QP);
        a.jump_if(When::Equal, R0, GSI, mad);
        a.jump_if(When::Equal, R0, MULTICAST, everybody);
        a.place(of_queue_pair);
        a.shift_right(R0, QPN_BITS);
        a.jump(process);

        a.place(mad);
        need(a, field::LOOKED_AT, cut_off);
        is_mad(a, nobody);
        a.load(Size::U8, R0, R2, field::CLASS);
        a.load(Size::U16, R1, R2, field::ATTRIBUTE);
        a.jump_if(When::Equal, R0, Class::CM.0.into(), cm);
        a.jump_if(When::NotEqual, R0, vendor::CLASS.0.into(), nobody);
        negotiated(a, of_queue_pair, nobody);

        a.place(cm);
        a.jump_if(When::Equal, R1, loaded(Attribute::CM_REQ.0), service);
        a.jump_if(When::Equal, R1, loaded(Attribute::CM_SIDR_REQ.0), service);
        a.load(Size::U32, R0, R2, field::LOCAL_ID);
        a.jump_if(When::Equal, R1, loaded(Attribute::CM_SIDR_REP.0), id);
        a.load(Size::U32, R0, R2, field::REMOTE_ID);
        a.place(id);
        a.number_of_u32(R0);
        a.shift_right(R0, COMM_ID_BITS);
        a.jump(process);

        a.place(service);
        let warden = a.label();
        a.load(Size::U64, R0, R2, field::SERVICE_ID);
        a.store(Size::U64, R10, -8, R0);
        a.set_map(R1, maps.services);
        a.copy(R2, R10);
        a.add(R2, -8);
        a.call(function::MAP_LOOKUP);
        a.jump_if(When::Equal, R0, 0, warden);
        a.load(Size::U32, R0, R0, 0);
        a.jump(process);
        a.place(warden);
        a.set_map_value(R1, maps.port);
        a.load(Size::U16, R0, R1, std::mem::offset_of!(Port, warden) as i16);
        a.jump(process);
    }
}

/// Loads the lower 24 bits of the word at `offset` from the BTH into `dst`.
pub(super) fn load_u24(a: &mut Assembler, dst: Reg, offset: i16) {
    a.load(Size::U32, dst, Reg::R2, offset);
    a.number_of_u32(dst);
    a.and(dst, QPN_MASK);
}

/// Jumps to `no` unless a packet to QP1 can carry a MAD. `R2` is its BTH.
pub(super) fn is_mad(a: &mut Assembler, no: Label) {
    let [high, low] = [(QKEY_GSI >> 16) as u16, QKEY_GSI as u16];
    a.load(Size::U8, Reg::R0, Reg::R2, field::OPCODE);
    a.jump_if(When::NotEqual, Reg::R0, Opcode::UD_SEND_ONLY.0.into(), no);
    for (offset, half) in [(field::QKEY, high), (field::QKEY + 2, low)] {
        a.load(Size::U16, Reg::R0, Reg::R2, offset);
        a.jump_if(When::NotEqual, Reg::R0, loaded(half), no);
    }
}

/// Jumps to `refusal` if a MAD of the vendor class is an answer that refuses. `R0` is used.
pub(super) fn is_refusal(a: &mut Assembler, refusal: Label) {
    let not = a.label();
    a.load(Size::U8, Reg::R0, Reg::R2, field::METHOD);
    a.jump_if(When::NotEqual, Reg::R0, Method::GET_RESP.0.into(), not);
    a.load(Size::U16, Reg::R0, Reg::R2, field::STATUS);
    a.jump_if(When::NotEqual, Reg::R0, 0, refusal);
    a.place(not);
}

/// Jumps to `of_queue_pair` with the receiver's queue pair in `R0`. The attribute of the MAD is in `R1`.
fn negotiated(a: &mut Assembler, of_queue_pair: Label, nobody: Label) {
    use Reg::{R0, R1, R2};
    let [refusal, asks_or_answers] = [(); 2].map(|()| a.label());
    is_refusal(a, refusal);
    a.load(Size::U8, R0, R2, field::METHOD);
    a.jump_if(When::Equal, R0, Method::GET.0.into(), asks_or_answers);
    a.jump_if(When::NotEqual, R0, Method::GET_RESP.0.into(), nobody);
    a.place(asks_or_answers);
    // All MADs of softnic start with the same fields.
    let known = a.label();
    for attribute in [failover::FAILOVER_HELLO, failover::FAILOVER_REGION, failover::FAILOVER_PROOF] {
        a.jump_if(When::Equal, R1, loaded(attribute.0), known);
    }
    a.jump_if(When::NotEqual, R1, loaded(vendor::ATTRIBUTE.0), nobody);
    a.place(known);
    let [x, y, z] = vendor::Oui::SOFTNIC.0;
    load_u24(a, R0, field::OUI);
    a.jump_if(When::NotEqual, R0, u32::from_be_bytes([0, x, y, z]) as i32, nobody);
    a.load(Size::U8, R0, R2, field::RMPP_FLAGS);
    a.jump_if(When::AnySet, R0, 1, nobody);
    a.load(Size::U8, R0, R2, field::VERSION);
    a.jump_if(When::Equal, R0, 0, nobody);
    load_u24(a, R0, field::RECEIVER_QPN);
    a.jump(of_queue_pair);

    // The transaction id ends with the number of the queue pair that made the offer.
    a.place(refusal);
    load_u24(a, R0, field::TRANSACTION);
    a.jump(of_queue_pair);
}
