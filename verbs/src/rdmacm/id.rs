//! Ids: a program's handles for a connection, a listener, or a datagram endpoint.

use std::cell::UnsafeCell;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard};

use softnic_runtime::api::cm::{CmId, ListenId, PortSpace, Route};

use super::addresses;
use super::channel::Channel;
use super::cm_event;
use super::devices::CmDevice;
use super::group::Group;
use super::link::Link;
use super::pending::{Entry, Shared};
use super::ports::Port;
use crate::abi::*;
use crate::c_result::minus_one;
use crate::errno::Errno;
use crate::gid::gid_of;
use crate::objects::queue_pair::Qp;

/// An id. A program has the address of `base`, which it owns, except for the fields that functions write.
#[repr(C)]
pub(crate) struct Id {
    base: UnsafeCell<rdma_cm_id>,
    pub(crate) shared: Arc<Shared>,
    inner: Mutex<Inner>,
    pub(crate) space: PortSpace,
}

// SAFETY: the library's fields are behind locks; the program uses the fields of the C struct from one thread at a time.
unsafe impl Sync for Id {}
// SAFETY: as for `Sync` above.
unsafe impl Send for Id {}

/// The progress of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Idle,
    Bound,
    /// Its addresses, or its route, are being resolved.
    Resolving,
    AddressResolved,
    RouteResolved,
    Listening,
    /// A request that the program must answer.
    Requested,
    /// The id has, or had, a connection in progress.
    Connecting,
}

/// The state of an id that only the library sees.
pub(crate) struct Inner {
    pub(crate) stage: Stage,
    pub(crate) device: Option<&'static CmDevice>,
    pub(crate) source: Option<SocketAddr>,
    pub(crate) destination: Option<SocketAddr>,
    pub(crate) port: Option<Port>,
    pub(crate) reuse: bool,
    pub(crate) tos: u8,
    pub(crate) ack_timeout: Option<u8>,
    /// The path MTU, as a verbs code.
    pub(crate) mtu: u8,
    pub(crate) cm: Option<CmId>,
    pub(crate) listeners: Vec<(&'static CmDevice, ListenId)>,
    /// The link of the queue pair to its peer, once known.
    pub(crate) link: Option<Link>,
    /// The route of a received request.
    pub(crate) route: Option<Route>,
    pub(crate) groups: Vec<Group>,
    /// For a listening endpoint: the attributes of the queue pairs of its connections.
    pub(crate) template: Option<(ibv_qp_init_attr, *mut ibv_pd)>,
    /// Whether the id is synchronous: functions wait for their results, and the channel belongs to the id.
    pub(crate) waits: bool,
}

// SAFETY: the pointers in a template belong to the program, which keeps their targets alive.
unsafe impl Send for Inner {}

/// The port space of a C code.
fn space_of(ps: c_int) -> Result<PortSpace, Errno> {
    match ps {
        RDMA_PS_TCP => Ok(PortSpace::Tcp),
        RDMA_PS_UDP | RDMA_PS_IPOIB => Ok(PortSpace::Udp),
        _ => Err(Errno(libc::EPROTONOSUPPORT)),
    }
}

impl Id {
    /// Creates an id; the program gets its pointer.
    pub(crate) fn new(
        shared: Arc<Shared>,
        channel: *mut rdma_event_channel,
        context: *mut c_void,
        ps: c_int,
        waits: bool,
    ) -> Result<&'static Id, Errno> {
        let space = space_of(ps)?;
        // SAFETY: zeros are NULL pointers and empty addresses.
        let mut base: rdma_cm_id = unsafe { std::mem::zeroed() };
        (base.channel, base.context, base.ps) = (channel, context, ps);
        base.qp_type = if space == PortSpace::Tcp { IBV_QPT_RC } else { IBV_QPT_UD };
        let inner = Inner {
            stage: Stage::Idle,
            device: None,
            source: None,
            destination: None,
            port: None,
            reuse: false,
            tos: 0,
            ack_timeout: None,
            mtu: 0,
            cm: None,
            listeners: Vec::new(),
            link: None,
            route: None,
            groups: Vec::new(),
            template: None,
            waits,
        };
        let id = Box::new(Id { base: UnsafeCell::new(base), shared, inner: Mutex::new(inner), space });
        let id: &'static Id = Box::leak(id);
        id.shared.is_at((&raw const *id).expose_provenance());
        Ok(id)
    }

    /// The id of a queue entry. Only valid while the id cannot be destroyed, as while one of its events is not acknowledged.
    ///
    /// # Safety
    /// As stated above.
    pub(crate) unsafe fn of<'a>(shared: &Shared) -> Option<&'a Id> {
        // SAFETY: by the contract the id is alive, if it was ever created.
        unsafe { std::ptr::with_exposed_provenance::<Id>(shared.address()).as_ref() }
    }

    pub(crate) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|p| p.into_inner())
    }

    /// The struct that the program sees.
    pub(crate) fn as_c(&self) -> *mut rdma_cm_id {
        self.base.get()
    }

    /// The queue pair of the id, if it has one.
    pub(crate) fn qp(&self) -> Option<&Qp> {
        // SAFETY: the id is alive, and its queue pair is destroyed by `rdma_destroy_qp` only.
        unsafe { (*self.as_c()).qp.cast::<Qp>().as_ref() }
    }

    /// Its device, once it has one.
    pub(crate) fn device(&self) -> Result<&'static CmDevice, Errno> {
        self.inner().device.ok_or(Errno::EINVAL)
    }

    /// Writes the device and the related fields to the struct that the program sees.
    pub(crate) fn show_device(&self, device: &CmDevice) {
        let base = self.as_c();
        // SAFETY: the id is alive, and the program does not use these fields while a function does.
        unsafe {
            ((*base).verbs, (*base).port_num) = (device.as_c(), 1);
            if (*base).pd.is_null() {
                (*base).pd = device.pd().as_c();
            }
        }
    }

    /// Writes the addresses to the struct that the program sees.
    pub(crate) fn show_addresses(&self, source: Option<SocketAddr>, destination: Option<SocketAddr>) {
        let base = self.as_c();
        // SAFETY: as in `show_device`.
        let route = unsafe { &mut (*base).route.addr };
        if let Some(source) = source {
            route.src_storage = addresses::write(source).0;
            if !addresses::is_any(source.ip()) {
                route.addr.sgid = gid_of(source.ip());
            }
        }
        if let Some(destination) = destination {
            route.dst_storage = addresses::write(destination).0;
            route.addr.dgid = gid_of(destination.ip());
        }
        route.addr.pkey = 0xffff;
    }

    /// Whether the id is synchronous.
    pub(crate) fn waits(&self) -> bool {
        self.inner().waits
    }
}

/// Runs a function on an id that returns 0, or -1 with errno set. The child of a fork may not use the parent's ids.
pub(crate) fn on(id: &Id, function: impl FnOnce() -> Result<(), Errno>) -> c_int {
    minus_one(|| id.shared.made_in.check().and_then(|()| function()))
}

/// `rdma_create_id`. Without a channel the id is synchronous.
pub(crate) extern "C" fn create(
    channel: Option<&Channel>,
    out: &mut *mut rdma_cm_id,
    context: *mut c_void,
    ps: c_int,
) -> c_int {
    minus_one(|| {
        *out = make(channel, context, ps)?.as_c();
        Ok(())
    })
}

pub(crate) fn make(channel: Option<&Channel>, context: *mut c_void, ps: c_int) -> Result<&'static Id, Errno> {
    space_of(ps)?;
    match channel {
        Some(channel) => {
            channel.queue.made_in.check()?;
            Id::new(Shared::new(&channel.queue), channel.as_c(), context, ps, false)
        }
        None => {
            let own = Channel::new()?;
            let shared = Shared::new(&own.queue);
            Id::new(shared, Box::leak(own).as_c(), context, ps, true)
        }
    }
}

/// `rdma_destroy_id`. Waits until all its events are acknowledged.
pub(crate) extern "C" fn destroy(id: *mut Id) -> c_int {
    minus_one(|| {
        // SAFETY: the id is from `Id::new`, and the program does not use it afterwards, except to acknowledge its events.
        let this = unsafe { &*id };
        this.shared.made_in.check()?;
        this.acknowledge_own();
        let (device, cm, listeners, groups) = {
            let mut inner = this.inner();
            let listeners = std::mem::take(&mut inner.listeners);
            (inner.device, inner.cm.take(), listeners, std::mem::take(&mut inner.groups))
        };
        groups.into_iter().for_each(|mut group| group.detach(this.qp()));
        for (device, listener) in listeners {
            // The listener exists, so this succeeds.
            let _ = device.manager.unlisten(listener);
        }
        if let (Some(device), Some(cm)) = (device, cm) {
            device.manager.destroy(cm);
        }
        // From now on no event is queued, and the queue is empty.
        let queue = this.shared.queue().take();
        if let Some(queue) = queue {
            queue.forget(&this.shared).into_iter().for_each(Entry::refuse);
        }
        this.shared.unacknowledged.wait_for_none();
        // SAFETY: the path is from `show_route`, or NULL; a synchronous id has a channel of its own.
        unsafe {
            let base = this.as_c();
            if !(*base).route.path_rec.is_null() {
                drop(Box::from_raw((*base).route.path_rec));
            }
            if this.waits() {
                drop(Box::from_raw((*base).channel.cast::<Channel>()));
            }
            drop(Box::from_raw(id));
        }
        Ok(())
    })
}

impl Id {
    /// Acknowledges the event that a function waited for and left in the id.
    pub(crate) fn acknowledge_own(&self) {
        let base = self.as_c();
        // SAFETY: the id is alive; the event was taken and not acknowledged, or is NULL.
        unsafe {
            let event = std::mem::replace(&mut (*base).event, std::ptr::null_mut());
            if !event.is_null() {
                cm_event::acknowledge(event.cast());
            }
        }
    }
}

/// `rdma_migrate_id`: moves the id's events to this channel; without a channel the id becomes synchronous.
pub(crate) extern "C" fn migrate(id: &Id, channel: Option<&Channel>) -> c_int {
    on(id, || {
        channel.map_or(Ok(()), |channel| channel.queue.made_in.check())?;
        id.acknowledge_own();
        let own = if channel.is_none() { Some(Channel::new()?) } else { None };
        let to = channel.or(own.as_deref()).ok_or(Errno::EINVAL)?;
        {
            let mut queue = id.shared.queue();
            let Some(old) = queue.replace(Arc::clone(&to.queue)) else { return Err(Errno::EINVAL) };
            // In order: no event is queued meanwhile.
            old.forget(&id.shared).into_iter().for_each(|entry| to.queue.push(entry));
        }
        let target = to.as_c();
        let owned = own.is_some();
        if let Some(own) = own {
            Box::leak(own);
        }
        let had_own = std::mem::replace(&mut id.inner().waits, owned);
        let base = id.as_c();
        // SAFETY: the id is alive; a channel of its own is not used by other code.
        unsafe {
            let old = std::mem::replace(&mut (*base).channel, target);
            if had_own {
                drop(Box::from_raw(old.cast::<Channel>()));
            }
        }
        id.shared.unacknowledged.wait_for_none();
        Ok(())
    })
}
