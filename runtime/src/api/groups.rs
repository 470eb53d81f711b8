//! Multicast groups of a port that no kernel knows: its own stack reports them, and its device lets them in.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use softnic_nic::multicast_mac;
use softnic_wire::MacAddr;

use crate::engine::Engine;
use crate::io::GroupFilter;
use crate::locked::lock;
use crate::stack::TooManyGroups;

/// The groups of a port, whichever engine has their members.
pub(crate) struct Groups {
    engines: Vec<Arc<Engine>>,
    /// The port's number at the engines.
    number: usize,
    filter: Option<Arc<dyn GroupFilter>>,
    /// Held from when the engines are asked until all is told: so the last one who tells has asked last.
    order: Mutex<()>,
}

impl Groups {
    /// Of a port that has just been opened: the groups are told in which it is asked for its addresses.
    pub(crate) fn new(engines: &[Arc<Engine>], number: usize, filter: Option<Arc<dyn GroupFilter>>) -> Groups {
        let groups = Groups { engines: engines.to_vec(), number, filter, order: Mutex::new(()) };
        // There are as many as the port has addresses: more than can be reported come in all the same.
        let _ = groups.tell();
        groups
    }

    /// Tells the stack and the device what the engines' queue pairs are members of.
    fn tell(&self) -> Result<(), TooManyGroups> {
        let _order = lock(&self.order);
        let mut members = BTreeSet::<IpAddr>::new();
        for engine in &self.engines {
            let mut core = engine.control();
            members.extend(
                core.nic_of(self.number).into_iter().flat_map(|nic| nic.multicast_groups().collect::<Vec<_>>()),
            );
        }
        // What is no RoCE leaves by the first engine.
        let Some(engine) = self.engines.first().filter(|engine| engine.failure().is_none()) else { return Ok(()) };
        let mut core = engine.control();
        let now = core.driver.now();
        let Some(stack) = core.driver.stack(self.number) else { return Ok(()) };
        let listened: BTreeSet<MacAddr> =
            stack.listened_groups(members.iter().copied()).into_iter().map(multicast_mac).collect();
        stack.set_groups(now, members)?;
        engine.progress(&mut core);
        drop(core);
        engine.wake();
        if let Some(filter) = &self.filter {
            filter.take_groups(&listened.into_iter().collect::<Vec<_>>());
        }
        Ok(())
    }
}

/// A queue pair's membership of a group, which ends with this value.
pub(crate) struct Membership(Arc<Groups>);

impl std::fmt::Debug for Membership {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Membership")
    }
}

impl Membership {
    /// A queue pair was attached to a group.
    pub(crate) fn begin(groups: &Arc<Groups>) -> Result<Membership, TooManyGroups> {
        groups.tell()?;
        Ok(Membership(Arc::clone(groups)))
    }
}

impl Drop for Membership {
    /// It was detached, or destroyed.
    fn drop(&mut self) {
        // Those that are left were few enough before.
        let _ = self.0.tell();
    }
}
