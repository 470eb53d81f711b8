//! Attributes of queue pairs: `ibv_modify_qp` sets those named by a mask, `ibv_query_qp` returns all.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use softnic_runtime::api::{Path, Psn, QpAttr, QpState, Qpn};

use crate::abi::*;
use crate::c_result::status;
use crate::codes::{access_flags, access_of, mtu_code, mtu_of, state_code, state_of};
use crate::errno::Errno;
use crate::limits::MAX_RD_ATOMIC;
use crate::objects::address::connected_path;
use crate::objects::handle::Pointer;
use crate::objects::queue_pair::Qp;

const KNOWN: c_int = IBV_QP_STATE
    | IBV_QP_CUR_STATE
    | IBV_QP_EN_SQD_ASYNC_NOTIFY
    | IBV_QP_ACCESS_FLAGS
    | IBV_QP_PKEY_INDEX
    | IBV_QP_PORT
    | IBV_QP_QKEY
    | IBV_QP_AV
    | IBV_QP_PATH_MTU
    | IBV_QP_TIMEOUT
    | IBV_QP_RETRY_CNT
    | IBV_QP_RNR_RETRY
    | IBV_QP_RQ_PSN
    | IBV_QP_MAX_QP_RD_ATOMIC
    | IBV_QP_MIN_RNR_TIMER
    | IBV_QP_SQ_PSN
    | IBV_QP_MAX_DEST_RD_ATOMIC
    | IBV_QP_PATH_MIG_STATE
    | IBV_QP_DEST_QPN;

/// Checks that a number of READs and atomics does not exceed the device's limit.
fn depth(n: u8) -> Result<u8, Errno> {
    if n <= MAX_RD_ATOMIC { Ok(n) } else { Err(Errno::EINVAL) }
}

/// The attributes named by `mask`.
fn attributes(a: &ibv_qp_attr, mask: c_int, path: Option<Path>) -> Result<QpAttr, Errno> {
    let given = |bit: c_int| mask & bit != 0;
    let number = |n: u32| if n < 1 << 24 { Ok(n) } else { Err(Errno::EINVAL) };
    Ok(QpAttr {
        state: given(IBV_QP_STATE).then(|| state_of(a.qp_state)).transpose()?,
        pkey_index: given(IBV_QP_PKEY_INDEX).then_some(a.pkey_index),
        port: given(IBV_QP_PORT).then_some(a.port_num),
        access: given(IBV_QP_ACCESS_FLAGS).then(|| access_of(a.qp_access_flags)).transpose()?,
        path,
        mtu: given(IBV_QP_PATH_MTU).then(|| mtu_of(a.path_mtu)).transpose()?,
        dest_qp: given(IBV_QP_DEST_QPN).then(|| number(a.dest_qp_num).map(Qpn::new)).transpose()?,
        // Only 24 bits are used, and programs draw 32.
        rq_psn: given(IBV_QP_RQ_PSN).then(|| Psn::new(a.rq_psn & 0xff_ffff)),
        sq_psn: given(IBV_QP_SQ_PSN).then(|| Psn::new(a.sq_psn & 0xff_ffff)),
        max_dest_rd_atomic: given(IBV_QP_MAX_DEST_RD_ATOMIC).then(|| depth(a.max_dest_rd_atomic)).transpose()?,
        max_rd_atomic: given(IBV_QP_MAX_QP_RD_ATOMIC).then(|| depth(a.max_rd_atomic)).transpose()?,
        min_rnr_timer: given(IBV_QP_MIN_RNR_TIMER).then_some(a.min_rnr_timer),
        timeout: given(IBV_QP_TIMEOUT).then_some(a.timeout),
        retry_cnt: given(IBV_QP_RETRY_CNT).then_some(a.retry_cnt),
        rnr_retry: given(IBV_QP_RNR_RETRY).then_some(a.rnr_retry),
        qkey: given(IBV_QP_QKEY).then_some(a.qkey),
        sqd_notify: given(IBV_QP_EN_SQD_ASYNC_NOTIFY).then_some(a.en_sqd_async_notify != 0),
    })
}

/// A callback for when a queue pair's peer is set, by the program or by the connection manager.
pub(crate) static CONNECTED: OnceLock<fn(&Qp, u32)> = OnceLock::new();

/// `ibv_modify_qp`.
pub(crate) extern "C" fn modify(qp: Pointer<Qp>, attr: &ibv_qp_attr, mask: c_int) -> c_int {
    status(|| {
        let qp = qp.get()?;
        if mask & !KNOWN != 0 {
            return Err(Errno::EINVAL);
        }
        if mask & IBV_QP_PATH_MIG_STATE != 0 && attr.path_mig_state != IBV_MIG_MIGRATED {
            return Err(Errno::EINVAL);
        }
        if mask & IBV_QP_CUR_STATE != 0 && state_of(attr.cur_qp_state)? != qp.ours.qp.state() {
            return Err(Errno::EINVAL);
        }
        let moved = match mask & IBV_QP_AV != 0 {
            false => None,
            // The path depends on the queue pair: flows are spread by its number.
            true => {
                let dest_qpn = (mask & IBV_QP_DEST_QPN != 0).then_some(attr.dest_qp_num);
                Some(connected_path(&qp.context(), &attr.ah_attr, dest_qpn, qp.qpn())?)
            }
        };
        let state = qp.ours.qp.change(&attributes(attr, mask, moved.map(|(_, path)| path))?)?;
        if moved.is_some() {
            *qp.address() = attr.ah_attr;
        }
        qp.base.state.store(state_code(state), Ordering::Relaxed);
        if mask & IBV_QP_DEST_QPN != 0
            && let Some(connected) = CONNECTED.get()
        {
            connected(qp, attr.dest_qp_num);
        }
        Ok(())
    })
}

/// `ibv_query_qp`. All attributes are returned, whatever the mask is.
pub(crate) extern "C" fn query(
    qp: Pointer<Qp>,
    attr: &mut ibv_qp_attr,
    _mask: c_int,
    init: &mut ibv_qp_init_attr,
) -> c_int {
    status(|| {
        let qp = qp.get()?;
        let a = qp.ours.qp.query();
        let state = state_code(a.state.unwrap_or(QpState::Reset));
        qp.base.state.store(state, Ordering::Relaxed);
        *attr = ibv_qp_attr {
            qp_state: state,
            cur_qp_state: state,
            path_mtu: a.mtu.map_or(0, mtu_code),
            path_mig_state: IBV_MIG_MIGRATED,
            qkey: a.qkey.unwrap_or(0),
            rq_psn: a.rq_psn.map_or(0, |psn| psn.value()),
            sq_psn: a.sq_psn.map_or(0, |psn| psn.value()),
            dest_qp_num: a.dest_qp.map_or(0, |qpn| qpn.value()),
            qp_access_flags: a.access.map_or(0, access_flags),
            cap: qp.ours.cap,
            ah_attr: *qp.address(),
            pkey_index: a.pkey_index.unwrap_or(0),
            max_rd_atomic: a.max_rd_atomic.unwrap_or(0),
            max_dest_rd_atomic: a.max_dest_rd_atomic.unwrap_or(0),
            min_rnr_timer: a.min_rnr_timer.unwrap_or(0),
            port_num: a.port.unwrap_or(0),
            timeout: a.timeout.unwrap_or(0),
            retry_cnt: a.retry_cnt.unwrap_or(0),
            rnr_retry: a.rnr_retry.unwrap_or(0),
            ..ibv_qp_attr::default()
        };
        *init = ibv_qp_init_attr {
            qp_context: qp.base.qp_context,
            send_cq: qp.base.send_cq,
            recv_cq: qp.base.recv_cq,
            srq: qp.base.srq,
            cap: qp.ours.cap,
            qp_type: qp.base.qp_type,
            sq_sig_all: c_int::from(qp.ours.sig_all),
        };
        Ok(())
    })
}

/// `ibv_query_qp_data_in_order`: never guaranteed. By the standard's transport packets are placed in order, but a peer may send a message
/// again; by Selective Repeat they are placed as they arrive.
pub(crate) extern "C" fn data_in_order(_qp: &Qp, _op: c_int, _flags: u32) -> c_int {
    0
}

/// `ibv_query_ece`: there is no enhanced connection establishment, which zeros express.
pub(crate) extern "C" fn query_ece(_qp: &Qp, ece: &mut ibv_ece) -> c_int {
    *ece = ibv_ece::default();
    0
}

/// `ibv_set_ece`: only "none" is accepted.
pub(crate) extern "C" fn set_ece(_qp: &Qp, ece: &ibv_ece) -> c_int {
    match (ece.vendor_id, ece.comp_mask) {
        (0, 0) => 0,
        _ => libc::EOPNOTSUPP,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_mask_names_is_taken_and_values_that_cannot_be_are_refused() {
        let attr =
            ibv_qp_attr { qp_state: 1, port_num: 1, dest_qp_num: 1 << 24, rq_psn: 0xff00_0001, ..Default::default() };
        let a = attributes(&attr, IBV_QP_STATE | IBV_QP_RQ_PSN, None).unwrap();
        assert_eq!((a.state, a.port, a.rq_psn), (Some(QpState::Init), None, Some(Psn::new(1))));
        assert!(attributes(&attr, IBV_QP_DEST_QPN, None).is_err(), "a queue pair number has 24 bits");
        assert!(attributes(&attr, IBV_QP_PATH_MTU, None).is_err(), "there is no MTU 0");
    }
}
