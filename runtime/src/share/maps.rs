//! The maps that the programs of a shared port decide by, and that the daemon fills.
#![allow(unsafe_code)]

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use softnic_nic::sharing::{PROCESS_BITS, Process};
use softnic_wire::MacAddr;
use softnic_wire::mad::ip_cm::ServiceId;

use crate::bpf::{ArrayMap, HashMap, MapError, Plain, Program};

/// Numbers of processes, those included that nobody has: their elements stay zeros, so that they are nobody's.
const PROCESSES: u32 = 1 << PROCESS_BITS;
const MAX_SERVICES: u32 = 1 << 16;
const MAX_ADDRESSES: u32 = 1 << 10;

/// Names by which [`Maps::of_program`] knows the maps.
mod name {
    pub(super) const CLIENTS: &str = "sn_clients";
    pub(super) const SERVICES: &str = "sn_services";
    pub(super) const ADDRESSES: &str = "sn_addresses";
    pub(super) const MEMBERS: &str = "sn_members";
    pub(super) const PORT: &str = "sn_port";
}

/// A process that shares the port. What counts its own packets fills a cache line, what counts packets for it another: different cores write
/// them.
#[repr(C)]
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Client {
    /// Nanoseconds that 64 KiB take at the rate it may send with; 0 without a limit.
    pub(crate) cost: u64,
    /// Nanoseconds that it may be ahead of that rate.
    pub(crate) burst: u64,
    /// When all that it has sent would have been sent at that rate, by the kernel's monotonic clock.
    pub(crate) due: u64,
    /// Packets that it sent.
    pub(crate) tx_frames: u64,
    /// Their bytes.
    pub(crate) tx_bytes: u64,
    /// Packets that it may not send.
    pub(crate) tx_denied: u64,
    /// Packets above its rate, or above that of datagrams to QP1.
    pub(crate) tx_policed: u64,
    /// As `due`, for datagrams to QP1.
    pub(crate) gsi_due: u64,

    /// The outer end of its veth; 0 if nobody has this number.
    pub(crate) ifindex: u32,
    /// Its process id. This and what follows is the daemon's own: a new daemon finds it here.
    pub(crate) pid: u32,
    /// Packets for it.
    pub(crate) rx_frames: u64,
    /// Their bytes.
    pub(crate) rx_bytes: u64,
    /// Its user id.
    pub(crate) uid: u32,
    pub(crate) unused: u32,
    /// By which it proves to a new daemon that it is the one.
    pub(crate) secret: [u8; 16],
    pub(crate) reserved_too: [u64; 2],
}

// SAFETY: numbers and bytes, without padding: the sizes of the fields are the type's, as is checked below.
unsafe impl Plain for Client {}
const _: () = assert!(size_of::<Client>() == 128 && 12 * 8 + 16 + 4 * 4 == size_of::<Client>());

/// The interface that is shared.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) ifindex: u32,
    /// How many elements of the map of members are filled.
    pub(crate) members: u32,
    pub(crate) mac: [u8; 6],
    /// The process that gets requests for services that nobody has, so that it refuses them; 0 if there is none.
    pub(crate) warden: u16,
    /// Packets for no process that there is.
    pub(crate) nobody: u64,
}

// SAFETY: numbers and bytes, without padding: the sizes of the fields are the type's, as is checked below.
unsafe impl Plain for Port {}
const _: () = assert!(size_of::<Port>() == 4 + 4 + 6 + 2 + 8);

/// All maps of a shared port.
#[derive(Debug)]
pub(crate) struct Maps {
    clients: ArrayMap<Client>,
    services: HashMap<[u8; 8], u32>,
    /// The port's addresses, those of IPv4 as IPv6 has them (RFC 4291 2.5.5.2).
    addresses: HashMap<[u8; 16], u32>,
    members: ArrayMap<u32>,
    port: ArrayMap<Port>,
}

/// File descriptors of the maps, for programs.
#[derive(Debug, Clone, Copy)]
pub(super) struct MapFds {
    pub(super) clients: i32,
    pub(super) services: i32,
    pub(super) addresses: i32,
    pub(super) members: i32,
    pub(super) port: i32,
}

impl Maps {
    /// Maps of a port without clients.
    pub(crate) fn new() -> io::Result<Maps> {
        Ok(Maps {
            clients: ArrayMap::new(name::CLIENTS, PROCESSES)?,
            services: HashMap::new(name::SERVICES, MAX_SERVICES)?,
            addresses: HashMap::new(name::ADDRESSES, MAX_ADDRESSES)?,
            members: ArrayMap::new(name::MEMBERS, PROCESSES)?,
            port: ArrayMap::new(name::PORT, 1)?,
        })
    }

    /// The maps of a program of ours, which another daemon has loaded.
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

    /// What is known of a process; `None` if nobody has the number.
    pub(crate) fn client(&self, process: Process) -> io::Result<Option<Client>> {
        let client = self.clients.get(process.number())?;
        Ok((client.ifindex != 0).then_some(client))
    }

    /// Gives a number to a client. Only while nobody has it: programs count in the same element.
    pub(crate) fn set_client(&self, process: Process, client: &Client) -> io::Result<()> {
        self.clients.set(process.number(), client)
    }

    /// Takes a number back: packets for it are for nobody from now on. Its services and its membership stay.
    pub(crate) fn clear_client(&self, process: Process) -> io::Result<()> {
        self.clients.set(process.number(), &Client::default())
    }

    /// Every process that there is.
    pub(crate) fn clients(&self) -> io::Result<Vec<(Process, Client)>> {
        let mut clients = Vec::new();
        for process in (0..PROCESSES).filter_map(Process::new) {
            clients.extend(self.client(process)?.map(|client| (process, client)));
        }
        Ok(clients)
    }

    /// The interface and what is counted of it.
    pub(crate) fn port(&self) -> io::Result<Port> {
        self.port.get(0)
    }

    /// Says which interface is shared, and who refuses requests for services that nobody has. A count of packets for nobody may be lost.
    pub(crate) fn set_port(&self, ifindex: u32, mac: MacAddr, warden: Option<Process>) -> io::Result<()> {
        let warden = warden.map_or(0, |process| process.number() as u16);
        self.port.set(0, &Port { ifindex, mac: mac.0, warden, ..self.port.get(0)? })
    }

    /// Requests for a service go to this process; `false` if somebody has it.
    pub(crate) fn claim(&self, service: ServiceId, process: Process) -> io::Result<bool> {
        self.services.insert(&service.0.to_be_bytes(), &process.number())
    }

    /// A process gives a service back; `false` if it does not have it.
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

    /// Every service that somebody has.
    pub(crate) fn services(&self) -> io::Result<Vec<(ServiceId, Process)>> {
        let mut services = Vec::new();
        for key in self.services.keys()? {
            let service = ServiceId(u64::from_be_bytes(key));
            services.extend(self.owner(service)?.map(|process| (service, process)));
        }
        Ok(services)
    }

    /// The addresses that clients may send from; those that stay are never missing meanwhile.
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

    /// The addresses that clients may send from, in no order.
    #[cfg(test)]
    fn addresses(&self) -> io::Result<Vec<IpAddr>> {
        Ok(self.addresses.keys()?.into_iter().map(|key| IpAddr::from(key).to_canonical()).collect())
    }

    /// The processes that packets for groups go to. A packet that comes meanwhile may miss one, or reach one twice.
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

    /// The processes that packets for groups go to.
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
            // Past the test harness, which shows nothing of tests that pass.
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
