//! The structs of `softnic_sdr.h`.

use std::ffi::c_void;

use super::layout::layout;

/// Bit of the `comp_mask` of a message to send: the message has an immediate.
pub(crate) const SOFTNIC_SDR_WR_IMM: u64 = 1;

/// The `opcode` of a sent message.
pub(crate) const SOFTNIC_SDR_WRITTEN: u32 = 0;
/// The `opcode` of a received message.
pub(crate) const SOFTNIC_SDR_RECEIVED: u32 = 1;

/// Bit of the `flags` of a queue pair: one root key for all generations.
pub(crate) const SOFTNIC_SDR_QP_ONE_KEY: u32 = 1 << 0;
/// Bit of the `flags` of a queue pair: packets are not checked before they are placed.
pub(crate) const SOFTNIC_SDR_QP_UNSCREENED: u32 = 1 << 1;

#[repr(C)]
pub(crate) struct softnic_sdr_context_attr {
    pub(crate) comp_mask: u64,
}
layout!(softnic_sdr_context_attr, 8, comp_mask 0);

#[repr(C)]
pub(crate) struct softnic_sdr_qp_attr {
    pub(crate) comp_mask: u64,
    pub(crate) max_message: u64,
    pub(crate) chunk: u32,
    pub(crate) slots: u32,
    pub(crate) generations: u32,
    pub(crate) channels: u32,
    pub(crate) message_bits: u8,
    pub(crate) packet_bits: u8,
    pub(crate) user_bits: u8,
    pub(crate) reserved: u8,
    pub(crate) mtu: u32,
    pub(crate) send_depth: u32,
    pub(crate) flags: u32,
}
layout!(softnic_sdr_qp_attr, 48, comp_mask 0, max_message 8, chunk 16, slots 20, generations 24, channels 28, message_bits 32,
    packet_bits 33, user_bits 34, reserved 35, mtu 36, send_depth 40, flags 44);

#[repr(C)]
pub(crate) struct softnic_sdr_counters {
    pub(crate) comp_mask: u64,
    pub(crate) packets: u64,
    pub(crate) into_null: u64,
    pub(crate) old_generation: u64,
    pub(crate) duplicates: u64,
    pub(crate) rejected: u64,
    pub(crate) cts_sent: u64,
    pub(crate) cts_repeated: u64,
    pub(crate) asks_sent: u64,
}
layout!(softnic_sdr_counters, 72, comp_mask 0, packets 8, into_null 16, old_generation 24, duplicates 32, rejected 40, cts_sent 48,
    cts_repeated 56, asks_sent 64);

#[repr(C)]
pub(crate) struct softnic_sdr_reliable_attr {
    pub(crate) comp_mask: u64,
    pub(crate) qp: softnic_sdr_qp_attr,
    pub(crate) scheme: u32,
    pub(crate) k: u8,
    pub(crate) m: u8,
    pub(crate) alpha_percent: u16,
    pub(crate) rtt_ns: u64,
    pub(crate) timeout_ns: u64,
    pub(crate) rate_bps: u64,
    pub(crate) parity_pool: u64,
    pub(crate) acks_per_rtt: u32,
    pub(crate) reordering: u32,
    pub(crate) interleave: u64,
}
layout!(softnic_sdr_reliable_attr, 112, comp_mask 0, qp 8, scheme 56, k 60, m 61, alpha_percent 62, rtt_ns 64, timeout_ns 72,
    rate_bps 80, parity_pool 88, acks_per_rtt 96, reordering 100, interleave 104);

#[repr(C)]
pub(crate) struct softnic_sdr_reliable_wr {
    pub(crate) comp_mask: u64,
    pub(crate) mr: *mut c_void,
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
}
layout!(softnic_sdr_reliable_wr, 32, comp_mask 0, mr 8, addr 16, length 24);

#[repr(C)]
pub(crate) struct softnic_sdr_completion {
    pub(crate) number: u64,
    pub(crate) opcode: u32,
    pub(crate) status: i32,
}
layout!(softnic_sdr_completion, 16, number 0, opcode 8, status 12);

#[repr(C)]
pub(crate) struct softnic_sdr_reliable_counters {
    pub(crate) comp_mask: u64,
    pub(crate) chunks_sent: u64,
    pub(crate) chunks_repeated: u64,
    pub(crate) packets_repeated: u64,
    pub(crate) timeouts: u64,
    pub(crate) chunks_asked_for: u64,
    pub(crate) parity_packets: u64,
    pub(crate) chunks_recovered: u64,
    pub(crate) packets_recovered: u64,
    pub(crate) fallbacks: u64,
    pub(crate) failed_submessages: u64,
    pub(crate) unprotected: u64,
    pub(crate) decode_ns: u64,
    pub(crate) acks_sent: u64,
    pub(crate) nacks_sent: u64,
    pub(crate) rejected: u64,
}
layout!(softnic_sdr_reliable_counters, 128, comp_mask 0, chunks_sent 8, chunks_repeated 16, packets_repeated 24, timeouts 32,
    chunks_asked_for 40, parity_packets 48, chunks_recovered 56, packets_recovered 64, fallbacks 72, failed_submessages 80,
    unprotected 88, decode_ns 96, acks_sent 104, nacks_sent 112, rejected 120);

#[repr(C)]
pub(crate) struct softnic_sdr_start_wr {
    pub(crate) comp_mask: u64,
    pub(crate) length: usize,
    pub(crate) imm: u32,
    pub(crate) reserved: u32,
}
layout!(softnic_sdr_start_wr, 24, comp_mask 0, length 8, imm 16, reserved 20);

#[repr(C)]
pub(crate) struct softnic_sdr_continue_wr {
    pub(crate) comp_mask: u64,
    pub(crate) mr: *mut c_void,
    pub(crate) addr: *const c_void,
    pub(crate) length: usize,
    pub(crate) offset: u64,
}
layout!(softnic_sdr_continue_wr, 40, comp_mask 0, mr 8, addr 16, length 24, offset 32);

#[repr(C)]
pub(crate) struct softnic_sdr_send_wr {
    pub(crate) comp_mask: u64,
    pub(crate) mr: *mut c_void,
    pub(crate) addr: *const c_void,
    pub(crate) length: usize,
    pub(crate) imm: u32,
    pub(crate) reserved: u32,
}
layout!(softnic_sdr_send_wr, 40, comp_mask 0, mr 8, addr 16, length 24, imm 32, reserved 36);

#[repr(C)]
pub(crate) struct softnic_sdr_recv_wr {
    pub(crate) comp_mask: u64,
    pub(crate) mr: *mut c_void,
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
}
layout!(softnic_sdr_recv_wr, 32, comp_mask 0, mr 8, addr 16, length 24);
