//! `ibv_modify_qp`: the attributes that a mask names, as the NIC knows them.

use std::sync::atomic::Ordering;

use softnic_runtime::api::{Access, Path, PathMtu, Psn, QpAttr, QpState, Qpn};

use crate::abi::*;
use crate::address::path;
use crate::errno::{Errno, status};
use crate::query::MAX_RD_ATOMIC;
use crate::queue_pair::{Qp, state_code};
use crate::region::access_of;

/// A state of verbs.
fn state_of(code: c_int) -> Result<QpState, Errno> {
    Ok(match code {
        0 => QpState::Reset,
        1 => QpState::Init,
        2 => QpState::ReadyToReceive,
        3 => QpState::ReadyToSend,
        4 => QpState::SendQueueDrain,
        5 => QpState::SendQueueError,
        6 => QpState::Error,
        _ => return Err(Errno::EINVAL),
    })
}

fn mtu_of(code: c_int) -> Result<PathMtu, Errno> {
    Ok(match code {
        1 => PathMtu::B256,
        2 => PathMtu::B512,
        3 => PathMtu::B1024,
        4 => PathMtu::B2048,
        5 => PathMtu::B4096,
        _ => return Err(Errno::EINVAL),
    })
}

/// Rights of a queue pair, as verbs write them.
pub(crate) fn access_flags(access: Access) -> c_uint {
    [
        (Access::LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE),
        (Access::REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE),
        (Access::REMOTE_READ, IBV_ACCESS_REMOTE_READ),
        (Access::REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC),
    ]
    .into_iter()
    .filter(|(right, _)| access.allows(*right))
    .fold(0, |flags, (_, flag)| flags | flag)
}

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

/// At most as many READs and atomics as the device told.
fn depth(n: u8) -> Result<u8, Errno> {
    if n <= MAX_RD_ATOMIC { Ok(n) } else { Err(Errno::EINVAL) }
}

/// The attributes that `mask` names.
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
        // Only 24 bits count, and programs draw 32.
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

/// `ibv_modify_qp`.
pub(crate) extern "C" fn modify(qp: &Qp, attr: &ibv_qp_attr, mask: c_int) -> c_int {
    status(|| {
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
            // The way depends on the queue pair: flows are spread by its number.
            true => Some(path(&qp.context(), &attr.ah_attr, qp.qpn())?),
        };
        qp.ours.qp.modify(&attributes(attr, mask, moved.map(|(_, path)| path))?)?;
        if moved.is_some() {
            *qp.address() = attr.ah_attr;
        }
        qp.base.state.store(state_code(qp.ours.qp.state()), Ordering::Relaxed);
        Ok(())
    })
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
        for state in 0..7 {
            assert_eq!(state_code(state_of(state).unwrap()), state);
        }
        assert!(state_of(7).is_err());
    }
}
