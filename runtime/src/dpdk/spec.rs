//! The name of a DPDK device: DPDK's device arguments, mixed with options of softnic.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::error::DpdkError;
use crate::neighbours::Links;

/// A DPDK device, and the port that softnic opens on it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DpdkSpec {
    /// The device arguments for DPDK: a PCI address or a driver, with its options.
    pub devargs: String,
    /// The port's addresses, with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The routers for addresses on none of the port's subnets.
    pub gateways: Vec<IpAddr>,
    /// The VLAN of all frames.
    pub vlan: Option<u16>,
    /// The length limit of IP packets.
    pub mtu: Option<u16>,
    /// The number of queues. Each queue has an engine.
    pub queues: Option<u32>,
    /// The name of the tap through which the kernel gets all frames that are not RoCE, in place of the port's own stack.
    pub tap: Option<String>,
    /// Proceed even if this machine is reached through the device.
    pub force: bool,
}

/// Why the name of a DPDK device was rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DpdkSpecError {
    /// No device is named.
    #[error(
        "which device? Write dpdk:0000:01:00.0,ip=10.0.0.1/24 or dpdk:net_memif0,role=server,socket=PATH,ip=10.0.0.1/24"
    )]
    NoDevice,
    /// An option comes before the device.
    #[error("`{0}` comes before the device: write dpdk:DEVICE,{0}")]
    OptionFirst(String),
    /// An option of softnic has an invalid value.
    #[error("`{word}`: {needs}")]
    Value {
        /// The option, as written.
        word: String,
        /// The requirement.
        needs: &'static str,
    },
    /// An option that may be given once is given twice.
    #[error("`{0}` is there twice")]
    Twice(String),
    /// An address has no prefix length.
    #[error("`{0}` does not say which addresses are on the link: write {0}/24, or another length")]
    NoLength(String),
    /// A gateway is given beside a tap. With a tap, the kernel has the routes.
    #[error(
        "`gw={gateway}` is not for a tap, where the kernel has the routes: `ip route add … via {gateway} dev {name}`"
    )]
    GatewayBesideTap {
        /// The name of the tap.
        name: String,
        /// The address of the gateway.
        gateway: IpAddr,
    },
}

impl DpdkSpec {
    /// The port's addresses.
    pub fn own_addresses(&self) -> Vec<IpAddr> {
        self.addresses.iter().map(|&(address, _)| address).collect()
    }

    /// The port's subnets and gateways.
    pub fn links(&self) -> Links {
        Links { addresses: self.addresses.clone(), gateways: self.gateways.clone() }
    }

    /// A copy without the tap, for use of the device without a NIC: no engine would move the kernel's frames.
    pub(crate) fn without_tap(&self) -> DpdkSpec {
        DpdkSpec { tap: None, ..self.clone() }
    }

    /// Checks whether the device can be opened, as far as possible without opening it.
    ///
    /// # Errors
    /// When softnic was built without DPDK, or the device has no address.
    pub fn check(&self) -> Result<(), DpdkError> {
        match () {
            () if !cfg!(feature = "dpdk") => Err(DpdkError::NotBuilt(self.to_string())),
            () if self.addresses.is_empty() && self.tap.is_none() => Err(DpdkError::NoAddress(self.to_string())),
            () => Ok(()),
        }
    }

    /// The PCI address, if the device is on the PCI bus.
    pub fn pci(&self) -> Option<&str> {
        let name = self.devargs.split(',').next()?;
        name.chars().next().filter(char::is_ascii_hexdigit)?;
        name.contains(':').then_some(name)
    }

    /// The driver of a virtual device: `net_memif` of `net_memif0`.
    pub fn virtual_driver(&self) -> Option<&str> {
        let name = self.devargs.split(',').next()?;
        self.pci().is_none().then(|| name.trim_end_matches(|c: char| c.is_ascii_digit()))
    }

    /// The value of an option in the device arguments.
    pub fn option(&self, key: &str) -> Option<&str> {
        self.devargs.split(',').skip(1).find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }
}

#[cfg(feature = "dpdk")]
impl DpdkSpec {
    /// Whether the device is a memif, whose driver handles its peer in the background at any time.
    pub(crate) fn is_memif(&self) -> bool {
        self.virtual_driver() == Some("net_memif")
    }

    /// The path of a memif's socket, if the memif has this role and the socket is a file.
    pub(crate) fn memif_socket(&self, server: bool) -> Option<&str> {
        // The driver's defaults: the role is client, and the socket has this name.
        let role = self.option("role").unwrap_or("client");
        let is_server = matches!(role, "server" | "master");
        (self.is_memif() && is_server == server).then(|| self.option("socket").unwrap_or("/run/memif.sock"))
    }

    /// The path of the socket at which the device listens, if it does.
    pub(crate) fn listens_at(&self) -> Option<&str> {
        let is_vhost = self.virtual_driver() == Some("net_vhost") && self.option("client").is_none_or(|c| c == "0");
        self.memif_socket(true).or_else(|| self.option("iface").filter(|_| is_vhost))
    }
}

impl FromStr for DpdkSpec {
    type Err = DpdkSpecError;

    /// Parses the text behind `dpdk:`.
    fn from_str(s: &str) -> Result<DpdkSpec, DpdkSpecError> {
        let mut spec = DpdkSpec::default();
        let mut theirs = Vec::new();
        for word in s.split(',') {
            if spec.take(word)? {
                if theirs.is_empty() {
                    return Err(DpdkSpecError::OptionFirst(word.into()));
                }
            } else {
                theirs.push(word);
            }
        }
        if let (Some(name), Some(gateway)) = (&spec.tap, spec.gateways.first()) {
            return Err(DpdkSpecError::GatewayBesideTap { name: name.clone(), gateway: *gateway });
        }
        spec.devargs = theirs.join(",");
        if spec.devargs.is_empty() {
            return Err(DpdkSpecError::NoDevice);
        }
        Ok(spec)
    }
}

impl DpdkSpec {
    /// Takes an option of softnic. Returns whether the word is one.
    fn take(&mut self, word: &str) -> Result<bool, DpdkSpecError> {
        let wrong = |needs| DpdkSpecError::Value { word: word.into(), needs };
        let once = |is_there: bool| if is_there { Err(DpdkSpecError::Twice(word.into())) } else { Ok(()) };
        match word.split_once('=') {
            None if word == "force" => self.force = true,
            Some(("ip", text)) => {
                let (address, len) = text.split_once('/').ok_or_else(|| DpdkSpecError::NoLength(word.into()))?;
                let address: IpAddr = address.parse().map_err(|_| wrong("it must be ADDRESS/LENGTH"))?;
                let most = if address.is_ipv4() { 32 } else { 128 };
                let len = len.parse().ok().filter(|len| *len <= most);
                self.addresses.push((address, len.ok_or_else(|| wrong("the length of the prefix is too long"))?));
            }
            Some(("gw", text)) => {
                let gateway: IpAddr = text.parse().map_err(|_| wrong("it must be the address of a router"))?;
                once(self.gateways.iter().any(|other| other.is_ipv4() == gateway.is_ipv4()))?;
                self.gateways.push(gateway);
            }
            Some(("vlan", text)) => {
                once(self.vlan.is_some())?;
                let id = text.parse().ok().filter(|id| (1..=4094).contains(id));
                self.vlan = Some(id.ok_or_else(|| wrong("it must be a number from 1 to 4094"))?);
            }
            Some(("mtu", text)) => {
                once(self.mtu.is_some())?;
                let mtu = text.parse().ok().filter(|mtu| (576..=9216).contains(mtu));
                self.mtu = Some(mtu.ok_or_else(|| wrong("it must be a number from 576 to 9216"))?);
            }
            Some(("queues", text)) => {
                once(self.queues.is_some())?;
                let queues = text.parse().ok().filter(|queues| (1..=64).contains(queues));
                self.queues = Some(queues.ok_or_else(|| wrong("it must be a number from 1 to 64"))?);
            }
            Some(("tap", name)) => {
                once(self.tap.is_some())?;
                let needs =
                    "it must be the name of an interface: 1 to 15 letters, digits or signs, and no `/`, `:` or `%`";
                self.tap =
                    Some(name.into()).filter(|_| is_interface_name(name)).map(Some).ok_or_else(|| wrong(needs))?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// Whether the kernel accepts a name for an interface, as a literal name and not as a pattern.
fn is_interface_name(name: &str) -> bool {
    let fits = (1..libc::IFNAMSIZ).contains(&name.len()) && !matches!(name, "." | "..");
    fits && !name.contains(|c: char| matches!(c, '/' | ':' | '%') || c.is_whitespace() || c.is_control())
}

impl fmt::Display for DpdkSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "dpdk:{}", self.devargs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(s: &str) -> Result<DpdkSpec, DpdkSpecError> {
        s.parse()
    }

    #[test]
    fn our_words_are_taken_out_and_the_others_left_as_they_are() {
        let spec = parse("net_memif0,role=server,ip=10.0.0.1/24,socket=/tmp/m,ip=fd00::1/64,gw=10.0.0.254,bsize=8192")
            .unwrap();
        assert_eq!(spec.devargs, "net_memif0,role=server,socket=/tmp/m,bsize=8192");
        assert_eq!(spec.addresses, [("10.0.0.1".parse().unwrap(), 24), ("fd00::1".parse().unwrap(), 64)]);
        assert_eq!(spec.gateways, ["10.0.0.254".parse::<IpAddr>().unwrap()]);
        assert_eq!((spec.virtual_driver(), spec.pci()), (Some("net_memif"), None));
        assert_eq!((spec.option("bsize"), spec.option("bs")), (Some("8192"), None));
        let spec = parse("0000:01:00.0,vlan=7,mtu=4200,queues=2,force").unwrap();
        assert_eq!((spec.pci(), spec.virtual_driver()), (Some("0000:01:00.0"), None));
        assert_eq!((spec.vlan, spec.mtu, spec.queues, spec.force), (Some(7), Some(4200), Some(2), true));
        let spec = parse("net_null0,tap=nic0").unwrap();
        assert_eq!((spec.devargs.as_str(), spec.tap.as_deref()), ("net_null0", Some("nic0")));
        assert_eq!(spec.without_tap().tap, None);
    }

    #[test]
    fn mistakes_are_named() {
        for (text, says) in [
            ("", "which device"),
            ("ip=10.0.0.1/24", "comes before the device"),
            ("net_null0,ip=10.0.0.1", "does not say which addresses"),
            ("net_null0,ip=10.0.0/24", "ADDRESS/LENGTH"),
            ("net_null0,ip=10.0.0.1/33", "too long"),
            ("net_null0,vlan=0", "1 to 4094"),
            ("net_null0,gw=x", "router"),
            ("net_null0,gw=10.0.0.1,gw=10.0.0.2", "twice"),
            ("net_null0,mtu=100", "576"),
            ("net_null0,queues=0", "1 to 64"),
            ("net_null0,queues=2,queues=3", "twice"),
            ("net_null0,tap=", "name of an interface"),
            ("net_null0,tap=abcdefghijklmnop", "1 to 15"),
            ("net_null0,tap=tap%d", "no `/`, `:` or `%`"),
            ("net_null0,tap=a,tap=b", "twice"),
            ("net_null0,tap=a,gw=10.0.0.1", "ip route add … via 10.0.0.1 dev a"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
