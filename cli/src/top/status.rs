//! What NICs and wires say of themselves, read from the JSON that they answer with.

use serde_json::Value;

use crate::plain::plain;

/// Counters of a direction of a wire that are loss which was asked for, and drops of the wire itself.
const INJECTED: [&str; 2] = ["fault_lost", "queue_full"];
pub(crate) const OWN_DROPS: [&str; 5] = ["overflowed", "too_long", "unsegmented", "rx_missed", "tx_refused"];

/// Which NIC or wire it is: its network namespace (0 is that of this process), process, and number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Id {
    pub(super) namespace: u64,
    pub(super) pid: u32,
    pub(super) index: u32,
}

/// A NIC or a wire.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Status {
    Nic(NicStatus),
    Wire(WireStatus),
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct NicStatus {
    pub(super) id: Id,
    pub(super) device: String,
    pub(super) up: bool,
    pub(super) queue_pairs: u64,
    /// Bytes and packets that left, and came in.
    pub(super) bytes: [u64; 2],
    pub(super) packets: [u64; 2],
    /// Packets sent again.
    pub(super) again: u64,
    pub(super) qps: Vec<QpStatus>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct QpStatus {
    pub(super) qpn: u32,
    pub(super) transport: String,
    pub(super) state: String,
    pub(super) peer: Option<String>,
    pub(super) peer_qpn: Option<u64>,
    pub(super) mtu: Option<u64>,
    pub(super) window: Option<u64>,
    pub(super) rate: Option<u64>,
    pub(super) posted: u32,
    pub(super) completed: u32,
    pub(super) requested: u64,
    pub(super) answered: u32,
    pub(super) in_flight: u64,
    pub(super) retries: u64,
    pub(super) rnr_retries: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct WireStatus {
    pub(super) id: Id,
    pub(super) ends: [String; 2],
    pub(super) fault: String,
    /// From a to b, and back.
    pub(super) directions: [DirectionStatus; 2],
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(super) struct DirectionStatus {
    pub(super) frames: u64,
    pub(super) bytes: u64,
    pub(super) injected: u64,
    pub(super) dropped: u64,
    pub(super) waiting: u64,
}

impl Status {
    /// What one says; `None` if that is something else.
    pub(super) fn of(namespace: u64, said: &Value) -> Option<Status> {
        let number = |name: &str| u32::try_from(said[name].as_u64()?).ok();
        let id = Id { namespace, pid: number("pid")?, index: number("nic")? };
        let text = |name: &str| said[name].as_str().map(plain);
        let counters = said["counters"].as_object()?;
        let counter = |name: &str| counters.get(name).and_then(Value::as_u64).unwrap_or(0);
        if let (Some(a), Some(b), Some(fault)) = (text("a"), text("b"), text("fault")) {
            let directions = ["ab", "ba"].map(|direction| {
                let one = |name: &str| counter(&format!("{direction}_{name}"));
                DirectionStatus {
                    frames: one("tx_frames"),
                    bytes: one("tx_bytes"),
                    injected: INJECTED.map(one).iter().sum(),
                    dropped: OWN_DROPS.map(one).iter().sum(),
                    waiting: one("under_way"),
                }
            });
            return Some(Status::Wire(WireStatus { id, ends: [a, b], fault, directions }));
        }
        let qps = said["qps"].as_array().into_iter().flatten().filter_map(QpStatus::of);
        Some(Status::Nic(NicStatus {
            id,
            device: text("description")?,
            up: said["up"].as_bool()?,
            queue_pairs: said["queue_pairs"].as_u64()?,
            bytes: [counter("sent_bytes"), counter("rcvd_bytes")],
            packets: [counter("sent_pkts"), counter("rcvd_pkts")],
            again: counter("retransmitted_packets") + counter("sdr_retransmitted_packets"),
            qps: qps.collect(),
        }))
    }
}

impl QpStatus {
    fn of(said: &Value) -> Option<QpStatus> {
        let text = |name: &str| said[name].as_str().map(plain);
        let number = |name: &str| said[name].as_u64();
        let short = |name: &str| u32::try_from(said[name].as_u64()?).ok();
        Some(QpStatus {
            qpn: short("qpn")?,
            transport: text("transport")?,
            state: text("state")?,
            peer: text("peer"),
            peer_qpn: number("peer_qpn"),
            mtu: number("mtu"),
            window: number("window"),
            rate: number("rate"),
            posted: short("posted")?,
            completed: short("completed")?,
            requested: number("requested")?,
            answered: short("answered")?,
            in_flight: number("in_flight")?,
            retries: number("retries")?,
            rnr_retries: number("rnr_retries")?,
        })
    }

    /// The peer's address and number.
    pub(super) fn peer_text(&self) -> String {
        match (&self.peer, self.peer_qpn) {
            (Some(peer), Some(qpn)) => format!("{peer} {qpn:#x}"),
            _ => "-".into(),
        }
    }
}
