//! How the two ends of a run bring their SDR queue pairs together, reliable ones or not.

use std::time::{Duration, Instant};

use softnic_runtime::api::sdr::{ReliableQueuePair, SdrError, SdrQueuePair};
use softnic_runtime::api::{Context, PeerPath};
use softnic_wire::Qpn;

use super::control::{Control, Message, unexpected};
use super::side::next_line;
use super::stop;

/// How long the two ends may take to find out about each other.
const MEETING: Duration = Duration::from_secs(10);

/// A queue pair that finds its peer.
pub(crate) trait Meets {
    fn number(&self) -> Result<Qpn, SdrError>;
    fn info(&self) -> Result<Vec<u8>, SdrError>;
    fn meet(&self, path: &PeerPath, peer: Qpn) -> Result<(), SdrError>;
    fn connect(&self, path: &PeerPath, info: &[u8]) -> Result<(), SdrError>;
    fn is_met(&self) -> Result<bool, SdrError>;
}

macro_rules! meets {
    ($($name:ident),*) => {$(
        impl Meets for $name {
            fn number(&self) -> Result<Qpn, SdrError> {
                $name::number(self)
            }

            fn info(&self) -> Result<Vec<u8>, SdrError> {
                $name::info(self)
            }

            fn meet(&self, path: &PeerPath, peer: Qpn) -> Result<(), SdrError> {
                $name::meet(self, path, peer)
            }

            fn connect(&self, path: &PeerPath, info: &[u8]) -> Result<(), SdrError> {
                $name::connect(self, path, info)
            }

            fn is_met(&self) -> Result<bool, SdrError> {
                $name::is_met(self)
            }
        }
    )*};
}
meets!(SdrQueuePair, ReliableQueuePair);

/// What is said when two queue pairs do not get together.
pub(crate) fn cannot_meet(e: SdrError) -> String {
    format!("cannot connect an SDR queue pair: {e}")
}

/// Tells the peer of our queue pair, and connects it with the peer's; the inner error is of the two queue pairs.
pub(crate) fn meet(
    qp: &impl Meets,
    path: &PeerPath,
    control: &mut Control,
    context: &Context,
) -> Result<Result<(), SdrError>, String> {
    let (qpn, info) = (qp.number().map_err(cannot_meet)?.value(), qp.info().map_err(cannot_meet)?);
    control.send(&Message::Sdr { qpn, info })?;
    let (peer, info) = match next_line(control, context)? {
        Message::Sdr { qpn, info } => (Qpn::new(qpn), info),
        other => return Err(unexpected(&other)),
    };
    // By the negotiation, so that a capture has all that it takes to read it; more channels than that has room for are told here.
    if qp.meet(path, peer).is_err() {
        return Ok(qp.connect(path, &info));
    }
    let begun = Instant::now();
    loop {
        match qp.is_met() {
            Ok(true) => return Ok(Ok(())),
            Ok(false) => {}
            // The peer does the same, and may come to it later.
            Err(SdrError::Declined(_)) if begun.elapsed() < MEETING => {}
            Err(e) => return Ok(Err(e)),
        }
        if control.interruptible && stop::requested() {
            return Err(stop::MESSAGE.into());
        }
        std::thread::yield_now();
    }
}
