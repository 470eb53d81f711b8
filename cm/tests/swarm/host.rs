//! A host: its manager, its queue pair numbers, and a program with habits.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use softnic_cm::{Cm, CmId, Config, Listen, ListenId, PortSpace};
use softnic_fault_injector::random::Random;
use softnic_wire::Qpn;
use softnic_wire::mad::cm::TimeoutCode;

pub(crate) const PORT: u16 = 7174;

/// What a program does a while after something happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Do {
    /// Accept or refuse a request.
    Answer,
    /// Take an acceptance back.
    TakeBack,
    /// Establish what the peer accepted, or refuse it after all.
    Establish,
    /// Send data, if connected.
    Data,
    /// End it, or agree to its end.
    End,
    /// Lose interest, whatever the state.
    Destroy,
    /// Answer a service id resolution.
    SidrReply,
}

pub(crate) struct Host {
    pub(crate) cm: Cm,
    pub(crate) ip: IpAddr,
    config: Config,
    listens: bool,
    listeners: Vec<ListenId>,
    /// Which try a queue pair number was last used for, and on which side of it.
    pub(crate) qpns: BTreeMap<Qpn, (usize, bool)>,
    /// The try, and the side of it, that an id stands for.
    pub(crate) ids: BTreeMap<CmId, (usize, bool)>,
    /// Resolutions: the token, and whether it was we who asked.
    pub(crate) sidr: BTreeMap<CmId, (u64, bool)>,
}

/// Few, so that each is used again as soon as it may.
const QPNS: std::ops::Range<u32> = 2..9;

impl Host {
    pub(crate) fn new(ip: IpAddr, guid: u64, listens: bool, seed: u64) -> Host {
        // Queue pairs acknowledge at once, so timewait is as short as it may be.
        let config = Config { ca_guid: guid, ack_delay: TimeoutCode::new(0), ..Config::default() };
        let maps = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut host = Host {
            cm: manager(config, seed),
            ip,
            config,
            listens,
            listeners: Vec::new(),
            qpns: maps.0,
            ids: maps.1,
            sidr: maps.2,
        };
        host.listen();
        host
    }

    fn listen(&mut self) {
        let port = |space| Listen::port(space, SocketAddr::new(self.ip, PORT));
        let spaces = [PortSpace::Tcp, PortSpace::Udp].into_iter().filter(|_| self.listens);
        self.listeners = spaces.map(|space| self.cm.listen(&port(space)).unwrap()).collect();
    }

    /// Begins to listen, or stops it.
    pub(crate) fn toggle(&mut self) {
        self.listeners.drain(..).for_each(|id| self.cm.unlisten(id).unwrap());
        self.listens = !self.listens;
        self.listen();
    }

    /// The manager begins anew, and knows nothing of what was.
    pub(crate) fn crash(&mut self, seed: u64) {
        self.cm = manager(self.config, seed);
        self.listen();
        self.ids.clear();
        self.sidr.clear();
    }

    /// A queue pair number that may be used.
    pub(crate) fn free_qpn(&self, random: &mut Random) -> Option<Qpn> {
        let free: Vec<_> = QPNS.map(Qpn::new).filter(|&qpn| !self.cm.holds(qpn)).collect();
        free.get(random.below(free.len() as u64) as usize).copied()
    }
}

fn manager(config: Config, seed: u64) -> Cm {
    let mut random = Random::new(seed);
    Cm::new(config, move || random.next_u32())
}
