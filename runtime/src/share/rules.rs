//! The programs of a shared port. They determine which client gets a packet that arrives at the interface, and which packets a client may
//! send, and to which destination.
//!
//! [`ingress`] and [`spread`] are on the interface, `ingress` only if the driver runs XDP; [`egress`] is on the outer end of each client's
//! veth. They decide as [`sharing::addressee`](softnic_nic::sharing::addressee) does, with one difference: the programs do not look at
//! length fields, while `addressee` returns "nobody" if those of a frame to QP1 do not agree, or leave no room for a MAD. Such a frame may
//! reach the process, or the owner of the service, that its bytes name; the NIC of that process refuses it. A frame that belongs to a
//! process according to `addressee` reaches that process and no other.

mod addressee;
mod delivery;
mod egress;
mod ingress;
mod spread;

#[cfg(test)]
mod tests;

pub(crate) use egress::egress;
pub(crate) use ingress::ingress;
pub(crate) use spread::spread;

/// Functions of the kernel.
mod function {
    pub(super) const MAP_LOOKUP: i32 = 1;
    pub(super) const KTIME_GET_NS: i32 = 5;
    pub(super) const CLONE_REDIRECT: i32 = 13;
    pub(super) const REDIRECT: i32 = 23;
    pub(super) const SKB_PULL_DATA: i32 = 39;
    pub(super) const LOOP: i32 = 181;
    pub(super) const XDP_GET_BUFF_LEN: i32 = 188;
}

/// A classifier's verdict on a packet: continue as if the classifier did not exist.
const TC_ACT_UNSPEC: i32 = -1;
/// A classifier's verdict on a packet: dropped.
const TC_ACT_SHOT: i32 = 2;

/// Offsets in the argument of a classifier, `struct __sk_buff`.
mod skb {
    pub(super) const LEN: i16 = 0;
    pub(super) const VLAN_PRESENT: i16 = 20;
    pub(super) const DATA: i16 = 76;
    pub(super) const DATA_END: i16 = 80;
}

/// Offsets from the BTH.
mod field {
    pub(super) const OPCODE: i16 = 0;
    pub(super) const DEST_QP: i16 = 4;
    /// Bytes of a BTH.
    pub(super) const BTH: i32 = 12;
    pub(super) const QKEY: i16 = 12;
    pub(super) const SRC_QP: i16 = 16;
    /// Bytes of a BTH and a DETH.
    pub(super) const DETH: i32 = 20;
    /// The MAD.
    const MAD: i16 = DETH as i16;
    pub(super) const CLASS: i16 = MAD + 1;
    pub(super) const METHOD: i16 = MAD + 3;
    pub(super) const STATUS: i16 = MAD + 4;
    /// The lower half of the transaction id.
    pub(super) const TRANSACTION: i16 = MAD + 12;
    pub(super) const ATTRIBUTE: i16 = MAD + 16;
    /// The contents of a connection manager message.
    const CM: i16 = MAD + 24;
    pub(super) const LOCAL_ID: i16 = CM;
    pub(super) const REMOTE_ID: i16 = CM + 4;
    pub(super) const SERVICE_ID: i16 = CM + 8;
    /// Fields of a negotiation MAD.
    pub(super) const RMPP_FLAGS: i16 = MAD + 26;
    /// The OUI and the byte before it.
    pub(super) const OUI: i16 = MAD + 36;
    pub(super) const VERSION: i16 = MAD + 40;
    pub(super) const SENDER_QPN: i16 = MAD + 44;
    pub(super) const RECEIVER_QPN: i16 = MAD + 48;
    /// Number of bytes from the BTH to the end of the inspected part of a MAD. A MAD is longer.
    pub(super) const LOOKED_AT: i32 = MAD as i32 + 52;
}

/// Lower bits of a queue pair number, which do not identify the process.
const QPN_BITS: i32 = 24 - softnic_nic::sharing::PROCESS_BITS as i32;
/// Lower bits of a communication id, which do not identify the process.
const COMM_ID_BITS: i32 = 32 - softnic_nic::sharing::PROCESS_BITS as i32;
const QPN_MASK: i32 = 0x00ff_ffff;
const GSI: i32 = softnic_wire::Qpn::GSI.value() as i32;
const MULTICAST: i32 = softnic_wire::Qpn::MULTICAST.value() as i32;
