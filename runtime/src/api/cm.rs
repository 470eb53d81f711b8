//! Connections by address: the connection manager of a NIC, over its QP1.
//!
//! [`ConnectionManager`] drives a [`softnic_cm::Cm`]: it carries its MADs, runs its timers and hands out its events. What can be asked and
//! what follows is described there; here every call may come from any thread, and returns at once. [`CmListener`] and [`CmConnection`] are
//! for programs that would rather wait.

mod backup;
mod connection;
mod end;
mod gsi;
mod paths;
mod service;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use softnic_cm::{Cm, Config, State};
use softnic_nic::{Generator, MrError, ObjectError};
use softnic_wire::mad::ip_cm::ServiceId;
use softnic_wire::{MacAddr, Qpn};

use super::company::Company;
use super::context::Context;
use crate::OsRandom;
use crate::background::Background;
use crate::wake::Wake;
pub use connection::{CmConnection, CmListener, CmRequest, ConnectError};
pub use end::CmEnd;

/// Calls of the connection manager: parameters, events, errors.
pub use softnic_cm::{Accept, CmId, Connect, Disconnect, Error, Event, Listen, ListenId};
pub use softnic_cm::{PortSpace, Resolve, Route, SidrReply};
/// Messages of the connection manager, as far as parameters and events contain them.
pub use softnic_wire::mad::cm::{PathMtu, RejReason, Rep, Req, SidrRep, SidrStatus, TimeoutCode, TransportService};
pub use softnic_wire::mad::ip_cm::IpCm;

/// Receives a connection's events, each by a call from the manager's thread, in their order.
///
/// It must be short and must not call the manager, which would wait for ever: it is for queueing the event. Of an event that brings a new
/// connection ([`Event::ConnectRequest`], [`Event::SidrRequest`]) it says who hears of that one from then on; with `None` it is refused.
#[derive(Clone)]
pub struct CmSink(Arc<dyn Fn(Event) -> Option<CmSink> + Send + Sync>);

impl CmSink {
    /// Calls `hear` with each event.
    pub fn new(hear: impl Fn(Event) -> Option<CmSink> + Send + Sync + 'static) -> CmSink {
        CmSink(Arc::new(hear))
    }

    /// Sends each event to a channel, those of new connections too.
    pub fn channel(to: std::sync::mpsc::Sender<Event>) -> CmSink {
        CmSink::new(move |event| {
            // Nobody listens any more: a request is refused.
            to.send(event).ok().map(|()| CmSink::channel(to.clone()))
        })
    }
}

impl fmt::Debug for CmSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CmSink")
    }
}

/// Why a NIC has no connection manager.
#[derive(Debug, thiserror::Error)]
pub enum CmOpenError {
    /// Somebody has QP1 already.
    #[error("QP1 of the NIC is in use: it has a connection manager already")]
    InUse,
    /// The NIC refused something that every program can have.
    #[error("the NIC refuses QP1: {0}")]
    Nic(String),
    /// The system refused a descriptor or a thread.
    #[error("the system refused a descriptor, a thread or random numbers: {0}")]
    System(#[from] io::Error),
}

impl From<MrError> for CmOpenError {
    fn from(e: MrError) -> CmOpenError {
        CmOpenError::Nic(e.to_string())
    }
}

impl From<ObjectError> for CmOpenError {
    fn from(e: ObjectError) -> CmOpenError {
        match e {
            ObjectError::NoNumbers => CmOpenError::InUse,
            e => CmOpenError::Nic(e.to_string()),
        }
    }
}

/// How often a program that ends sends a DREQ again that has no answer, and how long it waits for one.
const FAREWELLS: usize = 2;
const PATIENCE: Duration = Duration::from_millis(20);

/// The connection manager of a NIC: it has QP1 as long as it lives. A NIC has one at a time.
///
/// When it goes, connections are not ended: [`ConnectionManager::end_all`] does that.
pub struct ConnectionManager {
    shared: Arc<Shared>,
    _thread: Background,
    context: Context,
}

/// State shared by calls and the manager's thread.
struct Shared {
    managed: Mutex<Managed>,
    /// All that was asked for is sent.
    sent: Condvar,
    first_data: FirstData,
    start: Instant,
}

struct Managed {
    cm: Cm,
    conns: HashMap<CmId, CmSink>,
    listeners: HashMap<ListenId, (CmSink, Option<Claim>)>,
    /// Requests to wait until all is sent, and up to which of them that is so.
    wanted: u64,
    done: u64,
}

/// Tells the manager of the first data on a queue pair. It may be called from an [`EventSink`](super::EventSink).
#[derive(Clone)]
pub struct FirstData(Arc<FirstDataQueue>);

struct FirstDataQueue {
    qpns: Mutex<Vec<Qpn>>,
    wake: Wake,
}

impl FirstData {
    /// Data came ([`softnic_nic::transports::Event::CommEst`]): so the peer is ready, though its last message may be lost.
    pub fn came(&self, qpn: Qpn) {
        self.0.qpns.lock().unwrap_or_else(|p| p.into_inner()).push(qpn);
        self.0.wake.wake();
    }
}

impl fmt::Debug for FirstData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FirstData")
    }
}

impl Shared {
    fn managed(&self) -> MutexGuard<'_, Managed> {
        self.managed.lock().unwrap_or_else(|p| p.into_inner())
    }

    fn now(&self) -> softnic_wire::Instant {
        softnic_wire::Instant::ZERO + self.start.elapsed()
    }

    fn wake(&self) {
        self.first_data.0.wake.wake();
    }
}

/// A service is this process's among those that share its port, as long as this lives.
struct Claim {
    company: Company,
    service: ServiceId,
}

impl Claim {
    fn take(company: Option<&Company>, service: ServiceId) -> Result<Option<Claim>, Error> {
        let Some(company) = company else { return Ok(None) };
        match company.claim(service) {
            Ok(true) => Ok(Some(Claim { company: company.clone(), service })),
            // Who cannot say that it is his does not have it.
            Ok(false) | Err(_) => Err(Error::ServiceInUse),
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.company.release(self.service);
    }
}

/// A GUID made from the MAC address, as RoCE devices do.
fn guid(mac: MacAddr) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_be_bytes([a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

impl ConnectionManager {
    /// Takes QP1 of a NIC and begins to listen to it.
    ///
    /// # Errors
    /// When the NIC has a manager already, or the system refuses what is needed.
    pub fn new(context: &Context) -> Result<ConnectionManager, CmOpenError> {
        let backup_is_shared = context.inner().failover().is_some_and(|failover| failover.company.is_some());
        let config = Config { ca_guid: guid(context.port().mac), backup_is_shared, ..Config::default() };
        let mut random = OsRandom::new()?;
        // Answers to a process among several at one port find it by these.
        let process = context.company().map(Company::me);
        let comm_id = move || {
            let drawn = random.next_u32();
            process.map_or(drawn, |process| process.comm_id(drawn))
        };
        let managed = Managed {
            cm: Cm::new(config, comm_id),
            conns: HashMap::new(),
            listeners: HashMap::new(),
            wanted: 0,
            done: 0,
        };
        let queue = FirstDataQueue { qpns: Mutex::default(), wake: Wake::new()? };
        let shared = Arc::new(Shared {
            managed: Mutex::new(managed),
            sent: Condvar::new(),
            first_data: FirstData(Arc::new(queue)),
            start: Instant::now(),
        });
        let thread = service::start(context, &shared)?;
        Ok(ConnectionManager { shared, _thread: thread, context: context.clone() })
    }

    /// The handle that reports first data to the manager.
    pub fn first_data(&self) -> FirstData {
        self.shared.first_data.clone()
    }

    /// Does something to the manager, and has its thread look at what there is to send.
    fn command<T>(
        &self,
        what: impl FnOnce(&mut Managed, softnic_wire::Instant) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let done = what(&mut self.shared.managed(), self.shared.now())?;
        self.shared.wake();
        Ok(done)
    }

    /// [`Cm::listen`].
    ///
    /// # Errors
    /// When somebody listens there already, be it another process behind the same port.
    pub fn listen(&self, listen: &Listen, sink: CmSink) -> Result<ListenId, Error> {
        let claim = Claim::take(self.context.company(), listen.service_id)?;
        self.command(|m, _| {
            let id = m.cm.listen(listen)?;
            m.listeners.insert(id, (sink, claim));
            Ok(id)
        })
    }

    /// [`Cm::unlisten`].
    ///
    /// # Errors
    /// When there is no such listener.
    pub fn unlisten(&self, id: ListenId) -> Result<(), Error> {
        let mut gone = None;
        let result = self.command(|m, _| {
            gone = m.listeners.remove(&id);
            m.cm.unlisten(id)
        });
        // Its service is given back, for which a daemon may have to be asked, after the manager is free again.
        drop(gone);
        result
    }

    /// [`Cm::connect`].
    ///
    /// # Errors
    /// As there.
    pub fn connect(&self, connect: &Connect<'_>, sink: CmSink) -> Result<CmId, Error> {
        self.command(|m, _| {
            let id = m.cm.connect(connect)?;
            m.conns.insert(id, sink);
            Ok(id)
        })
    }

    /// [`Cm::resolve`].
    ///
    /// # Errors
    /// As there.
    pub fn resolve(&self, resolve: &Resolve<'_>, sink: CmSink) -> Result<CmId, Error> {
        self.command(|m, _| {
            let id = m.cm.resolve(resolve)?;
            m.conns.insert(id, sink);
            Ok(id)
        })
    }

    /// [`Cm::accept`].
    ///
    /// # Errors
    /// As there.
    pub fn accept(&self, id: CmId, accept: &Accept<'_>) -> Result<(), Error> {
        self.command(|m, _| m.cm.accept(id, accept))
    }

    /// [`Cm::reject`].
    ///
    /// # Errors
    /// As there.
    pub fn reject(&self, id: CmId, reason: RejReason, private_data: &[u8]) -> Result<(), Error> {
        self.command(|m, now| m.cm.reject(now, id, reason, &[], private_data))
    }

    /// [`Cm::establish`].
    ///
    /// # Errors
    /// As there.
    pub fn establish(&self, id: CmId) -> Result<(), Error> {
        self.command(|m, _| m.cm.establish(id, &[]))
    }

    /// [`Cm::disconnect`].
    ///
    /// # Errors
    /// As there.
    pub fn disconnect(&self, id: CmId) -> Result<(), Error> {
        self.command(|m, now| m.cm.disconnect(now, id, &[]))
    }

    /// [`Cm::sidr_reply`].
    ///
    /// # Errors
    /// As there.
    pub fn sidr_reply(&self, id: CmId, reply: &SidrReply<'_>) -> Result<(), Error> {
        self.command(|m, now| m.cm.sidr_reply(now, id, reply))
    }

    /// [`Cm::destroy`]: when this returns no event of the connection is told any more. One that is over already is forgotten too.
    pub fn destroy(&self, id: CmId) {
        let destroy = |m: &mut Managed, now| {
            m.conns.remove(&id);
            m.cm.destroy(now, id)
        };
        // It was over.
        let _ = self.command(destroy);
    }

    /// Where a connection stands; `None` when all is over.
    pub fn state(&self, id: CmId) -> Option<State> {
        self.shared.managed().cm.state(id)
    }

    /// [`Cm::holds`].
    pub fn holds(&self, qpn: Qpn) -> bool {
        self.shared.managed().cm.holds(qpn)
    }

    /// The manager's counters.
    pub fn counters(&self) -> softnic_cm::Counters {
        *self.shared.managed().cm.counters()
    }

    /// Ends every connection, for a program that is about to end: for at most `limit` this waits until the messages that say so have left. Nobody sends
    /// a lost one again afterwards, so one without an answer is sent three times in a short while.
    pub fn end_all(&self, limit: Duration) {
        let now = self.shared.now();
        let mut managed = self.shared.managed();
        let ids: Vec<CmId> = managed.conns.drain().map(|(id, _)| id).collect();
        for id in ids {
            // What is over already needs nothing.
            let _ = managed.cm.destroy(now, id);
        }
        drop(managed);
        self.flush(limit);
        for _ in 0..FAREWELLS {
            let begin = Instant::now();
            while self.shared.managed().cm.awaits_drep() && begin.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(1));
            }
            if !self.shared.managed().cm.awaits_drep() {
                return;
            }
            self.shared.managed().cm.repeat_dreqs();
            self.flush(limit);
        }
    }

    /// Waits until all messages that are due have left the NIC, for at most `limit`: for a program that may end right behind them.
    pub fn flush(&self, limit: Duration) {
        let mut managed = self.shared.managed();
        managed.wanted += 1;
        let mine = managed.wanted;
        self.shared.wake();
        let waiting = |m: &mut Managed| m.done < mine;
        // Whether it is done or late makes no difference to who ends.
        drop(self.shared.sent.wait_timeout_while(managed, limit, waiting));
    }
}

impl fmt::Debug for ConnectionManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ConnectionManager").field(&self.shared.managed().cm).finish()
    }
}
