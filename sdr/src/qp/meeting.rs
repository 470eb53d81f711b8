//! How two SDR queue pairs find each other: by information that programs exchange, or by the number of the control queue pair alone, over which
//! the two ends then agree on the rest (the negotiation by MAD).

use std::sync::Arc;

use softnic_nic::Nic;
use softnic_nic::transports::{RecvWr, SdrOutcome, Sge};
use softnic_wire::{Path, Psn, Qpn};

use super::{CONTROLS, SdrQp};
use crate::branch::{self, Link};
use crate::error::SdrError;
use crate::info::{Contact, InfoError, QpInfo};

impl SdrQp {
    /// Connects it with the queue pair that `info` is about, by `path` from our port of this number.
    pub fn connect(&mut self, nic: &mut Nic, port: u8, path: &Path, info: &[u8]) -> Result<(), SdrError> {
        let link = self.link(info)?;
        self.connect_link(nic, port, path, &link)
    }

    /// Reads the peer's information. Where there are branches, these are connected by it first, and the queue pair after them: then all
    /// channels are there when the peer hears of receives.
    ///
    /// # Errors
    /// When it has a peer, or meets one; when the two do not fit together.
    pub fn link(&self, info: &[u8]) -> Result<Arc<Link>, SdrError> {
        match self.link.is_some() || self.meeting.is_some() {
            true => Err(SdrError::Connected),
            false => self.fit(info),
        }
    }

    fn fit(&self, info: &[u8]) -> Result<Arc<Link>, SdrError> {
        let peer = QpInfo::decode(info)?;
        let differs = |what, theirs: u64, ours: u64| match theirs == ours {
            true => Ok(()),
            false => Err(SdrError::Differs(what, theirs, ours)),
        };
        differs("path MTU", peer.mtu.bytes().into(), self.attr.mtu.bytes().into())?;
        differs("number of generations", peer.generations.len() as u64, self.attr.generations.into())?;
        let channels = peer.generations[0].channels.len();
        differs("number of channels", channels as u64, self.attr.channels.into())?;
        if peer.scheme != self.info.scheme {
            return Err(SdrError::Scheme(peer.scheme, self.info.scheme));
        }
        differs("packets of a chunk", peer.chunk_packets.into(), self.info.chunk_packets.into())?;
        Ok(Arc::new(Link { ours: self.info.clone(), peer }))
    }

    /// Whether it knows its peer.
    pub fn is_connected(&self) -> bool {
        self.link.is_some()
    }

    /// Ends all that it sends and receives, at this engine: no packet leaves or is taken any more.
    pub fn fail(&mut self, nic: &mut Nic) {
        self.branch.fail(nic);
        self.control.iter().for_each(|&qpn| branch::fail(nic, qpn));
    }

    /// Connects what is at this engine.
    pub fn connect_link(&mut self, nic: &mut Nic, port: u8, path: &Path, link: &Arc<Link>) -> Result<(), SdrError> {
        self.branch.connect(nic, port, path, link)?;
        if self.meeting.is_none() {
            self.connect_control(nic, port, path, &link.peer.control)?;
        }
        self.link = Some(Arc::clone(link));
        Ok(())
    }

    fn connect_control(&mut self, nic: &mut Nic, port: u8, path: &Path, peer: &Contact) -> Result<(), SdrError> {
        branch::connect(nic, port, path, (&self.info.control, peer), 0, &self.attr)?;
        (0..CONTROLS).try_for_each(|i| self.post_room(nic, i.into()))
    }

    /// Room for a control message.
    pub(super) fn post_room(&self, nic: &mut Nic, i: u64) -> Result<(), SdrError> {
        let (Some(lkey), Some(qpn)) = (self.room_key, self.control) else { return Ok(()) };
        let len = self.attr.control_len;
        let sge = Sge { addr: self.room.addr() + i * u64::from(len), len, lkey };
        Ok(nic.post_recv(qpn, &RecvWr { wr_id: i, sges: &[sge], best_effort: None })?)
    }

    /// Begins to find out about the peer whose control queue pair has this number, by `path` from our port of this number: both ends must
    /// do so. [`SdrQp::met`] says when it is known.
    ///
    /// # Errors
    /// When there are more channels than the negotiation has room for.
    pub fn meet(&mut self, nic: &mut Nic, port: u8, path: &Path, peer: Qpn) -> Result<(), SdrError> {
        if self.link.is_some() || self.meeting.is_some() {
            return Err(SdrError::Connected);
        }
        let ours = self.info.control;
        nic.offer_sdr(ours.qpn, self.info.scheme, &self.info.encode())?;
        // The first PSN of the peer is not known yet. UC takes a message of one packet whatever its PSN (IBA 9.8.2.2.1).
        self.connect_control(nic, port, path, &Contact { qpn: peer, psn: Psn::new(0) })?;
        self.meeting = Some((port, *path, peer));
        Ok(())
    }

    /// What the peer told, once it did; `None` says not yet. The branches are connected by it, and then the queue pair itself, by the path
    /// that [`SdrQp::meet`] was given.
    ///
    /// # Errors
    /// [`SdrError::Declined`] when the peer does not speak SDR, or has not answered for long: it may still do, so this may be asked again.
    pub fn met(&self, nic: &Nic) -> Result<Option<(u8, Path, Arc<Link>)>, SdrError> {
        let (port, path, peer) = self.meeting.ok_or(SdrError::NotConnected)?;
        match nic.sdr_agreed(self.info.control.qpn) {
            Some(SdrOutcome::Agreed { info, .. }) => {
                let link = self.fit(info)?;
                // Who tells of other queue pairs than its own is not the peer that was asked for.
                match link.peer.control.qpn == peer {
                    true => Ok(Some((port, path, link))),
                    false => Err(SdrError::Info(InfoError::Field("number of a queue pair"))),
                }
            }
            Some(SdrOutcome::FellBack(why)) => Err(SdrError::Declined(why)),
            Some(SdrOutcome::Open) => Ok(None),
            None => Err(SdrError::NotConnected),
        }
    }
}
