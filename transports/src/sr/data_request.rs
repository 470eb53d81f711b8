//! READ and atomic requests of a peer.

use softnic_wire::opcode::Kind;
use softnic_wire::segment::MAX_MESSAGE;

use crate::Inbound;
use crate::memory::{Access, AtomicOp};
use crate::message::Link;

/// A READ or atomic of the peer, kept until its turn.
#[derive(Debug, Clone, Copy)]
pub(super) enum DataRequest {
    Read { addr: u64, rkey: u32, len: u32 },
    Atomic { addr: u64, rkey: u32, op: AtomicOp },
}

impl DataRequest {
    /// The request in a packet; `None` if it is not permitted, or is not such a request.
    pub(super) fn read(packet: &Inbound<'_>, link: &Link) -> Option<DataRequest> {
        if packet.payload_len != 0 {
            return None;
        }
        let kind = packet.bth.opcode.kind();
        match (packet.ext.reth, packet.ext.atomic) {
            (Some(reth), _) if kind == Kind::ReadRequest => {
                if !link.access.allows(Access::REMOTE_READ) || reth.len > MAX_MESSAGE {
                    return None;
                }
                Some(DataRequest::Read { addr: reth.va, rkey: reth.rkey, len: reth.len })
            }
            (_, Some(atomic)) => {
                if !link.access.allows(Access::REMOTE_ATOMIC) || atomic.va % 8 != 0 {
                    return None;
                }
                let op = match kind {
                    Kind::CompareSwap => AtomicOp::CompareSwap { compare: atomic.compare, swap: atomic.swap_add },
                    _ => AtomicOp::FetchAdd { add: atomic.swap_add },
                };
                Some(DataRequest::Atomic { addr: atomic.va, rkey: atomic.rkey, op })
            }
            _ => None,
        }
    }
}
