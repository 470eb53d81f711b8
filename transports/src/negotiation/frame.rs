//! A MAD as a frame, of the negotiation or another one: from the local QP1 to the peer's.

use softnic_wire::ext::Deth;
use softnic_wire::mad::MAD_LEN;
use softnic_wire::mad::vendor::Negotiation;
use softnic_wire::{ExtHeaders, Opcode, PacketFields, Psn, Qpn, Template, TxFrame};

use crate::ud::QKEY_GSI;

/// Writes the frame, on the path of a queue pair's own packets; returns `false` if there is no room. The frame is complete even if payload
/// is elided.
pub fn write(tx: &mut TxFrame<'_>, template: &Template, mad: &Negotiation<'_>) -> bool {
    write_signed(tx, template, mad, |_| ())
}

/// As [`write`], with the MAC that `sign` puts into the MAD.
pub(crate) fn write_signed(
    tx: &mut TxFrame<'_>,
    template: &Template,
    mad: &Negotiation<'_>,
    sign: impl FnOnce(&mut [u8; MAD_LEN]),
) -> bool {
    let mut bytes = [0; MAD_LEN];
    mad.emit(&mut bytes);
    sign(&mut bytes);
    write_mad(tx, template, &bytes)
}

/// Writes the frame of any MAD, as [`write()`] does for a negotiation.
pub fn write_mad(tx: &mut TxFrame<'_>, template: &Template, mad: &[u8; MAD_LEN]) -> bool {
    let ext = ExtHeaders { deth: Some(Deth { qkey: QKEY_GSI, src_qp: Qpn::GSI }), ..ExtHeaders::default() };
    let fields = PacketFields {
        opcode: Opcode::UD_SEND_ONLY,
        psn: Psn::new(0),
        ack_req: false,
        solicited: false,
        becn: false,
        payload_len: MAD_LEN,
    };
    template.with_dest_qp(Qpn::GSI).build(tx, &fields, &ext, mad).is_ok()
}
