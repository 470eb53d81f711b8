//! The paths to the QP1s of peers. No thread waits for a peer whose MAC address is asked for: only its MADs do.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use softnic_cm::Route;
use softnic_wire::mad::MAD_LEN;

use super::FirstData;
use crate::api::address_handle::AddressHandle;
use crate::api::context::{Context, ProtectionDomain};
use crate::api::path::PeerPath;
use crate::threads::spawn_own;

/// How long a path is taken for valid.
const FRESH: Duration = Duration::from_secs(5);
/// Paths that are remembered.
const MAX_PATHS: usize = 1024;
/// Peers that can be asked for at a time.
const MAX_ASKED: usize = 256;
/// MADs that wait for the path to one peer.
const MAX_WAITING: usize = 64;

/// From our address to the peer's.
type Ends = (IpAddr, IpAddr);
type FoundPaths = Mutex<Vec<(Ends, Option<PeerPath>)>>;

pub(super) struct Paths {
    pd: ProtectionDomain,
    known: HashMap<Ends, (AddressHandle, Instant)>,
    waiting: HashMap<Ends, Vec<(Route, [u8; MAD_LEN])>>,
    ask: SyncSender<Ends>,
    found: Arc<FoundPaths>,
}

impl Paths {
    /// `woken` is woken when a path is found.
    pub(super) fn new(context: &Context, pd: &ProtectionDomain, woken: FirstData) -> std::io::Result<Paths> {
        let (ask, asked) = sync_channel(MAX_ASKED);
        let found: Arc<FoundPaths> = Arc::default();
        let answers = Arc::clone(&found);
        let context = context.clone();
        // It ends when nobody can ask any more; it may look for a last peer until then, so nobody waits for it.
        spawn_own("softnic-cm-path", move || look(&context, &asked, &answers, &woken))?;
        Ok(Paths { pd: pd.clone(), known: HashMap::new(), waiting: HashMap::new(), ask, found })
    }

    /// The handle for a MAD. Without one the MAD waits here until its path is known, or is lost if there is none.
    pub(super) fn handle(&mut self, route: &Route, mad: &[u8; MAD_LEN]) -> Option<AddressHandle> {
        let ends = (route.local, route.remote);
        if let Some((handle, since)) = self.known.get(&ends)
            && since.elapsed() < FRESH
        {
            return Some(handle.clone());
        }
        let waiting = self.waiting.entry(ends).or_default();
        if waiting.is_empty() && matches!(self.ask.try_send(ends), Err(TrySendError::Full(_))) {
            self.waiting.remove(&ends);
            return None;
        }
        if waiting.len() < MAX_WAITING {
            waiting.push((*route, *mad));
        }
        None
    }

    /// MADs whose path was found since.
    pub(super) fn found(&mut self) -> Vec<(AddressHandle, Route, [u8; MAD_LEN])> {
        let found = std::mem::take(&mut *self.found.lock().unwrap_or_else(|p| p.into_inner()));
        let mut ready = Vec::new();
        for (ends, path) in found {
            let waited = self.waiting.remove(&ends).unwrap_or_default();
            let Some(handle) = path.and_then(|path| self.pd.create_ah(&path).ok()) else { continue };
            if self.known.len() >= MAX_PATHS {
                self.known.clear();
            }
            self.known.insert(ends, (handle.clone(), Instant::now()));
            ready.extend(waited.into_iter().map(|(route, mad)| (handle.clone(), route, mad)));
        }
        ready
    }

    /// Whether no MAD waits for its path.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }
}

/// Looks for one peer after the other.
fn look(context: &Context, asked: &Receiver<Ends>, answers: &FoundPaths, woken: &FirstData) {
    while let Ok((local, remote)) = asked.recv() {
        let index = context.addresses().iter().position(|&a| a == local);
        let path = index.and_then(|index| context.path_from(index, remote, 1).ok());
        answers.lock().unwrap_or_else(|p| p.into_inner()).push(((local, remote), path));
        woken.0.wake.wake();
    }
}
