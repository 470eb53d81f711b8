//! The figures that the text of the LoWAR paper states, each with its place.
//!
//! Zuo et al., "LoWAR: Enhancing RDMA over Lossy WANs with Transparent Error Correction". What only its charts show is not here: a
//! curve read by eye is no figure to compare with. "CX-5" is the ConnectX-5 that the paper measured against.

use std::time::Duration;

/// A stated figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stated {
    /// Section and figure.
    pub(super) place: &'static str,
    pub(super) what: &'static str,
    pub(super) value: f64,
}

const fn stated(place: &'static str, value: f64, what: &'static str) -> Stated {
    Stated { place, what, value }
}

/// Goodput of a CX-5 at 40 ms with one connection, Gbit/s.
pub(super) const CX5_LOSS_FREE: Stated = stated("II-C, Fig. 3a", 9.21, "CX-5, 40 ms, no loss: Gbit/s");
pub(super) const CX5_AT_1E5: Stated = stated("II-C, Fig. 3a", 2.92, "CX-5, 40 ms, 0.001 %: Gbit/s");

/// What is stated of a CX-5 at a chance of loss, with a round trip and a number of connections.
pub(super) fn cx5_goodput(loss: f64, rtt: Duration, connections: u32) -> Option<Stated> {
    match (rtt.as_millis(), connections) {
        (40, 1) if loss == 0.0 => Some(CX5_LOSS_FREE),
        (40, 1) if loss == 1e-5 => Some(CX5_AT_1E5),
        _ => None,
    }
}

/// Goodput of LoWAR(32, 1) over that of a CX-5, by loss, round trip in ms and connections. The text gives ranges; their ends are taken
/// for the ends of the range of loss. With 16 connections it gives two figures, taken for the two round trips.
pub(super) const OVER_CX5: [(f64, u64, u32, Stated); 6] = [
    (1e-5, 40, 1, stated("VI-A, Fig. 9", 2.05, "LoWAR(32, 1) / CX-5, 40 ms, 0.001 %")),
    (1e-4, 40, 1, stated("VI-A, Fig. 9", 5.01, "LoWAR(32, 1) / CX-5, 40 ms, 0.01 %")),
    (1e-5, 80, 1, stated("VI-A, Fig. 9", 11.55, "LoWAR(32, 1) / CX-5, 80 ms, 0.001 %")),
    (1e-4, 80, 1, stated("VI-A, Fig. 9", 19.07, "LoWAR(32, 1) / CX-5, 80 ms, 0.01 %")),
    (1e-4, 40, 16, stated("VI-A, Fig. 9", 1.28, "LoWAR(32, 1) / CX-5, 40 ms, 0.01 %, 16 connections")),
    (1e-4, 80, 16, stated("VI-A, Fig. 9", 1.50, "LoWAR(32, 1) / CX-5, 80 ms, 0.01 %, 16 connections")),
];

/// Part of its loss-free goodput, in percent; the round trip is not stated.
pub(super) const KEPT_BY_16: Stated =
    stated("VI-A, Fig. 9", 87.29, "LoWAR(32, 1), 0.1 %, 16 connections: % of loss-free kept");

/// Mean completion time of a CX-5 over that of LoWAR(32, 1), less one, in percent, by loss.
pub(super) const FCT_LONGER: [(f64, Stated); 2] = [
    (1e-4, stated("VI-A, Fig. 10a", 12.0, "CX-5's mean FCT above LoWAR's, 0.01 %: %")),
    (5e-4, stated("VI-A, Fig. 10a", 97.0, "CX-5's mean FCT above LoWAR's, 0.05 %: %")),
];
/// How much shorter the mean gets, in percent, by loss.
pub(super) const FCT_REDUCED: [(f64, Stated); 2] = [
    (1e-5, stated("abstract", 3.5, "mean FCT reduced, 0.001 %: %")),
    (1e-4, stated("abstract", 12.2, "mean FCT reduced, 0.01 %: %")),
];

/// "approximately", for bursts of up to 8 packets.
pub(super) const BURST_GOODPUT: Stated = stated("VI-A, Fig. 11", 8.0, "LoWAR(64, 8), bursts of up to 8: Gbit/s");

/// "nearly doubles when two losses span across two coding blocks".
pub(super) const TWO_BLOCKS: Stated =
    stated("VI-B, Fig. 13b", 2.0, "recovering latency: two losses in two blocks / one loss");
/// "similar recovering latency".
pub(super) const SIXTEEN_LOSSES: Stated =
    stated("VI-B, Fig. 13c", 1.0, "recovering latency of (128, 16): 16 losses in one block / one loss");
