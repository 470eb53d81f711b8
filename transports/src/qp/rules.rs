//! The rules of state changes: the attributes that each requires and permits (IBA 11.2.5.2).

use super::{ModifyError, QpAttr, QpKind, QpState};

/// The attributes by name, to report which are missing or not permitted.
fn given(a: &QpAttr) -> [(&'static str, bool); 16] {
    [
        ("pkey_index", a.pkey_index.is_some()),
        ("port", a.port.is_some()),
        ("access", a.access.is_some()),
        ("path", a.path.is_some()),
        ("path_mtu", a.mtu.is_some()),
        ("dest_qp", a.dest_qp.is_some()),
        ("rq_psn", a.rq_psn.is_some()),
        ("max_dest_rd_atomic", a.max_dest_rd_atomic.is_some()),
        ("min_rnr_timer", a.min_rnr_timer.is_some()),
        ("sq_psn", a.sq_psn.is_some()),
        ("timeout", a.timeout.is_some()),
        ("retry_cnt", a.retry_cnt.is_some()),
        ("rnr_retry", a.rnr_retry.is_some()),
        ("max_rd_atomic", a.max_rd_atomic.is_some()),
        ("qkey", a.qkey.is_some()),
        ("sqd_notify", a.sqd_notify.is_some()),
    ]
}

/// The attributes that a transition requires, and those that it permits in addition.
type Rules = (&'static [&'static str], &'static [&'static str]);

/// The rules of the IBTA (11.2.5.2, tables 91 to 94); `None` if there is no such transition.
fn rules(kind: QpKind, from: QpState, to: QpState) -> Option<Rules> {
    use QpKind::*;
    use QpState::*;
    Some(match (kind, from, to) {
        (_, _, Reset | Error) => (&[], &[]),
        (Rc | Uc, Reset, Init) => (&["pkey_index", "port", "access"], &[]),
        (Ud, Reset, Init) => (&["pkey_index", "port", "qkey"], &[]),
        // The Q_Key of QP1 is fixed.
        (Gsi, Reset, Init) => (&["pkey_index", "port"], &[]),
        (Rc | Uc, Init, Init) => (&[], &["pkey_index", "port", "access"]),
        (Ud, Init, Init) => (&[], &["pkey_index", "port", "qkey"]),
        (Gsi, Init, Init) => (&[], &["pkey_index", "port"]),
        (Rc, Init, ReadyToReceive) => (
            &["path", "path_mtu", "dest_qp", "rq_psn", "max_dest_rd_atomic", "min_rnr_timer"],
            &["access", "pkey_index"],
        ),
        (Uc, Init, ReadyToReceive) => (&["path", "path_mtu", "dest_qp", "rq_psn"], &["access", "pkey_index"]),
        (Ud, Init, ReadyToReceive) => (&[], &["pkey_index", "qkey"]),
        (Gsi, Init, ReadyToReceive) => (&[], &["pkey_index"]),
        (Rc, ReadyToReceive, ReadyToSend) => {
            (&["sq_psn", "timeout", "retry_cnt", "rnr_retry", "max_rd_atomic"], &["access", "min_rnr_timer"])
        }
        (Uc, ReadyToReceive, ReadyToSend) => (&["sq_psn"], &["access"]),
        (Ud, ReadyToReceive, ReadyToSend) => (&["sq_psn"], &["qkey"]),
        (Gsi, ReadyToReceive, ReadyToSend) => (&["sq_psn"], &[]),
        (_, ReadyToSend, SendQueueDrain) => (&[], &["sqd_notify"]),
        (Rc, SendQueueDrain, SendQueueDrain) => (
            &[],
            &["path", "timeout", "retry_cnt", "rnr_retry", "max_rd_atomic", "access", "min_rnr_timer", "pkey_index"],
        ),
        (Uc, SendQueueDrain, SendQueueDrain) => (&[], &["path", "access", "pkey_index"]),
        (Ud, SendQueueDrain, SendQueueDrain) => (&[], &["pkey_index", "qkey"]),
        (Gsi, SendQueueDrain, SendQueueDrain) => (&[], &["pkey_index"]),
        (Rc, ReadyToSend | SendQueueDrain, ReadyToSend) => (&[], &["access", "min_rnr_timer"]),
        (Uc, ReadyToSend | SendQueueDrain | SendQueueError, ReadyToSend) => (&[], &["access"]),
        (Ud, ReadyToSend | SendQueueDrain | SendQueueError, ReadyToSend) => (&[], &["qkey"]),
        (Gsi, ReadyToSend | SendQueueDrain | SendQueueError, ReadyToSend) => (&[], &[]),
        _ => return None,
    })
}

/// Whether a queue pair of this kind may change from one state to another with these attributes.
///
/// # Errors
/// The attribute that is missing or not permitted.
pub fn check_rules(kind: QpKind, from: QpState, to: QpState, a: &QpAttr) -> Result<(), ModifyError> {
    let (needed, optional) = rules(kind, from, to).ok_or(ModifyError::Transition { from, to })?;
    for (name, there) in given(a) {
        if needed.contains(&name) && !there {
            return Err(ModifyError::Missing(name));
        }
        if there && !needed.contains(&name) && !optional.contains(&name) {
            return Err(ModifyError::NotAllowed(name));
        }
    }
    for (name, value, limit) in [
        ("timeout", a.timeout, 31),
        ("min_rnr_timer", a.min_rnr_timer, 31),
        ("retry_cnt", a.retry_cnt, 7),
        ("rnr_retry", a.rnr_retry, 7),
    ] {
        if value.is_some_and(|v| v > limit) {
            return Err(ModifyError::Range(name));
        }
    }
    match a {
        QpAttr { pkey_index: Some(i), .. } if *i != 0 => Err(ModifyError::Range("pkey_index")),
        _ => Ok(()),
    }
}
