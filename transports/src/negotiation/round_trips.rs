//! Round-trip times to peers, as measured by connection managers, so that a far peer gets enough time to answer.

use std::net::IpAddr;
use std::time::Duration;

/// The latest round-trip time to each of a fixed number of peers.
#[derive(Debug, Clone, Default)]
pub struct RoundTrips {
    /// The peers, oldest first.
    peers: Vec<(IpAddr, Duration)>,
}

impl RoundTrips {
    /// Number of peers that are remembered; one more replaces the oldest.
    pub const CAPACITY: usize = 64;
    /// A longer time is not a round trip: the peer's program was slow.
    pub const LONGEST: Duration = Duration::from_secs(2);

    /// Records a round-trip time to a peer.
    pub fn note(&mut self, peer: IpAddr, rtt: Duration) {
        self.peers.retain(|(known, _)| *known != peer);
        if self.peers.len() == RoundTrips::CAPACITY {
            self.peers.remove(0);
        }
        self.peers.push((peer, rtt.min(RoundTrips::LONGEST)));
    }

    /// The round-trip time to a peer; zero if it was not measured.
    pub fn of(&self, peer: IpAddr) -> Duration {
        self.peers.iter().find(|(known, _)| *known == peer).map_or(Duration::ZERO, |&(_, rtt)| rtt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_round_trip_to_each_of_some_peers_is_known() {
        let peer = |n: u8| IpAddr::from([10, 0, 0, n]);
        let ms = Duration::from_millis;
        let mut trips = RoundTrips::default();
        (0..70).for_each(|n| trips.note(peer(n), ms(n.into())));
        trips.note(peer(10), ms(500));
        assert_eq!((trips.of(peer(10)), trips.of(peer(69)), trips.of(peer(3))), (ms(500), ms(69), ms(0)));
        trips.note(peer(10), Duration::MAX);
        assert_eq!(trips.of(peer(10)), RoundTrips::LONGEST);
    }
}
