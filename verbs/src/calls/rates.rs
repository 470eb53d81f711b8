//! Rates of InfiniBand links, as numbered by verbs, for programs that print them.

use crate::abi::c_int;

/// Code, multiple of 2.5 Gbit/s, and Mbit/s.
const RATES: [(c_int, c_int, c_int); 23] = [
    (2, 1, 2_500),
    (5, 2, 5_000),
    (3, 4, 10_000),
    (6, 8, 20_000),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, 6, 14_062),
    (12, 23, 56_250),
    (13, 45, 112_500),
    (14, 67, 168_750),
    (15, 10, 25_781),
    (16, 41, 103_125),
    (17, 83, 206_250),
    (18, 124, 309_375),
    (19, 11, 28_125),
    (20, 20, 53_125),
    (21, 160, 425_000),
    (22, 240, 637_500),
    (23, 320, 850_000),
    (24, 480, 1_275_000),
];

fn find(matches: impl Fn(&(c_int, c_int, c_int)) -> bool) -> Option<(c_int, c_int, c_int)> {
    RATES.into_iter().find(matches)
}

/// `ibv_rate_to_mult`.
pub(crate) extern "C" fn to_mult(rate: c_int) -> c_int {
    find(|r| r.0 == rate).map_or(-1, |r| r.1)
}

/// `mult_to_ibv_rate`; IBV_RATE_MAX if there is no such rate.
pub(crate) extern "C" fn from_mult(mult: c_int) -> c_int {
    find(|r| r.1 == mult).map_or(0, |r| r.0)
}

/// `ibv_rate_to_mbps`.
pub(crate) extern "C" fn to_mbps(rate: c_int) -> c_int {
    find(|r| r.0 == rate).map_or(-1, |r| r.2)
}

/// `mbps_to_ibv_rate`.
pub(crate) extern "C" fn from_mbps(mbps: c_int) -> c_int {
    find(|r| r.2 == mbps).map_or(0, |r| r.0)
}
