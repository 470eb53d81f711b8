//! Every capture of the corpus, and of real hardware where `SOFTNIC_CAPTURES` names a folder of them, has its verdict.

mod common;

use std::path::PathBuf;

use common::{corpus, explain};
use softnic_replay::{Options, Report, Skip, replay};

/// File, then: exit code, requests equal, answers equal, given, undetermined, allowed.
type Row = (&'static str, u8, u64, u64, u64, usize, usize);

const CORPUS: &[Row] = &[
    ("cm_rping_ipv4.pcap", 0, 15, 14, 2, 0, 0),
    ("cm_rping_ipv6.pcap", 0, 15, 14, 2, 0, 0),
    ("cm_softnic_ipv6.pcap", 0, 4, 2, 0, 0, 0),
    ("cm_softnic_lost_rep.pcap", 0, 5, 3, 0, 0, 0),
    ("cm_softnic_lost_rtu.pcap", 0, 4, 3, 0, 0, 0),
    ("cm_softnic_mra.pcap", 0, 4, 3, 0, 0, 0),
    ("cm_softnic_no_service.pcap", 0, 1, 1, 0, 0, 0),
    ("cm_softnic_refuses_reply.pcap", 0, 2, 1, 0, 0, 0),
    ("cm_softnic_refuses_request.pcap", 0, 1, 1, 0, 0, 0),
    ("cm_softnic_sidr.pcap", 0, 1, 1, 0, 0, 0),
    ("cm_ucmatose_ipv4.pcap", 0, 7, 6, 0, 0, 0),
    ("cm_udaddy_sidr.pcap", 0, 5, 1, 0, 0, 0),
    ("group_at_receiver_1.pcap", 0, 22, 24, 0, 0, 0),
    ("group_at_receiver_2.pcap", 0, 26, 7, 0, 0, 0),
    ("group_at_sender.pcap", 0, 38, 9, 0, 0, 0),
    ("interop_bad_rkey_atomic_rxe.pcap", 0, 1, 1, 0, 0, 0),
    ("interop_bad_rkey_atomic_softnic.pcap", 0, 1, 1, 0, 0, 0),
    ("interop_bad_rkey_read_rxe.pcap", 0, 1, 1, 0, 0, 0),
    ("interop_bad_rkey_read_softnic.pcap", 0, 1, 1, 0, 0, 0),
    ("interop_bad_rkey_write_rxe.pcap", 0, 2, 1, 0, 0, 0),
    ("interop_bad_rkey_write_softnic.pcap", 0, 3, 1, 0, 0, 0),
    ("interop_cmp_swap_rxe.pcap", 0, 2, 2, 1, 0, 0),
    ("interop_cmp_swap_softnic.pcap", 0, 2, 2, 1, 0, 0),
    ("interop_corrupt_rxe.pcap", 0, 25, 14, 5, 0, 0),
    ("interop_corrupt_softnic.pcap", 0, 37, 21, 5, 0, 0),
    ("interop_duplicate_rxe.pcap", 0, 21, 14, 5, 0, 0),
    ("interop_duplicate_softnic.pcap", 0, 21, 16, 5, 0, 0),
    ("interop_fetch_add_rxe.pcap", 0, 3, 3, 1, 0, 0),
    ("interop_fetch_add_softnic.pcap", 0, 3, 3, 1, 0, 0),
    ("interop_loss_rxe.pcap", 0, 28, 16, 5, 0, 0),
    ("interop_loss_softnic.pcap", 0, 34, 19, 5, 0, 0),
    ("interop_many_qps_mixed_rxe.pcap", 0, 38, 14, 0, 0, 0),
    ("interop_many_qps_mixed_softnic.pcap", 0, 31, 8, 0, 0, 0),
    ("interop_many_qps_rxe.pcap", 0, 25, 10, 0, 0, 0),
    ("interop_many_qps_softnic.pcap", 0, 25, 5, 0, 0, 0),
    ("interop_mixed_rxe.pcap", 0, 27, 14, 5, 0, 0),
    ("interop_mixed_softnic.pcap", 0, 27, 15, 5, 0, 1),
    ("interop_mr_no_write_rxe.pcap", 0, 1, 1, 0, 0, 0),
    ("interop_mr_no_write_softnic.pcap", 0, 1, 1, 0, 0, 0),
    ("interop_out_of_range_rxe.pcap", 0, 1, 1, 0, 0, 0),
    ("interop_out_of_range_softnic.pcap", 0, 1, 1, 0, 0, 0),
    ("interop_outstanding_rxe.pcap", 0, 32, 24, 16, 0, 0),
    ("interop_outstanding_softnic.pcap", 0, 32, 18, 16, 0, 0),
    ("interop_peer_gone_rxe.pcap", 0, 3, 0, 0, 0, 0),
    ("interop_peer_gone_softnic.pcap", 0, 3, 0, 0, 0, 0),
    ("interop_qp_no_read_rxe.pcap", 0, 1, 0, 0, 1, 0),
    ("interop_qp_no_read_softnic.pcap", 0, 1, 0, 0, 1, 0),
    ("interop_read_rxe.pcap", 0, 5, 9, 8, 0, 0),
    ("interop_read_softnic.pcap", 0, 5, 9, 8, 0, 0),
    ("interop_reads_rxe.pcap", 0, 6, 12, 12, 0, 0),
    ("interop_reads_softnic.pcap", 0, 6, 12, 12, 0, 0),
    ("interop_reorder_rxe.pcap", 0, 29, 17, 5, 0, 0),
    ("interop_reorder_softnic.pcap", 0, 33, 23, 5, 0, 0),
    ("interop_retry_exceeded_softnic.pcap", 0, 3, 0, 0, 0, 0),
    ("interop_rnr_exceeded_rxe.pcap", 0, 3, 3, 0, 0, 0),
    ("interop_rnr_exceeded_softnic.pcap", 0, 3, 3, 0, 0, 0),
    ("interop_rnr_rxe.pcap", 0, 16, 8, 0, 0, 0),
    ("interop_rnr_softnic.pcap", 0, 27, 14, 0, 0, 4),
    ("interop_send_imm_rxe.pcap", 0, 9, 5, 0, 0, 0),
    ("interop_send_imm_softnic.pcap", 0, 9, 5, 0, 0, 0),
    ("interop_send_inv_rxe.pcap", 0, 16, 11, 0, 0, 0),
    ("interop_send_inv_softnic.pcap", 0, 18, 11, 0, 0, 0),
    ("interop_send_rxe.pcap", 0, 9, 5, 0, 0, 0),
    ("interop_send_softnic.pcap", 0, 9, 5, 0, 0, 0),
    ("interop_srq_rxe.pcap", 0, 10, 6, 0, 0, 0),
    ("interop_srq_softnic.pcap", 0, 14, 5, 0, 0, 3),
    ("interop_too_long_rxe.pcap", 0, 4, 0, 0, 2, 0),
    ("interop_too_long_softnic.pcap", 0, 4, 0, 0, 2, 0),
    ("interop_uc_no_receive_rxe.pcap", 0, 4, 0, 0, 0, 0),
    ("interop_uc_no_receive_softnic.pcap", 0, 4, 0, 0, 0, 0),
    ("interop_uc_send_imm_rxe.pcap", 0, 9, 0, 0, 0, 0),
    ("interop_uc_send_imm_softnic.pcap", 0, 9, 0, 0, 0, 0),
    ("interop_uc_send_rxe.pcap", 0, 9, 0, 0, 0, 0),
    ("interop_uc_send_softnic.pcap", 0, 9, 0, 0, 0, 0),
    ("interop_uc_write_imm_rxe.pcap", 0, 9, 0, 0, 0, 0),
    ("interop_uc_write_imm_softnic.pcap", 0, 9, 0, 0, 0, 0),
    ("interop_uc_write_rxe.pcap", 0, 9, 0, 0, 0, 0),
    ("interop_uc_write_softnic.pcap", 0, 9, 0, 0, 0, 0),
    ("interop_ud_no_receive_rxe.pcap", 0, 2, 0, 0, 0, 0),
    ("interop_ud_no_receive_softnic.pcap", 0, 2, 0, 0, 0, 0),
    ("interop_ud_send_imm_rxe.pcap", 0, 4, 0, 0, 0, 0),
    ("interop_ud_send_imm_softnic.pcap", 0, 4, 0, 0, 0, 0),
    ("interop_ud_send_rxe.pcap", 0, 4, 0, 0, 0, 0),
    ("interop_ud_send_softnic.pcap", 0, 4, 0, 0, 0, 0),
    ("interop_window_bounds_rxe.pcap", 0, 10, 10, 0, 0, 0),
    ("interop_window_bounds_softnic.pcap", 0, 10, 10, 0, 0, 0),
    ("interop_window_rxe.pcap", 0, 15, 9, 0, 1, 0),
    ("interop_window_softnic.pcap", 0, 17, 9, 0, 1, 0),
    ("interop_write_imm_rxe.pcap", 0, 9, 5, 0, 0, 0),
    ("interop_write_imm_softnic.pcap", 0, 9, 5, 0, 0, 0),
    ("interop_write_rxe.pcap", 0, 9, 5, 0, 0, 0),
    ("interop_write_softnic.pcap", 0, 9, 5, 0, 0, 0),
    ("loss_final_ack.pcap", 0, 24, 8, 0, 0, 0),
    ("loss_read_request.pcap", 0, 6, 19, 6, 0, 0),
    ("loss_read_resp_last.pcap", 0, 4, 18, 6, 0, 0),
    ("loss_send_last_timeout.pcap", 0, 24, 8, 0, 0, 0),
    ("loss_send_middle_nak.pcap", 0, 21, 4, 0, 0, 0),
    ("loss_send_random10pct.pcap", 0, 23, 4, 0, 0, 0),
    ("loss_write_first_nak.pcap", 0, 30, 4, 0, 0, 0),
    ("lowar_read_loss.pcap", 0, 3, 21, 21, 0, 0),
    ("lowar_send_loss_ipv6.pcap", 0, 28, 2, 0, 0, 0),
    ("lowar_write_loss.pcap", 0, 21, 1, 0, 0, 0),
    ("pingpong_rc_ipv4.pcap", 0, 18, 6, 0, 0, 0),
    ("pingpong_srq_ipv4.pcap", 0, 8, 8, 0, 0, 0),
    ("pingpong_ud_ipv4.pcap", 0, 6, 0, 0, 0, 0),
    ("rc_access_err_nak.pcap", 0, 8, 5, 0, 1, 0),
    ("rc_atomic.pcap", 0, 4, 4, 1, 0, 0),
    ("rc_mixed_linklocal_gid0.pcap", 0, 8, 6, 0, 0, 0),
    ("rc_mixed_mtu1024_ipv6.pcap", 0, 8, 6, 0, 0, 0),
    ("rc_mixed_mtu2048.pcap", 0, 8, 6, 0, 0, 0),
    ("rc_mixed_mtu256.pcap", 0, 8, 6, 0, 0, 0),
    ("rc_mixed_mtu4096.pcap", 0, 8, 6, 0, 0, 0),
    ("rc_mixed_mtu512.pcap", 0, 8, 6, 0, 0, 0),
    ("rc_read_mtu1024.pcap", 0, 9, 20, 7, 0, 0),
    ("rc_retry_exceeded.pcap", 0, 3, 0, 0, 0, 0),
    ("rc_rnr_nak.pcap", 0, 22, 14, 0, 0, 3),
    ("rc_rnr_retry_exceeded.pcap", 0, 3, 3, 0, 0, 0),
    ("rc_send_inv.pcap", 0, 3, 3, 0, 0, 0),
    ("rc_send_mtu1024.pcap", 0, 15, 9, 0, 0, 0),
    ("rc_write_mtu1024.pcap", 0, 15, 9, 0, 0, 0),
    ("sdr_ec_fallback.pcap", 0, 18, 0, 0, 0, 0),
    ("sdr_nack_loss.pcap", 0, 21, 0, 0, 0, 0),
    ("sdr_sr_loss.pcap", 0, 14, 0, 0, 0, 0),
    ("sdr_stream_loss.pcap", 0, 18, 0, 0, 0, 0),
    ("softnic_igb_read_mtu1024_ipv6.pcap", 0, 4, 12, 12, 0, 0),
    ("softnic_igb_write_mtu4096.pcap", 0, 12, 2, 0, 0, 0),
    ("sr_read_loss.pcap", 0, 7, 22, 21, 0, 0),
    ("sr_write_loss.pcap", 0, 22, 4, 0, 0, 0),
    ("uc_send_mtu1024.pcap", 0, 13, 0, 0, 0, 0),
    ("uc_write_mtu1024.pcap", 0, 14, 0, 0, 0, 0),
    ("ud_send.pcap", 0, 4, 0, 0, 0, 0),
    ("ud_send_ipv6.pcap", 0, 4, 0, 0, 0, 0),
    ("xp_send_loss.pcap", 2, 0, 0, 0, 0, 0),
    ("xp_write_stride.pcap", 2, 0, 0, 0, 0, 0),
];

const HARDWARE: &[Row] = &[
    ("cx4lx_cnp.pcap", 2, 0, 0, 0, 0, 0),
    ("cx5_cm_send.pcap", 0, 5, 4, 0, 0, 0),
    ("cx5_cm_send_write.pcap", 0, 9, 8, 0, 0, 0),
    // Most packets of this one are missing.
    ("cx5_v2_srq_send_multi.pcap", 0, 358, 41, 0, 134, 0),
    ("cx6dx_mirror_rc_write.pcap", 2, 0, 0, 0, 0, 0),
    ("mlx_nvme_discover_2021.pcap", 0, 16, 15, 1, 0, 0),
    ("mlx_nvme_write_inline.pcap", 0, 25, 20, 0, 0, 0),
    ("mlx_send_bw_1024.pcap", 0, 5, 5, 0, 0, 0),
    ("rxe_cm_write_read_multi.pcap", 0, 5, 7, 4, 0, 0),
];

fn check(path: PathBuf, row: &Row) -> Report {
    let report = replay(std::fs::File::open(&path).unwrap(), &Options::default()).unwrap();
    let c = report.counts();
    let (undetermined, allowed) = (report.undetermined.len(), report.allowed.len());
    let found = (row.0, report.exit_code(), c.requests_equal, c.answers_equal, c.given, undetermined, allowed);
    assert_eq!(found, *row, "{}", explain(&report));
    report
}

#[test]
fn every_capture_of_the_corpus_has_its_verdict() {
    for row in CORPUS {
        check(corpus().join(row.0), row);
    }
    let files = std::fs::read_dir(corpus()).unwrap().filter_map(|e| e.unwrap().file_name().into_string().ok());
    for name in files.filter(|n| n.ends_with(".pcap")) {
        assert!(CORPUS.iter().any(|row| row.0 == name), "{name} has no verdict here");
    }
}

#[test]
fn captures_of_hardware_have_their_verdict() {
    let Some(folder) = std::env::var_os("SOFTNIC_CAPTURES").filter(|v| !v.is_empty()).map(PathBuf::from) else {
        eprintln!("LEFT OUT: SOFTNIC_CAPTURES does not name a folder with captures of hardware");
        return;
    };
    for row in HARDWARE {
        check(folder.join(row.0), row);
    }
    for row in CORPUS.iter().filter(|row| folder.join("rxe").join(row.0).exists()) {
        check(folder.join("rxe").join(row.0), row);
    }
}

#[test]
fn what_does_not_take_part_is_said() {
    let report =
        replay(std::fs::File::open(corpus().join("cm_rping_ipv4.pcap")).unwrap(), &Options::default()).unwrap();
    assert_eq!((report.frames, report.packets, report.skipped.len()), (29, 29, 0));
    // Without its beginning nobody can tell what an exchange of connection managers is about.
    let later = common::play(&common::load("cm_rping_ipv4.pcap")[1..]);
    assert_eq!(later.skipped.get(&Skip::Management), Some(&4));
}

#[test]
fn packets_of_sdr_are_replayed_as_those_of_uc_and_counted() {
    let frames = common::load("sdr_stream_loss.pcap");
    let report = common::play(&frames);
    assert_eq!((report.packets, report.sdr_packets, report.skipped.get(&Skip::Management)), (18, 18, Some(&4)));
    // Without the negotiation nothing tells them from others of UC.
    let later = common::play(&frames[4..]);
    assert_eq!((later.packets, later.sdr_packets, later.exit_code()), (18, 0, 0));
}

#[test]
fn the_side_file_tells_what_the_packets_do_not() {
    let pcap = std::fs::read(corpus().join("rc_access_err_nak.pcap")).unwrap();
    let side = "[[qp]]\naddress = '10.33.0.2'\nqp = 0x4a\nrights = ['write', 'atomic']\n";
    let options = Options { side: side.parse().unwrap(), ..Options::default() };
    let report = replay(&pcap[..], &options).unwrap();
    assert_eq!((report.exit_code(), report.counts().answers_equal), (0, 6), "{}", explain(&report));
    assert!(report.undetermined.is_empty());
    // With every right that NAK would be wrong.
    let side = side.replace("'atomic'", "'atomic', 'read'");
    let report = replay(&pcap[..], &Options { side: side.parse().unwrap(), ..Options::default() }).unwrap();
    assert_eq!(report.differences.iter().map(|d| d.packet).collect::<Vec<_>>(), [14]);
}

#[test]
fn a_wrong_side_file_is_refused_with_a_reason() {
    for (text, part) in [
        ("[[qp]]\nqp = 1", "address"),
        ("[[qp]]\naddress = '10.0.0.1'\nqp = 1\nmtu = 1000", "1024"),
        ("[[qp]]\naddress = '10.0.0.1'\nqp = 1\nrights = ['all']", "'all' is not a right"),
        ("[[qp]]\naddress = '10.0.0.1'\nqp = 0x1000000", "2^24"),
        ("[[mr]]\naddress = '10.0.0.1'\nrkey = 1\nstart = 0\nlength = 0x100000000", "2 GiB"),
        ("[[nic]]", "nic"),
    ] {
        let error = text.parse::<softnic_replay::Side>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}
