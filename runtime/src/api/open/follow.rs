//! Following what the kernel says of the interface: link, addresses, neighbours.

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use softnic_nic::{Nic, transports};
use softnic_shift::DualNic;
use softnic_wire::MacAddr;
use softnic_wire::ethernet;
use softnic_wire::failover::Side;

use super::{link_mtu_of, mtu_of};
use crate::api::context::Context;
use crate::api::events::Events;
use crate::api::link_down::LinkDown;
use crate::background::Background;
use crate::engine::Engine;
use crate::host_network::{Event, HostNetwork, Route, path_mtu};
use crate::io::{Line, PacketIo};
use crate::locked::lock;

/// Starts the thread that follows, for a port of the engines.
pub(super) fn start(
    host: &Arc<Mutex<HostNetwork>>,
    start: Instant,
    engines: &[Arc<Engine>],
    events: &Arc<Events>,
    link_down: LinkDown,
    number: usize,
) -> io::Result<Background> {
    let changes = lock(host).as_fd().try_clone_to_owned()?;
    let fd = changes.as_raw_fd();
    let (host, engines, events) = (Arc::clone(host), engines.to_vec(), Arc::clone(events));
    let thread = Background::start("softnic-network", move |stop| {
        while !stop.is_told() {
            let now = || softnic_wire::Instant::ZERO + start.elapsed();
            let timeout = {
                let mut host = lock(&host);
                host.handle_timeout(now());
                follow(&mut host, &engines, &events, link_down, number);
                host.poll_timeout().map(|at| at.saturating_since(now()))
            };
            stop.wait(&changes, timeout);
        }
    })?;
    Ok(thread.holding(fd))
}

/// How often a line is asked that says nothing of itself.
pub(super) const LOOK: Duration = Duration::from_millis(50);

/// Starts the thread that asks a line how it is, and does what can be done for it, where nobody wants to know.
pub(in crate::api) fn keep(mut line: Box<dyn Line>) -> io::Result<Background> {
    Background::start("softnic-line", move |stop| {
        while !stop.is_told() {
            line.look();
            stop.wait_on(&[], Some(LOOK));
        }
    })
}

/// Tells the engines what changed, and then the program: it finds all engines as they are told to it.
fn follow(host: &mut HostNetwork, engines: &[Arc<Engine>], events: &Events, link_down: LinkDown, number: usize) {
    // An error is the kernel's refusal to tell; what is known stays.
    while let Ok(Some(event)) = host.poll_event() {
        match event {
            Event::LinkUp => set_link(engines, events, link_down, number, true),
            Event::LinkDown => set_link(engines, events, link_down, number, false),
            Event::Gone => {
                let why = format!("the interface {} is gone", host.interface().name);
                engines.iter().for_each(|engine| engine.lose_port(&mut engine.control(), number, &why));
            }
            Event::AddressesChanged => {
                for engine in engines {
                    let mut core = engine.control();
                    core.nic_of(number).into_iter().for_each(|nic| nic.set_addresses(host.addresses().to_vec()));
                }
                if number == Nic::WIRE {
                    events.push(transports::Event::GidChange);
                }
            }
            Event::MtuChanged(mtu) => set_mtu(engines, number, mtu),
            Event::NeighbourChanged { ip, mac: Some(mac) } => redirect(host, engines, number, ip, mac),
            Event::MacChanged(_) | Event::NeighbourChanged { mac: None, .. } | Event::RoutesChanged => {}
        }
    }
}

/// A neighbour has another MAC address: what goes by it goes there.
fn redirect(host: &mut HostNetwork, engines: &[Arc<Engine>], number: usize, neighbour: IpAddr, mac: MacAddr) {
    let by_it = |&peer: &IpAddr| match peer == neighbour {
        true => true,
        false => matches!(host.route(peer, None), Ok(Route::Out(hop)) if hop.gateway == Some(neighbour)),
    };
    let moved: BTreeSet<IpAddr> = peers(engines, number).into_iter().filter(by_it).collect();
    redirect_all(engines, number, |peer| moved.contains(&peer).then_some(mac));
}

/// The peers of all queue pairs on a port.
pub(super) fn peers(engines: &[Arc<Engine>], number: usize) -> BTreeSet<IpAddr> {
    let mut all = BTreeSet::new();
    for engine in engines {
        all.extend(engine.control().nic_of(number).into_iter().flat_map(|nic| nic.peers()));
    }
    all
}

/// Tells all engines where peers are now.
pub(super) fn redirect_all(engines: &[Arc<Engine>], number: usize, moved: impl Fn(IpAddr) -> Option<MacAddr>) {
    for engine in engines {
        engine.control().nic_of(number).into_iter().for_each(|nic| nic.redirect(&moved));
    }
}

impl Context {
    /// Pulls the cable out of the port, or puts it in again: a fault of the link is played. No frame passes while it is out, and what becomes
    /// of work is as when the interface's link is down: as [`OpenOptions::link_down`](super::OpenOptions::link_down) has it. Whoever
    /// follows an interface of the host puts it in again when that comes up.
    pub fn set_link(&self, up: bool) {
        let inner = self.inner();
        set_link(inner.engines(), &inner.events, inner.link_down, Nic::WIRE, up);
    }
}

/// The link of a port is there, or gone. An engine that failed stays down, and so does a port that did.
pub(super) fn set_link(engines: &[Arc<Engine>], events: &Events, link_down: LinkDown, number: usize, up: bool) {
    let mut has_backup = false;
    for engine in engines.iter().filter(|engine| engine.failure().is_none()) {
        let mut core = engine.control();
        has_backup |= core.has_backup();
        if core.driver.io_of(number).is_none() {
            continue;
        }
        match link_down {
            LinkDown::Lose => {
                core.driver.set_cut(number, !up);
                let side = if number == DualNic::BACKUP { Side::Backup } else { Side::Default };
                core.dual().set_port(side, up);
            }
            LinkDown::Wait => core.nic_of(number).into_iter().for_each(|nic| nic.set_link(up)),
        }
        drop(core);
        // What was to be sent and waited for the link.
        engine.wake();
    }
    // With a backup the engines say when no port is left.
    if !has_backup {
        events.port(up && engines.iter().all(|engine| engine.failure().is_none()));
    }
}

/// The interface has another MTU: new connections are made with it, as far as the memory for frames allows. One that is too short for any
/// packet changes nothing, and packets are lost.
fn set_mtu(engines: &[Arc<Engine>], number: usize, mtu: u32) {
    for engine in engines {
        let mut core = engine.control();
        let longest = core.driver.io_of(number).map_or(0, |io| io.max_frame());
        if let (Some(of_interface), Some(of_frames), Some(nic)) = (path_mtu(mtu), mtu_of(longest), core.nic_of(number))
        {
            nic.set_mtu(of_interface.min(of_frames));
            let fits = mtu as usize + ethernet::LEN <= longest;
            nic.set_link_mtu(if fits { mtu } else { link_mtu_of(longest) });
        }
    }
}
