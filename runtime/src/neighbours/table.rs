//! The table of neighbours: their MAC addresses, how long an entry is fresh, and when it is requested again.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use softnic_wire::{Instant, MacAddr};

/// The number of requests after which a neighbour counts as silent.
pub(super) const TRIES: u32 = 4;
/// The number of requests sent to the known MAC address, if there is one. A neighbour that has not moved answers those, so other hosts need
/// not process a broadcast (RFC 1122, 2.3.2.1; RFC 4861, 7.3.3).
const UNICAST_TRIES: u32 = 2;
/// The interval between two requests.
pub(super) const INTERVAL: Duration = Duration::from_millis(500);
/// When to retry a request for which there was no room.
const SOON: Duration = Duration::from_millis(1);
/// How long an entry is fresh. A neighbour used after that is requested again; meanwhile its old MAC address stays in use.
const FRESH: Duration = Duration::from_secs(30);
/// The size of the table. A new neighbour displaces the least recently used one.
pub(super) const MAX_NEIGHBOURS: usize = 1024;

/// A request in progress.
#[derive(Debug)]
struct Question {
    tries: u32,
    next: Instant,
}

#[derive(Debug)]
enum State {
    Asked(Question),
    Known {
        mac: MacAddr,
        /// The entry need not be verified before this time.
        fresh_until: Instant,
        question: Option<Question>,
    },
    Silent,
}

#[derive(Debug)]
struct Neighbour {
    state: State,
    used: Instant,
}

impl Neighbour {
    fn question(&self) -> Option<&Question> {
        match &self.state {
            State::Asked(question) | State::Known { question: Some(question), .. } => Some(question),
            State::Known { question: None, .. } | State::Silent => None,
        }
    }
}

/// The result of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lookup {
    Known(MacAddr),
    /// The request is in progress.
    Asked,
    /// The neighbour did not answer. The entry is removed, and the next lookup starts a new request.
    Silent,
    Unknown,
}

/// The effect of a message about a neighbour's MAC address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Weight {
    /// The message may replace another MAC address.
    pub(super) overrides: bool,
    /// The message answers a request of this port, so the neighbour is reachable in both directions.
    pub(super) confirms: bool,
}

/// The table. It holds only neighbours that the port has requested.
#[derive(Debug, Default)]
pub(super) struct Table {
    neighbours: BTreeMap<IpAddr, Neighbour>,
    /// When the next request is due.
    next: Option<Instant>,
    /// Known neighbours whose MAC address has changed.
    moved: BTreeMap<IpAddr, MacAddr>,
}

impl Table {
    /// Looks up a neighbour for use now. If its entry is no longer fresh, a request starts: see [`Table::due`].
    pub(super) fn use_of(&mut self, now: Instant, address: IpAddr) -> Lookup {
        let Some(neighbour) = self.neighbours.get_mut(&address) else { return Lookup::Unknown };
        neighbour.used = now;
        match &mut neighbour.state {
            State::Asked(_) => Lookup::Asked,
            State::Known { mac, fresh_until, question } => {
                let mac = *mac;
                if question.is_none() && now >= *fresh_until {
                    *question = Some(Question { tries: 0, next: now });
                    self.next = Some(now);
                }
                Lookup::Known(mac)
            }
            State::Silent => {
                self.neighbours.remove(&address);
                Lookup::Silent
            }
        }
    }

    /// Starts requests for a neighbour.
    pub(super) fn ask_for(&mut self, now: Instant, address: IpAddr) {
        if self.neighbours.len() >= MAX_NEIGHBOURS
            && let Some(unused) = self.neighbours.iter().min_by_key(|(_, n)| n.used).map(|(&address, _)| address)
        {
            self.neighbours.remove(&unused);
            self.moved.remove(&unused);
        }
        let state = State::Asked(Question { tries: 0, next: now });
        self.neighbours.insert(address, Neighbour { state, used: now });
        self.next = Some(now);
    }

    /// Handles a message that `address` is at `mac`. Changes existing entries only (RFC 826; RFC 4861, 7.2.5).
    pub(super) fn learn(&mut self, now: Instant, address: IpAddr, mac: MacAddr, weight: Weight) {
        if mac.0[0] & 1 != 0 || mac.0 == [0; 6] {
            return;
        }
        let Some(neighbour) = self.neighbours.get_mut(&address) else { return };
        let until = if weight.confirms { now + FRESH } else { now };
        match &mut neighbour.state {
            State::Known { mac: old, fresh_until, question } if *old == mac => {
                if weight.confirms {
                    (*fresh_until, *question) = (until, None);
                }
            }
            // Two hosts claim the address. The old one is verified at the next use.
            State::Known { fresh_until, .. } if !weight.overrides => *fresh_until = now.min(*fresh_until),
            state => {
                // Before a silent phase the neighbour may have been known by another MAC address.
                if !matches!(state, State::Asked(_)) {
                    self.moved.insert(address, mac);
                }
                *state = State::Known { mac, fresh_until: until, question: None };
            }
        }
        self.set_next();
    }

    /// The requests to send now, at most `room`: to all hosts, or to the known MAC address only.
    pub(super) fn due(&mut self, now: Instant, room: usize) -> Vec<(IpAddr, Option<MacAddr>)> {
        let mut due = Vec::new();
        if self.next.is_none_or(|next| next > now) {
            return due;
        }
        for (&address, neighbour) in &mut self.neighbours {
            let (known, question) = match &mut neighbour.state {
                State::Asked(question) => (None, question),
                State::Known { mac, question: Some(question), .. } => (Some(*mac), question),
                State::Known { question: None, .. } | State::Silent => continue,
            };
            if question.next > now {
                continue;
            }
            if question.tries == TRIES {
                neighbour.state = State::Silent;
                continue;
            }
            // A request for which there is no room does not count as a try.
            if due.len() == room {
                question.next = now + SOON;
                continue;
            }
            due.push((address, known.filter(|_| question.tries < UNICAST_TRIES)));
            *question = Question { tries: question.tries + 1, next: now + INTERVAL };
        }
        self.set_next();
        due
    }

    /// When [`Table::due`] next has requests.
    #[inline]
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    fn set_next(&mut self) {
        self.next = self.neighbours.values().filter_map(|n| n.question()).map(|q| q.next).min();
    }

    /// The next neighbour whose MAC address has changed. At most one waits for each entry of the table.
    pub(super) fn poll_moved(&mut self) -> Option<(IpAddr, MacAddr)> {
        self.moved.pop_first()
    }

    #[inline]
    pub(super) fn has_moved(&self) -> bool {
        !self.moved.is_empty()
    }

    /// The number of neighbours, known or requested.
    pub(super) fn len(&self) -> usize {
        self.neighbours.len()
    }

    /// The known MAC addresses.
    pub(super) fn macs(&self) -> impl Iterator<Item = MacAddr> + '_ {
        self.neighbours.values().filter_map(|neighbour| match neighbour.state {
            State::Known { mac, .. } => Some(mac),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
    const NEW: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
    const ANSWER: Weight = Weight { overrides: true, confirms: true };
    const CLAIM: Weight = Weight { overrides: true, confirms: false };
    const HINT: Weight = Weight { overrides: false, confirms: false };

    fn ip(n: usize) -> IpAddr {
        IpAddr::from([10, 0, (n >> 8) as u8, n as u8])
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    /// A table that has known one neighbour from the start.
    fn knowing() -> Table {
        let mut table = Table::default();
        table.ask_for(at(0), ip(1));
        assert_eq!(table.due(at(0), 9), [(ip(1), None)]);
        table.learn(at(0), ip(1), OLD, ANSWER);
        table
    }

    #[test]
    fn a_neighbour_in_use_is_asked_by_unicast_twice_then_by_broadcast_then_given_up() {
        let mut table = knowing();
        assert_eq!((table.use_of(at(29), ip(1)), table.next()), (Lookup::Known(OLD), None));
        assert_eq!((table.use_of(at(30), ip(1)), table.next()), (Lookup::Known(OLD), Some(at(30))));
        let mut asked = Vec::new();
        while let Some(next) = table.next() {
            asked.extend(table.due(next, 9).into_iter().map(|(_, to)| to));
        }
        assert_eq!(asked, [Some(OLD), Some(OLD), None, None]);
        assert_eq!((table.use_of(at(33), ip(1)), table.use_of(at(33), ip(1))), (Lookup::Silent, Lookup::Unknown));
    }

    #[test]
    fn a_neighbour_that_is_not_used_is_not_asked() {
        let mut table = knowing();
        assert!(table.due(at(500), 9).is_empty());
        assert_eq!(table.next(), None);
    }

    #[test]
    fn a_claim_moves_who_is_known_and_has_it_asked_when_it_is_used_and_never_adds_anybody() {
        let mut table = knowing();
        table.learn(at(1), ip(1), NEW, CLAIM);
        table.learn(at(1), ip(2), NEW, CLAIM);
        assert_eq!((table.len(), table.next()), (1, None));
        assert_eq!(table.use_of(at(1), ip(1)), Lookup::Known(NEW));
        assert_eq!(table.due(at(1), 9), [(ip(1), Some(NEW))], "nobody says so that we asked");
        table.learn(at(1), ip(1), NEW, ANSWER);
        assert_eq!((table.use_of(at(2), ip(1)), table.next()), (Lookup::Known(NEW), None));
    }

    #[test]
    fn who_moves_is_told_of_once_and_who_was_only_asked_for_is_not() {
        let mut table = knowing();
        assert_eq!(table.poll_moved(), None);
        table.learn(at(1), ip(1), OLD, ANSWER);
        table.learn(at(1), ip(2), NEW, CLAIM);
        table.learn(at(1), ip(1), NEW, HINT);
        assert!(!table.has_moved());
        table.learn(at(1), ip(1), NEW, CLAIM);
        assert_eq!((table.poll_moved(), table.poll_moved()), (Some((ip(1), NEW)), None));
    }

    #[test]
    fn without_the_override_flag_another_address_only_has_the_old_one_asked() {
        let mut table = knowing();
        table.learn(at(1), ip(1), NEW, HINT);
        assert_eq!(table.use_of(at(1), ip(1)), Lookup::Known(OLD));
        assert_eq!(table.due(at(1), 9), [(ip(1), Some(OLD))]);
    }

    #[test]
    fn what_is_no_address_of_one_neighbour_is_not_learnt() {
        let mut table = knowing();
        for mac in [MacAddr([0xff; 6]), MacAddr([0; 6]), MacAddr([1, 0, 0x5e, 0, 0, 1])] {
            table.learn(at(1), ip(1), mac, ANSWER);
        }
        assert_eq!(table.macs().collect::<Vec<_>>(), [OLD]);
    }

    #[test]
    fn a_full_table_forgets_who_was_not_used_for_the_longest_time() {
        let mut table = Table::default();
        for n in 0..MAX_NEIGHBOURS {
            table.ask_for(at(n as u64), ip(n));
            table.learn(at(n as u64), ip(n), OLD, ANSWER);
        }
        let later = at(MAX_NEIGHBOURS as u64);
        assert_eq!(table.use_of(later, ip(0)), Lookup::Known(OLD));
        table.ask_for(later, ip(5000));
        assert_eq!(table.len(), MAX_NEIGHBOURS);
        assert_eq!(table.use_of(later, ip(1)), Lookup::Unknown);
        assert_eq!(table.use_of(later, ip(0)), Lookup::Known(OLD));
    }
}
