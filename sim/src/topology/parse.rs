//! Topologies as people write them, in TOML; `docs/simulator.md` describes the format.

mod keys;
mod work;

use std::str::FromStr;
use std::time::Duration;

use softnic_fault_injector::text::on_one_line;
use softnic_fault_injector::units::{parse_rate, parse_size, parse_time};
use softnic_fault_injector::{Fault, Policy, Spec};
use softnic_nic::transports::qp::PayloadMode;
use softnic_wire::PathMtu;
use toml::{Table, Value};

use super::{Kind, Link, Pfc, Place, RouteChange, Topology};
use keys::Keys;
use work::{flow, group};

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

const TOP: &[&str] = &[
    "kind",
    "hosts",
    "leaves",
    "spines",
    "k",
    "parallel",
    "names",
    "rate",
    "delay",
    "bottleneck",
    "queue",
    "ecn",
    "pfc",
    "fault",
    "mtu",
    "payload",
    "timeout",
    "retry",
    "programmable",
    "link",
    "switch",
    "event",
    "flow",
    "group",
];
const LINK: &[&str] = &["between", "rate", "delay", "fault", "parallel"];
const PFC: &[&str] = &["xoff", "xon", "headroom"];
const EVENT: &[&str] = &["at", "switch", "to", "via"];
const SWITCH: &[&str] = &["name", "programmable"];
const FLOW: &[&str] =
    &["from", "to", "op", "size", "count", "depth", "start", "stop", "cc", "dscp", "transport", "chunk"];
const GROUP: &[&str] = &["from", "to", "op", "size", "count", "depth", "start", "stop", "cc", "dscp"];

/// Switches that addresses can tell apart, and hosts in all.
const MAX_SWITCHES: u64 = 250;
const MAX_HOSTS: u64 = 4096;
/// Ports of the switches of a fat-tree, so that there are no more switches than that.
const MAX_K: u64 = 14;
/// Links between two switches.
const MAX_PARALLEL: u64 = 16;

impl FromStr for Topology {
    type Err = TopologyError;

    fn from_str(text: &str) -> Result<Topology, TopologyError> {
        let topology = Topology::network(text)?;
        if topology.work().next().is_none() {
            let why = "there is none: each begins with a line [[flow]], and has from and to".into();
            return Err(TopologyError::Key { place: String::new(), key: "flow", why });
        }
        Ok(topology)
    }
}

impl Topology {
    /// Reads a network that may be without flows.
    ///
    /// # Errors
    /// What was not understood.
    pub fn network(text: &str) -> Result<Topology, TopologyError> {
        let table: Table = text.parse().map_err(|e: toml::de::Error| TopologyError::Toml {
            line: 1 + e.span().map_or(0, |s| text.bytes().take(s.start).filter(|b| *b == b'\n').count()),
            why: e.message().replace('\n', ", "),
        })?;
        let top = Keys::new(String::new(), &table, TOP)?;
        let kind = kind(&top)?;
        if kind.hosts() > MAX_HOSTS as usize {
            return Err(top.error("hosts", format!("at most {MAX_HOSTS} in all")));
        }
        let usual = Topology::new(kind);
        let mut topology = Topology {
            hosts: names(&top, kind)?.unwrap_or_else(|| usual.hosts.clone()),
            policy: policy(&top, usual.policy)?,
            pfc: pfc(&top)?,
            mtu: top.integer("mtu", 256..=4096)?.map_or(Ok(usual.mtu), |n| {
                PathMtu::from_bytes(n as u32).ok_or_else(|| top.error("mtu", "256, 512, 1024, 2048 or 4096"))
            })?,
            payload: top
                .choice("payload", &[("real", PayloadMode::Real), ("none", PayloadMode::Elided)])?
                .unwrap_or_default(),
            timeout: top.integer("timeout", 0..=31)?.map(|n| n as u8),
            retry: top.integer("retry", 0..=7)?.map_or(usual.retry, |n| n as u8),
            ..usual
        };
        links(&top, &mut topology)?;
        switches(&top, &mut topology)?;
        events(&top, &mut topology)?;
        for (i, table) in top.tables("flow")?.into_iter().enumerate() {
            let keys = Keys::new(format!("flow {}: ", i + 1), table, FLOW)?;
            topology.flows.push(flow(&keys, &topology)?);
        }
        for (i, table) in top.tables("group")?.into_iter().enumerate() {
            let keys = Keys::new(format!("group {}: ", i + 1), table, GROUP)?;
            topology.groups.push(group(&keys, &topology)?);
        }
        Ok(topology)
    }
}

fn kind(top: &Keys<'_>) -> Result<Kind, TopologyError> {
    let name = top.choice("kind", &[("dumbbell", 0), ("star", 1), ("leaf-spine", 2), ("fat-tree", 3)])?;
    let number = |key, most| top.integer(key, 1..=most)?.ok_or_else(|| top.error(key, "it must be there"));
    let hosts = |least| match number("hosts", MAX_HOSTS)? as usize {
        n if n < least => Err(top.error("hosts", "a star has at least 2")),
        n => Ok(n),
    };
    for (key, of, why) in [
        ("leaves", 2, "only a leaf-spine has any"),
        ("spines", 2, "only a leaf-spine has any"),
        ("k", 3, "only a fat-tree has it"),
    ] {
        if name.is_some_and(|name| name != of) && top.table.contains_key(key) {
            return Err(top.error(key, why));
        }
    }
    match name {
        None => Err(top.error("kind", "it must be there: \"dumbbell\", \"star\", \"leaf-spine\" or \"fat-tree\"")),
        Some(0) => Ok(Kind::Dumbbell { hosts: hosts(1)? }),
        Some(1) => Ok(Kind::Star { hosts: hosts(2)? }),
        Some(2) => {
            let (leaves, spines) = (number("leaves", MAX_SWITCHES / 2)?, number("spines", MAX_SWITCHES / 2)?);
            Ok(Kind::LeafSpine { leaves: leaves as usize, spines: spines as usize, hosts: hosts(1)? })
        }
        Some(_) if top.table.contains_key("hosts") => {
            Err(top.error("hosts", "a fat-tree has k·k·k/4 of them: leave it out"))
        }
        Some(_) => match number("k", MAX_K)? {
            k if k % 2 == 0 => Ok(Kind::FatTree { k: k as usize }),
            _ => Err(top.error("k", format!("an even number from 2 to {MAX_K}"))),
        },
    }
}

fn names(top: &Keys<'_>, kind: Kind) -> Result<Option<Vec<String>>, TopologyError> {
    let n = kind.hosts();
    if !top.table.contains_key("names") {
        return Ok(None);
    }
    let names: Option<Vec<String>> = top.names("names").map(|names| names.into_iter().map(str::to_owned).collect());
    let Some(names) = names.filter(|names| names.len() == n) else {
        return Err(top.error("names", format!("a list of {n} names, one for each host")));
    };
    let mut all: Vec<_> = names.iter().cloned().chain(kind.switches()).collect();
    all.sort_unstable();
    match all.windows(2).find(|w| w[0] == w[1]) {
        Some(twice) => Err(top.error("names", format!("'{}' is there twice (switches have names too)", twice[0]))),
        None => Ok(Some(names)),
    }
}

fn policy(top: &Keys<'_>, usual: Policy) -> Result<Policy, TopologyError> {
    let limit = top.parsed("queue", parse_size)?.unwrap_or(usual.limit);
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

fn pfc(top: &Keys<'_>) -> Result<Option<Pfc>, TopologyError> {
    let Some(value) = top.table.get("pfc") else { return Ok(None) };
    if top.table.contains_key("queue") {
        return Err(top.error("queue", "with pfc nothing is dropped before a port: leave it out"));
    }
    let Some(table) = value.as_table() else {
        return Err(top.error("pfc", "e.g. { xoff = \"100K\", xon = \"50K\" }"));
    };
    let keys = Keys::new("pfc: ".into(), table, PFC)?;
    let xoff = match keys.parsed("xoff", parse_size)? {
        Some(xoff) if xoff > 0 => xoff,
        _ => return Err(keys.error("xoff", "it must be there, and at least 1 byte")),
    };
    let xon = keys.parsed("xon", parse_size)?.unwrap_or(xoff / 2);
    if xon > xoff {
        return Err(keys.error("xon", "at most xoff"));
    }
    Ok(Some(Pfc { xoff, xon, headroom: keys.parsed("headroom", parse_size)? }))
}

fn links(top: &Keys<'_>, topology: &mut Topology) -> Result<(), TopologyError> {
    let rate = top.parsed("rate", parse_rate)?.unwrap_or(10_000_000_000);
    let between = top.parsed("bottleneck", parse_rate)?.unwrap_or(rate);
    let delay = top.parsed("delay", time)?.unwrap_or(Duration::from_micros(1));
    let faults = top.parsed("fault", spec)?.unwrap_or_default();
    let parallel = top.integer("parallel", 1..=MAX_PARALLEL)?.unwrap_or(1) as usize;
    if parallel > 1 && topology.switches.len() == 1 {
        return Err(top.error("parallel", "there is one switch, and no link between two"));
    }
    for (a, b) in topology.kind.links() {
        let (rate, parallel) = if matches!(a, Place::Host(_)) { (rate, 1) } else { (between, parallel) };
        let link = Link { a, b, rate, delay, faults: faults.clone() };
        topology.links.extend(std::iter::repeat_n(link, parallel));
    }
    for (i, table) in top.tables("link")?.into_iter().enumerate() {
        let keys = Keys::new(format!("link {}: ", i + 1), table, LINK)?;
        let ends = keys.names("between").unwrap_or_default().into_iter().map(|name| topology.place(name));
        let Some([a, b]) = ends.collect::<Option<Vec<Place>>>().and_then(|ends| <[Place; 2]>::try_from(ends).ok())
        else {
            return Err(keys.error("between", "two places, e.g. [\"h0\", \"s0\"]"));
        };
        let (rate, delay) = (keys.parsed("rate", parse_rate)?, keys.parsed("delay", time)?);
        let faults = keys.parsed("fault", spec)?;
        let parallel = keys.integer("parallel", 1..=MAX_PARALLEL)?;
        let Some(&first) = topology.links_between(a, b).first() else {
            return Err(keys.error("between", "there is no link between these two"));
        };
        if parallel.is_some() && [a, b].iter().any(|end| matches!(end, Place::Host(_))) {
            return Err(keys.error("parallel", "a host has one link"));
        }
        for i in topology.links_between(a, b) {
            let link = &mut topology.links[i];
            // `ab` is the way from the one that was named first.
            (link.a, link.b) = (a, b);
            link.rate = rate.unwrap_or(link.rate);
            link.delay = delay.unwrap_or(link.delay);
            link.faults = faults.clone().unwrap_or_else(|| link.faults.clone());
        }
        if let Some(parallel) = parallel {
            let link = topology.links[first].clone();
            let others = topology.links_between(a, b).len() - 1;
            topology.links.drain(first + 1..first + 1 + others);
            let again = std::iter::repeat_n(link, parallel as usize - 1);
            topology.links.splice(first + 1..first + 1, again);
        }
    }
    // A MAC address is behind one port: who is to use several links has to route.
    topology.routed |= topology.links.len() > topology.kind.links().len();
    Ok(())
}

fn switches(top: &Keys<'_>, topology: &mut Topology) -> Result<(), TopologyError> {
    // Those with hosts come first.
    let tors = topology.kind.tors();
    let programmable = top.choice("programmable", &[("all", topology.switches.len()), ("tor", tors), ("none", 0)])?;
    let programmable = programmable.unwrap_or(topology.switches.len());
    topology.programmable = (0..topology.switches.len()).map(|switch| switch < programmable).collect();
    for (i, table) in top.tables("switch")?.into_iter().enumerate() {
        let keys = Keys::new(format!("switch {}: ", i + 1), table, SWITCH)?;
        let switch = switch(&keys, topology, "name")?;
        topology.programmable[switch] = keys.boolean("programmable")?.unwrap_or(topology.programmable[switch]);
    }
    Ok(())
}

/// The switch that a key names.
fn switch(keys: &Keys<'_>, topology: &Topology, key: &'static str) -> Result<usize, TopologyError> {
    match keys.table.get(key).and_then(Value::as_str).and_then(|name| topology.place(name)) {
        Some(Place::Switch(switch)) => Ok(switch),
        _ => Err(keys.error(key, format!("a switch: {} to {}", topology.switches[0], topology.last_switch()))),
    }
}

fn events(top: &Keys<'_>, topology: &mut Topology) -> Result<(), TopologyError> {
    let mut changes = Vec::new();
    for (i, table) in top.tables("event")?.into_iter().enumerate() {
        let keys = Keys::new(format!("event {}: ", i + 1), table, EVENT)?;
        if !topology.routed {
            return Err(keys.error("switch", "frames go by MAC address in this network: there are no routes"));
        }
        let at = keys.parsed("at", time)?.ok_or_else(|| keys.error("at", "when, e.g. \"5ms\""))?;
        let switch = switch(&keys, topology, "switch")?;
        let to = match keys.table.get("to").and_then(Value::as_str).and_then(|name| topology.place(name)) {
            Some(Place::Host(host)) if topology.kind.attached(host).0 != switch => Place::Host(host),
            Some(Place::Switch(tor)) if tor < topology.kind.tors() && tor != switch => Place::Switch(tor),
            _ => return Err(keys.error("to", "a host of another switch, or such a switch for all its hosts")),
        };
        let neighbour = |name: &str| match topology.place(name) {
            Some(Place::Switch(next)) => {
                let linked = !topology.links_between(Place::Switch(switch), Place::Switch(next)).is_empty();
                linked.then_some(next)
            }
            _ => None,
        };
        let via: Option<Vec<usize>> = keys.names("via").and_then(|names| names.into_iter().map(neighbour).collect());
        let via = via.ok_or_else(|| keys.error("via", "switches that have a link with this one, e.g. [\"spine0\"]"))?;
        changes.push((keys, RouteChange { at, switch, to, via }));
    }
    changes.sort_by_key(|(_, change)| change.at);
    for (n, (keys, change)) in changes.into_iter().enumerate() {
        let (switch, hosts) = (
            change.switch,
            match change.to {
                Place::Host(host) => host..host + 1,
                Place::Switch(tor) => topology.kind.hosts_of(tor),
            },
        );
        topology.changes.push(change);
        if let Some(host) = hosts.into_iter().find(|host| topology.goes_round(switch, *host, n + 1)) {
            return Err(keys.error("via", format!("packets to {} would go round in a circle", topology.hosts[host])));
        }
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

impl Topology {
    fn last_switch(&self) -> &str {
        self.switches.last().map_or("", String::as_str)
    }

    fn place(&self, name: &str) -> Option<Place> {
        let at = |names: &[String]| names.iter().position(|n| n == name);
        at(&self.hosts).map(Place::Host).or_else(|| at(&self.switches).map(Place::Switch))
    }
}
