//! Listeners: which requests each of them gets.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use softnic_wire::mad::ip_cm::{IpCm, ServiceId};

use crate::{Cm, Error, PortSpace};

/// The name of a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ListenId(pub(crate) u32);

/// The requests that a listener accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listen {
    /// The service.
    pub service_id: ServiceId,
    /// Only requests to this address, as in the RDMA-CM's header: `0.0.0.0` means every IPv4 address, `::` every address. `None` accepts
    /// every request with the service id, with a header or without.
    pub address: Option<IpAddr>,
    /// Maximum number of requests that wait for the program, three quarters of them from one address. Further requests are dropped, and
    /// will be sent again.
    pub backlog: usize,
}

/// The default backlog of `rdma_listen`.
const DEFAULT_BACKLOG: usize = 1024;

impl Listen {
    /// On a port of the RDMA-CM.
    pub fn port(space: PortSpace, address: SocketAddr) -> Listen {
        let service_id = space.service_id(address.port());
        Listen { service_id, address: Some(address.ip()), backlog: DEFAULT_BACKLOG }
    }

    /// On any service id.
    pub fn service(service_id: ServiceId) -> Listen {
        Listen { service_id, address: None, backlog: DEFAULT_BACKLOG }
    }

    /// How specifically a request matches: a larger number is better; `None` means no match.
    fn fit(&self, service_id: ServiceId, ip: Option<&IpCm>) -> Option<u8> {
        if self.service_id != service_id {
            return None;
        }
        let Some(ours) = self.address else { return Some(0) };
        let asked = ip?.destination();
        match ours {
            _ if ours == asked => Some(3),
            IpAddr::V4(any) if any.is_unspecified() && asked.is_ipv4() => Some(2),
            IpAddr::V6(any) if any.is_unspecified() => Some(1),
            _ => None,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) listen: Listen,
    /// Number of requests that wait for the program, in total and from each address.
    pub(crate) waiting: usize,
    sources: BTreeMap<IpAddr, usize>,
}

impl Listener {
    /// Whether the backlog has no room for a request from this address. A quarter of the backlog is not available to an address that has
    /// the rest.
    pub(crate) fn is_full_for(&self, source: IpAddr) -> bool {
        let backlog = self.listen.backlog;
        let share = backlog - backlog / 4;
        self.waiting >= backlog || self.sources.get(&source).is_some_and(|&waiting| waiting >= share)
    }

    /// Adds a waiting request from this address.
    pub(crate) fn enter(&mut self, source: IpAddr) {
        self.waiting += 1;
        *self.sources.entry(source).or_default() += 1;
    }

    /// Removes a waiting request from this address.
    pub(crate) fn leave(&mut self, source: IpAddr) {
        self.waiting -= 1;
        if let Some(waiting) = self.sources.get_mut(&source) {
            *waiting -= 1;
            if *waiting == 0 {
                self.sources.remove(&source);
            }
        }
    }
}

impl Cm {
    /// Starts accepting requests for a service.
    pub fn listen(&mut self, listen: &Listen) -> Result<ListenId, Error> {
        let taken = |l: &&Listener| (l.listen.service_id, l.listen.address) == (listen.service_id, listen.address);
        if self.listeners.values().any(|l| taken(&l)) {
            return Err(Error::ServiceInUse);
        }
        let id = ListenId(self.next_listener);
        self.next_listener = self.next_listener.wrapping_add(1);
        self.listeners.insert(id, Listener { listen: *listen, waiting: 0, sources: BTreeMap::new() });
        Ok(id)
    }

    /// Stops accepting requests. Requests already reported to the program are not affected.
    pub fn unlisten(&mut self, id: ListenId) -> Result<(), Error> {
        self.listeners.remove(&id).map(|_| ()).ok_or(Error::NoSuchListener)
    }

    /// The listener for a request.
    pub(crate) fn find_listener(&self, service_id: ServiceId, ip: Option<&IpCm>) -> Option<ListenId> {
        let fits = self.listeners.iter().filter_map(|(&id, l)| Some((l.listen.fit(service_id, ip)?, id)));
        fits.max_by_key(|&(fit, _)| fit).map(|(_, id)| id)
    }
}
