//! LAP: a peer requests an alternate path. This is not supported, as the APR reports.

use softnic_wire::mad::Attribute;
use softnic_wire::mad::cm::{DATA_LEN, Message};

use crate::{Cm, CmId, Route, State};

/// Statuses of an APR (IBA 12.6.20.3).
const INVALID_COMM_ID: u8 = 1;
const NOT_SUPPORTED: u8 = 2;
/// The offset of the status in an APR, after both ids and the length of its information.
const STATUS: usize = 9;

impl Cm {
    /// Answers a LAP (IBA 12.8.1); without an answer a peer repeats it.
    pub(super) fn handle_lap(&mut self, route: &Route, tid: u64, lap: &[u8; DATA_LEN]) {
        self.counters.unsupported += 1;
        let [[a, b, c, d], ours] = [0, 4].map(|at| [lap[at], lap[at + 1], lap[at + 2], lap[at + 3]]);
        let (theirs, id) = (u32::from_be_bytes([a, b, c, d]), CmId(u32::from_be_bytes(ours)));
        let known = self
            .conns
            .get(&id)
            .is_some_and(|conn| conn.is_peer(route) && conn.remote_id == theirs && conn.state == State::Established);
        let mut data = [0; DATA_LEN];
        data[..4].copy_from_slice(&ours);
        data[4..8].copy_from_slice(&theirs.to_be_bytes());
        data[STATUS] = if known { NOT_SUPPORTED } else { INVALID_COMM_ID };
        self.stray(route, tid, Message::Other { attribute: Attribute::CM_APR, data });
    }
}
