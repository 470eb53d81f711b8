//! From RESET to RTS in one call: what every queue pair of a simulation goes through.

use softnic_nic::transports::memory::Access;
use softnic_nic::transports::qp::QpState;
use softnic_nic::{ModifyError, Nic, QpAttr, QpKind};
use softnic_wire::{Path, PathMtu, Psn, Qpn};

/// The Q_Key of all datagram queue pairs.
pub const QKEY: u32 = 0x0047_11aa;

/// What a queue pair is connected with; each kind takes the part that it has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Connection {
    pub(crate) kind: QpKind,
    /// The way to the peer.
    pub(crate) path: Option<Path>,
    pub(crate) peer: Qpn,
    pub(crate) mtu: PathMtu,
    pub(crate) sq_psn: Psn,
    pub(crate) rq_psn: Psn,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) min_rnr_timer: u8,
    /// READs and atomics outstanding, either way.
    pub(crate) max_rd_atomic: u8,
}

/// Takes a queue pair from RESET to RTS; the peer may do everything.
pub(crate) fn bring_up(nic: &mut Nic, qpn: Qpn, c: &Connection) -> Result<(), ModifyError> {
    let (rc, connected) = (c.kind == QpKind::Rc, c.kind != QpKind::Ud);
    let init = QpAttr {
        state: Some(QpState::Init),
        pkey_index: Some(0),
        port: Some(1),
        access: connected.then_some(Access::LOCAL_WRITE | Access::REMOTE),
        qkey: (!connected).then_some(QKEY),
        ..QpAttr::default()
    };
    let receive = QpAttr {
        state: Some(QpState::ReadyToReceive),
        path: c.path.filter(|_| connected),
        mtu: connected.then_some(c.mtu),
        dest_qp: connected.then_some(c.peer),
        rq_psn: connected.then_some(c.rq_psn),
        max_dest_rd_atomic: rc.then_some(c.max_rd_atomic),
        min_rnr_timer: rc.then_some(c.min_rnr_timer),
        ..QpAttr::default()
    };
    let send = QpAttr {
        state: Some(QpState::ReadyToSend),
        sq_psn: Some(c.sq_psn),
        timeout: rc.then_some(c.timeout),
        retry_cnt: rc.then_some(c.retry_cnt),
        rnr_retry: rc.then_some(c.rnr_retry),
        max_rd_atomic: rc.then_some(c.max_rd_atomic),
        ..QpAttr::default()
    };
    [init, receive, send].iter().try_for_each(|attr| nic.modify_qp(qpn, attr))
}
