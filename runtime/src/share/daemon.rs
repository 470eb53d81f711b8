//! The daemon: it admits clients, creates their ports, and removes them afterwards.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{SocketFlags, accept_with};
use softnic_nic::sharing::Process;
use softnic_wire::mad::ip_cm::ServiceId;

use super::client_port::ClientPort;
use super::error::ShareError;
use super::maps;
use super::message::{MAX_QUEUES, Reply, Request};
use super::place::Place;
use super::roll::{Client, Roll};
use super::rules;
use super::uplink::Uplink;
use super::{ClientStatus, Limits, Served};
use crate::background::{Background, Stop};
use crate::bpf::{Kind, Program};
use crate::peer::Peer;

/// Maximum number of connections that have made no request yet, and their time limit.
const WAITING: usize = 64;
const PATIENCE: Duration = Duration::from_secs(5);
/// Interval between checks for clients of an earlier daemon that have not registered again.
const SWEEP: Duration = Duration::from_secs(1);
/// How long to wait if the system has no file descriptor left.
const BREATH: Duration = Duration::from_millis(10);
/// Maximum number of services of one client. The map has room for the services of 64 such clients.
const SERVICES: usize = 1024;
/// How far a client may exceed its rate, as time.
const BURST: Duration = Duration::from_millis(1);

/// How an interface is shared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareOptions {
    /// The interface.
    pub interface: String,
    /// The group whose members may be clients, besides root; by default the daemon's own group.
    pub group: Option<u32>,
    /// The mode of the socket, which determines the users that may be clients.
    pub mode: u32,
    /// Maximum number of clients.
    pub clients: usize,
    /// Maximum number of clients of one user.
    pub clients_of_user: usize,
    /// Number of queues of a client that requests no particular number.
    pub queues: u32,
    /// The limits of each client.
    pub limits: Limits,
}

/// A shared interface. Dropping it ends the sharing for all clients.
pub struct Share {
    /// The daemon's thread, which ends when this is dropped.
    _thread: Background,
    over: Arc<AtomicBool>,
    description: String,
    taken_over: usize,
}

impl Share {
    /// Shares an interface of this network namespace, and takes over the clients of a daemon that was killed.
    ///
    /// # Errors
    /// When the interface is shared already, when it cannot be shared, or when a privilege is missing.
    pub fn start(options: ShareOptions) -> Result<Share, ShareError> {
        let place = Place::take(&options.interface)?;
        let mut daemon = Daemon::new(place, options)?;
        let taken_over = daemon.roll.len();
        let mode = if daemon.uplink.in_driver { "native XDP" } else { "by a classifier: its driver has no XDP" };
        let description = format!("afxdp:{} ({mode})", daemon.options.interface);
        let over = Arc::clone(&daemon.over);
        let thread = Background::start("softnic-share", move |stop| daemon.run(stop));
        let thread = thread.map_err(ShareError::when("start a thread"))?;
        Ok(Share { _thread: thread, over, description, taken_over })
    }

    /// A short description of the shared interface and of how it is shared.
    pub fn description(&self) -> &str {
        &self.description
    }

    /// Number of clients of an earlier daemon that were taken over.
    pub fn taken_over(&self) -> usize {
        self.taken_over
    }

    /// Whether the sharing has ended by itself, because the interface is gone.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

/// A connection that has not made a request yet.
struct Visitor {
    connection: OwnedFd,
    pid: u32,
    uid: u32,
    until: Instant,
}

struct Daemon {
    options: ShareOptions,
    place: Place,
    listener: OwnedFd,
    uplink: Uplink,
    roll: Roll,
    visitors: Vec<Visitor>,
    swept: Instant,
    over: Arc<AtomicBool>,
}

impl Daemon {
    fn new(place: Place, options: ShareOptions) -> Result<Daemon, ShareError> {
        let mut uplink = Uplink::open(&options.interface)?;
        // If a later step fails, the programs must be removed again.
        let opened = find_clients(&mut uplink).and_then(|roll| {
            uplink.set_warden(None)?;
            Ok((roll, place.listen(options.group, options.mode)?))
        });
        let (roll, listener) = opened.inspect_err(|_| uplink.undo())?;
        let over = Arc::default();
        let (visitors, swept) = (Vec::new(), Instant::now());
        Ok(Daemon { options, place, listener, uplink, roll, visitors, swept, over })
    }

    fn run(&mut self, stop: &Stop) {
        while !stop.is_told() {
            self.accept();
            self.serve_visitors();
            self.serve_clients();
            if self.follow() {
                self.end();
                self.over.store(true, Ordering::Release);
                return;
            }
            let orphans = self.sweep();
            let mut fds: Vec<BorrowedFd<'_>> = vec![self.uplink.host.as_fd()];
            fds.push(self.listener.as_fd());
            fds.extend(self.visitors.iter().map(|visitor| visitor.connection.as_fd()));
            fds.extend(self.roll.iter().filter_map(|(_, client)| client.connection.as_ref()).map(AsFd::as_fd));
            let until = self.visitors.iter().map(|visitor| visitor.until).min();
            let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
            let timeout = if orphans { Some(timeout.map_or(SWEEP, |timeout| timeout.min(SWEEP))) } else { timeout };
            stop.wait_on(&fds, timeout);
        }
        self.end();
    }

    /// Ends the sharing: every client is dismissed.
    fn end(&mut self) {
        self.place.close();
        for process in self.roll.iter().map(|(process, _)| process).collect::<Vec<_>>() {
            self.dismiss(process);
        }
        self.uplink.close();
    }

    fn accept(&mut self) {
        for _ in 0..WAITING {
            match accept_with(&self.listener, SocketFlags::CLOEXEC) {
                Ok(connection) => {
                    let Ok(Peer { pid, uid }) = Peer::of(&connection) else { continue };
                    if self.visitors.len() >= WAITING {
                        self.visitors.remove(longest_of_most(&self.visitors));
                    }
                    let pid = pid.unwrap_or(0);
                    self.visitors.push(Visitor { connection, pid, uid, until: Instant::now() + PATIENCE });
                }
                Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNABORTED) => {}
                Err(rustix::io::Errno::AGAIN) => return,
                Err(_) => {
                    std::thread::sleep(BREATH);
                    return;
                }
            }
        }
    }

    fn serve_visitors(&mut self) {
        let now = Instant::now();
        for visitor in std::mem::take(&mut self.visitors) {
            match Request::receive(&visitor.connection) {
                Ok(Some(request)) => self.serve_visitor(visitor, request),
                Err(e) if e.kind() == ErrorKind::WouldBlock && now < visitor.until => self.visitors.push(visitor),
                // The request is not understood, most likely because the client is of another version.
                Err(e) if e.kind() == ErrorKind::InvalidData => {
                    let why = "it does not understand the request: both must be of the same version of softnic";
                    let _ = Reply::Refused(why.into()).send(&visitor.connection, &[]);
                }
                Ok(None) | Err(_) => {}
            }
        }
    }

    fn serve_visitor(&mut self, visitor: Visitor, request: Request) {
        let answered = match request {
            Request::Attach { queues } => return self.let_in(visitor, queues),
            Request::Return { process, secret } => {
                let kept = self.uplink.maps.client(process).ok().flatten();
                let known = kept.is_some_and(|kept| kept.secret == secret);
                match self.roll.get_mut(process).filter(|_| known) {
                    Some(client) => {
                        if Reply::Done.send(&visitor.connection, &[]).is_ok() {
                            client.connection = Some(visitor.connection);
                        }
                        return;
                    }
                    None => Reply::Refused("it knows nothing of this client".into()),
                }
            }
            Request::List => Reply::Listed(self.list()),
            Request::Claim(_) | Request::Release(_) | Request::Groups(_) => {
                Reply::Refused("who has no port cannot listen to anything".into())
            }
        };
        let _ = answered.send(&visitor.connection, &[]);
    }

    /// Admits a client, or refuses it with a reason.
    fn let_in(&mut self, visitor: Visitor, queues: Option<u32>) {
        let queues = queues.unwrap_or(self.options.queues).clamp(1, MAX_QUEUES);
        let made = self.admit(&visitor).and_then(|process| {
            let made = self.make_port(process, &visitor, queues);
            made.inspect_err(|_| self.undo_port(process)).map(|made| (process, made)).map_err(|error| error.to_string())
        });
        let (process, (port, secret)) = match made {
            Ok(made) => made,
            Err(why) => {
                let _ = Reply::Refused(why).send(&visitor.connection, &[]);
                return;
            }
        };
        let fds: Vec<BorrowedFd<'_>> = port.queues.iter().flat_map(|q| [q.socket.as_fd(), q.memory.as_fd()]).collect();
        let (shape, limits) = (port.queues[0].shape, self.options.limits);
        let reply = Reply::Attached { process, secret, limits, queues, shape };
        let is_warden = self.is_to_be_warden(&visitor);
        let Visitor { connection, pid, uid, .. } = visitor;
        let sent = reply.send(&connection, &fds);
        let (outer, services) = (port.outer, HashSet::new());
        let connection = Some(connection);
        self.roll.enter(process, Client { connection, pid, uid, outer, services, groups: false });
        if sent.is_err() {
            self.dismiss(process);
        } else if is_warden {
            // Without a warden, a request for a service without a listener is not answered.
            let _ = self.uplink.set_warden(Some(process));
        }
    }

    /// Whether a visitor becomes the warden: the daemon's own client, which refuses requests for services without a listener. It is the
    /// first client of the daemon's process.
    fn is_to_be_warden(&self, visitor: &Visitor) -> bool {
        visitor.pid == std::process::id() && self.uplink.warden.is_none()
    }

    /// The process number for a new client, or the reason for a refusal.
    fn admit(&self, visitor: &Visitor) -> Result<Process, String> {
        let (clients, of_user) = (self.options.clients, self.options.clients_of_user);
        // The daemon's own client does not count against the limits.
        let others = || self.roll.iter().filter(|&(process, _)| Some(process) != self.uplink.warden);
        if !self.is_to_be_warden(visitor) {
            if others().count() >= clients {
                return Err(format!("it has {clients} clients already, as many as it may (--clients)"));
            }
            let uid = visitor.uid;
            if others().filter(|(_, client)| client.uid == uid).count() >= of_user {
                return Err(format!("user {uid} has {of_user} clients already, as many as one may (--per-user)"));
            }
        }
        self.roll.next_number().ok_or_else(|| "all numbers for clients are taken".into())
    }

    /// Creates a client's port, and enters the client into the maps of the programs.
    fn make_port(
        &mut self,
        process: Process,
        visitor: &Visitor,
        queues: u32,
    ) -> Result<(ClientPort, [u8; 16]), ShareError> {
        let mut secret = [0; 16];
        getrandom::fill(&mut secret).map_err(|e| ShareError::when("get random numbers")(io::Error::other(e)))?;
        let Uplink { links, maps, host, index, .. } = &mut self.uplink;
        let code = rules::egress(maps, process);
        let program =
            Program::load(Kind::Classifier, &code).map_err(ShareError::when("load the program of a client"))?;
        let name = device_of(*index, process);
        let port = ClientPort::make(links, &name, queues, host.interface().mtu)?;
        let outer = port.outer;
        links.filter(outer, program.as_fd()).map_err(ShareError::when("attach the program of a client"))?;
        let rate = self.options.limits.rate;
        let (pid, uid) = (visitor.pid, visitor.uid);
        let client = maps::Client {
            ifindex: outer,
            cost: if rate == 0 { 0 } else { ((65_536u128 * 8 * 1_000_000_000) / u128::from(rate)) as u64 },
            burst: BURST.as_nanos() as u64,
            secret,
            pid,
            uid,
            ..maps::Client::default()
        };
        maps.set_client(process, &client).map_err(ShareError::when("write to the maps of the programs"))?;
        links.bring_up(outer).map_err(ShareError::when("bring up a client's device"))?;
        Ok((port, secret))
    }

    /// Removes the parts of a port after a later step has failed. The kernel would remove the device by itself, but possibly only after the
    /// next client has the number.
    fn undo_port(&mut self, process: Process) {
        let Uplink { links, maps, index, .. } = &mut self.uplink;
        let _ = maps.clear_client(process);
        if let Ok(Some(outer)) = links.index(&device_of(*index, process)) {
            let _ = links.delete(outer);
        }
    }

    /// Serves one request of each client, and dismisses the clients that are gone.
    fn serve_clients(&mut self) {
        let mut asked = Vec::new();
        for (process, client) in self.roll.iter() {
            let Some(connection) = &client.connection else { continue };
            match Request::receive(connection) {
                Ok(Some(request)) => asked.push((process, Some(request))),
                Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                Ok(None) | Err(_) => asked.push((process, None)),
            }
        }
        for (process, request) in asked {
            match request {
                Some(request) => self.serve_client(process, request),
                None => self.dismiss(process),
            }
        }
    }

    fn serve_client(&mut self, process: Process, request: Request) {
        let reply = match request {
            Request::Claim(service) => self.claim(process, service),
            Request::Release(service) => {
                self.release(process, service);
                Reply::Done
            }
            Request::Groups(wanted) => {
                if let Some(client) = self.roll.get_mut(process) {
                    client.groups = wanted;
                }
                match self.uplink.maps.set_members(&self.roll.members()) {
                    Ok(()) => Reply::Done,
                    Err(error) => Reply::Refused(error.to_string()),
                }
            }
            Request::List => Reply::Listed(self.list()),
            Request::Attach { .. } | Request::Return { .. } => Reply::Refused("it has a port already".into()),
        };
        let connection = self.roll.get_mut(process).and_then(|client| client.connection.as_ref());
        if connection.is_some_and(|connection| reply.send(connection, &[]).is_err()) {
            self.dismiss(process);
        }
    }

    fn claim(&mut self, process: Process, service: ServiceId) -> Reply {
        let Some(client) = self.roll.get_mut(process) else { return Reply::Taken };
        if client.services.contains(&service) {
            return Reply::Done;
        }
        if client.services.len() >= SERVICES {
            return Reply::Refused(format!("a client may listen to {SERVICES} services, and this one does"));
        }
        match self.uplink.maps.claim(service, process) {
            Ok(true) => {
                client.services.insert(service);
                Reply::Done
            }
            Ok(false) => Reply::Taken,
            Err(error) => Reply::Refused(error.to_string()),
        }
    }

    fn release(&mut self, process: Process, service: ServiceId) {
        if self.roll.get_mut(process).is_some_and(|client| client.services.remove(&service)) {
            // An entry that does not exist need not be removed.
            let _ = self.uplink.maps.release(service, process);
        }
    }

    /// Removes everything of a client. Its frames are dropped from the moment that its number has no client.
    fn dismiss(&mut self, process: Process) {
        let Some(client) = self.roll.remove(process) else { return };
        let maps = &self.uplink.maps;
        let _ = maps.clear_client(process);
        for &service in &client.services {
            let _ = maps.release(service, process);
        }
        if client.groups {
            let _ = maps.set_members(&self.roll.members());
        }
        if self.uplink.warden == Some(process) {
            let _ = self.uplink.set_warden(None);
        }
        let _ = self.uplink.links.delete(client.outer);
    }

    /// Handles the kernel's events about the interface; returns whether the interface is gone.
    fn follow(&mut self) -> bool {
        // On an error the known state stays.
        let Ok(change) = self.uplink.follow() else { return false };
        if let Some(mtu) = change.mtu {
            for (_, client) in self.roll.iter() {
                let _ = self.uplink.links.set_mtu(client.outer, mtu);
            }
        }
        change.gone
    }

    /// Dismisses clients of an earlier daemon whose devices are gone; returns whether there are clients that have not registered again.
    fn sweep(&mut self) -> bool {
        let orphans = self.roll.orphans();
        if self.swept.elapsed() >= SWEEP {
            self.swept = Instant::now();
            for &(process, outer) in &orphans {
                if matches!(self.uplink.links.exists(outer), Ok(false)) {
                    self.dismiss(process);
                }
            }
        }
        !orphans.is_empty()
    }

    fn list(&self) -> Served {
        let status = |(process, client): (Process, &Client)| {
            let kept = self.uplink.maps.client(process).ok()??;
            Some(ClientStatus {
                process: process.number(),
                pid: client.pid,
                uid: client.uid,
                tx_frames: kept.tx_frames,
                tx_bytes: kept.tx_bytes,
                tx_denied: kept.tx_denied,
                tx_policed: kept.tx_policed,
                rx_frames: kept.rx_frames,
                rx_bytes: kept.rx_bytes,
            })
        };
        let nobody = self.uplink.maps.port().map_or(0, |port| port.nobody);
        Served { nobody, clients: self.roll.iter().filter_map(status).collect() }
    }
}

/// The name of the outer end of a client's veth pair.
fn device_of(index: u32, process: Process) -> String {
    format!("sn{index}-{}", process.number())
}

/// The index of the connection that has been silent longest, among those of the user with the most connections. A cooperative client makes
/// its request at once.
fn longest_of_most(visitors: &[Visitor]) -> usize {
    let of_user = |uid| visitors.iter().filter(|visitor| visitor.uid == uid).count();
    let most = visitors.iter().map(|visitor| of_user(visitor.uid)).max();
    visitors.iter().position(|visitor| Some(of_user(visitor.uid)) == most).unwrap_or(0)
}

/// Finds the clients of a daemon that was killed. Clients whose devices are gone are removed.
fn find_clients(uplink: &mut Uplink) -> Result<Roll, ShareError> {
    let failed = ShareError::when("read the maps of the programs");
    let Uplink { links, maps, .. } = uplink;
    let mut random = [0; 4];
    getrandom::fill(&mut random).map_err(|e| ShareError::when("get random numbers")(io::Error::other(e)))?;
    let last = Process::new(u32::from_ne_bytes(random) % Process::COUNT as u32 + 1).unwrap_or(Process::LAST);
    let mut roll = Roll::new(last);
    let members = maps.members().map_err(&failed)?;
    for (process, kept) in maps.clients().map_err(&failed)? {
        if links.exists(kept.ifindex).map_err(ShareError::when("find a client's device"))? {
            let (pid, uid, outer) = (kept.pid, kept.uid, kept.ifindex);
            let groups = members.contains(&process);
            roll.enter(process, Client { connection: None, pid, uid, outer, services: HashSet::new(), groups });
        } else {
            maps.clear_client(process).map_err(&failed)?;
        }
    }
    for (service, owner) in maps.services().map_err(&failed)? {
        match roll.get_mut(owner) {
            Some(client) => drop(client.services.insert(service)),
            None => drop(maps.release(service, owner).map_err(&failed)?),
        }
    }
    maps.set_members(&roll.members()).map_err(&failed)?;
    Ok(roll)
}
