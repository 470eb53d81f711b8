//! A second route to the peer of a connection: if both ends have a backup NIC, messages use the route that works (SHIFT §4).
//!
//! The caller that protects connections reports when a peer has proven that it has a backup, and the backup's address. Before that, no
//! message from that address is accepted as the peer's. The program gets no events about this.

use softnic_wire::Qpn;
use softnic_wire::failover::Side;
use softnic_wire::mad::cm::Message;

use crate::conn::Conn;
use crate::{Cm, CmId, Route};

/// A peer's backup.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backup {
    /// The route to it, from the local backup.
    route: Route,
    /// The side that the queue pair's sends use now.
    sends: Side,
    /// The side by which the last message of the peer arrived.
    heard: Side,
}

/// The kind of message for which a route is selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The peer has asked for the message: the route of its request works.
    Answer,
    /// The message is sent for the first time, or as the given retry.
    Request { retries: u8 },
}

impl Conn {
    /// Whether a message comes from the peer: at the default NIC from the address of the connection, at the backup from the address that
    /// was proven to be the same peer's.
    pub(crate) fn is_peer(&self, route: &Route) -> bool {
        match route.side {
            Side::Default => self.route.remote == route.remote,
            Side::Backup => self.backup.is_some_and(|backup| backup.route.remote == route.remote),
        }
    }

    /// Records a message from the peer.
    pub(crate) fn hear(&mut self, route: &Route) {
        if let Some(backup) = &mut self.backup {
            backup.heard = route.side;
        }
    }

    /// The route for a message: by the side that works as far as is known, with retries alternating between the sides. A port that is down
    /// is not used while the other one is up.
    pub(crate) fn way(&self, why: Why, ports: [bool; 2]) -> Route {
        let Some(Backup { route, sends, heard }) = self.backup else { return self.route };
        let wanted = match why {
            Why::Answer => heard,
            Why::Request { retries } if retries % 2 == 0 => sends,
            Why::Request { .. } => other(sends),
        };
        let [default, backup] = ports;
        let side = match (default, backup) {
            (true, false) => Side::Default,
            (false, true) => Side::Backup,
            _ => wanted,
        };
        match side {
            Side::Default => self.route,
            Side::Backup => route,
        }
    }
}

fn other(side: Side) -> Side {
    match side {
        Side::Default => Side::Backup,
        Side::Backup => Side::Default,
    }
}

impl Cm {
    /// The peer of a queue pair's connection has proven that it has a backup. From now on its messages are also accepted from there, and
    /// local messages use the route that works. Has no effect on a queue pair without a connection.
    pub fn set_backup(&mut self, qpn: Qpn, route: &Route) {
        if let Some(conn) = self.conn_of(qpn) {
            let route = Route { side: Side::Backup, ..*route };
            conn.backup = Some(Backup { route, sends: Side::Default, heard: Side::Default });
        }
    }

    /// The sends of a queue pair use this side from now on.
    pub fn set_side(&mut self, qpn: Qpn, side: Side) {
        if let Some(backup) = self.conn_of(qpn).and_then(|conn| conn.backup.as_mut()) {
            backup.sends = side;
        }
    }

    /// Sets which ports are up: the default's, and the backup's.
    pub fn set_ports(&mut self, up: [bool; 2]) {
        self.ports = up;
    }

    /// Whether a message that arrived at the backup is for this manager. Connections are requested at the default only. If other processes
    /// share the backup, a message that names no local connection may name one of theirs.
    pub(crate) fn is_heard_at_backup(&self, message: &Message) -> bool {
        let id = match message {
            Message::Mra(m) => m.remote_comm_id,
            Message::Rej(m) => m.remote_comm_id,
            Message::Rep(m) => m.remote_comm_id,
            Message::Rtu(m) => m.remote_comm_id,
            Message::Dreq(m) => m.remote_comm_id,
            Message::Drep(m) => m.remote_comm_id,
            Message::Req(_) | Message::SidrReq(_) | Message::SidrRep(_) | Message::Other { .. } => return false,
        };
        !self.config.backup_is_shared || self.conns.contains_key(&CmId(id))
    }

    fn conn_of(&mut self, qpn: Qpn) -> Option<&mut Conn> {
        let id = *self.by_local_qpn.get(&qpn)?;
        self.conns.get_mut(&id)
    }
}
