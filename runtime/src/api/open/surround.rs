//! The network that a port of a NIC is on, and the threads that follow it.

use std::sync::{Arc, Mutex};

use super::{Neighbourhood, OpenError, OpenOptions, Parts, attend, follow, own};
use crate::api::company::Company;
use crate::api::events::Events;
use crate::api::groups::Groups;
use crate::api::path::{Network, Surroundings};
use crate::engine::Engine;

impl Parts {
    /// The network that a port of the engines is on, and whoever watches the daemon that shares it.
    pub(super) fn surround(
        self,
        engines: &[Arc<Engine>],
        events: &Arc<Events>,
        options: &OpenOptions,
        number: usize,
    ) -> Result<Surroundings, OpenError> {
        let link_down = options.link_down;
        let network = match (self.neighbourhood, self.own_stack) {
            (Neighbourhood::Own(line), Some(own)) => {
                let (engines_of, events, say) = (engines.to_vec(), Arc::clone(events), options.on_notice.clone());
                let port = own::Port { engines: engines_of, events, link_down, number, say };
                let follower = Some(own::start(port, line)?);
                let groups = Some(Arc::new(Groups::new(engines, number, own.filter)));
                Network::Own { follower, vlan: own.vlan, groups }
            }
            (Neighbourhood::Own(_), None) => Network::Own { follower: None, vlan: None, groups: None },
            (Neighbourhood::Here, _) => Network::Here,
            (Neighbourhood::Kernel(host), _) => {
                let up = host.interface().up;
                follow::set_link(engines, events, link_down, number, up);
                let (host, start) = (Arc::new(Mutex::new(*host)), std::time::Instant::now());
                let follower = follow::start(&host, start, engines, events, link_down, number)?;
                Network::Kernel { host, start, follower }
            }
        };
        let attendant = match &self.company {
            Some(Company::Interface(seat)) => Some(attend::start(seat, engines, number)?),
            _ => None,
        };
        Ok(Surroundings { network, company: self.company, attendant, failover: None, link_down })
    }
}
