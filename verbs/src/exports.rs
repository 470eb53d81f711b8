//! The symbols of the library, each with its version, for programs linked with rdma-core 44 to 65.
//!
//! Each symbol is a jump to the Rust function, written in assembly: there a symbol can be given a version, in the same object file,
//! wherever rustc puts the function. The hot path does not use these symbols: inlined verbs call the tables of the context.

#[cfg(not(test))]
use std::arch::global_asm;

use crate::boundary::{cm, control};
use crate::calls::{
    best_effort, builder, device_list, files, qp_attributes, query, rates, sdr, sdr_receives, sdr_reliable, sdr_sends,
    strings, unsupported, vendor,
};
use crate::objects::{address, device, region, sdr_context, sdr_queue_pair, sdr_region};
use crate::{fork, rdmacm};

#[cfg(all(target_arch = "x86_64", not(test)))]
macro_rules! jump {
    () => {
        "jmp {f}"
    };
}
#[cfg(all(target_arch = "aarch64", not(test)))]
macro_rules! jump {
    () => {
        "b {f}"
    };
}

/// The crate's own tests are not a library: there the functions are only referenced.
#[cfg(test)]
macro_rules! symbol {
    ($name:ident, $at:literal, $version:literal, $function:path) => {
        const _: () = {
            let _ = $function;
        };
    };
}

/// One symbol: `@@` for the version that programs are linked with now, `@` for one that only older programs request.
#[cfg(not(test))]
macro_rules! symbol {
    ($name:ident, $at:literal, $version:literal, $function:path) => {
        global_asm!(
            ".pushsection .text.exports, \"ax\", %progbits",
            concat!(".globl ", $version, ".", stringify!($name)),
            concat!(".type ", $version, ".", stringify!($name), ", %function"),
            concat!($version, ".", stringify!($name), ":"),
            jump!(),
            concat!(".size ", $version, ".", stringify!($name), ", . - ", $version, ".", stringify!($name)),
            concat!(".symver ", $version, ".", stringify!($name), ", ", stringify!($name), $at, $version),
            ".popsection",
            f = sym $function,
        );
    };
}

#[cfg(test)]
macro_rules! flag {
    ($version:literal) => {};
}

/// A flag that drivers read: a byte rather than a function.
#[cfg(not(test))]
macro_rules! flag {
    ($version:literal) => {
        global_asm!(
            ".pushsection .bss.exports, \"aw\", %nobits",
            concat!(".globl ", $version, ".flag"),
            concat!(".type ", $version, ".flag, %object"),
            concat!($version, ".flag:"),
            ".zero 1",
            concat!(".size ", $version, ".flag, 1"),
            concat!(".symver ", $version, ".flag, verbs_allow_disassociate_destroy@", $version),
            ".popsection",
        );
    };
}

/// Symbols of one version.
macro_rules! export {
    ($($version:literal: { $($name:ident => $function:path,)* })*) => { $($(symbol!($name, "@@", $version, $function);)*)* };
}

export! {
    "IBVERBS_1.0": {
        ibv_copy_path_rec_from_kern => unsupported::nothing,
        ibv_copy_path_rec_to_kern => unsupported::nothing,
        ibv_copy_qp_attr_from_kern => unsupported::nothing,
        ibv_create_comp_channel => control::create_comp_channel,
        ibv_destroy_comp_channel => control::destroy_comp_channel,
        ibv_get_sysfs_path => device::get_sysfs_path,
        ibv_rate_to_mult => rates::to_mult,
        ibv_read_sysfs_file => device::read_sysfs_file,
        mult_to_ibv_rate => rates::from_mult,
    }
    "IBVERBS_1.1": {
        ibv_ack_async_event => control::ack_async_event,
        ibv_ack_cq_events => control::ack_cq_events,
        ibv_alloc_pd => control::alloc_pd,
        ibv_attach_mcast => control::attach_mcast,
        ibv_close_device => control::close_device,
        ibv_copy_ah_attr_from_kern => unsupported::nothing,
        ibv_create_ah => control::create_ah,
        ibv_create_ah_from_wc => control::create_ah_from_wc,
        ibv_create_cq => control::create_cq,
        ibv_create_qp => control::create_qp,
        ibv_create_srq => control::create_srq,
        ibv_dealloc_pd => control::dealloc_pd,
        ibv_dereg_mr => control::dereg_mr,
        ibv_destroy_ah => control::destroy_ah,
        ibv_destroy_cq => control::destroy_cq,
        ibv_destroy_qp => control::destroy_qp,
        ibv_destroy_srq => control::destroy_srq,
        ibv_detach_mcast => control::detach_mcast,
        ibv_dofork_range => fork::range,
        ibv_dontfork_range => fork::range,
        ibv_event_type_str => strings::event_type,
        ibv_fork_init => fork::init,
        ibv_free_device_list => device_list::free_list,
        ibv_get_async_event => control::get_async_event,
        ibv_get_cq_event => control::get_cq_event,
        ibv_get_device_guid => device::get_guid,
        ibv_get_device_list => control::get_device_list,
        ibv_get_device_name => device::get_name,
        ibv_init_ah_from_wc => address::init_from_wc,
        ibv_modify_qp => control::modify_qp,
        ibv_modify_srq => control::modify_srq,
        ibv_node_type_str => strings::node_type,
        ibv_open_device => control::open_device,
        ibv_port_state_str => strings::port_state,
        ibv_query_device => control::query_device,
        ibv_query_gid => control::query_gid,
        ibv_query_pkey => control::query_pkey,
        ibv_query_port => control::query_port,
        ibv_query_qp => control::query_qp,
        ibv_query_srq => control::query_srq,
        ibv_rate_to_mbps => rates::to_mbps,
        ibv_reg_mr => control::reg_mr,
        ibv_register_driver => unsupported::nothing,
        ibv_rereg_mr => control::rereg_mr,
        ibv_resize_cq => control::resize_cq,
        ibv_resolve_eth_l2_from_gid => address::resolve_l2,
        ibv_wc_status_str => strings::wc_status,
        mbps_to_ibv_rate => rates::from_mbps,
    }
    "IBVERBS_1.5": {
        ibv_get_pkey_index => query::pkey_index,
    }
    "IBVERBS_1.6": {
        ibv_qp_to_qp_ex => builder::qp_to_qp_ex,
    }
    "IBVERBS_1.7": {
        ibv_reg_mr_iova => control::reg_mr_iova,
    }
    "IBVERBS_1.8": {
        ibv_reg_mr_iova2 => control::reg_mr_iova,
    }
    "IBVERBS_1.9": {
        ibv_get_device_index => device::get_index,
    }
    "IBVERBS_1.10": {
        ibv_import_device => unsupported::null,
        ibv_import_mr => unsupported::null,
        ibv_import_pd => unsupported::null,
        ibv_query_ece => qp_attributes::query_ece,
        ibv_set_ece => qp_attributes::set_ece,
        ibv_unimport_mr => unsupported::nothing,
        ibv_unimport_pd => unsupported::nothing,
    }
    "IBVERBS_1.11": {
        _ibv_query_gid_ex => query::gid_ex,
        _ibv_query_gid_table => query::gid_table,
    }
    "IBVERBS_1.12": {
        ibv_reg_dmabuf_mr => unsupported::null,
    }
    "IBVERBS_1.13": {
        ibv_import_dm => unsupported::null,
        ibv_is_fork_initialized => fork::is_initialized,
        ibv_unimport_dm => unsupported::nothing,
    }
    "IBVERBS_1.14": {
        ibv_query_qp_data_in_order => qp_attributes::data_in_order,
    }
    "IBVERBS_1.15": {
        ibv_alloc_dmah => unsupported::null,
        ibv_dealloc_dmah => unsupported::fails,
        ibv_reg_mr_ex => control::reg_mr_ex,
    }
    "IBVERBS_1.16": {
        ibv_dm_export_dmabuf_fd => unsupported::minus_one,
        ibv_query_port_speed => unsupported::fails,
    }
    "IBVERBS_1.17": {
        ibv_alloc_buf => region::alloc_buf,
        ibv_free_buf => region::free_buf,
        ibv_reg_buf_mr => control::reg_buf_mr,
    }
    "IBVERBS_1.18": {
        _ibv_query_comp_cntr_caps => unsupported::fails,
        ibv_create_comp_cntr => unsupported::null,
        ibv_destroy_comp_cntr => unsupported::fails,
        ibv_export_buf_dmabuf_fd => unsupported::minus_one,
        ibv_inc_comp_cntr => unsupported::fails,
        ibv_inc_err_comp_cntr => unsupported::fails,
        ibv_qp_attach_comp_cntr => unsupported::fails,
        ibv_read_comp_cntr => unsupported::fails,
        ibv_read_err_comp_cntr => unsupported::fails,
        ibv_set_comp_cntr => unsupported::fails,
        ibv_set_err_comp_cntr => unsupported::fails,
    }
    "SOFTNICDV_1.0": {
        softnic_device_file => files::locate,
        softnic_sdr_context_create => sdr_context::create,
        softnic_sdr_context_destroy => sdr_context::destroy,
        softnic_sdr_mr_dereg => sdr_region::dereg,
        softnic_sdr_mr_reg => sdr_region::reg,
        softnic_sdr_qp_connect => sdr::connect,
        softnic_sdr_qp_counters_get => sdr::counters,
        softnic_sdr_qp_create => sdr::create_qp,
        softnic_sdr_qp_destroy => sdr_queue_pair::destroy,
        softnic_sdr_qp_info_get => sdr::info,
        softnic_sdr_qp_is_met => sdr::is_met,
        softnic_sdr_qp_meet => sdr::meet,
        softnic_sdr_qp_number_get => sdr::number,
        softnic_sdr_recv_bitmap_get => sdr_receives::bitmap,
        softnic_sdr_recv_complete => sdr_receives::complete,
        softnic_sdr_recv_imm_get => sdr_receives::imm,
        softnic_sdr_recv_post => sdr_receives::post,
        softnic_sdr_reliable_counters_get => sdr_reliable::counters,
        softnic_sdr_reliable_create => sdr_reliable::create,
        softnic_sdr_reliable_poll => sdr_reliable::poll,
        softnic_sdr_reliable_receive => sdr_reliable::receive,
        softnic_sdr_reliable_write => sdr_reliable::write,
        softnic_sdr_send_poll => sdr_sends::poll,
        softnic_sdr_send_post => sdr_sends::post,
        softnic_sdr_send_stream_continue => sdr_sends::stream_continue,
        softnic_sdr_send_stream_end => sdr_sends::stream_end,
        softnic_sdr_send_stream_start => sdr_sends::stream_start,
        softnicdv_create_qp => control::softnicdv_create_qp,
        softnicdv_is_supported => vendor::is_supported,
        softnicdv_missing_ranges => best_effort::missing,
        softnicdv_post_recv => best_effort::post_recv,
        softnicdv_post_send => best_effort::post_send,
        softnicdv_query_counters => vendor::query_counters,
        softnicdv_query_qp => vendor::query_qp,
        softnicdv_set_qp_secret => vendor::set_qp_secret,
    }
    "RDMACM_1.0": {
        raccept => rdmacm::fails,
        rbind => rdmacm::fails,
        rclose => rdmacm::fails,
        rconnect => rdmacm::fails,
        rdma_accept => cm::accept,
        rdma_ack_cm_event => cm::ack_cm_event,
        rdma_bind_addr => cm::bind_addr,
        rdma_connect => cm::connect,
        rdma_create_ep => cm::create_ep,
        rdma_create_event_channel => cm::create_event_channel,
        rdma_create_id => cm::create_id,
        rdma_create_qp => cm::create_qp,
        rdma_create_qp_ex => cm::create_qp_ex,
        rdma_create_srq => cm::create_srq,
        rdma_create_srq_ex => cm::create_srq_ex,
        rdma_destroy_ep => cm::destroy_ep,
        rdma_destroy_event_channel => cm::destroy_event_channel,
        rdma_destroy_id => cm::destroy_id,
        rdma_destroy_qp => cm::destroy_qp,
        rdma_destroy_srq => cm::destroy_srq,
        rdma_disconnect => cm::disconnect,
        rdma_event_str => strings::cm_event,
        rdma_free_devices => rdmacm::devices::free,
        rdma_freeaddrinfo => rdmacm::addrinfo::free,
        rdma_get_cm_event => cm::get_cm_event,
        rdma_get_devices => cm::get_devices,
        rdma_get_dst_port => rdmacm::bind::destination_port,
        rdma_get_request => cm::get_request,
        rdma_get_src_port => rdmacm::bind::source_port,
        rdma_getaddrinfo => rdmacm::addrinfo::get,
        rdma_join_multicast => cm::join_multicast,
        rdma_leave_multicast => cm::leave_multicast,
        rdma_listen => cm::listen,
        rdma_migrate_id => cm::migrate_id,
        rdma_notify => cm::notify,
        rdma_reject => cm::reject,
        rdma_resolve_addr => cm::resolve_addr,
        rdma_resolve_route => cm::resolve_route,
        rdma_set_option => cm::set_option,
        rfcntl => rdmacm::fails,
        rgetpeername => rdmacm::fails,
        rgetsockname => rdmacm::fails,
        rgetsockopt => rdmacm::fails,
        riomap => rdmacm::fails,
        riounmap => rdmacm::fails,
        riowrite => rdmacm::fails,
        rlisten => rdmacm::fails,
        rpoll => rdmacm::fails,
        rread => rdmacm::fails,
        rreadv => rdmacm::fails,
        rrecv => rdmacm::fails,
        rrecvfrom => rdmacm::fails,
        rrecvmsg => rdmacm::fails,
        rselect => rdmacm::fails,
        rsend => rdmacm::fails,
        rsendmsg => rdmacm::fails,
        rsendto => rdmacm::fails,
        rsetsockopt => rdmacm::fails,
        rshutdown => rdmacm::fails,
        rsocket => rdmacm::fails,
        rwrite => rdmacm::fails,
        rwritev => rdmacm::fails,
    }
    "RDMACM_1.1": {
        rdma_join_multicast_ex => cm::join_multicast_ex,
    }
    "RDMACM_1.2": {
        rdma_establish => cm::establish,
        rdma_init_qp_attr => cm::init_qp_attr,
    }
    "RDMACM_1.3": {
        rdma_get_remote_ece => rdmacm::options::get_remote_ece,
        rdma_reject_ece => cm::reject_ece,
        rdma_set_local_ece => rdmacm::options::set_local_ece,
    }
    "RDMACM_1.4": {
        rdma_query_addrinfo => rdmacm::fails,
        rdma_resolve_addrinfo => rdmacm::fails,
        rdma_write_cm_event => rdmacm::fails,
    }
    "RDMACM_1.5": {
        repoll_create => rdmacm::fails,
        repoll_ctl => rdmacm::fails,
        repoll_wait => rdmacm::fails,
    }
}

/// The symbols that drivers import: with the private version of their release, and a separate name for the registration.
macro_rules! private {
    ($($version:literal $at:literal $register:ident)*) => { $(
        symbol!($register, "@@", $version, unsupported::nothing);
        symbol!(ibv_query_gid_type, $at, $version, query::gid_type);
        symbol!(ibv_read_ibdev_sysfs_file, "@", $version, unsupported::minus_one);
        symbol!(ibv_wr_opcode_str, "@", $version, strings::wr_opcode);
        flag!($version);
        private!($version, unsupported::null: _verbs_init_and_alloc_context verbs_open_device);
        private!($version, unsupported::nothing: __verbs_log verbs_init_cq verbs_set_ops verbs_uninit_context);
        private!($version, unsupported::fails:
            __ioctl_final_num_attrs execute_ioctl ibv_cmd_advise_mr ibv_cmd_alloc_dm ibv_cmd_alloc_dmah
            ibv_cmd_alloc_mw ibv_cmd_alloc_pd ibv_cmd_attach_mcast ibv_cmd_close_xrcd ibv_cmd_create_ah
            ibv_cmd_create_comp_cntr ibv_cmd_create_counters ibv_cmd_create_cq ibv_cmd_create_cq_ex
            ibv_cmd_create_cq_ex2 ibv_cmd_create_flow ibv_cmd_create_flow_action_esp ibv_cmd_create_qp
            ibv_cmd_create_qp_ex ibv_cmd_create_qp_ex2 ibv_cmd_create_rwq_ind_table ibv_cmd_create_srq
            ibv_cmd_create_srq_ex ibv_cmd_create_wq ibv_cmd_dealloc_mw ibv_cmd_dealloc_pd ibv_cmd_dereg_mr
            ibv_cmd_destroy_ah ibv_cmd_destroy_comp_cntr ibv_cmd_destroy_counters ibv_cmd_destroy_cq
            ibv_cmd_destroy_flow ibv_cmd_destroy_flow_action ibv_cmd_destroy_qp ibv_cmd_destroy_rwq_ind_table
            ibv_cmd_destroy_srq ibv_cmd_destroy_wq ibv_cmd_detach_mcast ibv_cmd_export_dmabuf_fd ibv_cmd_free_dm
            ibv_cmd_free_dmah ibv_cmd_get_context ibv_cmd_inc_comp_cntr ibv_cmd_inc_err_comp_cntr ibv_cmd_modify_cq
            ibv_cmd_modify_flow_action_esp ibv_cmd_modify_qp ibv_cmd_modify_qp_ex ibv_cmd_modify_srq
            ibv_cmd_modify_wq ibv_cmd_open_qp ibv_cmd_open_xrcd ibv_cmd_poll_cq ibv_cmd_post_recv ibv_cmd_post_send
            ibv_cmd_post_srq_recv ibv_cmd_qp_attach_comp_cntr ibv_cmd_query_comp_cntr_caps ibv_cmd_query_context
            ibv_cmd_query_device_any ibv_cmd_query_mr ibv_cmd_query_port ibv_cmd_query_port_speed ibv_cmd_query_qp
            ibv_cmd_query_srq ibv_cmd_read_comp_cntr ibv_cmd_read_counters ibv_cmd_read_err_comp_cntr
            ibv_cmd_reg_dm_mr ibv_cmd_reg_dmabuf_mr ibv_cmd_reg_mr ibv_cmd_reg_mr_ex ibv_cmd_req_notify_cq
            ibv_cmd_rereg_mr ibv_cmd_resize_cq ibv_cmd_set_comp_cntr ibv_cmd_set_err_comp_cntr ibv_dmabuf_heap_alloc
            ibv_dmabuf_heap_cc_shared_init ibv_dmabuf_heap_destroy ibv_dmabuf_heap_free
        );
    )* };
    ($version:literal, $function:path: $($name:ident)*) => { $(symbol!($name, "@", $version, $function);)* };
}

// Programs that look up ibv_query_gid_type by dlsym(3), which names no version, find the default one.
private! {
    "IBVERBS_PRIVATE_34" "@@" verbs_register_driver_34
    "IBVERBS_PRIVATE_57" "@" verbs_register_driver_57
    "IBVERBS_PRIVATE_58" "@" verbs_register_driver_58
    "IBVERBS_PRIVATE_59" "@" verbs_register_driver_59
    "IBVERBS_PRIVATE_60" "@" verbs_register_driver_60
    "IBVERBS_PRIVATE_61" "@" verbs_register_driver_61
    "IBVERBS_PRIVATE_62" "@" verbs_register_driver_62
    "IBVERBS_PRIVATE_63" "@" verbs_register_driver_63
    "IBVERBS_PRIVATE_64" "@" verbs_register_driver_64
    "IBVERBS_PRIVATE_65" "@" verbs_register_driver_65
}
