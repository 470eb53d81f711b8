//! The structs of `softnic_sdr.h`.

use std::ffi::c_void;

use super::layout::layout;

/// In the `comp_mask` of a message that is sent: it has an immediate.
pub(crate) const SOFTNIC_SDR_WR_IMM: u64 = 1;

/// In the `flags` of a queue pair: one root key for all generations.
pub(crate) const SOFTNIC_SDR_QP_ONE_KEY: u32 = 1 << 0;
/// Nothing is looked at before it is placed.
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
