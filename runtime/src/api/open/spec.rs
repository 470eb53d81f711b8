//! The name of a device: `mem`, `shm[:NAME]`, `shared:IF`, `afxdp:IF`, `dpdk:DEVARGS`, `dgram:A,B`, with an address where the backend has none.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use softnic_wire::MacAddr;

use crate::afxdp::CopyMode;
use crate::dgram::{DgramError, DgramSpec};
use crate::dpdk::{DpdkSpec, DpdkSpecError};
use crate::shm::{ShmSpec, ShmSpecError};

/// The most queues that are used of a device.
const MAX_QUEUES: u32 = 64;
/// Chunks for frames that come in, of one queue: 256 KiB to 256 MiB.
const CHUNKS: RangeInclusive<u32> = 64..=65536;

/// A device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceSpec {
    /// A wire in memory between two NICs of one process.
    Mem,
    /// A network in memory that processes of this host share.
    Shm(ShmSpec),
    /// A network interface that a daemon shares.
    Shared {
        /// Its name.
        interface: String,
    },
    /// A network interface, by AF_XDP.
    AfXdp {
        /// Its name.
        interface: String,
        /// Whether the device reads and writes frames itself.
        mode: CopyMode,
        /// Its queues that are used; all if `None`.
        queues: Option<u32>,
        /// Chunks of 4096 bytes for frames that come in, for each queue; the usual number if `None`.
        chunks: Option<u32>,
    },
    /// Datagram sockets.
    Dgram {
        /// Their names.
        spec: DgramSpec,
        /// Our own addresses there.
        own: OwnAddresses,
    },
    /// A device that DPDK drives.
    Dpdk(DpdkSpec),
}

/// The addresses of a NIC whose backend has none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnAddresses {
    /// Its MAC address; by default one that follows from its first IP address.
    pub mac: MacAddr,
    /// Its IP addresses.
    pub addresses: Vec<IpAddr>,
}

impl OwnAddresses {
    /// These, with a MAC address that follows from the first.
    pub fn with(addresses: Vec<IpAddr>) -> OwnAddresses {
        OwnAddresses { mac: mac_for(&addresses), addresses }
    }

    /// Those of the n-th NIC on a wire that nobody else is on.
    pub fn of_host(n: u8) -> OwnAddresses {
        let v4 = IpAddr::from([10, 0, 0, n]);
        let v6 = IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, u16::from(n)]);
        OwnAddresses { mac: mac_for(&[v4]), addresses: vec![v4, v6] }
    }

    /// Those of its backup, on another such wire.
    pub fn of_backup(n: u8) -> OwnAddresses {
        let v4 = IpAddr::from([10, 0, 1, n]);
        let v6 = IpAddr::from([0xfd00, 0, 0, 1, 0, 0, 0, u16::from(n)]);
        OwnAddresses { mac: mac_for(&[v4]), addresses: vec![v4, v6] }
    }
}

impl DeviceSpec {
    /// A network interface, by AF_XDP, with all its queues.
    pub fn afxdp(interface: impl Into<String>) -> DeviceSpec {
        DeviceSpec::AfXdp { interface: interface.into(), mode: CopyMode::Auto, queues: None, chunks: None }
    }

    /// The number of queues that is asked for: in the name of the device, or beside it.
    pub(super) fn queues_beside(
        &self,
        named: Option<u32>,
        beside: Option<u32>,
    ) -> Result<Option<u32>, DeviceSpecError> {
        match (named, beside) {
            (Some(named), Some(beside)) if named != beside => {
                Err(DeviceSpecError::TwoNumbersOfQueues { device: self.to_string(), named, beside })
            }
            _ => Ok(beside.or(named)),
        }
    }
}

/// A locally administered MAC address.
fn mac_for(addresses: &[IpAddr]) -> MacAddr {
    let tail = match addresses.first() {
        Some(IpAddr::V4(a)) => a.octets(),
        Some(IpAddr::V6(a)) => a.octets()[12..].try_into().unwrap_or_default(),
        None => [0; 4],
    };
    MacAddr([2, 0, tail[0], tail[1], tail[2], tail[3]])
}

/// Why a device was not understood.
#[derive(Debug, thiserror::Error)]
pub enum DeviceSpecError {
    /// There is no such kind of device.
    #[error(
        "there is no device `{0}`: it must be mem, shm[:NAME], shared:INTERFACE, afxdp:INTERFACE[,mode=M][,queues=N][,chunks=N] (or INTERFACE alone), dpdk:DEVICE or dgram:OURS,PEERS"
    )]
    Kind(String),
    /// No interface is named.
    #[error("which interface? Write {0}:INTERFACE, as in {0}:eth0")]
    NoInterface(&'static str),
    /// An interface has the addresses that the kernel gave it.
    #[error("`{0}`: an interface has its own addresses; give it one by `ip address add`")]
    NotHere(String),
    /// Not an option of an interface.
    #[error(
        "`{0}` is no option of an interface: mode=auto, mode=zero-copy, mode=copy, queues=N (1 to 64) and chunks=N (64 to 65536) are"
    )]
    InterfaceOption(String),
    /// Two numbers of queues.
    #[error("`{device}` asks for {named} queues, and --queues for {beside}: say one of them")]
    TwoNumbersOfQueues {
        /// The device.
        device: String,
        /// Queues in its name.
        named: u32,
        /// Queues in the options.
        beside: u32,
    },
    /// Not an address.
    #[error("`{0}` is no address: write ip=10.0.0.1/24 or mac=02:00:00:00:00:01")]
    Address(String),
    /// The name of the network in memory is wrong.
    #[error(transparent)]
    Shm(#[from] ShmSpecError),
    /// The names of the sockets are wrong.
    #[error(transparent)]
    Dgram(#[from] DgramError),
    /// The name of the DPDK device is wrong.
    #[error(transparent)]
    Dpdk(#[from] DpdkSpecError),
}

impl FromStr for DeviceSpec {
    type Err = DeviceSpecError;

    fn from_str(s: &str) -> Result<DeviceSpec, DeviceSpecError> {
        if let Some(words) = s.strip_prefix("dpdk:") {
            return Ok(DeviceSpec::Dpdk(words.parse()?));
        }
        let is_option = |part: &&str| part.starts_with("ip=") || part.starts_with("mac=");
        let (options, names): (Vec<&str>, Vec<&str>) = s.split(',').partition(is_option);
        let name = names.join(",");
        let refuse = |device| match options.first() {
            Some(option) => Err(DeviceSpecError::NotHere((*option).into())),
            None => Ok(device),
        };
        if name == "mem" {
            return refuse(DeviceSpec::Mem);
        }
        if let Some(network) = name.strip_prefix("shm").filter(|rest| rest.is_empty() || rest.starts_with(':')) {
            let (network, mode) = match network.split_once(",mode=") {
                Some((network, mode)) => (network, Some(mode)),
                None => (network, None),
            };
            return refuse(DeviceSpec::Shm(ShmSpec::parse(network.strip_prefix(':'), mode)?));
        }
        if let Some(interface) = name.strip_prefix("afxdp:") {
            return refuse(afxdp(interface)?);
        }
        if let Some(interface) = name.strip_prefix("shared:").filter(|interface| !interface.contains(',')) {
            return refuse(DeviceSpec::Shared { interface: interface_of("shared", interface)? });
        }
        if is_interface(name.split(',').next().unwrap_or_default()) {
            return refuse(afxdp(&name)?);
        }
        if !name.starts_with("dgram:") {
            return Err(DeviceSpecError::Kind(s.into()));
        }
        let (mut addresses, mut mac) = (Vec::new(), None);
        for option in options {
            let wrong = || DeviceSpecError::Address(option.into());
            if let Some(text) = option.strip_prefix("mac=") {
                mac = Some(text.parse().map_err(|_| wrong())?);
            } else if let Some(text) = option.strip_prefix("ip=") {
                // Everybody is on the link, whatever its length.
                let address = text.split_once('/').map_or(text, |(address, _)| address);
                addresses.push(address.parse().map_err(|_| wrong())?);
            }
        }
        let own = OwnAddresses { mac: mac.unwrap_or_else(|| mac_for(&addresses)), addresses };
        Ok(DeviceSpec::Dgram { spec: name.parse()?, own })
    }
}

/// Whether a word alone is meant as an interface: none of the kinds of devices, nor one that is written wrong.
fn is_interface(name: &str) -> bool {
    let kinds = ["mem", "shm", "shared", "afxdp", "dgram", "dpdk"];
    let named = !name.is_empty() && name.len() < libc::IFNAMSIZ && !name.contains(['/', ':', ',', ' ', ';']);
    named && !kinds.iter().any(|kind| name.starts_with(kind))
}

/// An interface and its options.
fn afxdp(words: &str) -> Result<DeviceSpec, DeviceSpecError> {
    let mut words = words.split(',');
    let interface = interface_of("afxdp", words.next().unwrap_or_default())?;
    let (mut mode, mut queues, mut chunks) = (CopyMode::Auto, None, None);
    for word in words {
        let wrong = || DeviceSpecError::InterfaceOption(word.into());
        match word.split_once('=') {
            Some(("mode", text)) => mode = text.parse().map_err(|()| wrong())?,
            Some(("queues", text)) => queues = Some(number_in(1..=MAX_QUEUES, text).ok_or_else(wrong)?),
            Some(("chunks", text)) => chunks = Some(number_in(CHUNKS, text).ok_or_else(wrong)?),
            _ => return Err(wrong()),
        }
    }
    Ok(DeviceSpec::AfXdp { interface, mode, queues, chunks })
}

fn number_in(range: RangeInclusive<u32>, text: &str) -> Option<u32> {
    text.parse().ok().filter(|number| range.contains(number))
}

fn interface_of(kind: &'static str, name: &str) -> Result<String, DeviceSpecError> {
    if name.is_empty() { Err(DeviceSpecError::NoInterface(kind)) } else { Ok(name.into()) }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceSpec::Mem => f.write_str("mem"),
            DeviceSpec::Shm(spec) => spec.fmt(f),
            DeviceSpec::Shared { interface } => write!(f, "shared:{interface}"),
            DeviceSpec::AfXdp { interface, mode, queues, chunks } => {
                write!(f, "afxdp:{interface}")?;
                if *mode != CopyMode::Auto {
                    write!(f, ",mode={mode}")?;
                }
                queues.map_or(Ok(()), |queues| write!(f, ",queues={queues}"))?;
                chunks.map_or(Ok(()), |chunks| write!(f, ",chunks={chunks}"))
            }
            DeviceSpec::Dpdk(spec) => spec.fmt(f),
            DeviceSpec::Dgram { spec, .. } => {
                write!(f, "dgram:{},{}", spec.local.display(), spec.remote.display())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_numbers_of_queues_are_refused_in_one_line() {
        let device =
            |queues| DeviceSpec::AfXdp { interface: "eth0".into(), mode: CopyMode::Auto, queues, chunks: None };
        let queues = |named, beside| device(named).queues_beside(named, beside).map_err(|e| e.to_string());
        assert_eq!(queues(None, None), Ok(None));
        assert_eq!(queues(Some(2), None), Ok(Some(2)));
        assert_eq!(queues(None, Some(2)), Ok(Some(2)));
        assert_eq!(queues(Some(2), Some(2)), Ok(Some(2)));
        let refused = "`afxdp:eth0,queues=2` asks for 2 queues, and --queues for 1: say one of them";
        assert_eq!(queues(Some(2), Some(1)), Err(refused.into()));
    }

    #[test]
    fn every_kind_and_its_mistakes() {
        let parse = |s: &str| s.parse::<DeviceSpec>();
        assert_eq!(parse("mem").unwrap(), DeviceSpec::Mem);
        for name in ["shm", "shm:a-1.b", "shm:/run/rdma", "shm:/run/rdma,mode=0770"] {
            assert_eq!(parse(name).unwrap().to_string(), name);
        }
        assert_eq!(parse("afxdp:eth0").unwrap(), DeviceSpec::afxdp("eth0"));
        assert_eq!(parse("eth0,mode=copy").unwrap(), parse("afxdp:eth0,mode=copy").unwrap());
        assert_eq!(parse("afxdp:eth0,mode=auto").unwrap(), DeviceSpec::afxdp("eth0"));
        for name in ["afxdp:eth0,mode=zero-copy", "afxdp:eth0,mode=copy,queues=2", "afxdp:eth0,queues=64,chunks=64"] {
            assert_eq!(parse(name).unwrap().to_string(), name);
        }
        assert_eq!(parse("eth0").unwrap(), parse("afxdp:eth0").unwrap());
        assert_eq!(parse("shared:eth0").unwrap(), DeviceSpec::Shared { interface: "eth0".into() });
        assert_eq!(parse("shared:eth0").unwrap().to_string(), "shared:eth0");
        let Ok(DeviceSpec::Dgram { spec, own }) =
            parse("dgram:/a,/b,ip=10.0.0.7/24,ip=fd00::7/64,mac=02:00:00:00:00:09")
        else {
            panic!("a wire of datagrams");
        };
        assert_eq!((spec.local.to_str(), spec.remote.to_str()), (Some("/a"), Some("/b")));
        assert_eq!(own.addresses, ["10.0.0.7", "fd00::7"].map(|a| a.parse::<IpAddr>().unwrap()));
        assert_eq!(own.mac, MacAddr([2, 0, 0, 0, 0, 9]));
        for wrong in [
            "",
            "eth0/1",
            "afxdp:",
            "shared:",
            "shared:eth0,ip=10.0.0.1/24",
            "afxdp:eth0,ip=10.0.0.1/24",
            "afxdp:,mode=copy",
            "afxdp:eth0,mode=fast",
            "afxdp:eth0,mode=",
            "afxdp:eth0,queues=0",
            "afxdp:eth0,queues=65",
            "afxdp:eth0,queues=two",
            "afxdp:eth0,chunks=63",
            "afxdp:eth0,zero-copy",
            "afxdp:eth0,",
            "eth0,eth1",
            "shared:eth0,mode=copy",
            "dgram:/a",
            "dgram:/a,/b,ip=x",
            "dgram:/a,/b,mac=1:2",
            "mem,ip=1.2.3.4/8",
            "shm:",
            "shm:..",
            "shm:a/b",
            "shm:/",
            "shmoo",
            "shm,ip=1.2.3.4/8",
            "shm:a,mode=0770",
            "shm:/a,mode=0777",
            "shm:/a,mode=700",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
