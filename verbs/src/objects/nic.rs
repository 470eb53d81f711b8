//! The NICs of the process: opened with the first context of a device, closed when no object of it is left.

use std::collections::{BTreeSet, HashMap};
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use softnic_runtime::api::{
    self, DeviceSpec, Event, EventSink, FallbackReason, FirstData, LineSink, OpenError, OpenOptions, PacketSink,
    QpKind, Transport,
};
use softnic_runtime::forked;

use crate::abi::c_int;
use crate::message::warn;
use crate::objects::counters_recorder::CountersRecorder;
use crate::objects::event_queue::{self, EventQueue, Subject};
use crate::objects::requesters::Requesters;
use crate::objects::shown::file_of;
use crate::per_process::PerProcess;
use crate::seen;

/// NICs that are opened together.
pub(crate) struct Nics {
    nics: Vec<Nic>,
    descriptors: Vec<c_int>,
    counters: Option<CountersRecorder>,
}

/// A NIC, and the receivers of its events.
pub(crate) struct Nic {
    pub(crate) runtime: api::Context,
    pub(crate) owners: Arc<Owners>,
    pub(crate) requesters: Requesters,
}

impl Nic {
    fn new(runtime: api::Context, owners: Arc<Owners>) -> Nic {
        Nic { runtime, owners, requesters: Requesters::default() }
    }
}

/// The receivers of events. The NIC calls this while it works, so no code may call the NIC while it holds one of these locks.
#[derive(Default)]
pub(crate) struct Owners {
    contexts: Mutex<Vec<Arc<EventQueue>>>,
    objects: Mutex<HashMap<Subject, (Arc<EventQueue>, usize)>>,
    /// The transport that each queue pair offers its peer.
    transports: Mutex<HashMap<Subject, Transport>>,
    /// The connection manager, if there is one, which is notified of first data.
    first_data: OnceLock<FirstData>,
    /// The interface of the NIC, if it has one.
    interface: Option<String>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|p| p.into_inner())
}

impl Owners {
    pub(crate) fn add_context(&self, queue: &Arc<EventQueue>) {
        lock(&self.contexts).push(Arc::clone(queue));
    }

    pub(crate) fn remove_context(&self, queue: &Arc<EventQueue>) {
        lock(&self.contexts).retain(|q| !Arc::ptr_eq(q, queue));
    }

    /// Events about `subject` are queued in `queue`, where `element` identifies the subject.
    pub(crate) fn add(&self, subject: Subject, queue: &Arc<EventQueue>, element: usize) {
        lock(&self.objects).insert(subject, (Arc::clone(queue), element));
    }

    /// Records the transport that this queue pair offers its peer.
    pub(crate) fn note_transport(&self, subject: Subject, transport: Transport) {
        lock(&self.transports).insert(subject, transport);
    }

    /// No event about `subject` is queued any more.
    pub(crate) fn remove(&self, subject: Subject) {
        lock(&self.transports).remove(&subject);
        if let Some((queue, element)) = lock(&self.objects).remove(&subject) {
            queue.forget(element);
        }
    }

    /// Also notifies a connection manager of first data from now on.
    pub(crate) fn tell_first_data(&self, to: FirstData) {
        // A NIC has one manager as long as it is open.
        let _ = self.first_data.set(to);
    }

    fn tell(&self, event: Event) {
        if let (Event::CommEst(qpn), Some(manager)) = (event, self.first_data.get()) {
            manager.came(qpn);
        }
        // If SDR-RDMA made the offer, the caller learns of the fallback from a call of its own.
        if let Event::FellBack(qpn, peer, why) = event
            && let Some(transport) = lock(&self.transports).get(&Subject::Qp(qpn.value())).copied()
        {
            self.say_once_that(peer, transport, why);
        }
        if let Event::Unauthenticated(_, peer, why) = event {
            say_once_that_refused(peer, why);
        }
        if let Some((kind, subject)) = event_queue::of(event) {
            self.raise(kind, subject);
        }
    }

    /// Queues an event, given by its verbs code, for the owner of the object; without an object, for all contexts of the device.
    pub(crate) fn raise(&self, kind: c_int, subject: Option<Subject>) {
        match subject {
            // The port number.
            None => lock(&self.contexts).iter().for_each(|queue| queue.push(kind, 1)),
            Some(subject) => {
                if let Some((queue, element)) = lock(&self.objects).get(&subject) {
                    queue.push(kind, *element);
                }
            }
        }
    }
}

impl Owners {
    fn of(spec: &DeviceSpec) -> Owners {
        let interface = match spec {
            DeviceSpec::AfXdp { interface, .. } | DeviceSpec::Shared { interface } => Some(interface.clone()),
            DeviceSpec::Mem | DeviceSpec::Shm(_) | DeviceSpec::Dgram { .. } | DeviceSpec::Dpdk(_) => None,
        };
        Owners { interface, ..Owners::default() }
    }

    /// Reports on stderr that a peer is used with the standard's transport, at most once per peer.
    fn say_once_that(&self, peer: IpAddr, transport: Transport, why: FallbackReason) {
        static SAID: PerProcess<Mutex<BTreeSet<IpAddr>>> = PerProcess::new();
        if !lock(SAID.get()).insert(peer) {
            return;
        }
        let standard = if transport.kind() == QpKind::Uc { "uc" } else { "rc" };
        match (why, &self.interface) {
            (FallbackReason::Refused | FallbackReason::NothingInCommon, _) => {
                warn(format_args!("{peer} does not speak {transport}: {standard} is used"));
            }
            (FallbackReason::Silent | FallbackReason::KnownSilent | FallbackReason::Unauthenticated, _) => {
                warn(format_args!("{peer} says nothing about {transport}: {standard} is used"));
            }
            (FallbackReason::LinkMtu(mtu), Some(interface)) => warn(format_args!(
                "{transport} needs an MTU of {mtu} at both ends: `ip link set dev {interface} mtu {mtu}` here, or a smaller path MTU; {standard} is used"
            )),
            (FallbackReason::LinkMtu(mtu), None) => {
                warn(format_args!(
                    "{transport} needs a link that carries {mtu} bytes: choose a smaller path MTU; {standard} is used"
                ));
            }
        }
    }
}

/// Reports on stderr that a peer is refused, at most once per peer.
fn say_once_that_refused(peer: IpAddr, why: FallbackReason) {
    static SAID: PerProcess<Mutex<BTreeSet<IpAddr>>> = PerProcess::new();
    if !lock(SAID.get()).insert(peer) {
        return;
    }
    match why {
        FallbackReason::Silent => warn(format_args!("{peer} says nothing about auth: its queue pairs are refused")),
        FallbackReason::Unauthenticated => {
            warn(format_args!("{peer} has no key, or another one: its queue pairs are refused"));
        }
        _ => warn(format_args!("{peer} does not speak auth: its queue pairs are refused")),
    }
}

impl Nics {
    /// Opens the NICs of a device, or of two devices that are the ends of one wire; `first` is the number of the first device.
    pub(crate) fn open(spec: &DeviceSpec, options: &OpenOptions, first: usize) -> Result<Nics, OpenError> {
        let told = |place: usize| {
            let owners = Arc::new(Owners::of(spec));
            let to = Arc::clone(&owners);
            let on_event = Some(EventSink::new(move |event| to.tell(event)));
            let on_notice = Some(LineSink::new(|line| warn(format_args!("{line}"))));
            let tell = move |name, len| seen::packet(first + place, name, len);
            let on_packet = seen::is_wanted().then(|| PacketSink::new(tell));
            let file = |wanted: &Option<PathBuf>, extension| {
                wanted.as_deref().map(|wanted| file_of(wanted, first + place, extension))
            };
            let (pcap, trace) = (file(&options.pcap, "pcap"), file(&options.trace, "qlog"));
            (owners, OpenOptions { on_event, on_notice, on_packet, pcap, trace, ..options.clone() })
        };
        let nics = match spec {
            DeviceSpec::Mem => {
                let (a, mut b) = (told(0), told(1));
                // One wire needs one capture, at its first end.
                b.1.pcap = None;
                let runtimes = api::Context::open_pair([&a.1, &b.1])?;
                runtimes.into_iter().zip([a.0, b.0]).map(|(runtime, owners)| Nic::new(runtime, owners)).collect()
            }
            spec => {
                let (owners, options) = told(0);
                vec![Nic::new(api::Context::open(spec, &options)?, owners)]
            }
        };
        let descriptors: Vec<c_int> = nics.iter().flat_map(|nic: &Nic| nic.runtime.descriptors()).collect();
        forked::keep_from_children(&descriptors);
        Ok(Nics { nics, descriptors, counters: None })
    }

    /// From now on writes the counters of the NICs to files in this folder; `first` is the number of the first NIC's device.
    pub(crate) fn record_counters(&mut self, folder: &Path, first: usize) {
        let named = self.nics.iter().enumerate().map(|(i, nic)| (format!("softnic{}", first + i), nic.runtime.clone()));
        // The folder belongs to `softnic run`, which may have ended before this process: then the counters are not needed.
        match CountersRecorder::start(folder, named) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                warn(format_args!("cannot write counters to {}: {e}", folder.display()));
            }
            recorder => self.counters = recorder.ok(),
        }
    }

    /// The NIC at this place: the order is that of the devices.
    pub(crate) fn get(&self, place: usize) -> &Nic {
        &self.nics[place]
    }

    /// All NICs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Nic> {
        self.nics.iter()
    }

    /// The process ends: pending frames are sent, and captures are completed.
    pub(crate) fn settle(&self) {
        for nic in &self.nics {
            nic.runtime.settle();
            // An error cannot be reported any more.
            let _ = nic.runtime.flush_capture();
        }
        if let Some(counters) = &self.counters {
            counters.write();
        }
    }
}

impl Drop for Nics {
    fn drop(&mut self) {
        forked::forget(&self.descriptors);
    }
}
