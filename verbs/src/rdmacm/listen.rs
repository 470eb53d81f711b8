//! `rdma_listen` and `rdma_get_request`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use softnic_runtime::api::CmSink;
use softnic_runtime::api::cm::{Event, Listen};

use super::bind;
use super::channel::Channel;
use super::devices::{self, CmDevice};
use super::event::next;
use super::id::{self, Id, Stage, on};
use super::pending::{IdEvent, Shared};
use super::qp;
use crate::abi::*;
use crate::errno::Errno;

/// The default backlog.
const DEFAULT_BACKLOG: usize = 1024;

/// Queues requests for a listener; each gets the shared state of its future id.
fn requests(listener: &Arc<Shared>, device: &'static CmDevice) -> CmSink {
    let listener = Arc::clone(listener);
    CmSink::new(move |event| {
        let route = match &event {
            Event::ConnectRequest { route, .. } | Event::SidrRequest { route, .. } => *route,
            _ => return None,
        };
        let child = Shared::new(&listener.current_queue()?);
        let what = IdEvent::Request { child: Arc::clone(&child), device, route, event: Box::new(event) };
        listener.push(what).then(|| child.sink())
    })
}

/// `rdma_listen`. An id without an address listens on all devices, on a port chosen by the library.
pub(crate) extern "C" fn listen(id: &Id, backlog: c_int) -> c_int {
    on(id, || {
        if id.inner().stage == Stage::Idle {
            bind::bind_to(id, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
        }
        let (device, source) = {
            let inner = id.inner();
            if inner.stage != Stage::Bound {
                return Err(Errno::EINVAL);
            }
            (inner.device, inner.source.ok_or(Errno::EINVAL)?)
        };
        let devices = match device {
            Some(device) => vec![device],
            None => devices::all()?,
        };
        let backlog = usize::try_from(backlog).ok().filter(|&n| n > 0).unwrap_or(DEFAULT_BACKLOG);
        let address = match source.ip().to_canonical() {
            // As in Linux: such a listener receives the same requests as any other without a device.
            IpAddr::V4(ip) if ip.is_loopback() => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(ip) if ip.is_loopback() => Ipv6Addr::UNSPECIFIED.into(),
            ip => ip,
        };
        let address = SocketAddr::new(address, source.port());
        let listen = Listen { backlog, ..Listen::port(id.space, address) };
        let mut listeners = Vec::new();
        for device in devices {
            match device.manager.listen(&listen, requests(&id.shared, device)) {
                Ok(listener) => listeners.push((device, listener)),
                Err(e) => {
                    listeners.iter().for_each(|(device, listener): &(&CmDevice, _)| {
                        let _ = device.manager.unlisten(*listener);
                    });
                    return Err(e.into());
                }
            }
        }
        let mut inner = id.inner();
        (inner.stage, inner.listeners) = (Stage::Listening, listeners);
        Ok(())
    })
}

/// `rdma_get_request`: waits for the next request of a synchronous id. The new id is synchronous, too.
pub(crate) extern "C" fn get_request(listener: &Id, out: &mut *mut rdma_cm_id) -> c_int {
    on(listener, || {
        if !listener.waits() || listener.inner().stage != Stage::Listening {
            return Err(Errno::EINVAL);
        }
        listener.acknowledge_own();
        // SAFETY: a synchronous id has a channel of its own.
        let channel = unsafe { &*(*listener.as_c()).channel.cast::<Channel>() };
        let mut event = loop {
            let event = next(channel)?;
            if event.base.event == CONNECT_REQUEST {
                break event;
            }
            // An event of a request that was withdrawn before the program saw it.
            event.acknowledged();
        };
        // SAFETY: the request was just taken, so its id exists.
        let id: &Id = unsafe { &*event.base.id.cast() };
        let made = prepare(listener, id);
        if made.is_err() {
            event.acknowledged();
            id::destroy(event_id(id));
            return made;
        }
        // The listener may be destroyed before the new id.
        event.hand_to(&id.shared);
        // SAFETY: the id is alive.
        unsafe { (*id.as_c()).event = Box::into_raw(event).cast() };
        *out = id.as_c();
        Ok(())
    })
}

fn event_id(id: &Id) -> *mut Id {
    (&raw const *id).cast_mut()
}

/// Gives the new id a channel of its own, and a queue pair with the endpoint's attributes.
fn prepare(listener: &Id, id: &Id) -> Result<(), Errno> {
    if id::migrate(id, None) != 0 {
        return Err(Errno::last());
    }
    let template = listener.inner().template;
    let Some((mut init, pd)) = template else { return Ok(()) };
    qp::create_for(id, pd, &mut init)
}
