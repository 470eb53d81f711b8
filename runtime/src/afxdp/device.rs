//! Properties of a network device before it is used: read from the kernel in the caller's network namespace.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_ulong};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use softnic_wire::MacAddr;

use super::error::AfXdpError;

/// The ethtool command that reads the number of queues.
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `struct ethtool_channels`.
#[repr(C)]
#[derive(Default)]
struct Channels {
    cmd: u32,
    max_rx: u32,
    max_tx: u32,
    max_other: u32,
    max_combined: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// The older ethtool command that reads the link settings, which every driver answers.
const ETHTOOL_GSET: u32 = 0x1;

/// `struct ethtool_cmd`, as far as it is used: the speed in Mbit/s, in two halves.
#[repr(C)]
#[derive(Default)]
struct LinkSettings {
    cmd: u32,
    supported: u32,
    advertising: u32,
    speed: u16,
    port: [u8; 6],
    packets: [u32; 2],
    speed_hi: u16,
    mdix: [u8; 2],
    lp_advertising: u32,
    reserved: [u32; 2],
}

/// The ethtool command that reads the driver's name.
const ETHTOOL_GDRVINFO: u32 = 0x3;

/// `struct ethtool_drvinfo`, as far as it is used.
#[repr(C)]
struct DriverInfo {
    cmd: u32,
    driver: [u8; 32],
    rest: [u8; 160],
}

/// The ethtool command that reads the number of ring entries.
const ETHTOOL_GRINGPARAM: u32 = 0x10;

/// `struct ethtool_ringparam`: four limits, and the current values.
#[repr(C)]
#[derive(Default)]
struct Places {
    cmd: u32,
    limits: [u32; 4],
    rx: u32,
    rest: [u32; 3],
}

/// A network device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// Its interface name.
    pub name: String,
    /// Its interface index.
    pub ifindex: u32,
    /// Its MAC address.
    pub mac: MacAddr,
    /// The longest packet that it carries, without the Ethernet header.
    pub mtu: usize,
    /// Number of receive queues.
    pub rx_queues: u32,
    /// Number of entries in the ring of a receive queue, if the driver reports it. In zero-copy the NIC's ring holds that many chunks.
    pub rx_places: Option<u32>,
    /// The link rate in bits per second, if the driver reports it.
    pub rate: Option<u64>,
    /// The name of its driver, if the driver reports it.
    pub driver: Option<String>,
}

impl Device {
    /// Finds a device by name.
    pub fn find(name: &str) -> Result<Device, AfXdpError> {
        let missing = || AfXdpError::NoInterface(name.into());
        let c_name = CString::new(name).map_err(|_| missing())?;
        if name.is_empty() || name.len() >= libc::IFNAMSIZ {
            return Err(missing());
        }
        let asker = Asker::new(&c_name).map_err(AfXdpError::when("open a socket to ask for the interface"))?;
        let ifindex = asker.index().map_err(|_| missing())?;
        let mtu = asker.mtu().map_err(AfXdpError::when("ask for the MTU"))?;
        let mac = asker.mac().map_err(AfXdpError::when("ask for the MAC address"))?;
        let mac = mac.ok_or_else(|| AfXdpError::NotEthernet(name.into()))?;
        let rx_queues = asker.rx_queues().or_else(|| queues_of_sysfs(name, ifindex)).unwrap_or(1);
        let (rx_places, rate, driver) = (asker.rx_places(), asker.rate(), asker.driver());
        Ok(Device { name: name.into(), ifindex, mac, mtu, rx_queues, rx_places, rate, driver })
    }
}

/// The number of queues in /sys, for a driver that does not support the ethtool command. The /sys that is mounted may belong to another
/// namespace, with another device of the same name.
fn queues_of_sysfs(name: &str, ifindex: u32) -> Option<u32> {
    let folder = format!("/sys/class/net/{name}");
    let number: u32 = fs::read_to_string(format!("{folder}/ifindex")).ok()?.trim().parse().ok()?;
    let queues = fs::read_dir(format!("{folder}/queues")).ok()?.flatten();
    let count = queues.filter(|entry| entry.file_name().to_string_lossy().starts_with("rx-")).count() as u32;
    (number == ifindex && count > 0).then_some(count)
}

/// Queries one interface by ioctl(2).
struct Asker {
    socket: OwnedFd,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl Asker {
    fn new(name: &CString) -> io::Result<Asker> {
        // SAFETY: no address is passed.
        let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut field = [0; libc::IFNAMSIZ];
        for (to, from) in field.iter_mut().zip(name.as_bytes()) {
            *to = *from as libc::c_char;
        }
        // SAFETY: the kernel just created this descriptor, and nothing else owns it.
        Ok(Asker { socket: unsafe { OwnedFd::from_raw_fd(fd) }, name: field })
    }

    /// Issues one ioctl.
    ///
    /// # Safety
    /// The request `question` fills in the `ifreq` itself, or what `data` points to, and `data` has the type that the request expects.
    unsafe fn ask(&self, question: c_ulong, data: *mut libc::c_char) -> io::Result<libc::ifreq> {
        let ifr_ifru = libc::__c_anonymous_ifr_ifru { ifru_data: data };
        let mut request = libc::ifreq { ifr_name: self.name, ifr_ifru };
        // SAFETY: `request` is the argument of all SIOCGIF requests; the caller guarantees the data.
        match unsafe { libc::ioctl(self.socket.as_raw_fd(), question as _, &mut request) } {
            0 => Ok(request),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn index(&self) -> io::Result<u32> {
        // SAFETY: the request returns its answer in the `ifreq`.
        let answer = unsafe { self.ask(libc::SIOCGIFINDEX, std::ptr::null_mut()) }?;
        // SAFETY: this is the field that SIOCGIFINDEX fills in.
        Ok(unsafe { answer.ifr_ifru.ifru_ifindex } as u32)
    }

    fn mtu(&self) -> io::Result<usize> {
        // SAFETY: the request returns its answer in the `ifreq`.
        let answer = unsafe { self.ask(libc::SIOCGIFMTU, std::ptr::null_mut()) }?;
        // SAFETY: this is the field that SIOCGIFMTU fills in.
        Ok(unsafe { answer.ifr_ifru.ifru_mtu } as usize)
    }

    fn mac(&self) -> io::Result<Option<MacAddr>> {
        // SAFETY: the request returns its answer in the `ifreq`.
        let answer = unsafe { self.ask(libc::SIOCGIFHWADDR, std::ptr::null_mut()) }?;
        // SAFETY: this is the field that SIOCGIFHWADDR fills in.
        let address = unsafe { answer.ifr_ifru.ifru_hwaddr };
        let mac = MacAddr(std::array::from_fn(|i| address.sa_data[i] as u8));
        Ok((address.sa_family == libc::ARPHRD_ETHER).then_some(mac))
    }

    fn rx_queues(&self) -> Option<u32> {
        let mut channels = Channels { cmd: ETHTOOL_GCHANNELS, ..Channels::default() };
        // SAFETY: the command in the first field makes the kernel fill in the rest as `struct ethtool_channels`.
        unsafe { self.ask(libc::SIOCETHTOOL, std::ptr::from_mut(&mut channels).cast()) }.ok()?;
        Some(channels.rx + channels.combined).filter(|&n| n > 0)
    }

    fn rx_places(&self) -> Option<u32> {
        let mut places = Places { cmd: ETHTOOL_GRINGPARAM, ..Places::default() };
        // SAFETY: the command in the first field makes the kernel fill in the rest as `struct ethtool_ringparam`.
        unsafe { self.ask(libc::SIOCETHTOOL, std::ptr::from_mut(&mut places).cast()) }.ok()?;
        Some(places.rx).filter(|&n| n > 0)
    }

    fn rate(&self) -> Option<u64> {
        let mut link = LinkSettings { cmd: ETHTOOL_GSET, ..LinkSettings::default() };
        // SAFETY: the command in the first field makes the kernel fill in the rest as `struct ethtool_cmd`.
        unsafe { self.ask(libc::SIOCETHTOOL, std::ptr::from_mut(&mut link).cast()) }.ok()?;
        let mbps = u32::from(link.speed_hi) << 16 | u32::from(link.speed);
        // All ones, in either width, means an unknown speed.
        (!matches!(mbps, 0 | 0xffff | u32::MAX)).then(|| u64::from(mbps) * 1_000_000)
    }

    fn driver(&self) -> Option<String> {
        let mut info = DriverInfo { cmd: ETHTOOL_GDRVINFO, driver: [0; 32], rest: [0; 160] };
        // SAFETY: the command in the first field makes the kernel fill in the rest as `struct ethtool_drvinfo`, which has this length.
        unsafe { self.ask(libc::SIOCETHTOOL, std::ptr::from_mut(&mut info).cast()) }.ok()?;
        let name = CStr::from_bytes_until_nul(&info.driver).ok()?.to_str().ok()?;
        (!name.is_empty()).then(|| name.into())
    }
}
