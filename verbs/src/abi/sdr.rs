//! The structs of `softnic_sdr.h`.

use std::ffi::c_void;

use super::layout::layout;

/// In the `comp_mask` of a message that is sent: it has an immediate.
pub(crate) const SOFTNIC_SDR_WR_IMM: u64 = 1;

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
    pub(crate) reserved2: u32,
}
layout!(softnic_sdr_qp_attr, 48, comp_mask 0, max_message 8, chunk 16, slots 20, generations 24, channels 28, message_bits 32,
    packet_bits 33, user_bits 34, reserved 35, mtu 36, send_depth 40, reserved2 44);

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
