//! The figures that the text of the SHIFT paper states, each with its place. What only its charts show is not here.

use super::super::paper::Stated;

const fn stated(place: &'static str, value: f64, what: &'static str) -> Stated {
    Stated { place, what, value }
}

/// Control verbs that take longer, with a backup over without: "slower by 93.65% and 106.34%".
pub(super) const RTR: Stated = stated("5.1.2, Fig. 7", 1.9365, "ibv_modify_qp to RTR, with backup / plain");
pub(super) const RTS: Stated = stated("5.1.2, Fig. 7", 2.0634, "ibv_modify_qp to RTS, with backup / plain");
/// "about".
pub(super) const SHADOWS: Stated = stated("5.1.2", 35.0, "until a connection has its backup: ms");

/// Bytes of a message; mean latency in µs and its deviation: plain, with a backup, plain beside 1000 queue pairs.
pub(super) const LATENCY: [(u32, [(f64, f64); 3]); 5] = [
    (1, [(2.68, 0.39), (2.69, 0.38), (2.69, 0.41)]),
    (2, [(2.70, 0.44), (2.70, 0.38), (2.70, 0.39)]),
    (4, [(2.70, 0.35), (2.69, 0.37), (2.71, 0.41)]),
    (8, [(2.69, 0.40), (2.71, 0.35), (2.70, 0.43)]),
    (16, [(2.69, 0.39), (2.68, 0.38), (2.70, 0.40)]),
];

/// A context of 3120 bytes, 256 for each of 512 sends, 16 for each of 256 receives.
pub(super) const QP_BYTES: Stated = stated("4.2", (3120 + 512 * 256 + 256 * 16) as f64, "backup queue pair: bytes");
/// A context of 592 bytes, 64 for each of 512 completions.
pub(super) const CQ_BYTES: Stated = stated("4.2", (592 + 512 * 64) as f64, "backup completion queue: bytes");

/// When the NIC fails, after how many of the epochs: so an epoch takes as long as this says.
pub(super) const FAILS_AT_S: f64 = 2000.0;
pub(super) const FAILS_AT_EPOCH: f64 = 1.78;
pub(super) const EPOCHS: u64 = 4;
/// How long a job takes to be scheduled anew: after its end by an error, and after one that it chose.
pub(super) const RESCHEDULED_AFTER_ERROR_S: f64 = 63.0;
pub(super) const RESCHEDULED_S: f64 = 37.0;
pub(super) const FLAP_S: f64 = 2.0;
pub(super) const DONE_AGAIN: Stated = stated("5.2, Fig. 8", 856.0, "checkpoint and restart: done again, s");
pub(super) const NOTHING_DONE_AGAIN: Stated = stated("5.2, Fig. 8", 0.0, "with backup: done again, s");
