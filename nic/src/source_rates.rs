//! Limits the datagrams to QP1 from each source address: a burst, and a rate after it.
//!
//! The token bucket of each source is stored as one instant: when the bucket would be full if no more datagrams arrived. A bounded number
//! of sources is kept, in a table that is allocated once. A new source replaces the one with the fullest bucket among a few, so a source
//! that sends much is not displaced by many that send once.

use std::net::IpAddr;
use std::time::Duration;

use softnic_wire::Instant;

/// Number of datagrams that one source may send at once: half of the receives that a connection manager posts.
const BURST: u32 = 2048;
/// The interval after which a source may send one more: 4096 datagrams a second.
const INTERVAL: Duration = Duration::from_nanos(1_000_000_000 / 4096);
/// Number of sources per set of the table.
const WAYS: usize = 4;
const SETS: usize = 256;

#[derive(Debug, Clone, Copy)]
struct Source {
    address: IpAddr,
    full_at: Instant,
}

/// The token buckets of all sources.
#[derive(Debug)]
pub(crate) struct SourceRates {
    sources: Box<[Source]>,
}

impl SourceRates {
    pub(crate) fn new() -> SourceRates {
        let nobody = Source { address: IpAddr::from([0; 4]), full_at: Instant::ZERO };
        SourceRates { sources: vec![nobody; SETS * WAYS].into() }
    }

    /// Takes a token of this source; returns `false` if none is left.
    pub(crate) fn take(&mut self, now: Instant, address: IpAddr) -> bool {
        let first = set_of(address) * WAYS;
        let ways = &mut self.sources[first..first + WAYS];
        let known = ways.iter().position(|source| source.address == address);
        let fullest = || (0..WAYS).min_by_key(|&way| ways[way].full_at).unwrap_or(0);
        let source = &mut ways[known.unwrap_or_else(fullest)];
        if source.address != address {
            *source = Source { address, full_at: now };
        }
        let full_at = source.full_at.max(now);
        let has_token = full_at - now <= INTERVAL * (BURST - 1);
        if has_token {
            source.full_at = full_at + INTERVAL;
        }
        has_token
    }
}

/// The hash need not be secret: finding addresses of the same set gains nothing, because a displaced source gets a full bucket.
fn set_of(address: IpAddr) -> usize {
    let bits = match address {
        IpAddr::V4(v4) => v4.to_bits().into(),
        IpAddr::V6(v6) => v6.to_bits(),
    };
    let folded = (bits >> 64) as u64 ^ bits as u64;
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize % SETS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from(0x0a00_0000 + n).into()
    }

    #[test]
    fn a_source_has_its_burst_and_then_its_rate() {
        let mut rates = SourceRates::new();
        let mut now = Instant::from_nanos(5);
        let taken = |rates: &mut SourceRates, now| (0..10 * BURST).filter(|_| rates.take(now, v4(1))).count();
        assert_eq!(taken(&mut rates, now), BURST as usize);
        assert!(rates.take(now, v4(2)), "another has its own");
        for _ in 0..5 {
            now = now + INTERVAL * 100;
            assert_eq!(taken(&mut rates, now), 100);
        }
        now = now + Duration::from_secs(3600);
        assert_eq!(taken(&mut rates, now), BURST as usize, "no more is saved up than a burst");
    }

    #[test]
    fn sources_that_send_once_do_not_make_one_forgotten_that_sends_much() {
        let mut rates = SourceRates::new();
        let now = Instant::from_nanos(5);
        while rates.take(now, v4(1)) {}
        assert!((2..100_000).all(|n| rates.take(now, v4(n))), "a source that is new is let in");
        assert!(!rates.take(now, v4(1)));
    }
}
