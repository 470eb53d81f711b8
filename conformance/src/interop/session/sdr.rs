//! Our end of a scenario where it is a queue pair of SDR: a queue pair of the NIC for each generation, and one for control messages.

use softnic_nic::Nic;
use softnic_sdr::reliable::{ReliableAttr, ReliableQp};
use softnic_sdr::{Local, QpAttr, QpInfo, Sdr, SdrError, SdrQp};
use softnic_wire::{Instant, Path};

use super::{End, Session, refused};
use crate::guest::Error;
use crate::interop::setup::Side;
use crate::interop::wire::address;

impl Session {
    pub(super) fn open_sdr(&mut self, attr: &QpAttr) -> Result<End, Error> {
        let nic = &mut self.driver.node;
        let qp = SdrQp::create(nic, self.pd, attr).map_err(refused)?;
        let info = qp.info();
        let contacts = info.generations.iter().flat_map(|g| &g.channels).chain([&info.control]);
        let (qpns, psns) = contacts.map(|c| (c.qpn.value(), c.psn.value())).unzip();
        let mut sdr = Sdr::default();
        self.sdr = Some(sdr.add(qp));
        nic.set_layer(Some(Box::new(sdr)));
        let key = nic.reg_mr(self.pd, &self.buffer, self.setup.access(Side::Softnic).1).map_err(refused)?;
        Ok(End { qpns, psns, addr: self.buffer.addr(), key })
    }

    /// Connects it with what the guest would have said of its own.
    pub(in crate::interop) fn connect_sdr(&mut self, theirs: &QpInfo) -> Result<(), Error> {
        let path = self.path()?;
        self.sdr(|_, qp, nic| qp.connect(nic, 1, &path, &theirs.encode()))
    }

    /// The path to the guest.
    pub(in crate::interop) fn path(&mut self) -> Result<Path, Error> {
        let peer = address(Side::Rxe, self.setup.ipv6);
        let mac = self.resolve(peer)?;
        let flow = self.qpns(Side::Softnic)?[0];
        let path = self.driver.node.path_to(peer, mac, flow);
        path.ok_or_else(|| Error::Failed(format!("softnic has no way to {peer}")))
    }

    /// A queue pair of reliable messages beside those of the scenario, until [`Session::close_sdr`].
    pub(in crate::interop) fn open_reliable(&mut self, attr: &ReliableAttr) -> Result<(), Error> {
        let nic = &mut self.driver.node;
        let qp = ReliableQp::create(nic, self.pd, attr).map_err(refused)?;
        let mut sdr = Sdr::default();
        self.sdr = Some(sdr.add_reliable(qp));
        nic.set_layer(Some(Box::new(sdr)));
        Ok(())
    }

    /// Talks to it.
    pub(in crate::interop) fn sdr<R>(
        &mut self,
        talk: impl FnOnce(Instant, &mut SdrQp, &mut Nic) -> Result<R, SdrError>,
    ) -> Result<R, Error> {
        let (now, id) = (self.driver.now(), self.sdr);
        let said = self.driver.node.with_layer(|layer, nic| {
            let sdr = layer.as_any_mut().downcast_mut::<Sdr>().zip(id);
            sdr.ok_or(SdrError::NoSuchQp).and_then(|(sdr, id)| talk(now, sdr.qp(id)?, nic))
        });
        said.unwrap_or(Err(SdrError::NoSuchQp)).map_err(refused)
    }

    /// A part of our memory, as SDR names it.
    pub(in crate::interop) fn local(&self, offset: usize, len: usize) -> Result<Local, Error> {
        let ours = self.end(Side::Softnic)?;
        Ok(Local { key: ours.key, addr: ours.addr + offset as u64, len: len as u64 })
    }

    /// Destroys it; whether there was one.
    pub(in crate::interop) fn close_sdr(&mut self) -> bool {
        let Some(id) = self.sdr.take() else { return false };
        let nic = &mut self.driver.node;
        nic.with_layer(|layer, nic| layer.as_any_mut().downcast_mut::<Sdr>().map(|sdr| sdr.destroy(nic, id)));
        nic.set_layer(None);
        true
    }
}
