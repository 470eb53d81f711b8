//! A device: its names, and its NIC while it is open.

use std::ffi::CStr;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use softnic_runtime::api::{BackupOptions, DeviceSpec, FaultSpec, LineSink, MacAddr, OpenError, OwnAddresses, SHM_MAC};
use softnic_runtime::host_network::HostNetwork;

use crate::abi::*;
use crate::environment::environment;
use crate::errno::Errno;
use crate::exit;
use crate::identity;
use crate::message::{error, warn};
use crate::objects::link_speed::LinkSpeed;
use crate::objects::nic::{Nic, Nics};
use crate::per_process::PerProcess;

/// A device, as a program sees it.
#[repr(C)]
pub(crate) struct Device {
    base: ibv_device,
    /// Vendors' libraries look for their own marks here, and must find none.
    zeros: [u64; 64],
    pub(crate) guid: u64,
    pub(crate) index: usize,
    /// The index of its NIC in the group.
    place: usize,
    group: &'static Group,
}

// SAFETY: nothing in it changes after its creation; the C struct contains no valid pointers.
unsafe impl Sync for Device {}
// SAFETY: as for `Sync` above.
unsafe impl Send for Device {}

/// NICs that are opened together: a single one, or the two ends of a wire in memory.
struct Group {
    spec: DeviceSpec,
    /// The backup NIC, which is not a device of its own.
    backup: Option<BackupOptions>,
    open: PerProcess<Mutex<Weak<Nics>>>,
}

impl Group {
    fn open(&self) -> MutexGuard<'static, Weak<Nics>> {
        self.open.get().lock().unwrap_or_else(|p| p.into_inner())
    }
}

/// Copies a name, terminated by a zero byte.
fn name<const N: usize>(text: &str) -> [u8; N] {
    let mut out = [0; N];
    let len = text.len().min(N - 1);
    out[..len].copy_from_slice(&text.as_bytes()[..len]);
    out
}

/// The text of a name copied by [`name`].
fn text(name: &[u8]) -> &str {
    CStr::from_bytes_until_nul(name).ok().and_then(|name| name.to_str().ok()).unwrap_or_default()
}

/// EUI-64 of a MAC address, as in the GUIDs of RoCE devices.
fn guid(mac: MacAddr) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// The MAC address of an interface of this network namespace. /sys may show another namespace, with interfaces of the same names.
fn mac_of(interface: &str) -> Option<MacAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // SAFETY: all fields are numbers.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if interface.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, &from) in request.ifr_name.iter_mut().zip(interface.as_bytes()) {
        *to = from as libc::c_char;
    }
    // SAFETY: the request has the right type, with a zero-terminated name, and `ioctl` writes the address into it.
    let bytes = unsafe {
        if libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFHWADDR, &raw mut request) != 0 {
            return None;
        }
        request.ifr_ifru.ifru_hwaddr.sa_data
    };
    Some(MacAddr(std::array::from_fn(|i| bytes[i] as u8)))
}

/// The MAC addresses of a device's NICs, without opening the device.
fn macs(spec: &DeviceSpec) -> Vec<MacAddr> {
    match spec {
        DeviceSpec::Mem => vec![OwnAddresses::of_host(1).mac, OwnAddresses::of_host(2).mac],
        DeviceSpec::Shm(_) => vec![SHM_MAC],
        DeviceSpec::Dgram { own, .. } => vec![own.mac],
        // The device's own MAC address is known only when it is opened.
        DeviceSpec::Dpdk(spec) => vec![OwnAddresses::with(spec.own_addresses()).mac],
        DeviceSpec::AfXdp { interface, .. } | DeviceSpec::Shared { interface } => {
            // An interface without a MAC address is refused when it is opened.
            vec![mac_of(interface).unwrap_or(MacAddr([0; 6]))]
        }
    }
}

impl Device {
    /// The devices of a specification; the first one has the number `first` in the process.
    pub(crate) fn all_of(
        spec: &DeviceSpec,
        backup: Option<&BackupOptions>,
        first: usize,
    ) -> impl Iterator<Item = Device> + use<> {
        // Leaked: a process has only a few of these.
        let say = || Some(LineSink::new(|line| warn(format_args!("{line}"))));
        let backup = backup.map(|backup| BackupOptions { on_change: say(), ..backup.clone() });
        let group = Group { spec: spec.clone(), backup, open: PerProcess::new() };
        let group: &'static Group = Box::leak(Box::new(group));
        let macs = macs(spec).into_iter().enumerate();
        macs.map(move |(place, mac)| Device::new(first + place, place, mac, group))
    }

    fn new(index: usize, place: usize, mac: MacAddr, group: &'static Group) -> Device {
        let base = ibv_device {
            ops: [0; 2],
            node_type: IBV_NODE_CA,
            transport_type: IBV_TRANSPORT_IB,
            name: name(&format!("softnic{index}")),
            dev_name: name(&format!("uverbs{index}")),
            dev_path: name(&format!("/sys/class/infiniband_verbs/uverbs{index}")),
            ibdev_path: name(&format!("/sys/class/infiniband/softnic{index}")),
        };
        Device { base, zeros: [0; 64], guid: guid(mac), index, place, group }
    }

    pub(crate) fn name(&self) -> &str {
        text(&self.base.name)
    }

    /// The name of its file in /dev/infiniband.
    pub(crate) fn file_name(&self) -> &str {
        text(&self.base.dev_name)
    }

    /// The network interface that it uses.
    pub(crate) fn interface(&self) -> Option<&str> {
        match &self.group.spec {
            DeviceSpec::AfXdp { interface, .. } | DeviceSpec::Shared { interface } => Some(interface),
            // The first addresses of shm devices are those of loopback.
            DeviceSpec::Shm(_) => Some("lo"),
            DeviceSpec::Dpdk(spec) => spec.tap.as_deref(),
            DeviceSpec::Mem | DeviceSpec::Dgram { .. } => None,
        }
    }

    /// Whether its port is up, and its addresses, as far as known without opening the device.
    pub(crate) fn closed_port(&self) -> (bool, Vec<IpAddr>) {
        match &self.group.spec {
            DeviceSpec::Mem => (true, OwnAddresses::of_host(self.place as u8 + 1).addresses),
            DeviceSpec::Shm(spec) => (true, spec.addresses().unwrap_or_default()),
            DeviceSpec::Dgram { own, .. } => (true, own.addresses.clone()),
            DeviceSpec::AfXdp { interface, .. } | DeviceSpec::Shared { interface } => {
                match HostNetwork::open(interface) {
                    Ok(host) => (host.interface().up, host.addresses().to_vec()),
                    Err(_) => (false, Vec::new()),
                }
            }
            DeviceSpec::Dpdk(spec) => (true, spec.own_addresses()),
        }
    }

    /// The start of the description of its NIC, in any process.
    pub(crate) fn description(&self) -> String {
        match &self.group.spec {
            DeviceSpec::Mem => format!("mem, end {}", self.place + 1),
            spec => spec.to_string(),
        }
    }

    /// Whether devices of this name in other processes are different ones.
    pub(crate) fn is_private(&self) -> bool {
        self.group.spec == DeviceSpec::Mem
    }

    /// The speed that its port reports.
    pub(crate) fn link_speed(&self) -> LinkSpeed {
        match &self.group.spec {
            DeviceSpec::AfXdp { interface, .. } | DeviceSpec::Shared { interface } => LinkSpeed::of(Some(interface)),
            _ => LinkSpeed::of(None),
        }
    }

    pub(crate) fn as_c(&self) -> *mut ibv_device {
        (&raw const *self).cast_mut().cast()
    }

    /// The device's NIC, with those that are opened together; opens them if necessary.
    pub(crate) fn open(&self) -> Result<Arc<Nics>, Errno> {
        let mut open = self.group.open();
        if let Some(nics) = open.upgrade() {
            return Ok(nics);
        }
        let environment = environment().map_err(|_| Errno(libc::ENODEV))?;
        let mut options = environment.options.clone();
        options.backup = self.group.backup.clone();
        options.fault = options.fault.and_then(|faults| self.faults_here(faults));
        if let Some(backup) = &mut options.backup {
            backup.faults = backup.faults.take().and_then(|faults| self.faults_here(faults));
        }
        let mut nics = Nics::open(&self.group.spec, &options, self.first()).map_err(|e| {
            error(format_args!("{e}"));
            errno_of(&e)
        })?;
        if let Some(folder) = &environment.counters {
            nics.record_counters(folder, self.first());
        }
        exit::watch();
        let nics = Arc::new(nics);
        *open = Arc::downgrade(&nics);
        Ok(nics)
    }

    /// The number of the first device of its group.
    fn first(&self) -> usize {
        self.index - self.place
    }

    /// The part of the faults that applies to this process and to the devices of its group.
    fn faults_here(&self, faults: FaultSpec) -> Option<FaultSpec> {
        let faults = if faults.names_processes() { faults.for_process(identity::name()) } else { faults };
        let first = self.first() as u32;
        let faults =
            if self.group.spec == DeviceSpec::Mem { faults.for_wire_of(first) } else { faults.for_place(first) };
        Some(faults).filter(|faults| *faults != FaultSpec::default())
    }

    /// The NICs of its group, if they are open.
    pub(crate) fn opened(&self) -> Option<Arc<Nics>> {
        self.group.open().upgrade()
    }

    /// Whether the device is the first of its group.
    pub(crate) fn is_first_of_group(&self) -> bool {
        self.place == 0
    }

    /// The device's own NIC.
    pub(crate) fn nic<'a>(&self, nics: &'a Nics) -> &'a Nic {
        nics.get(self.place)
    }
}

/// The errno for a program, besides the message for a person.
fn errno_of(e: &OpenError) -> Errno {
    match e {
        OpenError::System(e) | OpenError::Capture { error: e, .. } => Errno(e.raw_os_error().unwrap_or(libc::EIO)),
        OpenError::Fault(_) | OpenError::NoAddress(_) | OpenError::TooShort(_) => Errno::EINVAL,
        _ => Errno(libc::ENODEV),
    }
}

/// `ibv_get_device_name`.
pub(crate) extern "C" fn get_name(device: Option<&Device>) -> *const c_char {
    device.map_or(std::ptr::null(), |d| d.base.name.as_ptr().cast())
}

/// `ibv_get_device_guid`, in network byte order.
pub(crate) extern "C" fn get_guid(device: &Device) -> u64 {
    device.guid.to_be()
}

/// `ibv_get_device_index`: the kernel does not know this device.
pub(crate) extern "C" fn get_index(_device: &Device) -> c_int {
    -1
}

/// `ibv_get_sysfs_path`.
pub(crate) extern "C" fn get_sysfs_path() -> *const c_char {
    const SYS: &CStr = c"/sys";
    SYS.as_ptr()
}

/// `ibv_read_sysfs_file`: a line of a file, without the newline; returns its length, or -1.
///
/// # Safety
/// `dir` and `file` are strings, `buf` has room for `size` bytes.
pub(crate) unsafe extern "C" fn read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: both are strings, by the contract.
    let (dir, file) = unsafe { (CStr::from_ptr(dir), CStr::from_ptr(file)) };
    let path = format!("{}/{}", dir.to_string_lossy(), file.to_string_lossy());
    let Ok(content) = std::fs::read(path) else { return -1 };
    let len = content.len().min(size);
    // SAFETY: `buf` has room for `size` bytes.
    unsafe { std::ptr::copy_nonoverlapping(content.as_ptr(), buf.cast(), len) };
    let line = if len > 0 && content[len - 1] == b'\n' { len - 1 } else { len };
    if line < size {
        // SAFETY: there is room for one more byte.
        unsafe { buf.add(line).write(0) };
    }
    line as c_int
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mac_address_of_an_interface_is_looked_up_in_the_network_namespace_of_the_program() {
        let names = std::fs::read_dir("/sys/class/net").unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let Some(name) = names.into_iter().find(|name| mac_of(name).is_some_and(|mac| mac != MacAddr([0; 6]))) else {
            return;
        };
        // The thread enters a new namespace, in which there is no such interface; /sys still shows it.
        let elsewhere = std::thread::spawn(move || {
            // SAFETY: affects only this thread, which does not share its files with others.
            let alone = unsafe { libc::unshare(libc::CLONE_NEWNET) } == 0;
            alone.then(|| mac_of(&name))
        });
        // Creating a namespace may not be permitted.
        assert!(elsewhere.join().unwrap().is_none_or(|mac| mac.is_none()));
        assert_eq!(mac_of("a-name-that-is-much-too-long"), None);
    }

    #[test]
    fn names_end_with_zero_and_guids_are_those_of_the_mac_address() {
        assert_eq!(name::<4>("abcdef"), *b"abc\0");
        assert_eq!(text(&name::<8>("abcdef")), "abcdef");
        assert_eq!(guid(MacAddr([2, 0, 10, 0, 0, 1])), 0x0000_0aff_fe00_0001);
    }
}
