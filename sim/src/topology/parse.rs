//! Topologies as people write them, in TOML; `docs/simulator.md` describes the format.

use std::fmt::Display;
use std::str::FromStr;
use std::time::Duration;

use softnic_fault_injector::text::on_one_line;
use softnic_fault_injector::units::{parse_rate, parse_size, parse_time};
use softnic_fault_injector::{Fault, Policy, Spec};
use softnic_nic::transports::Transport;
use softnic_nic::transports::qp::PayloadMode;
use softnic_sdr::reliable::Scheme;
use softnic_wire::PathMtu;
use toml::{Table, Value};

use super::{Flow, Kind, Link, Place, Topology};
use crate::workload::{Cc, Op, UNITS, Unsupported, unsupported};

/// Why a topology was not understood.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// It is not TOML.
    #[error("line {line}: {why}")]
    Toml {
        /// From 1.
        line: usize,
        /// What the parser says.
        why: String,
    },
    /// A key that is not known there.
    #[error("{place}there is no key '{}' here: {known}", on_one_line(.key))]
    UnknownKey {
        /// "flow 2: " or nothing.
        place: String,
        /// The key.
        key: String,
        /// Those that there are.
        known: String,
    },
    /// A value that the key does not take, or a key that is missing.
    #[error("{place}{key}: {}", on_one_line(.why))]
    Key {
        /// "flow 2: " or nothing.
        place: String,
        /// The key.
        key: &'static str,
        /// What it takes.
        why: String,
    },
}

const TOP: [&str; 17] = [
    "kind",
    "hosts",
    "leaves",
    "spines",
    "names",
    "rate",
    "delay",
    "bottleneck",
    "queue",
    "ecn",
    "fault",
    "mtu",
    "payload",
    "timeout",
    "retry",
    "link",
    "flow",
];
const LINK: [&str; 4] = ["between", "rate", "delay", "fault"];
const FLOW: [&str; 11] = ["from", "to", "op", "size", "count", "depth", "start", "stop", "cc", "transport", "chunk"];

/// Switches that addresses can tell apart, and hosts in all.
const MAX_SWITCHES: u64 = 250;
const MAX_HOSTS: u64 = 4096;

impl FromStr for Topology {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Topology, TopologyError> {
        let table: Table = text.parse().map_err(|e: toml::de::Error| TopologyError::Toml {
            line: 1 + e.span().map_or(0, |s| text.bytes().take(s.start).filter(|b| *b == b'\n').count()),
            why: e.message().replace('\n', ", "),
        })?;
        let top = Keys::new(String::new(), &table, &TOP)?;
        let kind = kind(&top)?;
        if kind.hosts() > MAX_HOSTS as usize {
            return Err(top.error("hosts", format!("at most {MAX_HOSTS} in all")));
        }
        let mut topology = Topology {
            kind,
            hosts: names(&top, kind)?,
            switches: kind.switches(),
            links: Vec::new(),
            policy: policy(&top)?,
            mtu: top.integer("mtu", 256..=4096)?.map_or(Ok(PathMtu::B1024), |n| {
                PathMtu::from_bytes(n as u32).ok_or_else(|| top.error("mtu", "256, 512, 1024, 2048 or 4096"))
            })?,
            payload: top
                .choice("payload", &[("real", PayloadMode::Real), ("none", PayloadMode::Elided)])?
                .unwrap_or_default(),
            timeout: top.integer("timeout", 0..=31)?.map(|n| n as u8),
            retry: top.integer("retry", 0..=7)?.unwrap_or(7) as u8,
            flows: Vec::new(),
        };
        links(&top, &mut topology)?;
        for (i, table) in top.tables("flow")?.into_iter().enumerate() {
            let keys = Keys::new(format!("flow {}: ", i + 1), table, &FLOW)?;
            topology.flows.push(flow(&keys, &topology)?);
        }
        if topology.flows.is_empty() {
            return Err(top.error("flow", "there is none: each begins with a line [[flow]], and has from and to"));
        }
        Ok(topology)
    }
}

fn kind(top: &Keys<'_>) -> Result<Kind, TopologyError> {
    let name = top.choice("kind", &[("dumbbell", 0), ("star", 1), ("leaf-spine", 2)])?;
    let number = |key, most| top.integer(key, 1..=most)?.ok_or_else(|| top.error(key, "it must be there"));
    let hosts = |least| match number("hosts", MAX_HOSTS)? as usize {
        n if n < least => Err(top.error("hosts", "a star has at least 2")),
        n => Ok(n),
    };
    let only_leaf_spine = || match ["leaves", "spines"].into_iter().find(|k| top.table.contains_key(*k)) {
        Some(key) => Err(top.error(key, "only a leaf-spine has any")),
        None => Ok(()),
    };
    match name {
        None => Err(top.error("kind", "it must be there: \"dumbbell\", \"star\" or \"leaf-spine\"")),
        Some(0) => only_leaf_spine().and(Ok(Kind::Dumbbell { hosts: hosts(1)? })),
        Some(1) => only_leaf_spine().and(Ok(Kind::Star { hosts: hosts(2)? })),
        Some(_) => {
            let (leaves, spines) = (number("leaves", MAX_SWITCHES / 2)?, number("spines", MAX_SWITCHES / 2)?);
            Ok(Kind::LeafSpine { leaves: leaves as usize, spines: spines as usize, hosts: hosts(1)? })
        }
    }
}

fn names(top: &Keys<'_>, kind: Kind) -> Result<Vec<String>, TopologyError> {
    let n = kind.hosts();
    let Some(value) = top.table.get("names") else { return Ok((0..n).map(|i| format!("h{i}")).collect()) };
    let names: Option<Vec<String>> =
        value.as_array().and_then(|a| a.iter().map(|v| v.as_str().map(str::to_owned)).collect());
    let Some(names) = names.filter(|names| names.len() == n) else {
        return Err(top.error("names", format!("a list of {n} names, one for each host")));
    };
    let mut all: Vec<_> = names.iter().cloned().chain(kind.switches()).collect();
    all.sort_unstable();
    match all.windows(2).find(|w| w[0] == w[1]) {
        Some(twice) => Err(top.error("names", format!("'{}' is there twice (switches have names too)", twice[0]))),
        None => Ok(names),
    }
}

fn policy(top: &Keys<'_>) -> Result<Policy, TopologyError> {
    let limit = top.parsed("queue", parse_size)?.unwrap_or(1 << 20);
    if limit == 0 {
        return Err(top.error("queue", "at least 1 byte"));
    }
    // The same words as in a SPEC, which needs a rate for it.
    let ecn = |s: &str| format!("rate=1Gbit,ecn={s}").parse::<Spec>();
    let red = top
        .parsed("ecn", ecn)?
        .and_then(|spec| spec.faults.into_iter().find_map(|f| if let Fault::Ecn(red) = f { Some(red) } else { None }));
    Ok(Policy { limit, red })
}

fn links(top: &Keys<'_>, topology: &mut Topology) -> Result<(), TopologyError> {
    let rate = top.parsed("rate", parse_rate)?.unwrap_or(10_000_000_000);
    let between = top.parsed("bottleneck", parse_rate)?.unwrap_or(rate);
    let delay = top.parsed("delay", time)?.unwrap_or(Duration::from_micros(1));
    let faults = top.parsed("fault", spec)?.unwrap_or_default();
    for (a, b) in topology.kind.links() {
        let rate = if matches!(a, Place::Host(_)) { rate } else { between };
        topology.links.push(Link { a, b, rate, delay, faults: faults.clone() });
    }
    for (i, table) in top.tables("link")?.into_iter().enumerate() {
        let keys = Keys::new(format!("link {}: ", i + 1), table, &LINK)?;
        let ends: Option<Vec<Place>> = keys.table.get("between").and_then(Value::as_array).and_then(|ends| {
            let place = |v: &Value| topology.place(v.as_str()?);
            ends.iter().map(place).collect()
        });
        let Some([a, b]) = ends.as_deref() else {
            return Err(keys.error("between", "two places, e.g. [\"h0\", \"s0\"]"));
        };
        let (rate, delay) = (keys.parsed("rate", parse_rate)?, keys.parsed("delay", time)?);
        let faults = keys.parsed("fault", spec)?;
        let Some(link) = topology.link_between(*a, *b) else {
            return Err(keys.error("between", "there is no link between these two"));
        };
        // `ab` is the way from the one that was named first.
        (link.a, link.b) = (*a, *b);
        link.rate = rate.unwrap_or(link.rate);
        link.delay = delay.unwrap_or(link.delay);
        link.faults = faults.unwrap_or_else(|| link.faults.clone());
    }
    Ok(())
}

/// Far beyond every use, and far from the end of virtual time.
fn time(s: &str) -> Result<Duration, String> {
    match parse_time(s)? {
        t if t <= Duration::from_secs(1000) => Ok(t),
        _ => Err(format!("'{s}' is too long: at most 1000s")),
    }
}

fn spec(s: &str) -> Result<Spec, String> {
    let spec: Spec = s.parse().map_err(|e: softnic_fault_injector::SpecError| e.to_string())?;
    spec.check_link().map_err(|e| e.to_string())?;
    Ok(spec)
}

fn flow(keys: &Keys<'_>, topology: &Topology) -> Result<Flow, TopologyError> {
    let host = |key| {
        let name = keys.table.get(key).and_then(Value::as_str);
        let found = name.and_then(|n| topology.hosts.iter().position(|h| h == n));
        found.ok_or_else(|| {
            let last = topology.hosts.last().map_or("", String::as_str);
            keys.error(key, format!("a host: {} to {last}", topology.hosts[0]))
        })
    };
    let (from, to) = (host("from")?, host("to")?);
    if from == to {
        return Err(keys.error("to", "a flow goes to another host"));
    }
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
            Unsupported::Cc => keys.error("cc", format!("{transport} has no congestion control")),
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
        cc,
    })
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

impl Topology {
    fn place(&self, name: &str) -> Option<Place> {
        let at = |names: &[String]| names.iter().position(|n| n == name);
        at(&self.hosts).map(Place::Host).or_else(|| at(&self.switches).map(Place::Switch))
    }
}

/// The keys of one table, and what to call it.
struct Keys<'a> {
    place: String,
    table: &'a Table,
}

impl<'a> Keys<'a> {
    fn new(place: String, table: &'a Table, known: &[&str]) -> Result<Keys<'a>, TopologyError> {
        match table.keys().find(|k| !known.contains(&k.as_str())) {
            Some(key) => Err(TopologyError::UnknownKey { place, key: key.clone(), known: known.join(", ") }),
            None => Ok(Keys { place, table }),
        }
    }

    fn error(&self, key: &'static str, why: impl Into<String>) -> TopologyError {
        TopologyError::Key { place: self.place.clone(), key, why: why.into() }
    }

    /// A value that is written as text.
    fn parsed<T, E: Display>(
        &self,
        key: &'static str,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Option<T>, TopologyError> {
        let Some(v) = self.table.get(key) else { return Ok(None) };
        // A size may be a bare number.
        let text = v.as_str().map(str::to_owned).or_else(|| v.as_integer().map(|n| n.to_string()));
        let text = text.ok_or_else(|| self.error(key, "write it in quotes"))?;
        parse(&text).map(Some).map_err(|e| self.error(key, e.to_string()))
    }

    fn integer(&self, key: &'static str, range: std::ops::RangeInclusive<u64>) -> Result<Option<u64>, TopologyError> {
        let Some(v) = self.table.get(key) else { return Ok(None) };
        let found = v.as_integer().and_then(|n| u64::try_from(n).ok()).filter(|n| range.contains(n));
        let why = || format!("a whole number from {} to {}", range.start(), range.end());
        found.map(Some).ok_or_else(|| self.error(key, why()))
    }

    fn choice<T: Copy>(&self, key: &'static str, of: &[(&str, T)]) -> Result<Option<T>, TopologyError> {
        let Some(v) = self.table.get(key) else { return Ok(None) };
        let found = of.iter().find(|(name, _)| v.as_str() == Some(name)).map(|(_, value)| *value);
        let names = || of.iter().map(|(name, _)| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        found.map(Some).ok_or_else(|| self.error(key, format!("one of {}", names())))
    }

    fn tables(&self, key: &'static str) -> Result<Vec<&'a Table>, TopologyError> {
        let Some(v) = self.table.get(key) else { return Ok(Vec::new()) };
        let list = v.as_array().and_then(|a| a.iter().map(Value::as_table).collect());
        list.ok_or_else(|| self.error(key, format!("each begins with a line [[{key}]], in two brackets")))
    }
}
