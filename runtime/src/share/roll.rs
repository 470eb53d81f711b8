//! The clients of a daemon: their numbers, processes and connections.

use std::collections::{BTreeMap, HashSet};
use std::os::fd::OwnedFd;

use softnic_nic::sharing::Process;
use softnic_wire::mad::ip_cm::ServiceId;

/// A client.
#[derive(Debug)]
pub(super) struct Client {
    /// Its connection; `None` for a client that an earlier daemon admitted, and that has not registered again.
    pub(super) connection: Option<OwnedFd>,
    pub(super) pid: u32,
    pub(super) uid: u32,
    /// The interface index of the outer end of its veth pair.
    pub(super) outer: u32,
    pub(super) services: HashSet<ServiceId>,
    /// Whether the client receives frames to multicast groups.
    pub(super) groups: bool,
}

/// All clients.
#[derive(Debug)]
pub(super) struct Roll {
    clients: BTreeMap<Process, Client>,
    /// The number that was assigned last. Numbers are assigned in turn, so that each is reused as late as possible.
    last: Process,
}

impl Roll {
    /// Creates an empty roll; the first number to be assigned is the one after `last`.
    pub(super) fn new(last: Process) -> Roll {
        Roll { clients: BTreeMap::new(), last }
    }

    /// The next free number.
    pub(super) fn next_number(&self) -> Option<Process> {
        let mut number = self.last;
        for _ in 0..Process::COUNT {
            number = number.next();
            if !self.clients.contains_key(&number) {
                return Some(number);
            }
        }
        None
    }

    /// Enters a client under a number.
    pub(super) fn enter(&mut self, process: Process, client: Client) {
        self.last = process;
        self.clients.insert(process, client);
    }

    pub(super) fn remove(&mut self, process: Process) -> Option<Client> {
        self.clients.remove(&process)
    }

    pub(super) fn get_mut(&mut self, process: Process) -> Option<&mut Client> {
        self.clients.get_mut(&process)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Process, &Client)> {
        self.clients.iter().map(|(&process, client)| (process, client))
    }

    pub(super) fn len(&self) -> usize {
        self.clients.len()
    }

    /// The clients that receive frames to multicast groups.
    pub(super) fn members(&self) -> Vec<Process> {
        self.iter().filter(|(_, client)| client.groups).map(|(process, _)| process).collect()
    }

    /// The clients that have not registered with this daemon, with their outer interface indexes.
    pub(super) fn orphans(&self) -> Vec<(Process, u32)> {
        self.iter().filter(|(_, c)| c.connection.is_none()).map(|(process, client)| (process, client.outer)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(uid: u32) -> Client {
        Client { connection: None, pid: 1, uid, outer: 2, services: HashSet::new(), groups: uid == 7 }
    }

    #[test]
    fn a_number_is_given_again_after_all_others() {
        let mut roll = Roll::new(Process::LAST);
        let first = roll.next_number().unwrap();
        assert_eq!(first, Process::FIRST);
        roll.enter(first, client(7));
        assert_eq!(roll.members(), [first]);
        roll.remove(first).unwrap();
        for _ in 1..Process::COUNT {
            let number = roll.next_number().unwrap();
            assert_ne!(number, first, "it was given back last");
            roll.enter(number, client(0));
        }
        assert_eq!(roll.next_number(), Some(first));
        roll.enter(first, client(1));
        assert_eq!((roll.next_number(), roll.len()), (None, Process::COUNT));
    }
}
