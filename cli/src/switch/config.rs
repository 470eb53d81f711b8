//! The file of a switch: TOML, described in docs/switch.md. What is wrong is told in one line, with its place and key.

use std::fmt;
use std::io::Read;
use std::net::IpAddr;
use std::str::FromStr;

use serde::de::{Error, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer};
use softnic_fault_injector::text::on_one_line;
use softnic_fault_injector::units::parse_rate;
use softnic_fault_injector::{Fault, Policy, Red, Spec};
use softnic_runtime::switch::{MAX_PORTS, Options, PortOptions};
use softnic_switch::{NextHop, Prefix, Switch, SwitchConfig};
use softnic_wire::MacAddr;
use toml::Spanned;

use super::group::{GroupText, Size, Word};

/// Bytes that a file may have: who names a capture or a device by mistake is told so at once.
const MAX_FILE: u64 = 64 << 20;
/// Bytes of a queue that is not said.
const QUEUE: u64 = 1 << 20;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    mac: Option<Spanned<Word<MacAddr>>>,
    #[serde(default)]
    addresses: Vec<Word<Subnet>>,
    #[serde(default, rename = "port")]
    ports: Vec<Spanned<PortText>>,
    #[serde(default, rename = "route")]
    routes: Vec<Spanned<RouteText>>,
    #[serde(default, rename = "group")]
    groups: Vec<Spanned<GroupText>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PortText {
    interface: String,
    queue: Option<Size>,
    ecn: Option<Word<Ecn>>,
    rate: Option<Word<Rate>>,
    #[serde(default)]
    macs: Vec<Spanned<Word<MacAddr>>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RouteText {
    to: Word<Subnet>,
    via: Vec<Spanned<HopText>>,
}

/// A next hop: an address, "direct", or a neighbour whose place is known.
#[derive(Debug)]
enum HopText {
    Direct,
    Via(IpAddr),
    Fixed(FixedText),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FixedText {
    mac: Word<MacAddr>,
    port: Option<String>,
}

impl<'de> Deserialize<'de> for HopText {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<HopText, D::Error> {
        struct HopVisitor;
        impl<'de> Visitor<'de> for HopVisitor {
            type Value = HopText;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a next hop: \"10.0.0.1\", \"direct\" or { port = \"eth1\", mac = \"02:00:00:00:00:01\" }")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<HopText, E> {
                match text {
                    "direct" => Ok(HopText::Direct),
                    _ => text
                        .parse()
                        .map(HopText::Via)
                        .map_err(|_| E::invalid_value(serde::de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<HopText, A::Error> {
                FixedText::deserialize(MapAccessDeserializer::new(map)).map(HopText::Fixed)
            }
        }
        d.deserialize_any(HopVisitor)
    }
}

/// An address and the length of its subnet's prefix.
#[derive(Debug, Clone, Copy)]
struct Subnet(Prefix);

impl FromStr for Subnet {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Subnet, &'static str> {
        let why = "no subnet: write 10.0.0.0/24 or fd00::/64";
        let (addr, len) = text.split_once('/').ok_or(why)?;
        let (addr, len): (IpAddr, u8) = (addr.parse().map_err(|_| why)?, len.parse().map_err(|_| why)?);
        let most = if addr.is_ipv4() { 32 } else { 128 };
        if len > most { Err(why) } else { Ok(Subnet(Prefix { addr, len })) }
    }
}

/// When a queue marks, in the words of a SPEC.
#[derive(Debug, Clone, Copy)]
struct Ecn(Red);

impl FromStr for Ecn {
    type Err = String;

    fn from_str(text: &str) -> Result<Ecn, String> {
        // A SPEC needs a rate for it.
        let spec: Spec = format!("rate=1Gbit,ecn={text}").parse().map_err(|e| format!("not understood: {e}"))?;
        let red = spec.faults.into_iter().find_map(|f| if let Fault::Ecn(red) = f { Some(red) } else { None });
        red.map(Ecn).ok_or_else(|| "not understood".into())
    }
}

#[derive(Debug, Clone, Copy)]
struct Rate(u64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        parse_rate(text).map(Rate).map_err(|e| format!("not understood: {e}"))
    }
}

/// Reads a file.
pub(super) fn read(file: &str) -> Result<Options, String> {
    let mut text = String::new();
    let opened = std::fs::File::open(file).and_then(|f| f.take(MAX_FILE + 1).read_to_string(&mut text));
    match opened {
        Err(e) => Err(format!("{file}: {e}")),
        Ok(n) if n as u64 > MAX_FILE => Err(format!("{file}: more than 64 MiB is no configuration of a switch")),
        Ok(_) => parse(&text).map_err(|e| format!("{file}: {e}")),
    }
}

/// What is wrong, and the byte where it stands.
type Wrong = (usize, String);

fn parse(text: &str) -> Result<Options, String> {
    let file: File = toml::from_str(text).map_err(|e| {
        let at = e.span().map_or(0, |span| span.start);
        let why = on_one_line(&e.message().replace('\n', ", "));
        // The parser names keys that are not known, or missing, and not those whose value is wrong.
        match key_before(text, at).filter(|_| !why.contains("field `")) {
            Some(key) => placed(text, at, &format!("{key}: {why}")),
            None => placed(text, at, &why),
        }
    })?;
    options(&file).map_err(|(at, why)| placed(text, at, &why))
}

fn placed(text: &str, at: usize, why: &str) -> String {
    let line = 1 + text.bytes().take(at).filter(|b| *b == b'\n').count();
    format!("line {line}: {why}")
}

/// The key whose value stands at a byte: the word before the last equals sign, unless its value is over by then.
fn key_before(text: &str, at: usize) -> Option<&str> {
    let (before, behind) = text.split_at_checked(at)?;
    let equals = before.rfind('=')?;
    let line_end = at + behind.find('\n').unwrap_or(behind.len());
    // Where a bracket is missing a value seems to go on in the next table.
    let is_table = text[equals..line_end].split('\n').skip(1).any(|line| line.trim_start().starts_with('['));
    if is_table || is_over(&before[equals + 1..]) {
        return None;
    }
    let before = before[..equals].trim_end();
    let begin = before.rfind(|c: char| !(c.is_alphanumeric() || c == '_' || c == '-')).map_or(0, |i| i + 1);
    Some(&before[begin..]).filter(|key| !key.is_empty())
}

/// Whether a value ends within a text that begins with it: at a comma, a bracket or a line's end that are not within it.
fn is_over(text: &str) -> bool {
    let (mut within, mut depth) = (None, 0);
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (within, c) {
            (Some('"'), '\\') => {
                chars.next();
            }
            (Some('"' | '\''), c) if within == Some(c) => within = None,
            (None | Some('#'), '\n') if depth == 0 => return true,
            // A comment.
            (Some('#'), '\n') => within = None,
            (Some(_), _) => {}
            (None, '"' | '\'' | '#') => within = Some(c),
            (None, '[' | '{') => depth += 1,
            (None, ']' | '}' | ',') if depth == 0 => return true,
            (None, ']' | '}') => depth -= 1,
            _ => {}
        }
    }
    false
}

fn options(file: &File) -> Result<Options, Wrong> {
    let mut options = Options { addresses: file.addresses.iter().map(|a| a.0.0).collect(), ..Options::default() };
    if let Some(mac) = &file.mac {
        options.mac = Some(unicast("mac", mac)?);
    }
    match file.ports.len() {
        0 => return Err((0, "port: there is none: each begins with a line [[port]], and has an interface".into())),
        n if n > MAX_PORTS => {
            let at = file.ports.get(MAX_PORTS).map_or(0, |p| p.span().start);
            return Err((at, format!("port: at most {MAX_PORTS}, and here are {n}")));
        }
        _ => {}
    }
    for (number, port) in file.ports.iter().enumerate() {
        let (at, port) = (port.span().start, port.get_ref());
        let limit = port.queue.map_or(QUEUE, |queue| queue.0);
        if limit == 0 {
            return Err((at, "queue: at least 1 byte".into()));
        }
        if options.ports.iter().any(|other| other.interface == port.interface) {
            return Err((at, format!("interface: '{}' is a port already", on_one_line(&port.interface))));
        }
        let (red, rate) = (port.ecn.map(|ecn| ecn.0.0), port.rate.map(|rate| rate.0.0));
        options.ports.push(PortOptions { interface: port.interface.clone(), policy: Policy { limit, red }, rate });
        for mac in &port.macs {
            let fixed = unicast("macs", mac)?;
            if options.macs.iter().any(|(other, _)| *other == fixed) {
                return Err((mac.span().start, format!("macs: {fixed} is at a port already")));
            }
            options.macs.push((fixed, number));
        }
    }
    for route in &file.routes {
        let (at, RouteText { to, via }) = (route.span().start, route.get_ref());
        if via.is_empty() {
            return Err((at, "via: at least one next hop".into()));
        }
        if options.routes.iter().any(|(other, _)| same_subnet(*other, to.0.0)) {
            let Prefix { addr, len } = to.0.0;
            return Err((at, format!("to: there is a route to {addr}/{len} already: it may have several next hops")));
        }
        let hops = via.iter().map(|hop| next_hop(hop, &options, to.0.0)).collect::<Result<Vec<_>, Wrong>>()?;
        options.routes.push((to.0.0, hops));
    }
    groups(&file.groups, &mut options)?;
    Ok(options)
}

/// Groups, each tried at a switch without ports: so a table that is full, or a group that is there, is told with its place.
fn groups(groups: &[Spanned<GroupText>], options: &mut Options) -> Result<(), Wrong> {
    let config = SwitchConfig { mac: MacAddr::default(), max_frame: 64, max_frames: 0, elided: false, seed: 0 };
    let mut tried = Switch::new(config);
    for group in groups {
        let at = group.span().start;
        let spec = group.get_ref().spec().map_err(|why| (at, format!("group: {why}")))?;
        tried.add_group(spec.clone()).map_err(|e| (at, format!("group: {e}")))?;
        options.groups.push(spec);
    }
    Ok(())
}

fn unicast(key: &str, mac: &Spanned<Word<MacAddr>>) -> Result<MacAddr, Wrong> {
    let addr = mac.get_ref().0;
    match addr.0[0] & 1 == 1 || addr == MacAddr::default() {
        true => Err((mac.span().start, format!("{key}: {addr} is no address of one interface"))),
        false => Ok(addr),
    }
}

fn next_hop(hop: &Spanned<HopText>, options: &Options, to: Prefix) -> Result<NextHop, Wrong> {
    let at = hop.span().start;
    match hop.get_ref() {
        HopText::Direct => Ok(NextHop::Direct),
        HopText::Via(address) if address.is_ipv4() == to.addr.is_ipv4() => Ok(NextHop::Via(*address)),
        HopText::Via(address) => Err((at, format!("via: {address} is not of the IP version of {}", to.addr))),
        HopText::Fixed(FixedText { mac: Word(mac), port: Some(name) }) => {
            let port = options.ports.iter().position(|port| port.interface == *name).ok_or_else(|| {
                let names: Vec<&str> = options.ports.iter().map(|port| port.interface.as_str()).collect();
                (at, format!("port: there is no port '{}': {}", on_one_line(name), names.join(", ")))
            })?;
            Ok(NextHop::Fixed { port, mac: *mac })
        }
        HopText::Fixed(FixedText { mac: Word(mac), port: None }) => {
            let known = options.macs.iter().find(|(known, _)| known == mac);
            let why = || (at, format!("mac: {mac} is at no port: say port, or have it among the macs of one"));
            known.map(|(_, port)| NextHop::Fixed { port: *port, mac: *mac }).ok_or_else(why)
        }
    }
}

/// Whether two prefixes are the same addresses, as far as it is told by their first bits.
fn same_subnet(a: Prefix, b: Prefix) -> bool {
    let bits = |p: Prefix| match p.addr {
        IpAddr::V4(addr) => (u128::from(u32::from(addr)) << 96, false),
        IpAddr::V6(addr) => (u128::from(addr), true),
    };
    let ((one, six), (other, other_six)) = (bits(a), bits(b));
    let mask = u128::MAX.checked_shl(128 - u32::from(a.len)).unwrap_or(0);
    a.len == b.len && six == other_six && one & mask == other & mask
}

#[cfg(test)]
mod tests;
