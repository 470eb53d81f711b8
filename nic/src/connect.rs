//! From RESET to RTS: the settings of a connection, and the attributes of the three state changes.

use softnic_transports::memory::Access;
use softnic_transports::qp::{ModifyError, QpAttr, QpKind, QpState};
use softnic_wire::{Path, PathMtu, Psn, Qpn};

use crate::nic::Nic;

/// The settings that take a queue pair of any kind from RESET to RTS. Each kind uses those that apply to it.
///
/// The defaults work if both sides have them. A connected queue pair also needs `path` and `dest_qp`, a datagram queue pair `qkey`.
#[derive(Debug, Clone, Copy)]
pub struct Connection {
    /// The local port, from 1.
    pub port: u8,
    /// The path to the peer.
    pub path: Option<Path>,
    /// The peer's queue pair number.
    pub dest_qp: Qpn,
    /// The maximum payload of a packet.
    pub mtu: PathMtu,
    /// The first PSN to send.
    pub sq_psn: Psn,
    /// The first PSN that the peer sends.
    pub rq_psn: Psn,
    /// Access rights granted to the peer.
    pub access: Access,
    /// The key that datagrams to this queue pair must carry; connected queue pairs have none.
    pub qkey: Option<u32>,
    /// Local ACK timeout: a 5-bit code, 0 for none.
    pub timeout: u8,
    /// Retries after timeouts and sequence NAKs.
    pub retry_cnt: u8,
    /// Retries after RNR NAKs; 7 is unlimited.
    pub rnr_retry: u8,
    /// The time that a peer waits after it found no receive here: a 5-bit code.
    pub min_rnr_timer: u8,
    /// Maximum number of outstanding READs and atomics to the peer.
    pub max_rd_atomic: u8,
    /// Maximum number of outstanding READs and atomics from the peer.
    pub max_dest_rd_atomic: u8,
}

impl Default for Connection {
    fn default() -> Connection {
        Connection {
            port: 1,
            path: None,
            dest_qp: Qpn::new(0),
            mtu: PathMtu::B1024,
            sq_psn: Psn::new(0),
            rq_psn: Psn::new(0),
            access: Access::LOCAL_WRITE | Access::REMOTE,
            qkey: None,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
        }
    }
}

impl Connection {
    /// The attributes of RESET → INIT, INIT → RTR and RTR → RTS.
    pub fn attributes(&self, kind: QpKind) -> [QpAttr; 3] {
        let reliable = kind == QpKind::Rc;
        let connected = kind.is_connected();
        let init = QpAttr {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(self.port),
            access: connected.then_some(self.access),
            qkey: self.qkey,
            ..QpAttr::default()
        };
        let receive = QpAttr {
            state: Some(QpState::ReadyToReceive),
            path: self.path.filter(|_| connected),
            mtu: connected.then_some(self.mtu),
            dest_qp: connected.then_some(self.dest_qp),
            rq_psn: connected.then_some(self.rq_psn),
            max_dest_rd_atomic: reliable.then_some(self.max_dest_rd_atomic),
            min_rnr_timer: reliable.then_some(self.min_rnr_timer),
            ..QpAttr::default()
        };
        let send = QpAttr {
            state: Some(QpState::ReadyToSend),
            sq_psn: Some(self.sq_psn),
            timeout: reliable.then_some(self.timeout),
            retry_cnt: reliable.then_some(self.retry_cnt),
            rnr_retry: reliable.then_some(self.rnr_retry),
            max_rd_atomic: reliable.then_some(self.max_rd_atomic),
            ..QpAttr::default()
        };
        [init, receive, send]
    }
}

impl Nic {
    /// Takes a queue pair from RESET to RTS. If a state change is refused, the queue pair stays in the state before it.
    pub fn connect(&mut self, qpn: Qpn, connection: &Connection) -> Result<(), ModifyError> {
        let (init, _) = self.query_qp(qpn).ok_or(ModifyError::NoSuchQp)?;
        connection.attributes(init.kind()).iter().try_for_each(|attr| self.modify_qp(qpn, attr))
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use softnic_transports::qp::{Caps, PayloadMode};
    use softnic_wire::MacAddr;

    use super::*;
    use crate::nic::NicConfig;
    use crate::port::Port;
    use crate::qp::QpInit;

    #[test]
    fn the_defaults_take_every_kind_to_rts_with_a_path_or_a_key_alone() {
        let (own, peer) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let port = Port { mac: MacAddr([2, 0, 0, 0, 0, 1]), addresses: vec![own], mtu: PathMtu::B4096 };
        let mut number = 0x100;
        let random = move || {
            number += 1;
            number
        };
        let mut nic = Nic::new(NicConfig { port, payload: PayloadMode::Real }, Box::new(random));
        let (pd, cq) = (nic.alloc_pd(), nic.create_cq(4));
        let caps = Caps { max_send_wr: 1, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
        let path = nic.path_to(peer, MacAddr([2, 0, 0, 0, 0, 2]), 0);
        let to_peer = Connection { path, dest_qp: Qpn::new(5), ..Connection::default() };
        let datagrams = Connection { qkey: Some(3), ..Connection::default() };
        for (kind, good, bad) in [
            (QpKind::Rc, to_peer, Some((datagrams, QpState::Reset, ModifyError::NotAllowed("qkey")))),
            (QpKind::Uc, to_peer, Some((Connection::default(), QpState::Init, ModifyError::Missing("path")))),
            (QpKind::Ud, datagrams, Some((to_peer, QpState::Reset, ModifyError::Missing("qkey")))),
            (QpKind::Gsi, Connection::default(), None),
        ] {
            let qpn = nic.create_qp(&QpInit::new(kind, pd, cq, cq, caps)).unwrap();
            if let Some((connection, state, error)) = bad {
                assert_eq!(nic.connect(qpn, &connection), Err(error), "{kind:?}");
                assert_eq!(nic.qp_state(qpn), Some(state), "{kind:?}");
                nic.modify_qp(qpn, &QpAttr { state: Some(QpState::Reset), ..QpAttr::default() }).unwrap();
            }
            assert_eq!(nic.connect(qpn, &good), Ok(()), "{kind:?}");
            assert_eq!(nic.qp_state(qpn), Some(QpState::ReadyToSend), "{kind:?}");
        }
        assert_eq!(nic.connect(Qpn::new(0xdead), &to_peer), Err(ModifyError::NoSuchQp));
    }
}
