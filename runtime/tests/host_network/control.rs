//! A control thread as it would use a `HostNetwork`, with a clock.

use std::net::IpAddr;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use softnic_runtime::host_network::{Event, HostNetwork, HostNetworkError as Error, HostPath, Interface, PathState};
use softnic_wire::{Instant, MacAddr};

use crate::namespaces::Namespaces;

/// Far longer than anything here takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(15);

pub(crate) fn ip(address: &str) -> IpAddr {
    address.parse().unwrap()
}

/// A control thread's view: the network, with a clock.
pub(crate) struct Control {
    pub(crate) host: HostNetwork,
    start: std::time::Instant,
}

impl Control {
    pub(crate) fn open(name: &str) -> Control {
        Control { host: HostNetwork::open(name).unwrap(), start: std::time::Instant::now() }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::ZERO + self.start.elapsed()
    }

    /// Sleeps until something happens; hands out what changed.
    pub(crate) fn turn(&mut self) -> Vec<Event> {
        let timer = self.host.poll_timeout().map_or(LIMIT, |at| at - self.now()).min(Duration::from_millis(500));
        let timer = Timespec::try_from(timer).unwrap();
        poll(&mut [PollFd::new(&self.host, PollFlags::IN)], Some(&timer)).unwrap();
        let now = self.now();
        if self.host.poll_timeout().is_some_and(|at| at <= now) {
            self.host.handle_timeout(now);
        }
        std::iter::from_fn(|| self.host.poll_event().unwrap()).collect()
    }

    /// Takes events until `done`; all that came.
    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&HostNetwork, &[Event]) -> bool) -> Vec<Event> {
        let (mut events, end) = (Vec::new(), self.now() + LIMIT);
        while !done(&self.host, &events) {
            assert!(self.now() < end, "{what}: it did not come; events: {events:?}");
            events.extend(self.turn());
        }
        events
    }

    pub(crate) fn expect(&mut self, event: Event) -> Vec<Event> {
        self.until(&format!("{event:?}"), |_, events| events.contains(&event))
    }

    pub(crate) fn path(&mut self, dst: &str) -> Result<HostPath, Error> {
        let end = self.now() + LIMIT;
        loop {
            match self.host.path(self.now(), ip(dst), None)? {
                PathState::Ready(path) => return Ok(path),
                PathState::Pending { .. } => assert!(self.now() < end, "{dst}: pending for ever"),
            }
            self.turn();
        }
    }
}

/// The MAC address of an interface in one of the namespaces.
pub(crate) fn mac_of(spaces: &Namespaces, i: usize, name: &str) -> MacAddr {
    spaces.inside(i, || Interface::find(name).unwrap().mac)
}
