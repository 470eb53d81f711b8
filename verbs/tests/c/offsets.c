// Prints where each field lies of the structures that programs share with libibverbs, librdmacm and softnic: `struct.field offset size`,
// and `struct - size` for each as a whole. verbs_context grows at its front, so its fields have their distance from the end instead,
// as a negative number.
// run: none
// link:

#include <stddef.h>
#include <stdio.h>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include "../../include/softnic_sdr.h"

#define SIZE(s) printf(#s " - %zu\n", sizeof(struct s))
#define FIELD(s, f) printf(#s "." #f " %zu %zu\n", offsetof(struct s, f), sizeof(((struct s *)0)->f))
#define FROM_END(f)                                                                                                              \
	printf("verbs_context." #f " -%zu %zu\n", sizeof(struct verbs_context) - offsetof(struct verbs_context, f),              \
	       sizeof(((struct verbs_context *)0)->f))

static void verbs_structures(void)
{
	SIZE(ibv_device); FIELD(ibv_device, _ops); FIELD(ibv_device, node_type); FIELD(ibv_device, transport_type);
	FIELD(ibv_device, name); FIELD(ibv_device, dev_name); FIELD(ibv_device, dev_path); FIELD(ibv_device, ibdev_path);
	SIZE(ibv_context); FIELD(ibv_context, device); FIELD(ibv_context, ops); FIELD(ibv_context, cmd_fd);
	FIELD(ibv_context, async_fd); FIELD(ibv_context, num_comp_vectors); FIELD(ibv_context, mutex);
	FIELD(ibv_context, abi_compat);
	SIZE(ibv_context_ops); FIELD(ibv_context_ops, _compat_query_device); FIELD(ibv_context_ops, _compat_query_port);
	FIELD(ibv_context_ops, _compat_alloc_pd); FIELD(ibv_context_ops, _compat_dealloc_pd);
	FIELD(ibv_context_ops, _compat_reg_mr); FIELD(ibv_context_ops, _compat_rereg_mr);
	FIELD(ibv_context_ops, _compat_dereg_mr); FIELD(ibv_context_ops, alloc_mw); FIELD(ibv_context_ops, bind_mw);
	FIELD(ibv_context_ops, dealloc_mw); FIELD(ibv_context_ops, _compat_create_cq); FIELD(ibv_context_ops, poll_cq);
	FIELD(ibv_context_ops, req_notify_cq); FIELD(ibv_context_ops, _compat_cq_event);
	FIELD(ibv_context_ops, _compat_resize_cq); FIELD(ibv_context_ops, _compat_destroy_cq);
	FIELD(ibv_context_ops, _compat_create_srq); FIELD(ibv_context_ops, _compat_modify_srq);
	FIELD(ibv_context_ops, _compat_query_srq); FIELD(ibv_context_ops, _compat_destroy_srq);
	FIELD(ibv_context_ops, post_srq_recv); FIELD(ibv_context_ops, _compat_create_qp);
	FIELD(ibv_context_ops, _compat_query_qp); FIELD(ibv_context_ops, _compat_modify_qp);
	FIELD(ibv_context_ops, _compat_destroy_qp); FIELD(ibv_context_ops, post_send); FIELD(ibv_context_ops, post_recv);
	FIELD(ibv_context_ops, _compat_create_ah); FIELD(ibv_context_ops, _compat_destroy_ah);
	FIELD(ibv_context_ops, _compat_attach_mcast); FIELD(ibv_context_ops, _compat_detach_mcast);
	FIELD(ibv_context_ops, _compat_async_event);
	SIZE(ibv_pd); FIELD(ibv_pd, context); FIELD(ibv_pd, handle);
	SIZE(ibv_td); FIELD(ibv_td, context);
	SIZE(ibv_xrcd); FIELD(ibv_xrcd, context);
	SIZE(ibv_mr); FIELD(ibv_mr, context); FIELD(ibv_mr, pd); FIELD(ibv_mr, addr); FIELD(ibv_mr, length);
	FIELD(ibv_mr, handle); FIELD(ibv_mr, lkey); FIELD(ibv_mr, rkey);
	SIZE(ibv_mw); FIELD(ibv_mw, context); FIELD(ibv_mw, pd); FIELD(ibv_mw, rkey); FIELD(ibv_mw, handle);
	FIELD(ibv_mw, type);
	SIZE(ibv_mw_bind_info); FIELD(ibv_mw_bind_info, mr); FIELD(ibv_mw_bind_info, addr); FIELD(ibv_mw_bind_info, length);
	FIELD(ibv_mw_bind_info, mw_access_flags);
	SIZE(ibv_mw_bind); FIELD(ibv_mw_bind, wr_id); FIELD(ibv_mw_bind, send_flags); FIELD(ibv_mw_bind, bind_info);
	SIZE(ibv_dm); FIELD(ibv_dm, context); FIELD(ibv_dm, memcpy_to_dm); FIELD(ibv_dm, memcpy_from_dm);
	FIELD(ibv_dm, comp_mask); FIELD(ibv_dm, handle);
	SIZE(ibv_alloc_dm_attr); FIELD(ibv_alloc_dm_attr, length); FIELD(ibv_alloc_dm_attr, log_align_req);
	FIELD(ibv_alloc_dm_attr, comp_mask);
	SIZE(ibv_comp_channel); FIELD(ibv_comp_channel, context); FIELD(ibv_comp_channel, fd);
	FIELD(ibv_comp_channel, refcnt);
	SIZE(ibv_cq); FIELD(ibv_cq, context); FIELD(ibv_cq, channel); FIELD(ibv_cq, cq_context); FIELD(ibv_cq, handle);
	FIELD(ibv_cq, cqe); FIELD(ibv_cq, mutex); FIELD(ibv_cq, cond); FIELD(ibv_cq, comp_events_completed);
	FIELD(ibv_cq, async_events_completed);
	SIZE(ibv_cq_ex); FIELD(ibv_cq_ex, context); FIELD(ibv_cq_ex, channel); FIELD(ibv_cq_ex, cq_context);
	FIELD(ibv_cq_ex, handle); FIELD(ibv_cq_ex, cqe); FIELD(ibv_cq_ex, mutex); FIELD(ibv_cq_ex, cond);
	FIELD(ibv_cq_ex, comp_events_completed); FIELD(ibv_cq_ex, async_events_completed); FIELD(ibv_cq_ex, comp_mask);
	FIELD(ibv_cq_ex, status); FIELD(ibv_cq_ex, wr_id); FIELD(ibv_cq_ex, start_poll); FIELD(ibv_cq_ex, next_poll);
	FIELD(ibv_cq_ex, end_poll); FIELD(ibv_cq_ex, read_opcode); FIELD(ibv_cq_ex, read_vendor_err);
	FIELD(ibv_cq_ex, read_byte_len); FIELD(ibv_cq_ex, read_imm_data); FIELD(ibv_cq_ex, read_qp_num);
	FIELD(ibv_cq_ex, read_src_qp); FIELD(ibv_cq_ex, read_wc_flags); FIELD(ibv_cq_ex, read_slid);
	FIELD(ibv_cq_ex, read_sl); FIELD(ibv_cq_ex, read_dlid_path_bits); FIELD(ibv_cq_ex, read_completion_ts);
	FIELD(ibv_cq_ex, read_cvlan); FIELD(ibv_cq_ex, read_flow_tag); FIELD(ibv_cq_ex, read_tm_info);
	FIELD(ibv_cq_ex, read_completion_wallclock_ns);
	SIZE(ibv_cq_init_attr_ex); FIELD(ibv_cq_init_attr_ex, cqe); FIELD(ibv_cq_init_attr_ex, cq_context);
	FIELD(ibv_cq_init_attr_ex, channel); FIELD(ibv_cq_init_attr_ex, comp_vector); FIELD(ibv_cq_init_attr_ex, wc_flags);
	FIELD(ibv_cq_init_attr_ex, comp_mask); FIELD(ibv_cq_init_attr_ex, flags); FIELD(ibv_cq_init_attr_ex, parent_domain);
	SIZE(ibv_poll_cq_attr); FIELD(ibv_poll_cq_attr, comp_mask);
	SIZE(ibv_moderate_cq); FIELD(ibv_moderate_cq, cq_count); FIELD(ibv_moderate_cq, cq_period);
	SIZE(ibv_modify_cq_attr); FIELD(ibv_modify_cq_attr, attr_mask); FIELD(ibv_modify_cq_attr, moderate);
	SIZE(ibv_srq); FIELD(ibv_srq, context); FIELD(ibv_srq, srq_context); FIELD(ibv_srq, pd); FIELD(ibv_srq, handle);
	FIELD(ibv_srq, mutex); FIELD(ibv_srq, cond); FIELD(ibv_srq, events_completed);
	SIZE(ibv_srq_attr); FIELD(ibv_srq_attr, max_wr); FIELD(ibv_srq_attr, max_sge); FIELD(ibv_srq_attr, srq_limit);
	SIZE(ibv_srq_init_attr); FIELD(ibv_srq_init_attr, srq_context); FIELD(ibv_srq_init_attr, attr);
	SIZE(ibv_srq_init_attr_ex); FIELD(ibv_srq_init_attr_ex, srq_context); FIELD(ibv_srq_init_attr_ex, attr);
	FIELD(ibv_srq_init_attr_ex, comp_mask); FIELD(ibv_srq_init_attr_ex, srq_type); FIELD(ibv_srq_init_attr_ex, pd);
	FIELD(ibv_srq_init_attr_ex, xrcd); FIELD(ibv_srq_init_attr_ex, cq); FIELD(ibv_srq_init_attr_ex, tm_cap);
	SIZE(ibv_qp); FIELD(ibv_qp, context); FIELD(ibv_qp, qp_context); FIELD(ibv_qp, pd); FIELD(ibv_qp, send_cq);
	FIELD(ibv_qp, recv_cq); FIELD(ibv_qp, srq); FIELD(ibv_qp, handle); FIELD(ibv_qp, qp_num); FIELD(ibv_qp, state);
	FIELD(ibv_qp, qp_type); FIELD(ibv_qp, mutex); FIELD(ibv_qp, cond); FIELD(ibv_qp, events_completed);
	SIZE(ibv_qp_ex); FIELD(ibv_qp_ex, qp_base); FIELD(ibv_qp_ex, comp_mask); FIELD(ibv_qp_ex, wr_id);
	FIELD(ibv_qp_ex, wr_flags); FIELD(ibv_qp_ex, wr_atomic_cmp_swp); FIELD(ibv_qp_ex, wr_atomic_fetch_add);
	FIELD(ibv_qp_ex, wr_bind_mw); FIELD(ibv_qp_ex, wr_local_inv); FIELD(ibv_qp_ex, wr_rdma_read);
	FIELD(ibv_qp_ex, wr_rdma_write); FIELD(ibv_qp_ex, wr_rdma_write_imm); FIELD(ibv_qp_ex, wr_send);
	FIELD(ibv_qp_ex, wr_send_imm); FIELD(ibv_qp_ex, wr_send_inv); FIELD(ibv_qp_ex, wr_send_tso);
	FIELD(ibv_qp_ex, wr_set_ud_addr); FIELD(ibv_qp_ex, wr_set_xrc_srqn); FIELD(ibv_qp_ex, wr_set_inline_data);
	FIELD(ibv_qp_ex, wr_set_inline_data_list); FIELD(ibv_qp_ex, wr_set_sge); FIELD(ibv_qp_ex, wr_set_sge_list);
	FIELD(ibv_qp_ex, wr_start); FIELD(ibv_qp_ex, wr_complete); FIELD(ibv_qp_ex, wr_abort);
	FIELD(ibv_qp_ex, wr_atomic_write);
	SIZE(ibv_qp_cap); FIELD(ibv_qp_cap, max_send_wr); FIELD(ibv_qp_cap, max_recv_wr); FIELD(ibv_qp_cap, max_send_sge);
	FIELD(ibv_qp_cap, max_recv_sge); FIELD(ibv_qp_cap, max_inline_data);
	SIZE(ibv_qp_init_attr); FIELD(ibv_qp_init_attr, qp_context); FIELD(ibv_qp_init_attr, send_cq);
	FIELD(ibv_qp_init_attr, recv_cq); FIELD(ibv_qp_init_attr, srq); FIELD(ibv_qp_init_attr, cap);
	FIELD(ibv_qp_init_attr, qp_type); FIELD(ibv_qp_init_attr, sq_sig_all);
	SIZE(ibv_qp_init_attr_ex); FIELD(ibv_qp_init_attr_ex, qp_context); FIELD(ibv_qp_init_attr_ex, send_cq);
	FIELD(ibv_qp_init_attr_ex, recv_cq); FIELD(ibv_qp_init_attr_ex, srq); FIELD(ibv_qp_init_attr_ex, cap);
	FIELD(ibv_qp_init_attr_ex, qp_type); FIELD(ibv_qp_init_attr_ex, sq_sig_all); FIELD(ibv_qp_init_attr_ex, comp_mask);
	FIELD(ibv_qp_init_attr_ex, pd); FIELD(ibv_qp_init_attr_ex, xrcd); FIELD(ibv_qp_init_attr_ex, create_flags);
	FIELD(ibv_qp_init_attr_ex, max_tso_header); FIELD(ibv_qp_init_attr_ex, rwq_ind_tbl);
	FIELD(ibv_qp_init_attr_ex, rx_hash_conf); FIELD(ibv_qp_init_attr_ex, source_qpn);
	FIELD(ibv_qp_init_attr_ex, send_ops_flags);
	SIZE(ibv_qp_open_attr); FIELD(ibv_qp_open_attr, comp_mask); FIELD(ibv_qp_open_attr, qp_num);
	FIELD(ibv_qp_open_attr, xrcd); FIELD(ibv_qp_open_attr, qp_context); FIELD(ibv_qp_open_attr, qp_type);
	SIZE(ibv_qp_attr); FIELD(ibv_qp_attr, qp_state); FIELD(ibv_qp_attr, cur_qp_state); FIELD(ibv_qp_attr, path_mtu);
	FIELD(ibv_qp_attr, path_mig_state); FIELD(ibv_qp_attr, qkey); FIELD(ibv_qp_attr, rq_psn);
	FIELD(ibv_qp_attr, sq_psn); FIELD(ibv_qp_attr, dest_qp_num); FIELD(ibv_qp_attr, qp_access_flags);
	FIELD(ibv_qp_attr, cap); FIELD(ibv_qp_attr, ah_attr); FIELD(ibv_qp_attr, alt_ah_attr);
	FIELD(ibv_qp_attr, pkey_index); FIELD(ibv_qp_attr, alt_pkey_index); FIELD(ibv_qp_attr, en_sqd_async_notify);
	FIELD(ibv_qp_attr, sq_draining); FIELD(ibv_qp_attr, max_rd_atomic); FIELD(ibv_qp_attr, max_dest_rd_atomic);
	FIELD(ibv_qp_attr, min_rnr_timer); FIELD(ibv_qp_attr, port_num); FIELD(ibv_qp_attr, timeout);
	FIELD(ibv_qp_attr, retry_cnt); FIELD(ibv_qp_attr, rnr_retry); FIELD(ibv_qp_attr, alt_port_num);
	FIELD(ibv_qp_attr, alt_timeout); FIELD(ibv_qp_attr, rate_limit);
	SIZE(ibv_qp_rate_limit_attr); FIELD(ibv_qp_rate_limit_attr, rate_limit);
	FIELD(ibv_qp_rate_limit_attr, max_burst_sz); FIELD(ibv_qp_rate_limit_attr, typical_pkt_sz);
	FIELD(ibv_qp_rate_limit_attr, comp_mask);
	SIZE(ibv_ece); FIELD(ibv_ece, vendor_id); FIELD(ibv_ece, options); FIELD(ibv_ece, comp_mask);
	SIZE(ibv_ah); FIELD(ibv_ah, context); FIELD(ibv_ah, pd); FIELD(ibv_ah, handle);
	SIZE(ibv_ah_attr); FIELD(ibv_ah_attr, grh); FIELD(ibv_ah_attr, dlid); FIELD(ibv_ah_attr, sl);
	FIELD(ibv_ah_attr, src_path_bits); FIELD(ibv_ah_attr, static_rate); FIELD(ibv_ah_attr, is_global);
	FIELD(ibv_ah_attr, port_num);
	SIZE(ibv_global_route); FIELD(ibv_global_route, dgid); FIELD(ibv_global_route, flow_label);
	FIELD(ibv_global_route, sgid_index); FIELD(ibv_global_route, hop_limit); FIELD(ibv_global_route, traffic_class);
	SIZE(ibv_grh); FIELD(ibv_grh, version_tclass_flow); FIELD(ibv_grh, paylen); FIELD(ibv_grh, next_hdr);
	FIELD(ibv_grh, hop_limit); FIELD(ibv_grh, sgid); FIELD(ibv_grh, dgid);
	SIZE(ibv_sge); FIELD(ibv_sge, addr); FIELD(ibv_sge, length); FIELD(ibv_sge, lkey);
	SIZE(ibv_data_buf); FIELD(ibv_data_buf, addr); FIELD(ibv_data_buf, length);
	SIZE(ibv_send_wr); FIELD(ibv_send_wr, wr_id); FIELD(ibv_send_wr, next); FIELD(ibv_send_wr, sg_list);
	FIELD(ibv_send_wr, num_sge); FIELD(ibv_send_wr, opcode); FIELD(ibv_send_wr, send_flags);
	FIELD(ibv_send_wr, imm_data); FIELD(ibv_send_wr, invalidate_rkey); FIELD(ibv_send_wr, wr.rdma.remote_addr);
	FIELD(ibv_send_wr, wr.rdma.rkey); FIELD(ibv_send_wr, wr.atomic.remote_addr);
	FIELD(ibv_send_wr, wr.atomic.compare_add); FIELD(ibv_send_wr, wr.atomic.swap); FIELD(ibv_send_wr, wr.atomic.rkey);
	FIELD(ibv_send_wr, wr.ud.ah); FIELD(ibv_send_wr, wr.ud.remote_qpn); FIELD(ibv_send_wr, wr.ud.remote_qkey);
	FIELD(ibv_send_wr, qp_type.xrc.remote_srqn); FIELD(ibv_send_wr, bind_mw.mw); FIELD(ibv_send_wr, bind_mw.rkey);
	FIELD(ibv_send_wr, bind_mw.bind_info); FIELD(ibv_send_wr, tso.hdr); FIELD(ibv_send_wr, tso.hdr_sz);
	FIELD(ibv_send_wr, tso.mss);
	SIZE(ibv_recv_wr); FIELD(ibv_recv_wr, wr_id); FIELD(ibv_recv_wr, next); FIELD(ibv_recv_wr, sg_list);
	FIELD(ibv_recv_wr, num_sge);
	SIZE(ibv_wc); FIELD(ibv_wc, wr_id); FIELD(ibv_wc, status); FIELD(ibv_wc, opcode); FIELD(ibv_wc, vendor_err);
	FIELD(ibv_wc, byte_len); FIELD(ibv_wc, imm_data); FIELD(ibv_wc, invalidated_rkey); FIELD(ibv_wc, qp_num);
	FIELD(ibv_wc, src_qp); FIELD(ibv_wc, wc_flags); FIELD(ibv_wc, pkey_index); FIELD(ibv_wc, slid); FIELD(ibv_wc, sl);
	FIELD(ibv_wc, dlid_path_bits);
	SIZE(ibv_async_event); FIELD(ibv_async_event, element.cq); FIELD(ibv_async_event, element.qp);
	FIELD(ibv_async_event, element.srq); FIELD(ibv_async_event, element.wq); FIELD(ibv_async_event, element.port_num);
	FIELD(ibv_async_event, event_type);
	SIZE(ibv_gid_entry); FIELD(ibv_gid_entry, gid); FIELD(ibv_gid_entry, gid_index); FIELD(ibv_gid_entry, port_num);
	FIELD(ibv_gid_entry, gid_type); FIELD(ibv_gid_entry, ndev_ifindex);
	SIZE(ibv_device_attr); FIELD(ibv_device_attr, fw_ver); FIELD(ibv_device_attr, node_guid);
	FIELD(ibv_device_attr, sys_image_guid); FIELD(ibv_device_attr, max_mr_size); FIELD(ibv_device_attr, page_size_cap);
	FIELD(ibv_device_attr, vendor_id); FIELD(ibv_device_attr, vendor_part_id); FIELD(ibv_device_attr, hw_ver);
	FIELD(ibv_device_attr, max_qp); FIELD(ibv_device_attr, max_qp_wr); FIELD(ibv_device_attr, device_cap_flags);
	FIELD(ibv_device_attr, max_sge); FIELD(ibv_device_attr, max_sge_rd); FIELD(ibv_device_attr, max_cq);
	FIELD(ibv_device_attr, max_cqe); FIELD(ibv_device_attr, max_mr); FIELD(ibv_device_attr, max_pd);
	FIELD(ibv_device_attr, max_qp_rd_atom); FIELD(ibv_device_attr, max_ee_rd_atom);
	FIELD(ibv_device_attr, max_res_rd_atom); FIELD(ibv_device_attr, max_qp_init_rd_atom);
	FIELD(ibv_device_attr, max_ee_init_rd_atom); FIELD(ibv_device_attr, atomic_cap); FIELD(ibv_device_attr, max_ee);
	FIELD(ibv_device_attr, max_rdd); FIELD(ibv_device_attr, max_mw); FIELD(ibv_device_attr, max_raw_ipv6_qp);
	FIELD(ibv_device_attr, max_raw_ethy_qp); FIELD(ibv_device_attr, max_mcast_grp);
	FIELD(ibv_device_attr, max_mcast_qp_attach); FIELD(ibv_device_attr, max_total_mcast_qp_attach);
	FIELD(ibv_device_attr, max_ah); FIELD(ibv_device_attr, max_fmr); FIELD(ibv_device_attr, max_map_per_fmr);
	FIELD(ibv_device_attr, max_srq); FIELD(ibv_device_attr, max_srq_wr); FIELD(ibv_device_attr, max_srq_sge);
	FIELD(ibv_device_attr, max_pkeys); FIELD(ibv_device_attr, local_ca_ack_delay);
	FIELD(ibv_device_attr, phys_port_cnt);
	SIZE(ibv_query_device_ex_input); FIELD(ibv_query_device_ex_input, comp_mask);
	SIZE(ibv_odp_caps); FIELD(ibv_odp_caps, general_caps); FIELD(ibv_odp_caps, per_transport_caps.rc_odp_caps);
	FIELD(ibv_odp_caps, per_transport_caps.uc_odp_caps); FIELD(ibv_odp_caps, per_transport_caps.ud_odp_caps);
	SIZE(ibv_tso_caps); FIELD(ibv_tso_caps, max_tso); FIELD(ibv_tso_caps, supported_qpts);
	SIZE(ibv_rss_caps); FIELD(ibv_rss_caps, supported_qpts); FIELD(ibv_rss_caps, max_rwq_indirection_tables);
	FIELD(ibv_rss_caps, max_rwq_indirection_table_size); FIELD(ibv_rss_caps, rx_hash_fields_mask);
	FIELD(ibv_rss_caps, rx_hash_function);
	SIZE(ibv_packet_pacing_caps); FIELD(ibv_packet_pacing_caps, qp_rate_limit_min);
	FIELD(ibv_packet_pacing_caps, qp_rate_limit_max); FIELD(ibv_packet_pacing_caps, supported_qpts);
	SIZE(ibv_tm_caps); FIELD(ibv_tm_caps, max_rndv_hdr_size); FIELD(ibv_tm_caps, max_num_tags);
	FIELD(ibv_tm_caps, flags); FIELD(ibv_tm_caps, max_ops); FIELD(ibv_tm_caps, max_sge);
	SIZE(ibv_cq_moderation_caps); FIELD(ibv_cq_moderation_caps, max_cq_count);
	FIELD(ibv_cq_moderation_caps, max_cq_period);
	SIZE(ibv_pci_atomic_caps); FIELD(ibv_pci_atomic_caps, fetch_add); FIELD(ibv_pci_atomic_caps, swap);
	FIELD(ibv_pci_atomic_caps, compare_swap);
	SIZE(ibv_device_attr_ex); FIELD(ibv_device_attr_ex, orig_attr); FIELD(ibv_device_attr_ex, comp_mask);
	FIELD(ibv_device_attr_ex, odp_caps); FIELD(ibv_device_attr_ex, completion_timestamp_mask);
	FIELD(ibv_device_attr_ex, hca_core_clock); FIELD(ibv_device_attr_ex, device_cap_flags_ex);
	FIELD(ibv_device_attr_ex, tso_caps); FIELD(ibv_device_attr_ex, rss_caps); FIELD(ibv_device_attr_ex, max_wq_type_rq);
	FIELD(ibv_device_attr_ex, packet_pacing_caps); FIELD(ibv_device_attr_ex, raw_packet_caps);
	FIELD(ibv_device_attr_ex, tm_caps); FIELD(ibv_device_attr_ex, cq_mod_caps); FIELD(ibv_device_attr_ex, max_dm_size);
	FIELD(ibv_device_attr_ex, pci_atomic_caps); FIELD(ibv_device_attr_ex, xrc_odp_caps);
	FIELD(ibv_device_attr_ex, phys_port_cnt_ex);
	SIZE(ibv_port_attr); FIELD(ibv_port_attr, state); FIELD(ibv_port_attr, max_mtu); FIELD(ibv_port_attr, active_mtu);
	FIELD(ibv_port_attr, gid_tbl_len); FIELD(ibv_port_attr, port_cap_flags); FIELD(ibv_port_attr, max_msg_sz);
	FIELD(ibv_port_attr, bad_pkey_cntr); FIELD(ibv_port_attr, qkey_viol_cntr); FIELD(ibv_port_attr, pkey_tbl_len);
	FIELD(ibv_port_attr, lid); FIELD(ibv_port_attr, sm_lid); FIELD(ibv_port_attr, lmc);
	FIELD(ibv_port_attr, max_vl_num); FIELD(ibv_port_attr, sm_sl); FIELD(ibv_port_attr, subnet_timeout);
	FIELD(ibv_port_attr, init_type_reply); FIELD(ibv_port_attr, active_width); FIELD(ibv_port_attr, active_speed);
	FIELD(ibv_port_attr, phys_state); FIELD(ibv_port_attr, link_layer); FIELD(ibv_port_attr, flags);
	FIELD(ibv_port_attr, port_cap_flags2);
	SIZE(ibv_td_init_attr); FIELD(ibv_td_init_attr, comp_mask);
	SIZE(ibv_parent_domain_init_attr); FIELD(ibv_parent_domain_init_attr, pd); FIELD(ibv_parent_domain_init_attr, td);
	FIELD(ibv_parent_domain_init_attr, comp_mask); FIELD(ibv_parent_domain_init_attr, alloc);
	FIELD(ibv_parent_domain_init_attr, free); FIELD(ibv_parent_domain_init_attr, pd_context);
	SIZE(ibv_values_ex); FIELD(ibv_values_ex, comp_mask); FIELD(ibv_values_ex, raw_clock);
	SIZE(ibv_xrcd_init_attr); FIELD(ibv_xrcd_init_attr, comp_mask); FIELD(ibv_xrcd_init_attr, fd);
	FIELD(ibv_xrcd_init_attr, oflags);
}

static void rdma_cm_structures(void)
{
	SIZE(rdma_ib_addr); FIELD(rdma_ib_addr, sgid); FIELD(rdma_ib_addr, dgid); FIELD(rdma_ib_addr, pkey);
	SIZE(rdma_addr); FIELD(rdma_addr, src_addr); FIELD(rdma_addr, src_storage); FIELD(rdma_addr, dst_addr);
	FIELD(rdma_addr, dst_storage); FIELD(rdma_addr, addr.ibaddr);
	SIZE(rdma_route); FIELD(rdma_route, addr); FIELD(rdma_route, path_rec); FIELD(rdma_route, num_paths);
	SIZE(rdma_event_channel); FIELD(rdma_event_channel, fd);
	SIZE(rdma_cm_id); FIELD(rdma_cm_id, verbs); FIELD(rdma_cm_id, channel); FIELD(rdma_cm_id, context);
	FIELD(rdma_cm_id, qp); FIELD(rdma_cm_id, route); FIELD(rdma_cm_id, ps); FIELD(rdma_cm_id, port_num);
	FIELD(rdma_cm_id, event); FIELD(rdma_cm_id, send_cq_channel); FIELD(rdma_cm_id, send_cq);
	FIELD(rdma_cm_id, recv_cq_channel); FIELD(rdma_cm_id, recv_cq); FIELD(rdma_cm_id, srq); FIELD(rdma_cm_id, pd);
	FIELD(rdma_cm_id, qp_type);
	SIZE(rdma_conn_param); FIELD(rdma_conn_param, private_data); FIELD(rdma_conn_param, private_data_len);
	FIELD(rdma_conn_param, responder_resources); FIELD(rdma_conn_param, initiator_depth);
	FIELD(rdma_conn_param, flow_control); FIELD(rdma_conn_param, retry_count); FIELD(rdma_conn_param, rnr_retry_count);
	FIELD(rdma_conn_param, srq); FIELD(rdma_conn_param, qp_num);
	SIZE(rdma_ud_param); FIELD(rdma_ud_param, private_data); FIELD(rdma_ud_param, private_data_len);
	FIELD(rdma_ud_param, ah_attr); FIELD(rdma_ud_param, qp_num); FIELD(rdma_ud_param, qkey);
	SIZE(rdma_cm_event); FIELD(rdma_cm_event, id); FIELD(rdma_cm_event, listen_id); FIELD(rdma_cm_event, event);
	FIELD(rdma_cm_event, status); FIELD(rdma_cm_event, param.conn); FIELD(rdma_cm_event, param.ud);
	SIZE(rdma_addrinfo); FIELD(rdma_addrinfo, ai_flags); FIELD(rdma_addrinfo, ai_family);
	FIELD(rdma_addrinfo, ai_qp_type); FIELD(rdma_addrinfo, ai_port_space); FIELD(rdma_addrinfo, ai_src_len);
	FIELD(rdma_addrinfo, ai_dst_len); FIELD(rdma_addrinfo, ai_src_addr); FIELD(rdma_addrinfo, ai_dst_addr);
	FIELD(rdma_addrinfo, ai_src_canonname); FIELD(rdma_addrinfo, ai_dst_canonname); FIELD(rdma_addrinfo, ai_route_len);
	FIELD(rdma_addrinfo, ai_route); FIELD(rdma_addrinfo, ai_connect_len); FIELD(rdma_addrinfo, ai_connect);
	FIELD(rdma_addrinfo, ai_next);
	SIZE(rdma_cm_join_mc_attr_ex); FIELD(rdma_cm_join_mc_attr_ex, comp_mask);
	FIELD(rdma_cm_join_mc_attr_ex, join_flags); FIELD(rdma_cm_join_mc_attr_ex, addr);
}

static void sdr_structures(void)
{
	SIZE(softnic_sdr_context_attr); FIELD(softnic_sdr_context_attr, comp_mask);
	SIZE(softnic_sdr_qp_attr); FIELD(softnic_sdr_qp_attr, comp_mask); FIELD(softnic_sdr_qp_attr, max_message);
	FIELD(softnic_sdr_qp_attr, chunk); FIELD(softnic_sdr_qp_attr, slots); FIELD(softnic_sdr_qp_attr, generations);
	FIELD(softnic_sdr_qp_attr, channels); FIELD(softnic_sdr_qp_attr, message_bits);
	FIELD(softnic_sdr_qp_attr, packet_bits); FIELD(softnic_sdr_qp_attr, user_bits);
	FIELD(softnic_sdr_qp_attr, reserved); FIELD(softnic_sdr_qp_attr, mtu); FIELD(softnic_sdr_qp_attr, send_depth);
	FIELD(softnic_sdr_qp_attr, flags);
	SIZE(softnic_sdr_counters); FIELD(softnic_sdr_counters, comp_mask); FIELD(softnic_sdr_counters, packets);
	FIELD(softnic_sdr_counters, into_null); FIELD(softnic_sdr_counters, old_generation);
	FIELD(softnic_sdr_counters, duplicates); FIELD(softnic_sdr_counters, rejected);
	FIELD(softnic_sdr_counters, cts_sent); FIELD(softnic_sdr_counters, cts_repeated);
	FIELD(softnic_sdr_counters, asks_sent);
	SIZE(softnic_sdr_start_wr); FIELD(softnic_sdr_start_wr, comp_mask); FIELD(softnic_sdr_start_wr, length);
	FIELD(softnic_sdr_start_wr, imm); FIELD(softnic_sdr_start_wr, reserved);
	SIZE(softnic_sdr_continue_wr); FIELD(softnic_sdr_continue_wr, comp_mask); FIELD(softnic_sdr_continue_wr, mr);
	FIELD(softnic_sdr_continue_wr, addr); FIELD(softnic_sdr_continue_wr, length);
	FIELD(softnic_sdr_continue_wr, offset);
	SIZE(softnic_sdr_send_wr); FIELD(softnic_sdr_send_wr, comp_mask); FIELD(softnic_sdr_send_wr, mr);
	FIELD(softnic_sdr_send_wr, addr); FIELD(softnic_sdr_send_wr, length); FIELD(softnic_sdr_send_wr, imm);
	FIELD(softnic_sdr_send_wr, reserved);
	SIZE(softnic_sdr_recv_wr); FIELD(softnic_sdr_recv_wr, comp_mask); FIELD(softnic_sdr_recv_wr, mr);
	FIELD(softnic_sdr_recv_wr, addr); FIELD(softnic_sdr_recv_wr, length);
	SIZE(softnic_sdr_reliable_attr); FIELD(softnic_sdr_reliable_attr, comp_mask); FIELD(softnic_sdr_reliable_attr, qp);
	FIELD(softnic_sdr_reliable_attr, scheme); FIELD(softnic_sdr_reliable_attr, k); FIELD(softnic_sdr_reliable_attr, m);
	FIELD(softnic_sdr_reliable_attr, alpha_percent); FIELD(softnic_sdr_reliable_attr, rtt_ns);
	FIELD(softnic_sdr_reliable_attr, timeout_ns); FIELD(softnic_sdr_reliable_attr, rate_bps);
	FIELD(softnic_sdr_reliable_attr, parity_pool); FIELD(softnic_sdr_reliable_attr, acks_per_rtt);
	FIELD(softnic_sdr_reliable_attr, reordering); FIELD(softnic_sdr_reliable_attr, interleave);
	SIZE(softnic_sdr_reliable_wr); FIELD(softnic_sdr_reliable_wr, comp_mask); FIELD(softnic_sdr_reliable_wr, mr);
	FIELD(softnic_sdr_reliable_wr, addr); FIELD(softnic_sdr_reliable_wr, length);
	SIZE(softnic_sdr_completion); FIELD(softnic_sdr_completion, number); FIELD(softnic_sdr_completion, opcode);
	FIELD(softnic_sdr_completion, status);
	SIZE(softnic_sdr_reliable_counters); FIELD(softnic_sdr_reliable_counters, comp_mask);
	FIELD(softnic_sdr_reliable_counters, chunks_sent); FIELD(softnic_sdr_reliable_counters, chunks_repeated);
	FIELD(softnic_sdr_reliable_counters, packets_repeated); FIELD(softnic_sdr_reliable_counters, timeouts);
	FIELD(softnic_sdr_reliable_counters, chunks_asked_for); FIELD(softnic_sdr_reliable_counters, parity_packets);
	FIELD(softnic_sdr_reliable_counters, chunks_recovered); FIELD(softnic_sdr_reliable_counters, packets_recovered);
	FIELD(softnic_sdr_reliable_counters, fallbacks); FIELD(softnic_sdr_reliable_counters, failed_submessages);
	FIELD(softnic_sdr_reliable_counters, unprotected); FIELD(softnic_sdr_reliable_counters, decode_ns);
	FIELD(softnic_sdr_reliable_counters, acks_sent); FIELD(softnic_sdr_reliable_counters, nacks_sent);
	FIELD(softnic_sdr_reliable_counters, rejected);
}

static void verbs_context_from_its_end(void)
{
	FROM_END(query_port); FROM_END(advise_mr); FROM_END(alloc_null_mr); FROM_END(read_counters);
	FROM_END(attach_counters_point_flow); FROM_END(create_counters); FROM_END(destroy_counters); FROM_END(reg_dm_mr);
	FROM_END(alloc_dm); FROM_END(free_dm); FROM_END(modify_flow_action_esp); FROM_END(destroy_flow_action);
	FROM_END(create_flow_action_esp); FROM_END(modify_qp_rate_limit); FROM_END(alloc_parent_domain);
	FROM_END(dealloc_td); FROM_END(alloc_td); FROM_END(modify_cq); FROM_END(post_srq_ops);
	FROM_END(destroy_rwq_ind_table); FROM_END(create_rwq_ind_table); FROM_END(destroy_wq); FROM_END(modify_wq);
	FROM_END(create_wq); FROM_END(query_rt_values); FROM_END(create_cq_ex); FROM_END(priv); FROM_END(query_device_ex);
	FROM_END(ibv_destroy_flow); FROM_END(ABI_placeholder2); FROM_END(ibv_create_flow); FROM_END(ABI_placeholder1);
	FROM_END(open_qp); FROM_END(create_qp_ex); FROM_END(get_srq_num); FROM_END(create_srq_ex); FROM_END(open_xrcd);
	FROM_END(close_xrcd); FROM_END(_ABI_placeholder3); FROM_END(sz); FROM_END(context);
}

int main(void)
{
	verbs_structures();
	rdma_cm_structures();
	sdr_structures();
	verbs_context_from_its_end();
	return 0;
}
