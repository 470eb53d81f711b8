//! The manager at the backup of its NIC: MADs leave by QP1 there, and what is heard of the backup is taken.

use std::sync::Arc;

use softnic_cm::Route;
use softnic_nic::Nic;
use softnic_wire::mad::MAD_LEN;

use super::FirstData;
use super::paths::ENTROPY;
use crate::api::context::Context;
use crate::api::manager_news::{ManagerNews, News};

pub(super) struct Backup {
    context: Context,
    news: Arc<ManagerNews>,
}

impl Backup {
    /// That of a NIC, if it has one; `woken` is woken when something is heard.
    pub(super) fn open(context: &Context, woken: FirstData) -> Option<Backup> {
        let news = Arc::clone(&context.inner().failover()?.manager);
        news.open(move || woken.0.wake.wake());
        Some(Backup { context: context.clone(), news })
    }

    /// What was heard since the last time.
    pub(super) fn news(&self) -> Vec<News> {
        self.news.take()
    }

    /// Whether each port is up: the default's, and the backup's.
    pub(super) fn ports_up(&self) -> [bool; 2] {
        self.context.inner().engines()[0].control().dual().ports_up()
    }

    /// Sends a MAD. It is lost, as on the wire, where our address is not what it was.
    pub(super) fn send(&self, route: &Route, mad: &[u8; MAD_LEN]) {
        let (Some(wire), Some(mac)) = (self.context.backup_wire(), route.mac) else { return };
        let Some(back) = wire.path_back(route.local, route.remote, mac, ENTROPY) else { return };
        let Some(path) = wire.port().and_then(|port| back.attr.path(&port).ok()) else { return };
        let engine = &wire.engines[0];
        let mut core = engine.control();
        if let Some(nic) = core.dual().backup() {
            nic.post_mad(Nic::WIRE, &path, mad);
        }
        // It leaves now: the program may end right behind it.
        engine.progress(&mut core);
    }
}

impl Drop for Backup {
    fn drop(&mut self) {
        self.news.close();
    }
}
