//! Neighbours: their MAC addresses as others found them out, and who is to be asked for.

use std::collections::VecDeque;
use std::net::IpAddr;

use softnic_wire::MacAddr;

use crate::hashed::{Seeded, Table};

/// Neighbours that are known.
const MAX_NEIGHBOURS: usize = 16_384;
/// Questions that wait to be asked. A packet asks again.
const MAX_WANTED: usize = 64;

/// What is known of neighbours.
#[derive(Debug, Default)]
pub(crate) struct Neighbours {
    known: Table<IpAddr, MacAddr>,
    wanted: VecDeque<IpAddr>,
}

impl Neighbours {
    pub(crate) fn new(seed: u64) -> Neighbours {
        Neighbours { known: Table::with_hasher(Seeded(seed)), wanted: VecDeque::new() }
    }

    /// A neighbour has this MAC address, or none any more. Whether that is new.
    pub(crate) fn set(&mut self, address: IpAddr, mac: Option<MacAddr>) -> bool {
        match mac {
            None => self.known.remove(&address).is_some(),
            Some(_) if self.known.len() >= MAX_NEIGHBOURS && !self.known.contains_key(&address) => false,
            Some(mac) => self.known.insert(address, mac) != Some(mac),
        }
    }

    /// The MAC address of a neighbour, if it is known; else it is asked for.
    pub(crate) fn mac(&mut self, address: IpAddr) -> Option<MacAddr> {
        let mac = self.known.get(&address).copied();
        if mac.is_none() && self.wanted.len() < MAX_WANTED && !self.wanted.contains(&address) {
            self.wanted.push_back(address);
        }
        mac
    }

    /// The next that is to be asked for.
    pub(crate) fn take_wanted(&mut self) -> Option<IpAddr> {
        self.wanted.pop_front()
    }
}
