//! Peers that never answered an offer, so that only the first connection to such a peer waits for an answer.

use std::net::IpAddr;

/// The addresses of a fixed number of silent peers.
///
/// Call `note_silent` after the outcome [`FallbackReason::Silent`](super::FallbackReason::Silent), and `note_heard` for any MAD from the
/// address: offer, answer or refusal.
#[derive(Debug, Clone)]
pub struct SilentPeers {
    /// The addresses, oldest first; `len` of them are valid.
    peers: [IpAddr; SilentPeers::CAPACITY],
    len: usize,
}

impl SilentPeers {
    /// Number of peers that are remembered; one more replaces the oldest.
    pub const CAPACITY: usize = 64;

    /// Creates an empty list.
    pub const fn new() -> SilentPeers {
        SilentPeers { peers: [IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED); SilentPeers::CAPACITY], len: 0 }
    }

    /// An offer to this address was not answered: the address becomes the newest entry.
    pub fn note_silent(&mut self, addr: IpAddr) {
        self.note_heard(addr);
        if self.len == SilentPeers::CAPACITY {
            self.remove(0);
        }
        self.peers[self.len] = addr;
        self.len += 1;
    }

    /// A MAD arrived from this address.
    pub fn note_heard(&mut self, addr: IpAddr) {
        if let Some(at) = self.position(addr) {
            self.remove(at);
        }
    }

    /// Whether an offer to this address was not answered, and no MAD has arrived from it since.
    pub fn is_silent(&self, addr: IpAddr) -> bool {
        self.position(addr).is_some()
    }

    fn position(&self, addr: IpAddr) -> Option<usize> {
        self.peers[..self.len].iter().position(|&peer| peer == addr)
    }

    fn remove(&mut self, at: usize) {
        self.peers.copy_within(at + 1..self.len, at);
        self.len -= 1;
    }
}

impl Default for SilentPeers {
    fn default() -> SilentPeers {
        SilentPeers::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addr(n: u8) -> IpAddr {
        if n.is_multiple_of(2) {
            IpAddr::from([10, 0, 0, n])
        } else {
            IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(n)])
        }
    }

    fn silent(peers: &SilentPeers) -> Vec<u8> {
        (0..=255).filter(|&n| peers.is_silent(addr(n))).collect()
    }

    #[test]
    fn who_did_not_answer_is_remembered_until_heard() {
        let mut peers = SilentPeers::new();
        assert!(!peers.is_silent(IpAddr::from([0, 0, 0, 0])), "nobody is in an empty table");
        for n in [1, 2, 3, 4] {
            peers.note_silent(addr(n));
        }
        peers.note_heard(addr(2));
        peers.note_heard(addr(9));
        assert_eq!(silent(&peers), [1, 3, 4]);
        for n in [1, 3, 4] {
            peers.note_heard(addr(n));
        }
        assert_eq!(silent(&peers), []);
    }

    #[test]
    fn one_too_many_replaces_the_oldest() {
        let mut peers = SilentPeers::new();
        for n in 0..64 {
            peers.note_silent(addr(n));
        }
        assert_eq!(silent(&peers), (0..64).collect::<Vec<_>>());
        peers.note_silent(addr(64));
        peers.note_silent(addr(65));
        assert_eq!(silent(&peers), (2..66).collect::<Vec<_>>());
    }

    #[test]
    fn silent_once_more_is_new_and_takes_no_second_place() {
        let mut peers = SilentPeers::new();
        for n in 0..64 {
            peers.note_silent(addr(n));
        }
        peers.note_silent(addr(0));
        assert_eq!(silent(&peers).len(), 64);
        peers.note_silent(addr(64));
        assert!(peers.is_silent(addr(0)) && !peers.is_silent(addr(1)));
        peers.note_heard(addr(0));
        assert!(!peers.is_silent(addr(0)));
    }
}
