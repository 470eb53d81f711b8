//! The second way to the peer of a connection: where both ends have a backup NIC, messages go by whichever way works (SHIFT §4).
//!
//! Whoever protects connections says when a peer has shown that it has a backup, and where. Before that nothing from there is taken for the
//! peer's. The program hears of none of this.

use softnic_wire::Qpn;
use softnic_wire::failover::Side;
use softnic_wire::mad::cm::Message;

use crate::conn::Conn;
use crate::{Cm, CmId, Route};

/// A peer's backup.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Backup {
    /// The way there, from our backup.
    route: Route,
    /// By which side the queue pair sends now.
    sends: Side,
    /// By which side the peer was heard last.
    heard: Side,
}

/// Which message a way is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Why {
    /// The peer has asked for it: what it asked by works.
    Answer,
    /// It is sent for the first time, or for the so many times again.
    Request { retries: u8 },
}

impl Conn {
    /// Whether a message comes from its peer: at the default from the address that it is connected to, at the backup from the one that was
    /// proven to be the same peer's.
    pub(crate) fn is_peer(&self, route: &Route) -> bool {
        match route.side {
            Side::Default => self.route.remote == route.remote,
            Side::Backup => self.backup.is_some_and(|backup| backup.route.remote == route.remote),
        }
    }

    /// It comes from its peer.
    pub(crate) fn hear(&mut self, route: &Route) {
        if let Some(backup) = &mut self.backup {
            backup.heard = route.side;
        }
    }

    /// The way for a message: by the side that works as far as is known, and each retry by the other one. Not by a port that is down while the
    /// other one is up.
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
    /// The peer of a queue pair's connection has shown that it has a backup: from now on its messages are taken from there, too, and ours go by
    /// the way that works. Nothing changes for a queue pair that is none of a connection's.
    pub fn set_backup(&mut self, qpn: Qpn, route: &Route) {
        if let Some(conn) = self.conn_of(qpn) {
            let route = Route { side: Side::Backup, ..*route };
            conn.backup = Some(Backup { route, sends: Side::Default, heard: Side::Default });
        }
    }

    /// A queue pair sends by this side from now on.
    pub fn set_side(&mut self, qpn: Qpn, side: Side) {
        if let Some(backup) = self.conn_of(qpn).and_then(|conn| conn.backup.as_mut()) {
            backup.sends = side;
        }
    }

    /// Which ports are up: the default's, and the backup's.
    pub fn set_ports(&mut self, up: [bool; 2]) {
        self.ports = up;
    }

    /// Whether a message that came to the backup is for us. Connections are asked for at the default alone; and where others share the
    /// backup, too, what names no connection of ours may name one of theirs.
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
