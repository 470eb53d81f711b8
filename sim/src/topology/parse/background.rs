//! Background traffic, as tables of a file.

use std::time::Duration;

use softnic_fault_injector::units::parse_size;
use softnic_nic::transports::Transport;
use toml::Value;

use super::keys::Keys;
use super::work::{host, unsupported_cc};
use super::{TopologyError, time};
use crate::topology::Topology;
use crate::topology::background::{Background, Pattern};
use crate::workload::{Cc, Op, UNITS, unsupported};

/// Queue pairs of one background at its senders.
const MAX_PAIRS: usize = 1 << 14;
/// Bytes of a message.
const MAX_SIZE: u64 = 1 << 30;

/// Which of the patterns, before its own keys are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Bursts,
    Poisson,
    Incast,
}

pub(super) fn background(keys: &Keys<'_>, topology: &Topology) -> Result<Background, TopologyError> {
    let kinds = [("bursts", Kind::Bursts), ("poisson", Kind::Poisson), ("incast", Kind::Incast)];
    let Some(kind) = keys.choice("pattern", &kinds)? else {
        return Err(keys.error("pattern", "it must be there: \"bursts\", \"poisson\" or \"incast\""));
    };
    for (key, of, why) in [
        ("on", Kind::Bursts, "only bursts have it"),
        ("size", Kind::Poisson, "only poisson has it"),
        ("hosts", Kind::Incast, "only an incast has it"),
        ("every", Kind::Incast, "only an incast has it"),
    ] {
        if kind != of && keys.table.contains_key(key) {
            return Err(keys.error(key, why));
        }
    }
    let (mut from, to) = (hosts(keys, topology, "from")?, hosts(keys, topology, "to")?);
    if keys.table.get("from").and_then(Value::as_str) == Some("all") {
        // A receiver alone is not among its senders.
        from.retain(|from| to.iter().any(|to| to != from));
    }
    if let Some(alone) = from.iter().find(|from| to.iter().all(|to| to == *from)) {
        return Err(keys.error("to", format!("{} has nobody to send to", topology.hosts[*alone])));
    }
    let transport = keys.parsed("transport", str::parse::<Transport>)?.unwrap_or(Transport::Uc);
    let cc = keys.parsed("cc", |s| Cc::parse(s, &UNITS))?.unwrap_or_default();
    if !transport.has_write() {
        return Err(keys.error("transport", format!("background traffic is WRITEs, which {transport} has not")));
    }
    if unsupported(transport, Op::Write, 0, topology.mtu, cc).is_some() {
        return Err(unsupported_cc(keys, transport, cc));
    }
    let (start, stop) = (keys.parsed("start", time)?.unwrap_or_default(), keys.parsed("stop", time)?);
    if stop.is_some_and(|stop| stop <= start) {
        return Err(keys.error("stop", "later than start"));
    }
    let pattern = match kind {
        Kind::Bursts => Pattern::Bursts { on: duration(keys, "on")?.unwrap_or(Duration::from_micros(100)) },
        Kind::Poisson => Pattern::Poisson { sizes: sizes(keys)? },
        Kind::Incast => {
            let most = from.len() as u64;
            let hosts = keys.integer("hosts", 1..=most)?.unwrap_or(most) as usize;
            let every =
                duration(keys, "every")?.ok_or_else(|| keys.error("every", "it must be there, e.g. \"1ms\""))?;
            Pattern::Incast { hosts, every }
        }
    };
    let dscp = keys.integer("dscp", 0..=63)?.unwrap_or(0) as u8;
    let background = Background { from, to, pattern, share: share(keys)?, transport, cc, dscp, start, stop };
    if background.pairs().take(MAX_PAIRS + 1).count() > MAX_PAIRS {
        return Err(keys.error("to", format!("at most {MAX_PAIRS} pairs of a sender and a receiver")));
    }
    check_incast(keys, topology, &background)?;
    Ok(background)
}

/// An incast's senders have a packet each to post, at least to every receiver.
fn check_incast(keys: &Keys<'_>, topology: &Topology, background: &Background) -> Result<(), TopologyError> {
    if !matches!(background.pattern, Pattern::Incast { .. }) {
        return Ok(());
    }
    let bytes = background.to.iter().map(|to| background.incast_bytes(*to, topology.line_rate(*to), topology.mtu));
    match bytes.min() {
        Some(0) => Err(keys.error("every", "in this time the share is less than a packet for each of the hosts")),
        Some(most) if most > MAX_SIZE => {
            Err(keys.error("every", "in this time the share is more than 1G for each of the hosts"))
        }
        _ => Ok(()),
    }
}

/// Names of hosts, or `"all"`.
fn hosts(keys: &Keys<'_>, topology: &Topology, key: &'static str) -> Result<Vec<usize>, TopologyError> {
    if keys.table.get(key).and_then(Value::as_str) == Some("all") {
        return Ok((0..topology.hosts.len()).collect());
    }
    let names = keys.names(key).filter(|names| !names.is_empty());
    let names = names.ok_or_else(|| keys.error(key, "hosts, e.g. [\"h1\", \"h2\"], or \"all\""))?;
    let mut hosts = Vec::new();
    for name in names {
        let host = host(keys, topology, key, name)?;
        if hosts.contains(&host) {
            return Err(keys.error(key, format!("'{name}' is there twice")));
        }
        hosts.push(host);
    }
    Ok(hosts)
}

fn share(keys: &Keys<'_>) -> Result<f64, TopologyError> {
    let value = keys.table.get("share");
    let share = value.and_then(|v| v.as_float().or_else(|| v.as_integer().map(|n| n as f64)));
    // Less would be a burst in hours.
    share.filter(|share| (1e-6..=1.0).contains(share)).ok_or_else(|| {
        keys.error("share", "a part of the line: it must be there, a number above 0 and up to 1, e.g. 0.5")
    })
}

fn duration(keys: &Keys<'_>, key: &'static str) -> Result<Option<Duration>, TopologyError> {
    match keys.parsed(key, time)? {
        Some(time) if time < Duration::from_micros(1) => Err(keys.error(key, "at least 1us")),
        time => Ok(time),
    }
}

/// One size, or several with how often each comes.
fn sizes(keys: &Keys<'_>) -> Result<Vec<(u32, f64)>, TopologyError> {
    let Some(list) = keys.table.get("size").and_then(Value::as_array) else {
        let size = keys.parsed("size", size)?.unwrap_or(64 << 10);
        return Ok(vec![(size, 1.0)]);
    };
    let wrong = || keys.error("size", "a size, or several with weights, e.g. [[\"4K\", 9], [\"1M\", 1]]");
    let mut sizes = Vec::new();
    for pair in list {
        let Some([length, weight]) = pair.as_array().map(Vec::as_slice) else { return Err(wrong()) };
        let text = length.as_str().map(str::to_owned).or_else(|| length.as_integer().map(|n| n.to_string()));
        let length = size(&text.ok_or_else(wrong)?).map_err(|why| keys.error("size", why))?;
        let weight = weight.as_float().or_else(|| weight.as_integer().map(|n| n as f64));
        let weight = weight.filter(|weight| *weight > 0.0 && *weight <= 1e9).ok_or_else(wrong)?;
        sizes.push((length, weight));
    }
    if sizes.is_empty() { Err(wrong()) } else { Ok(sizes) }
}

fn size(s: &str) -> Result<u32, String> {
    match parse_size(s)? {
        n if (1..=MAX_SIZE).contains(&n) => Ok(n as u32),
        _ => Err(format!("'{s}' is no size of a message here: 1 byte to 1G")),
    }
}
