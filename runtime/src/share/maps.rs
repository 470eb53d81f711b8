//! The maps by which the programs of a shared port decide. The daemon fills them.
#![allow(unsafe_code)]

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use softnic_nic::sharing::{PROCESS_BITS, Process};
use softnic_wire::MacAddr;
use softnic_wire::mad::ip_cm::ServiceId;

use crate::bpf::{ArrayMap, HashMap, MapError, Plain, Program};

/// Number of process numbers, including those that no process has: their elements stay zero, which marks them as unused.
const PROCESSES: u32 = 1 << PROCESS_BITS;
const MAX_SERVICES: u32 = 1 << 16;
const MAX_ADDRESSES: u32 = 1 << 10;

/// The names by which [`Maps::of_program`] recognises the maps.
mod name {
    pub(super) const CLIENTS: &str = "sn_clients";
    pub(super) const SERVICES: &str = "sn_services";
    pub(super) const ADDRESSES: &str = "sn_addresses";
    pub(super) const MEMBERS: &str = "sn_members";
    pub(super) const PORT: &str = "sn_port";
}

/// A process that shares the port. The counters of packets that it sends fill one cache line, and the counters of packets for it another,
/// because different cores write them.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Client {
    /// Nanoseconds that 64 KiB take at the client's send rate; 0 without a limit.
    pub(crate) cost: u64,
    /// Nanoseconds by which the client may exceed that rate.
    pub(crate) burst: u64,
    /// The time at which all packets sent so far would have been sent at that rate, by the kernel's monotonic clock.
    pub(crate) due: u64,
    /// Number of packets sent.
    pub(crate) tx_frames: u64,
    /// Number of bytes sent.
    pub(crate) tx_bytes: u64,
    /// Number of packets that were not permitted.
    pub(crate) tx_denied: u64,
    /// Number of packets above the client's rate, or above the rate of datagrams to QP1.
    pub(crate) tx_policed: u64,
    /// As `due`, for datagrams to QP1.
    pub(crate) gsi_due: u64,

    /// The interface index of the outer end of its veth; 0 if no process has this number.
    pub(crate) ifindex: u32,
    /// The process ID. This and some of the following fields are for the daemon only: a new daemon reads them here.
    pub(crate) pid: u32,
    /// Number of packets received for the client.
    pub(crate) rx_frames: u64,
    /// Number of bytes received for the client.
    pub(crate) rx_bytes: u64,
    /// The user ID.
    pub(crate) uid: u32,
    pub(crate) unused: u32,
    /// The secret by which the client proves its identity to a new daemon.
    pub(crate) secret: [u8; 16],
    pub(crate) reserved_too: [u64; 2],
}

// SAFETY: the type consists of numbers and bytes, without padding: the sizes of the fields add up to the size of the type, as is checked
// below.
unsafe impl Plain for Client {}
const _: () = assert!(size_of::<Client>() == 128 && 12 * 8 + 16 + 4 * 4 == size_of::<Client>());

/// The shared interface.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) ifindex: u32,
    /// Number of valid elements in the map of members.
    pub(crate) members: u32,
    pub(crate) mac: [u8; 6],
    /// The number of the process that gets requests for services without a listener, and refuses them; 0 if there is none.
    pub(crate) warden: u16,
    /// Number of packets for a process that does not exist.
    pub(crate) nobody: u64,
}

// SAFETY: the type consists of numbers and bytes, without padding: the sizes of the fields add up to the size of the type, as is checked
// below.
unsafe impl Plain for Port {}
const _: () = assert!(size_of::<Port>() == 4 + 4 + 6 + 2 + 8);

/// All maps of a shared port.
#[derive(Debug)]
pub(crate) struct Maps {
    clients: ArrayMap<Client>,
    services: HashMap<[u8; 8], u32>,
    /// The addresses of the port; IPv4 addresses are in their IPv6-mapped form (RFC 4291 2.5.5.2).
    addresses: HashMap<[u8; 16], u32>,
    members: ArrayMap<u32>,
    port: ArrayMap<Port>,
}

/// The file descriptors of the maps, for use in programs.
#[derive(Debug, Clone, Copy)]
pub(super) struct MapFds {
    pub(super) clients: i32,
    pub(super) services: i32,
    pub(super) addresses: i32,
    pub(super) members: i32,
    pub(super) port: i32,
}

impl Maps {
    /// Creates the maps of a port without clients.
    pub(crate) fn new() -> io::Result<Maps> {
        Ok(Maps {
            clients: ArrayMap::new(name::CLIENTS, PROCESSES)?,
            services: HashMap::new(name::SERVICES, MAX_SERVICES)?,
            addresses: HashMap::new(name::ADDRESSES, MAX_ADDRESSES)?,
            members: ArrayMap::new(name::MEMBERS, PROCESSES)?,
            port: ArrayMap::new(name::PORT, 1)?,
        })
    }

    /// Opens the maps of a softnic program that another daemon has loaded.
    pub(crate) fn of_program(program: &Program) -> Result<Maps, MapError> {
        let maps = program.maps()?;
        Ok(Maps {
            clients: ArrayMap::among(&maps, name::CLIENTS, PROCESSES)?,
            services: HashMap::among(&maps, name::SERVICES, MAX_SERVICES)?,
            addresses: HashMap::among(&maps, name::ADDRESSES, MAX_ADDRESSES)?,
            members: ArrayMap::among(&maps, name::MEMBERS, PROCESSES)?,
            port: ArrayMap::among(&maps, name::PORT, 1)?,
        })
    }

    pub(super) fn fds(&self) -> MapFds {
        MapFds {
            clients: self.clients.as_fd().as_raw_fd(),
            services: self.services.as_fd().as_raw_fd(),
            addresses: self.addresses.as_fd().as_raw_fd(),
            members: self.members.as_fd().as_raw_fd(),
            port: self.port.as_fd().as_raw_fd(),
        }
    }

    /// The entry of a process; `None` if no process has the number.
    pub(crate) fn client(&self, process: Process) -> io::Result<Option<Client>> {
        let client = self.clients.get(process.number())?;
        Ok((client.ifindex != 0).then_some(client))
    }

    /// Assigns a number to a client. Only allowed while no client has the number, because programs count in the same element.
    pub(crate) fn set_client(&self, process: Process, client: &Client) -> io::Result<()> {
        self.clients.set(process.number(), client)
    }

    /// Frees a number: packets for it have no addressee from now on. Its services and group membership stay.
    pub(crate) fn clear_client(&self, process: Process) -> io::Result<()> {
        self.clients.set(process.number(), &Client::default())
    }

    /// All processes that share the port.
    pub(crate) fn clients(&self) -> io::Result<Vec<(Process, Client)>> {
        let mut clients = Vec::new();
        for process in (0..PROCESSES).filter_map(Process::new) {
            clients.extend(self.client(process)?.map(|client| (process, client)));
        }
        Ok(clients)
    }

    /// The interface and its counters.
    pub(crate) fn port(&self) -> io::Result<Port> {
        self.port.get(0)
    }

    /// Sets the shared interface, and the process that refuses requests for services without a listener. A concurrent increment of the
    /// counter `nobody` may be lost.
    pub(crate) fn set_port(&self, ifindex: u32, mac: MacAddr, warden: Option<Process>) -> io::Result<()> {
        let warden = warden.map_or(0, |process| process.number() as u16);
        self.port.set(0, &Port { ifindex, mac: mac.0, warden, ..self.port.get(0)? })
    }

    /// Directs requests for a service to this process; returns `false` if a process already has the service.
    pub(crate) fn claim(&self, service: ServiceId, process: Process) -> io::Result<bool> {
        self.services.insert(&service.0.to_be_bytes(), &process.number())
    }

    /// Releases a service of a process; returns `false` if the process does not have it.
    pub(crate) fn release(&self, service: ServiceId, process: Process) -> io::Result<bool> {
        match self.owner(service)? {
            Some(owner) if owner == process => self.services.remove(&service.0.to_be_bytes()),
            _ => Ok(false),
        }
    }

    /// The process that has a service.
    pub(crate) fn owner(&self, service: ServiceId) -> io::Result<Option<Process>> {
        Ok(self.services.get(&service.0.to_be_bytes())?.and_then(Process::new))
    }

    /// All services that have an owner.
    pub(crate) fn services(&self) -> io::Result<Vec<(ServiceId, Process)>> {
        let mut services = Vec::new();
        for key in self.services.keys()? {
            let service = ServiceId(u64::from_be_bytes(key));
            services.extend(self.owner(service)?.map(|process| (service, process)));
        }
        Ok(services)
    }

    /// Sets the addresses that clients may send from. An address that is in both the old and the new set is valid throughout.
    pub(crate) fn set_addresses(&self, addresses: &[IpAddr]) -> io::Result<()> {
        let wanted: Vec<[u8; 16]> = addresses.iter().map(address_key).collect();
        for key in self.addresses.keys()?.iter().filter(|key| !wanted.contains(key)) {
            self.addresses.remove(key)?;
        }
        for key in &wanted {
            self.addresses.insert(key, &1)?;
        }
        Ok(())
    }

    /// The addresses that clients may send from, in no particular order.
    #[cfg(test)]
    fn addresses(&self) -> io::Result<Vec<IpAddr>> {
        Ok(self.addresses.keys()?.into_iter().map(|key| IpAddr::from(key).to_canonical()).collect())
    }

    /// Sets the processes that get packets for groups. A packet that arrives meanwhile may miss one of them, or reach one twice.
    pub(crate) fn set_members(&self, members: &[Process]) -> io::Result<()> {
        let set_count = |members: u32| self.port.set(0, &Port { members, ..self.port.get(0)? });
        let count = members.len() as u32;
        if self.port.get(0)?.members > count {
            set_count(count)?;
        }
        for (index, process) in (0..).zip(members) {
            self.members.set(index, &process.number())?;
        }
        set_count(count)
    }

    /// The processes that get packets for groups.
    pub(crate) fn members(&self) -> io::Result<Vec<Process>> {
        let mut members = Vec::new();
        for index in 0..self.port.get(0)?.members {
            members.extend(Process::new(self.members.get(index)?));
        }
        Ok(members)
    }
}

fn address_key(address: &IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::bpf::Kind;
    use crate::bpf::assembler::{Assembler, Reg};

    fn maps() -> Option<Maps> {
        let maps = Maps::new();
        if let Err(e) = &maps {
            // Written past the test harness, which shows no output of tests that pass.
            let _ = writeln!(std::io::stderr(), "LEFT OUT: the maps of a shared port: bpf(2): {e}");
        }
        maps.ok()
    }

    fn process(number: u32) -> Process {
        Process::new(number).unwrap()
    }

    #[test]
    fn the_maps_of_a_program_are_found_by_its_id() {
        let Some(maps) = maps() else { return };
        let load = |fds: &[i32]| {
            let mut a = Assembler::default();
            fds.iter().for_each(|&fd| a.set_map(Reg::R1, fd));
            a.set(Reg::R0, 2);
            a.exit();
            Program::load(Kind::Xdp { fragments: false }, &a.finish()).unwrap()
        };
        let MapFds { clients, services, addresses, members, port } = maps.fds();
        let program = load(&[members, clients, port, services, addresses]);
        maps.set_client(process(9), &Client { ifindex: 3, ..Client::default() }).unwrap();
        maps.claim(ServiceId(5), process(9)).unwrap();
        let found = Maps::of_program(&Program::by_id(program.id().unwrap()).unwrap()).unwrap();
        assert_eq!(found.clients().unwrap(), maps.clients().unwrap());
        assert_eq!(found.owner(ServiceId(5)).unwrap(), Some(process(9)));
        found.set_members(&[process(9)]).unwrap();
        found.set_addresses(&[[10, 0, 0, 1].into()]).unwrap();
        assert_eq!(maps.members().unwrap(), [process(9)]);
        assert_eq!(maps.addresses().unwrap().len(), 1);
        let without_members = load(&[clients, port, services, addresses]);
        assert!(matches!(Maps::of_program(&without_members), Err(MapError::Missing("sn_members"))));
        let small = ArrayMap::<Client>::new(name::CLIENTS, 4).unwrap();
        let another_version = load(&[members, small.as_fd().as_raw_fd(), port, services, addresses]);
        assert!(matches!(Maps::of_program(&another_version), Err(MapError::Different("sn_clients"))));
    }

    #[test]
    fn a_number_has_a_client_from_when_it_is_given_until_it_is_taken_back() {
        let Some(maps) = maps() else { return };
        assert_eq!(maps.clients().unwrap(), []);
        let client = Client { ifindex: 7, cost: 1, pid: 99, uid: 1000, secret: [5; 16], ..Client::default() };
        for process in [Process::FIRST, process(77), Process::LAST] {
            assert_eq!(maps.client(process).unwrap(), None);
            maps.set_client(process, &client).unwrap();
            assert_eq!(maps.client(process).unwrap(), Some(client));
        }
        let all = maps.clients().unwrap();
        assert_eq!(all, [Process::FIRST, process(77), Process::LAST].map(|process| (process, client)));
        maps.clear_client(process(77)).unwrap();
        assert_eq!(maps.client(process(77)).unwrap(), None);
        assert_eq!(maps.clients().unwrap().len(), 2);
    }

    #[test]
    fn a_service_is_of_the_first_who_claims_it_until_he_gives_it_back() {
        let Some(maps) = maps() else { return };
        let (service, other) = (ServiceId::ip(ServiceId::TCP, 4711), ServiceId(u64::MAX));
        let (a, b) = (process(3), process(4));
        assert!(maps.claim(service, a).unwrap());
        assert!(!maps.claim(service, b).unwrap());
        assert!(maps.claim(other, b).unwrap());
        assert_eq!(maps.owner(service).unwrap(), Some(a));
        let owners: std::collections::HashMap<_, _> = maps.services().unwrap().into_iter().collect();
        assert_eq!(owners, [(service, a), (other, b)].into());
        assert!(!maps.release(service, b).unwrap());
        assert!(maps.release(service, a).unwrap());
        assert!(!maps.release(service, a).unwrap());
        assert_eq!(maps.services().unwrap(), [(other, b)]);
        assert!(maps.claim(service, b).unwrap());
    }

    #[test]
    fn addresses_and_members_are_those_that_were_set_last() {
        let Some(maps) = maps() else { return };
        let addresses = ["10.0.0.1", "10.0.0.2", "fe80::1", "2001:db8::5"].map(|a| a.parse::<IpAddr>().unwrap());
        for wanted in [&addresses[..], &addresses[1..3], &addresses[..1], &[], &addresses[2..]] {
            maps.set_addresses(wanted).unwrap();
            let mut set = maps.addresses().unwrap();
            set.sort();
            let mut wanted = wanted.to_vec();
            wanted.sort();
            assert_eq!(set, wanted);
        }
        maps.set_port(12, MacAddr([2, 0, 0, 0, 0, 9]), Some(process(5))).unwrap();
        let members = [9, 1, 1022, 4].map(process);
        for wanted in [&members[..], &members[2..], &[], &members[..3]] {
            maps.set_members(wanted).unwrap();
            assert_eq!(maps.members().unwrap(), wanted);
        }
        let port = Port { ifindex: 12, members: 3, mac: [2, 0, 0, 0, 0, 9], warden: 5, nobody: 0 };
        assert_eq!(maps.port().unwrap(), port);
    }
}
