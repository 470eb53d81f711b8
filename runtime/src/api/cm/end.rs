//! What a connection of the manager is made for: a queue pair, or one of SDR.

use softnic_nic::QpAttr;
use softnic_nic::transports::qp::QpState;
use softnic_wire::Qpn;
use softnic_wire::mad::cm::TransportService;

use super::ConnectError;
use crate::api::queue_pair::{Connection, QueuePair};
use crate::api::sdr::{ReliableQueuePair, SdrQueuePair};

/// Our end of a connection.
#[derive(Debug, Clone)]
pub enum CmEnd {
    /// A queue pair.
    QueuePair(QueuePair),
    /// A queue pair of SDR. The manager brings its control queue pair and the peer's together; then the two ends find out about each other
    /// ([`SdrQueuePair::is_met`]).
    Sdr(SdrQueuePair),
    /// The same, with reliable messages.
    ReliableSdr(ReliableQueuePair),
}

impl From<&QueuePair> for CmEnd {
    fn from(qp: &QueuePair) -> CmEnd {
        CmEnd::QueuePair(qp.clone())
    }
}

impl From<&SdrQueuePair> for CmEnd {
    fn from(qp: &SdrQueuePair) -> CmEnd {
        CmEnd::Sdr(qp.clone())
    }
}

impl From<&ReliableQueuePair> for CmEnd {
    fn from(qp: &ReliableQueuePair) -> CmEnd {
        CmEnd::ReliableSdr(qp.clone())
    }
}

impl CmEnd {
    /// The number that the peer is told.
    pub(super) fn qpn(&self) -> Result<Qpn, ConnectError> {
        match self {
            CmEnd::QueuePair(qp) => Ok(qp.qpn()),
            CmEnd::Sdr(qp) => Ok(qp.number()?),
            CmEnd::ReliableSdr(qp) => Ok(qp.number()?),
        }
    }

    /// What the peer is asked for.
    pub(super) fn service(&self) -> TransportService {
        match self {
            CmEnd::QueuePair(_) => TransportService::RC,
            CmEnd::Sdr(_) | CmEnd::ReliableSdr(_) => TransportService::UC,
        }
    }

    /// Whether it can be what the peer asks for: SDR goes over UC, and of a queue pair only its program knows.
    pub(super) fn serves(&self, asked: TransportService) -> bool {
        matches!(self, CmEnd::QueuePair(_)) || asked == TransportService::UC
    }

    pub(super) fn connect(&self, connection: &Connection) -> Result<(), ConnectError> {
        match self {
            CmEnd::QueuePair(qp) => Ok(qp.connect(connection)?),
            CmEnd::Sdr(qp) => Ok(qp.meet(&connection.path, connection.dest_qp)?),
            CmEnd::ReliableSdr(qp) => Ok(qp.meet(&connection.path, connection.dest_qp)?),
        }
    }

    /// No packet of it may leave or be taken any more.
    pub(super) fn fail(&self) {
        match self {
            // From every state but RESET, in which it does neither, there is a way to the error state.
            CmEnd::QueuePair(qp) => _ = qp.modify(&QpAttr { state: Some(QpState::Error), ..QpAttr::default() }),
            CmEnd::Sdr(qp) => qp.fail(),
            CmEnd::ReliableSdr(qp) => qp.fail(),
        }
    }
}
