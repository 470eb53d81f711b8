//! The two ends of a run finding each other: in one process, or over TCP.

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use softnic_runtime::api::{Context, DeviceSpec, OpenOptions, Progress, RawPort, Secret, StreamListener};

use super::client::{self, Tell};
use super::control::{Control, Hello, Message, VERSION, must_work, unexpected};
use super::failover;
use super::interval::AskedIntervals;
use super::plan::{Plan, Verb};
use super::raw::{self, Raw};
use super::reliable;
use super::sdr;
use super::serve::serve;
use super::side::Side;
use super::stop;

/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);
/// How long after a refusal a server that will come is asked again.
const AGAIN: Duration = Duration::from_millis(50);
/// How long a peer may be out of reach: its driver resets the NIC when it is opened, and when the last program closed it.
const RESET: Duration = Duration::from_secs(6);
/// Makes the server's PSNs others than the client's.
const SERVER: u64 = 1 << 32;

/// How NICs are opened.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The device of this end, or of both.
    pub device: DeviceSpec,
    /// How it is opened.
    pub options: OpenOptions,
    /// The cores that the threads of the run are pinned to, where they make progress.
    pub cpus: Vec<usize>,
    /// Of what is random at this end.
    pub seed: u64,
    /// The secret of authenticated queue pairs.
    pub secret: Option<Secret>,
    /// What becomes of intervals.
    pub intervals: AskedIntervals,
}

/// What is told when both ends are connected: the plan as agreed, and what the run is on.
pub type Begin<'t> = dyn FnMut(&Plan, &str) -> Result<(), String> + 't;

/// A device, opened for what the plan is about.
enum End {
    Nic(Context),
    Raw(Box<RawPort>),
}

impl End {
    /// Whether its NIC goes on: one that has stopped takes no more clients.
    fn must_work(&self) -> Result<(), String> {
        match self {
            End::Nic(context) => must_work(context),
            End::Raw(_) => Ok(()),
        }
    }

    fn open(setup: &Setup, raw: bool) -> Result<End, String> {
        let (device, options) = (&setup.device, &setup.options);
        match raw {
            true => RawPort::open(device, options).map(|port| End::Raw(Box::new(port))),
            false => Context::open(device, options).map(End::Nic),
        }
        .map_err(|e| e.to_string())
    }

    fn open_pair(setup: &Setup, raw: bool) -> Result<[End; 2], String> {
        // Each end has a thread that polls; the capture shows the client's.
        let mut ours = setup.options.clone();
        ours.progress.get_or_insert(Progress::Inline);
        let theirs = OpenOptions { pcap: None, trace: None, log: None, fault: None, ..ours.clone() };
        match raw {
            true => RawPort::open_pair(&ours).map(|ends| ends.map(|port| End::Raw(Box::new(port)))),
            false => Context::open_pair([&ours, &theirs]).map(|ends| ends.map(End::Nic)),
        }
        .map_err(|e| e.to_string())
    }
}

/// The address that the server gets: of the IP version by which it was reached, if there is one.
pub(crate) fn client_address(all: &[IpAddr], server: Option<IpAddr>, description: &str) -> Result<IpAddr, String> {
    let like = server.and_then(|server| all.iter().find(|a| a.is_ipv4() == server.is_ipv4()));
    let address = like.or(all.first()).copied();
    address.ok_or_else(|| format!("{description} has no IP address: give the interface one by `ip address add`"))
}

/// The address that the client gets: of the same IP version as its own.
pub(crate) fn server_address(all: &[IpAddr], client: IpAddr, description: &str) -> Result<IpAddr, String> {
    let like = all.iter().find(|a| a.is_ipv4() == client.is_ipv4()).copied();
    like.ok_or_else(|| format!("{description} has no address of the same IP version as the peer's, {client}"))
}

/// Both ends in this process, on a wire in memory.
pub fn in_memory(setup: &Setup, plan: &Plan, begin: &mut Begin<'_>, tell: &mut Tell<'_>) -> Result<(), String> {
    let ends = End::open_pair(setup, plan.op.verb() == Verb::Raw)?;
    between(ends, setup, plan, begin, tell)
}

/// Both ends in this process, on any device that can be opened twice; the faults are those of the client's end.
pub fn in_process(setup: &Setup, plan: &Plan, begin: &mut Begin<'_>, tell: &mut Tell<'_>) -> Result<(), String> {
    if setup.device == DeviceSpec::Mem {
        return in_memory(setup, plan, begin, tell);
    }
    let mut ours = setup.clone();
    ours.options.progress.get_or_insert(Progress::Inline);
    let mut theirs = ours.clone();
    (theirs.options.pcap, theirs.options.trace, theirs.options.fault) = (None, None, None);
    let raw = plan.op.verb() == Verb::Raw;
    let ends = [End::open(&ours, raw)?, End::open(&theirs, raw)?];
    between(ends, setup, plan, begin, tell)
}

/// A client and a server, each in a thread.
fn between(
    [ours, theirs]: [End; 2],
    setup: &Setup,
    plan: &Plan,
    begin: &mut Begin<'_>,
    tell: &mut Tell<'_>,
) -> Result<(), String> {
    let (mut client, mut server) = Control::pair().map_err(|e| e.to_string())?;
    std::thread::scope(|s| {
        let other = s.spawn(move || {
            pin(setup, 1);
            let peer = greet(&theirs, &mut server, &|_| Ok(()));
            // The client's are enough.
            let setup = &Setup { intervals: AskedIntervals::Never, ..setup.clone() };
            let result = peer.and_then(|peer| serve_client(theirs, setup, &mut server, &peer));
            if let Err(reason) = &result {
                tell_failure(&mut server, reason);
            }
            result
        });
        pin(setup, 0);
        let recording = recording(&ours, setup, plan);
        let result = run_end(ours, setup, plan, &mut client, begin, tell);
        let result = or_capture_failure(recording.as_ref(), result);
        drop(recording);
        // The server's end goes when ours does.
        drop(client);
        let served = other.join().unwrap_or_else(|_| Err("the other end panicked".into()));
        match (result, served) {
            // What the server knows first, the client only hears of.
            (Err(ours), Err(theirs)) if ours.starts_with("the peer says") => Err(theirs),
            (result, _) => result,
        }
    })
}

/// The client of a server elsewhere, which may take `patience` to be there.
pub fn connect(
    setup: &Setup,
    plan: &Plan,
    host: &str,
    port: u16,
    patience: Duration,
    begin: &mut Begin<'_>,
    tell: &mut Tell<'_>,
) -> Result<(), String> {
    let end = End::open(setup, plan.op.verb() == Verb::Raw)?;
    pin(setup, 0);
    let mut control = reach(&end, host, port, patience)?;
    let recording = recording(&end, setup, plan);
    let result = or_capture_failure(recording.as_ref(), run_end(end, setup, plan, &mut control, begin, tell));
    if let Err(reason) = &result {
        tell_failure(&mut control, reason);
    }
    result
}

/// The stream to the server: by the NIC's own TCP where it has one and the server is on its link or behind its gateway, else by the kernel's.
fn reach(end: &End, host: &str, port: u16, patience: Duration) -> Result<Control, String> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    if let (End::Nic(context), Ok(address)) = (end, host.parse::<IpAddr>())
        && context.reaches_by_streams(address)
    {
        let began = Instant::now();
        let attempt = |peer: &SocketAddr| context.connect_stream(*peer);
        let peer = SocketAddr::from((address, port));
        let stream = dial_with(&[peer], patience, attempt, || began.elapsed(), || std::thread::sleep(AGAIN));
        return stream.map(Control::own).map_err(Option::unwrap_or_default);
    }
    Control::tcp(dial(end, host, port, patience)?).map_err(|e| e.to_string())
}

fn dial(end: &End, host: &str, port: u16, patience: Duration) -> Result<TcpStream, String> {
    let addresses: Vec<_> = (host, port).to_socket_addrs().map_err(|e| format!("{host}: {e}"))?.collect();
    let began = Instant::now();
    let attempt = |address: &SocketAddr| {
        // A NIC that has stopped is why nobody is reached by its interface.
        let failed = |e| end.must_work().map_err(std::io::Error::other).and(Err(e));
        TcpStream::connect_timeout(address, CONNECT).or_else(failed)
    };
    dial_with(&addresses, patience, attempt, || began.elapsed(), || std::thread::sleep(AGAIN))
        .map_err(|last| last.unwrap_or_else(|| format!("{host} has no address")))
}

/// The same, with connections and a clock that tests have; the last error, if there was any address.
fn dial_with<T>(
    addresses: &[SocketAddr],
    patience: Duration,
    mut attempt: impl FnMut(&SocketAddr) -> std::io::Result<T>,
    elapsed: impl Fn() -> Duration,
    pause: impl Fn(),
) -> Result<T, Option<String>> {
    let mut last = None;
    loop {
        let mut limit = None;
        for address in addresses {
            match attempt(address) {
                Ok(stream) => return Ok(stream),
                Err(e) if e.kind() == ErrorKind::ConnectionRefused => {
                    limit = limit.max(Some(patience));
                    last =
                        Some(format!("nobody listens at {address}: start the same command with --server there first"));
                }
                Err(e) => {
                    if matches!(e.kind(), ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable) {
                        limit = Some(patience.max(RESET));
                    }
                    last = Some(format!("cannot connect to {address}: {e}"));
                }
            }
        }
        if limit.is_none_or(|limit| elapsed() >= limit) || stop::requested() {
            return Err(last);
        }
        pause();
    }
}

/// Serves one client.
pub fn listen(
    setup: &Setup,
    raw: bool,
    port: u16,
    announce: &dyn Fn(),
    agree: &dyn Fn(&Plan) -> Result<(), String>,
) -> Result<(), String> {
    let end = End::open(setup, raw)?;
    let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    let listener = TcpListener::bind(any).or_else(|_| TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], port))));
    let listener = listener.map_err(|e| format!("cannot listen at TCP port {port}: {e}"))?;
    listener.set_nonblocking(true).map_err(|e| e.to_string())?;
    // The NIC's own TCP is listened to as well, where it has one.
    let own = match &end {
        End::Nic(context) => context.listen_stream(port).ok(),
        End::Raw(_) => None,
    };
    announce();
    let (mut control, peer) = loop {
        let Some(mut control) = next_client(&end, &listener, own.as_ref())? else { return Ok(()) };
        let peer = greet(&end, &mut control, agree).inspect_err(|reason| tell_failure(&mut control, reason))?;
        match peer.plan.check_memory() {
            Ok(()) => break (control, peer),
            // Another client may ask for less.
            Err(reason) => {
                say!("a client is refused: {reason}");
                tell_failure(&mut control, &reason);
            }
        }
    };
    drop((listener, own));
    pin(setup, 0);
    let result = serve_client(end, setup, &mut control, &peer);
    if let Err(reason) = &result {
        tell_failure(&mut control, reason);
    }
    result
}

/// The next client; `None` when the server shall end.
fn next_client(end: &End, listener: &TcpListener, own: Option<&StreamListener>) -> Result<Option<Control>, String> {
    let failed = |e: std::io::Error| format!("cannot take a client: {e}");
    while !stop::requested() {
        end.must_work()?;
        match listener.accept() {
            Ok((stream, _)) => return Control::tcp(stream).map(Some).map_err(failed),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            Err(e) => return Err(failed(e)),
        }
        match own.map(StreamListener::accept) {
            Some(Ok(stream)) => return Ok(Some(Control::own(stream))),
            Some(Err(e)) if e.kind() != ErrorKind::WouldBlock => return Err(failed(e)),
            _ => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    Ok(None)
}

/// Tells the peer why there will be no more; it may be gone already.
fn tell_failure(control: &mut Control, reason: &str) {
    let _ = control.send(&Message::Failed { reason: reason.into() });
}

/// The client's hello, if its plan is one that the server takes.
fn greet(end: &End, control: &mut Control, agree: &dyn Fn(&Plan) -> Result<(), String>) -> Result<Hello, String> {
    let context = if let End::Nic(context) = end { Some(context) } else { None };
    let peer = hello_of(control, context)?;
    peer.plan.check()?;
    agree(&peer.plan)?;
    Ok(peer)
}

/// The NIC that records a capture, if there is one.
fn recording(end: &End, setup: &Setup, plan: &Plan) -> Option<Context> {
    match end {
        End::Nic(context) if setup.options.pcap.is_some() && plan.op.verb() != Verb::Raw => Some(context.clone()),
        _ => None,
    }
}

/// Where a capture could not be written, the NIC stopped for it: that is why whatever else went wrong.
fn or_capture_failure(recording: Option<&Context>, result: Result<(), String>) -> Result<(), String> {
    match recording.map_or(Ok(()), Context::flush_capture) {
        Err(why) => Err(why.to_string()),
        Ok(()) => result,
    }
}

/// Serves whoever is at the other end of the stream and said hello.
fn serve_client(end: End, setup: &Setup, control: &mut Control, peer: &Hello) -> Result<(), String> {
    let recording = recording(&end, setup, &peer.plan);
    or_capture_failure(recording.as_ref(), serve_end(end, setup, control, peer))
}

fn serve_end(mut end: End, setup: &Setup, control: &mut Control, peer: &Hello) -> Result<(), String> {
    if matches!(end, End::Nic(_)) && peer.plan.op.verb() == Verb::Raw {
        // The device is free for the one only when the other is gone.
        drop(end);
        end = End::open(setup, true)?;
    }
    let intervals = setup.intervals.of(peer.plan.amount);
    match end {
        End::Nic(context) if peer.plan.sdr.is_some() => {
            let mut end = sdr::End::new(context, &peer.plan, setup.seed ^ SERVER)?;
            let address = server_address(&end.context().addresses(), peer.address, end.context().description())?;
            end.connect(peer)?;
            control.send(&Message::Hello(Box::new(end.hello(address))))?;
            sdr::serve(&mut end, control)
        }
        End::Nic(context) => {
            let mut side = Side::new(context, &peer.plan, setup.seed ^ SERVER, setup.secret.as_ref())?;
            let address = server_address(&side.context.addresses(), peer.address, side.context.description())?;
            side.connect(peer)?;
            control.send(&Message::Hello(Box::new(side.hello(address))))?;
            match reliable::accept(&side, control, peer)? {
                Some(reliable) => reliable::serve(&side, reliable, control),
                None => serve(&side, control, intervals),
            }
        }
        End::Raw(mut port) => {
            let address = server_address(&port.port().addresses, peer.address, port.description())?;
            control.send(&Message::Hello(Box::new(raw::hello(&port, &peer.plan, address))))?;
            Raw { port: &mut port, control, plan: &peer.plan, peer, intervals }.serve()
        }
    }
}

/// The client's end.
fn run_end(
    end: End,
    setup: &Setup,
    plan: &Plan,
    control: &mut Control,
    begin: &mut Begin<'_>,
    tell: &mut Tell<'_>,
) -> Result<(), String> {
    let intervals = setup.intervals.of(plan.amount);
    match end {
        End::Nic(context) if plan.sdr.is_some() => {
            let address = client_address(&context.addresses(), control.peer, context.description())?;
            let mut end = sdr::End::new(context, plan, setup.seed)?;
            control.send(&Message::Hello(Box::new(end.hello(address))))?;
            let peer = hello_of(control, Some(end.context()))?;
            if peer.plan.sdr != plan.sdr {
                return Err("the softnic of the peer has no sdr: use the same at both ends".into());
            }
            end.connect(&peer)?;
            begin(end.plan(), end.context().description())?;
            sdr::run(&mut end, control, intervals, tell)
        }
        End::Nic(context) => {
            let address = client_address(&context.addresses(), control.peer, context.description())?;
            let mut side = Side::new(context.clone(), plan, setup.seed, setup.secret.as_ref())?;
            control.send(&Message::Hello(Box::new(side.hello(address))))?;
            let peer = hello_of(control, Some(&context))?;
            side.connect(&peer)?;
            side.negotiate(&setup.device, &peer)?;
            failover::meet(&side);
            let reliable = reliable::agree(&mut side, control, &peer)?;
            if let Some(why) = reliable.as_ref().and_then(|r| r.shortfall(setup.options.fault.as_ref(), &side.plan)) {
                say!("softnic: {why}");
            }
            begin(&side.plan, side.context.description())?;
            match reliable {
                Some(reliable) => reliable::run(&mut side, reliable, control, intervals, tell),
                None => client::run(&mut side, control, intervals, tell),
            }
        }
        End::Raw(mut port) => {
            let address = client_address(&port.port().addresses, control.peer, port.description())?;
            control.send(&Message::Hello(Box::new(raw::hello(&port, plan, address))))?;
            let peer = hello_of(control, None)?;
            begin(plan, port.description())?;
            Raw { port: &mut port, control, plan, peer: &peer, intervals }.run(tell)
        }
    }
}

/// The peer's first line.
fn hello_of(control: &mut Control, context: Option<&Context>) -> Result<Hello, String> {
    match control.receive(context)? {
        Message::Hello(hello) if hello.version == VERSION => Ok(*hello),
        Message::Hello(hello) => Err(format!(
            "the peer speaks version {} of this protocol, we {VERSION}: use the same softnic at both ends",
            hello.version
        )),
        other => Err(unexpected(&other)),
    }
}

/// Pins this thread, if that was asked for and it is the one that makes progress.
fn pin(setup: &Setup, n: usize) {
    if !setup.cpus.is_empty() {
        core_affinity::set_for_current(core_affinity::CoreId { id: setup.cpus[n % setup.cpus.len()] });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Dials a host that answers with an error until a time; whether it was reached, and when that was known.
    fn dialled(kind: ErrorKind, until: Duration, patience: Duration) -> (bool, Duration) {
        let now = Cell::new(Duration::ZERO);
        let addresses = [SocketAddr::from(([10, 0, 0, 2], 18515))];
        let attempt = |_: &SocketAddr| if now.get() < until { Err(kind.into()) } else { Ok(()) };
        let reached = dial_with(&addresses, patience, attempt, || now.get(), || now.set(now.get() + AGAIN));
        (reached.is_ok(), now.get())
    }

    #[test]
    fn a_host_behind_a_link_that_is_reset_is_dialled_again() {
        let [reset, never] = [2, 3600].map(Duration::from_secs);
        for kind in [ErrorKind::HostUnreachable, ErrorKind::NetworkUnreachable] {
            assert_eq!(dialled(kind, reset, Duration::ZERO), (true, reset));
            assert_eq!(dialled(kind, never, Duration::ZERO), (false, RESET), "not for ever");
        }
        assert_eq!(dialled(ErrorKind::ConnectionRefused, reset, 2 * reset), (true, reset));
        assert_eq!(dialled(ErrorKind::ConnectionRefused, reset, Duration::ZERO), (false, Duration::ZERO));
        assert_eq!(dialled(ErrorKind::PermissionDenied, reset, 2 * reset), (false, Duration::ZERO));
    }

    #[test]
    fn the_ip_version_of_the_run_is_that_of_the_servers_address() {
        let all: [IpAddr; 2] = ["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()];
        let [v4, v6] = all;
        assert_eq!(client_address(&all, Some(v6), ""), Ok(v6));
        assert_eq!(client_address(&all, Some(v4), ""), Ok(v4));
        assert_eq!(client_address(&all, None, ""), Ok(v4));
        assert_eq!(client_address(&[v4], Some(v6), ""), Ok(v4), "the server may have both");
        assert!(client_address(&[], None, "eth0").unwrap_err().contains("eth0 has no IP address"));
        assert_eq!(server_address(&all, v6, ""), Ok(v6));
        assert!(server_address(&[v4], v6, "eth0").is_err());
    }
}
