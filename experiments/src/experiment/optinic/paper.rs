//! The figures that the text of the OptiNIC paper states, each with its place; its charts are not read by eye.
//!
//! Warraich et al., "OptiNIC: A Resilient and Tail-Optimal RDMA NIC for Distributed ML Workloads".

use super::super::paper::Stated;

/// "consistently delivering a 1.6–2.5× speedup over RoCE".
pub(super) const FASTER: [Stated; 2] = [
    Stated { place: "5.3.1, Fig. 5", what: "RoCE / OptiNIC, least of sizes and collectives", value: 1.6 },
    Stated { place: "5.3.1, Fig. 5", what: "RoCE / OptiNIC, most of sizes and collectives", value: 2.5 },
];
/// Deviations; the unit is not stated.
pub(super) const DEVIATION: Stated =
    Stated { place: "Fig. 5", what: "deviation of RoCE / of OptiNIC (±35, ±12)", value: 35.0 / 12.0 };
/// "observed loss stays under 1% on average".
pub(super) const MISSING: Stated = Stated { place: "5.3.1", what: "bytes missing on average, %, below", value: 1.0 };
/// "accepting 4–5 % loss—OptiNIC achieves up to 5× lower latency".
pub(super) const AGGRESSIVE: Stated =
    Stated { place: "5.3.1", what: "RoCE / OptiNIC with 4 to 5 % missing, up to", value: 5.0 };

/// Bytes of a queue pair, queue pairs in 4 MB and nodes of a cluster, as Table 4 has them.
pub(super) const TABLE_4: [(&str, f64, f64, f64, f64); 6] = [
    ("RoCE", 407.0, 10e3, 5e3, 2.0),
    ("IRN", 596.0, 8e3, 4e3, 2.0),
    ("SRNIC", 242.0, 20e3, 10e3, 2.0),
    ("Falcon", 350.0, 12e3, 6e3, 2.0),
    ("UCCL", 407.0, 10e3, 256.0, 256.0),
    ("OptiNIC", 52.0, 80e3, 40e3, 2.0),
];
