//! How a program finds the BTH of a packet.

use super::assembler::{Assembler, Label, Reg, Size, When};

/// The UDP port of RoCEv2.
const ROCE_PORT: u16 = 4791;
const UDP: i32 = 17;
/// Version 4 and a header of five words.
const IPV4_WITHOUT_OPTIONS: i32 = 0x45;
/// Ethertypes.
pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;
pub(crate) const TAG: u16 = 0x8100;
pub(crate) const SERVICE_TAG: u16 = 0x88a8;
/// Offsets in what an XDP program is called with, `struct xdp_md`.
pub(crate) const DATA: i16 = 0;
pub(crate) const DATA_END: i16 = 4;

/// A number of two bytes as a load of them from a packet gives it.
pub(crate) fn loaded(number: u16) -> i32 {
    number.to_be().into()
}

/// Jumps to `cut_off` unless the packet has `bytes` more from where `R2` stands; `R3` is its end. `R4` is used.
pub(crate) fn need(a: &mut Assembler, bytes: i32, cut_off: Label) {
    a.copy(Reg::R4, Reg::R2);
    a.add(Reg::R4, bytes);
    a.jump_if_above(Reg::R4, Reg::R3, cut_off);
}

/// A look at the headers of a packet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    /// Up to two VLAN tags may be there.
    pub(crate) tags: bool,
    /// Where the source address goes, below the end of the stack: 16 bytes, IPv4 as IPv6 has it.
    pub(crate) source: Option<i16>,
    /// Where to go with a packet that ends before the headers do.
    pub(crate) cut_off: Label,
    /// Where to go with a packet that is not RoCE.
    pub(crate) other: Label,
}

impl Look {
    /// Finds the BTH. `R2` is the packet's beginning, then where its BTH would begin; `R3` is its end. `R0`, `R4` and `R5` are used.
    ///
    /// IPv4 without options, IPv6 without extension headers. Packets with options are no RoCE: an offset that a packet decides is refused
    /// by the verifier where a program has CAP_BPF but not CAP_PERFMON, and RoCE packets have no options. Fragments are none, too: RoCE has
    /// no fragments, and only the first would have a port.
    pub(crate) fn for_roce(&self, a: &mut Assembler) {
        use Reg::{R0, R2, R5};
        let Look { tags, cut_off, other, .. } = *self;
        let [network, v6, udp] = [(); 3].map(|()| a.label());
        // Ethernet and its tags: the type into R5.
        need(a, 14, cut_off);
        a.load(Size::U16, R5, R2, 12);
        a.add(R2, 14);
        for _ in 0..if tags { 2 } else { 0 } {
            let tagged = a.label();
            a.jump_if(When::Equal, R5, loaded(TAG), tagged);
            a.jump_if(When::NotEqual, R5, loaded(SERVICE_TAG), network);
            a.place(tagged);
            need(a, 4, cut_off);
            a.load(Size::U16, R5, R2, 2);
            a.add(R2, 4);
        }

        a.place(network);
        a.jump_if(When::Equal, R5, loaded(IPV6), v6);
        a.jump_if(When::NotEqual, R5, loaded(IPV4), other);
        need(a, 20, cut_off);
        a.load(Size::U8, R0, R2, 9);
        a.jump_if(When::NotEqual, R0, UDP, other);
        // "More fragments", and the offset.
        a.load(Size::U16, R0, R2, 6);
        a.and(R0, loaded(0x3fff));
        a.jump_if(When::NotEqual, R0, 0, other);
        a.load(Size::U8, R0, R2, 0);
        a.jump_if(When::NotEqual, R0, IPV4_WITHOUT_OPTIONS, other);
        if let Some(at) = self.source {
            a.store_number(Size::U64, Reg::R10, at, 0);
            a.store_number(Size::U32, Reg::R10, at + 8, 0x0000_ffff_u32.to_be() as i32);
            a.load(Size::U32, R0, R2, 12);
            a.store(Size::U32, Reg::R10, at + 12, R0);
        }
        a.add(R2, 20);
        a.jump(udp);

        a.place(v6);
        need(a, 40, cut_off);
        a.load(Size::U8, R0, R2, 6);
        a.jump_if(When::NotEqual, R0, UDP, other);
        if let Some(at) = self.source {
            for half in [0, 8] {
                a.load(Size::U64, R0, R2, 8 + half);
                a.store(Size::U64, Reg::R10, at + half, R0);
            }
        }
        a.add(R2, 40);

        a.place(udp);
        need(a, 8, cut_off);
        a.load(Size::U16, R0, R2, 2);
        a.jump_if(When::NotEqual, R0, loaded(ROCE_PORT), other);
        a.add(R2, 8);
    }
}
