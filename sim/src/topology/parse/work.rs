//! Flows and groups, as tables of a file.

use std::time::Duration;

use softnic_fault_injector::units::parse_size;
use softnic_nic::transports::qp::PayloadMode;
use softnic_nic::transports::{BestEffort, Transport};
use softnic_sdr::reliable::Scheme;
use softnic_switch::group::MAX_RECEIVERS;
use softnic_wire::PathMtu;
use toml::Value;

use super::keys::Keys;
use super::{TopologyError, time};
use crate::topology::bifurcation::bifurcate;
use crate::topology::{Flow, Group, Topology};
use crate::workload::{Cc, Op, UNITS, Unsupported, unsupported};

pub(super) fn flow(keys: &Keys<'_>, topology: &Topology) -> Result<Flow, TopologyError> {
    let named = |key| keys.table.get(key).and_then(Value::as_str).unwrap_or_default();
    let from = host(keys, topology, "from", named("from"))?;
    let to = host(keys, topology, "to", named("to"))?;
    if from == to {
        return Err(keys.error("to", "a flow goes to another host"));
    }
    work(keys, topology, from, to)
}

pub(super) fn group(keys: &Keys<'_>, topology: &Topology) -> Result<Group, TopologyError> {
    let from = host(keys, topology, "from", keys.table.get("from").and_then(Value::as_str).unwrap_or_default())?;
    let Some(names) = keys.names("to") else {
        return Err(keys.error("to", "its receivers, e.g. [\"h1\", \"h2\"]"));
    };
    let mut receivers = Vec::new();
    for name in names {
        let to = host(keys, topology, "to", name)?;
        if to == from {
            return Err(keys.error("to", format!("the sender {name} is among the receivers")));
        }
        if receivers.contains(&to) {
            return Err(keys.error("to", format!("'{name}' is there twice")));
        }
        receivers.push(to);
    }
    let Some(&first) = receivers.first() else {
        return Err(keys.error("to", "a group has at least one receiver"));
    };
    if receivers.len() > MAX_RECEIVERS {
        return Err(keys.error("to", format!("a group has at most {MAX_RECEIVERS} receivers")));
    }
    let work = work(keys, topology, from, first)?;
    if !matches!(work.op, Op::Write | Op::Send) {
        return Err(keys.error("op", "a group has no READs and no atomics: \"write\" or \"send\""));
    }
    bifurcate(topology, from, &receivers).map_err(|why| keys.error("to", why))?;
    Ok(Group { work, receivers })
}

pub(super) fn host(
    keys: &Keys<'_>,
    topology: &Topology,
    key: &'static str,
    name: &str,
) -> Result<usize, TopologyError> {
    topology.hosts.iter().position(|h| h == name).ok_or_else(|| {
        let last = topology.hosts.last().map_or("", String::as_str);
        keys.error(key, format!("a host: {} to {last}", topology.hosts[0]))
    })
}

/// What flows and groups have in common.
fn work(keys: &Keys<'_>, topology: &Topology, from: usize, to: usize) -> Result<Flow, TopologyError> {
    let named = keys.table.get("transport").and_then(Value::as_str).filter(|name| name.starts_with("sdr-"));
    let scheme = named.map(|name| name.parse::<Scheme>().map_err(|e| keys.error("transport", e.to_string())));
    let scheme = scheme.transpose()?;
    let transport = match scheme {
        Some(_) => Transport::Rc,
        None => keys.parsed("transport", str::parse::<Transport>)?.unwrap_or_default(),
    };
    let datagrams = !transport.kind().is_connected();
    let ops = [("write", Op::Write), ("send", Op::Send), ("read", Op::Read), ("atomic", Op::Atomic)];
    let op = keys.choice("op", &ops)?.unwrap_or(if datagrams { Op::Send } else { Op::Write });
    let size = keys.parsed("size", parse_size)?.unwrap_or(match op {
        Op::Atomic => 8,
        _ if datagrams => topology.mtu.bytes().into(),
        _ => 1 << 20,
    });
    if op == Op::Atomic && size != 8 {
        return Err(keys.error("size", "an atomic is of 8 bytes"));
    }
    if size > 1 << 31 {
        return Err(keys.error("size", "a message is at most 2G"));
    }
    if topology.payload == PayloadMode::Real && size > 1 << 28 {
        return Err(keys.error("size", "at most 256M; with payload = \"none\" up to 2G"));
    }
    if let Some(scheme) = scheme {
        check_reliable(keys, scheme, op)?;
    }
    let cc = keys.parsed("cc", |s| Cc::parse(s, &UNITS))?.unwrap_or_default();
    if let Some(what) = unsupported(transport, op, size, topology.mtu, cc) {
        return Err(match what {
            Unsupported::Cc => unsupported_cc(keys, transport, cc),
            Unsupported::Responses => keys.error("op", "uc has no READs and no atomics: \"write\" or \"send\""),
            Unsupported::Atomics => keys.error("op", "xp has no atomics: \"write\", \"send\" or \"read\""),
            Unsupported::NotSend => keys.error("op", "ud has SENDs only: \"send\""),
            Unsupported::Length => {
                keys.error("size", format!("a datagram is no longer than the path MTU, {}", topology.mtu.bytes()))
            }
        });
    }
    Ok(Flow {
        from,
        to,
        transport,
        scheme,
        chunk: chunk(keys, scheme, topology.mtu)?,
        op,
        size: size as u32,
        count: keys.integer("count", 1..=1 << 40)?.unwrap_or(1),
        depth: keys.integer("depth", 1..=1 << 16)?.unwrap_or(16) as u32,
        start: keys.parsed("start", time)?.unwrap_or_default(),
        stop: keys.parsed("stop", time)?,
        dscp: keys.integer("dscp", 0..=63)?.unwrap_or(0) as u8,
        cc,
        deadline: deadline(keys, transport)?,
        stride: stride(keys, transport)?,
    })
}

/// Why a transport does not take that congestion control.
pub(super) fn unsupported_cc(keys: &Keys<'_>, transport: Transport, cc: Cc) -> TopologyError {
    keys.error(
        "cc",
        match transport.has_congestion_control() {
            true => format!("{} is not for {transport}", cc.name()),
            false => format!("{transport} has no congestion control"),
        },
    )
}

/// The time that each message has, where the transport keeps deadlines.
fn deadline(keys: &Keys<'_>, transport: Transport) -> Result<Option<Duration>, TopologyError> {
    match keys.parsed("deadline", time)? {
        Some(_) if !transport.is_bounded() => Err(keys.error("deadline", "only xp keeps deadlines")),
        Some(deadline) if deadline.is_zero() => Err(keys.error("deadline", "longer than 0: nothing would leave")),
        deadline => Ok(deadline),
    }
}

/// Blocks that each packet has a part of.
fn stride(keys: &Keys<'_>, transport: Transport) -> Result<u16, TopologyError> {
    let most = u64::from(BestEffort::MAX_STRIDE);
    match keys.integer("stride", 1..=most)? {
        None | Some(1) => Ok(1),
        Some(_) if !transport.is_bounded() => Err(keys.error("stride", "only xp has strided packets")),
        Some(stride) if stride.is_power_of_two() => Ok(stride as u16),
        Some(_) => Err(keys.error("stride", format!("a power of two up to {most}"))),
    }
}

/// Bytes of a chunk, where messages have any.
fn chunk(keys: &Keys<'_>, scheme: Option<Scheme>, mtu: PathMtu) -> Result<Option<u32>, TopologyError> {
    let Some(bytes) = keys.parsed("chunk", parse_size)? else { return Ok(None) };
    if scheme.is_none() {
        return Err(keys.error("chunk", "for transports whose names begin with sdr-"));
    }
    let mtu = u64::from(mtu.bytes());
    match u32::try_from(bytes) {
        Ok(chunk) if bytes > 0 && bytes % mtu == 0 => Ok(Some(chunk)),
        _ => Err(keys.error("chunk", format!("a multiple of the path MTU, {mtu}, of less than 4G"))),
    }
}

/// What flows of reliable messages over SDR do not have.
fn check_reliable(keys: &Keys<'_>, scheme: Scheme, op: Op) -> Result<(), TopologyError> {
    if !matches!(op, Op::Write | Op::Send) {
        return Err(keys.error("op", format!("{scheme} has no READs and no atomics: \"write\" or \"send\"")));
    }
    if keys.table.contains_key("cc") {
        return Err(keys.error("cc", format!("{scheme} has no congestion control")));
    }
    Ok(())
}
