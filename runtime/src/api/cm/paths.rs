//! The paths to the QP1s of peers. No thread waits for a peer whose MAC address is asked for: only the MADs to that peer do.
//!
//! A MAD that answers one of a peer's goes to the MAC address that the peer's frame came from. So only programs of this side have
//! somebody asked for a MAC address: a stranger's request costs one answer, and takes no place in any table here.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use softnic_cm::Route;
use softnic_wire::mad::MAD_LEN;

use super::FirstData;
use crate::api::address_handle::AddressHandle;
use crate::api::context::{Context, ProtectionDomain};
use crate::api::path::PeerPath;
use crate::threads::spawn_own;

/// A path that is used after this time is asked for again, and used meanwhile.
const FRESH: Duration = Duration::from_secs(5);
/// Paths that are remembered; the one that was not used for the longest time makes room.
const MAX_PATHS: usize = 1024;
/// Peers that can be asked for at a time.
const MAX_ASKED: usize = 1024;
/// MADs that wait for a path.
const MAX_WAITING: usize = 4096;
/// The times between two looks whether a peer has answered: each is twice the one before.
const FIRST_LOOK: Duration = Duration::from_millis(1);
const LONGEST_LOOK: Duration = Duration::from_millis(64);
/// The entropy of QP1's datagrams: all of one peer take one way.
pub(super) const ENTROPY: u32 = 1;

/// From our address to the peer's.
type Ends = (IpAddr, IpAddr);
type FoundPaths = Mutex<Vec<(Ends, Option<PeerPath>)>>;
/// A MAD with its destination.
pub(super) type Ready = (AddressHandle, Route, [u8; MAD_LEN]);

/// A path that was found.
struct Known {
    handle: AddressHandle,
    /// When it was found, or asked for again.
    asked: Instant,
    used: Instant,
}

pub(super) struct Paths {
    pd: ProtectionDomain,
    known: HashMap<Ends, Known>,
    waiting: HashMap<Ends, Vec<(Route, [u8; MAD_LEN])>>,
    /// How many MADs wait.
    waiting_mads: usize,
    ask: SyncSender<Ends>,
    found: Arc<FoundPaths>,
    ready: VecDeque<Ready>,
}

impl Paths {
    /// `woken` is woken when a path is found.
    pub(super) fn new(context: &Context, pd: &ProtectionDomain, woken: FirstData) -> std::io::Result<Paths> {
        let (ask, asked) = sync_channel(MAX_ASKED);
        let found: Arc<FoundPaths> = Arc::default();
        let answers = Arc::clone(&found);
        let context = context.clone();
        // It ends when nobody can ask any more; nobody waits for its end.
        spawn_own("softnic-cm-path", move || look(&context, &asked, &answers, &woken))?;
        Ok(Paths {
            pd: pd.clone(),
            known: HashMap::new(),
            waiting: HashMap::new(),
            waiting_mads: 0,
            ask,
            found,
            ready: VecDeque::new(),
        })
    }

    /// The handle for a MAD. Without one the MAD waits here until its path is known, or is lost if there is none.
    pub(super) fn handle(&mut self, route: &Route, mad: &[u8; MAD_LEN]) -> Option<AddressHandle> {
        if let Some(mac) = route.mac {
            let path = self.pd.context().path_back(route.local, route.remote, mac, ENTROPY)?;
            return self.pd.create_ah(&path).ok();
        }
        let (ends, now) = ((route.local, route.remote), Instant::now());
        if let Some(known) = self.known.get_mut(&ends) {
            known.used = now;
            if now - known.asked >= FRESH && self.ask.try_send(ends).is_ok() {
                known.asked = now;
            }
            return Some(known.handle.clone());
        }
        // Lost where there are too many: it is sent again.
        if self.waiting_mads < MAX_WAITING {
            let waiting = self.waiting.entry(ends).or_default();
            if !waiting.is_empty() || self.ask.try_send(ends).is_ok() {
                waiting.push((*route, *mad));
                self.waiting_mads += 1;
            } else {
                self.waiting.remove(&ends);
            }
        }
        None
    }

    /// The next MAD whose path was found since.
    pub(super) fn next_ready(&mut self) -> Option<Ready> {
        self.take_found();
        self.ready.pop_front()
    }

    fn take_found(&mut self) {
        let found = std::mem::take(&mut *self.found.lock().unwrap_or_else(|p| p.into_inner()));
        for (ends, path) in found {
            let waited = self.waiting.remove(&ends).unwrap_or_default();
            self.waiting_mads -= waited.len();
            let Some(handle) = path.and_then(|path| self.pd.create_ah(&path).ok()) else {
                self.known.remove(&ends);
                continue;
            };
            let now = Instant::now();
            let used = self.known.get(&ends).map_or(now, |known| known.used);
            if self.known.len() >= MAX_PATHS
                && let Some(&oldest) = self.known.iter().min_by_key(|(_, known)| known.used).map(|(ends, _)| ends)
            {
                self.known.remove(&oldest);
            }
            self.known.insert(ends, Known { handle: handle.clone(), asked: now, used });
            self.ready.extend(waited.into_iter().map(|(route, mad)| (handle.clone(), route, mad)));
        }
    }

    /// Whether no MAD waits here.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.ready.is_empty()
    }
}

/// A peer that was asked for.
struct Lookup {
    ends: Ends,
    next: Instant,
    interval: Duration,
}

/// Looks for all peers that are asked for at the same time.
fn look(context: &Context, asked: &Receiver<Ends>, answers: &FoundPaths, woken: &FirstData) {
    let mut lookups: Vec<Lookup> = Vec::new();
    loop {
        let due = lookups.iter().map(|lookup| lookup.next).min();
        let ends = match due {
            None => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(at) => asked.recv_timeout(at.saturating_duration_since(Instant::now())),
        };
        match ends {
            Ok(ends) => lookups.push(Lookup { ends, next: Instant::now(), interval: FIRST_LOOK }),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let now = Instant::now();
        lookups.retain_mut(|lookup| {
            if lookup.next > now {
                return true;
            }
            let (local, remote) = lookup.ends;
            let path = match context.addresses().iter().position(|&a| a == local) {
                None => None,
                Some(index) => match context.ask_path(Some(index), remote, ENTROPY) {
                    Ok(Some(path)) => Some(path),
                    Ok(None) => {
                        lookup.next = now + lookup.interval;
                        lookup.interval = (lookup.interval * 2).min(LONGEST_LOOK);
                        return true;
                    }
                    Err(_) => None,
                },
            };
            answers.lock().unwrap_or_else(|p| p.into_inner()).push((lookup.ends, path));
            woken.0.wake.wake();
            false
        });
    }
}
