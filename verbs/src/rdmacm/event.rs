//! Events as programs take them: the changes of an event to its id are applied at that time.

use std::net::SocketAddr;
use std::sync::Arc;

use softnic_runtime::api::Qpn;
use softnic_runtime::api::cm::{Disconnect, Event, IpCm, PortSpace, Rep, Req, Route, SidrRep, SidrStatus};

use super::channel::Channel;
use super::cm_event::{CmEvent, NO_CONN, no_ud};
use super::devices::CmDevice;
use super::group::{self, Group};
use super::id::{Id, Stage};
use super::link::{Link, way};
use super::pending::{Entry, IdEvent, Joined, Shared};
use super::{qp, resolved};
use crate::abi::*;
use crate::c_result::minus_one;
use crate::errno::Errno;

/// The next event of a channel for the program; waits for it, unless the channel's descriptor is non-blocking.
pub(crate) fn next(channel: &Channel) -> Result<Box<CmEvent>, Errno> {
    loop {
        match channel.queue.pop() {
            Some(entry) => {
                if let Some(event) = process(entry) {
                    return Ok(event);
                }
            }
            None => channel.queue.wait()?,
        }
    }
}

/// `rdma_get_cm_event`.
pub(crate) extern "C" fn get_event(channel: &Channel, out: &mut *mut CmEvent) -> c_int {
    minus_one(|| {
        channel.queue.made_in.check()?;
        *out = Box::into_raw(next(channel)?);
        Ok(())
    })
}

/// For a synchronous id: takes the event that completes its call, and leaves it in the id.
pub(crate) fn complete(id: &Id) -> Result<(), Errno> {
    if !id.waits() {
        return Ok(());
    }
    id.acknowledge_own();
    let base = id.as_c();
    // SAFETY: a synchronous id has a channel of its own.
    let channel = unsafe { &*(*base).channel.cast::<Channel>() };
    let event = next(channel)?;
    let (kind, status) = (event.base.event, event.base.status);
    // SAFETY: the id is alive.
    unsafe { (*base).event = Box::into_raw(event).cast() };
    match (kind, status) {
        (_, 0) => Ok(()),
        (REJECTED, _) => Err(Errno(libc::ECONNREFUSED)),
        (_, status) if status < 0 => Err(Errno(-status)),
        _ => Err(Errno(libc::EIO)),
    }
}

/// A negative errno, as in events.
fn negative(e: Errno) -> c_int {
    -e.0
}

/// The event for the program; `None` if there is none.
fn process(entry: Entry) -> Option<Box<CmEvent>> {
    let Entry { to, what } = entry;
    // SAFETY: the entry was counted when it was taken, and its id is destroyed only after the acknowledgement.
    let id = unsafe { Id::of(&to) };
    let made = id.and_then(|id| match what {
        IdEvent::Address(Ok(resolved)) => {
            resolved::address_is_known(id, resolved);
            Some(CmEvent::new(id.as_c(), &to, ADDR_RESOLVED, 0))
        }
        IdEvent::Address(Err(e)) => {
            let mut inner = id.inner();
            inner.stage = if inner.port.is_some() { Stage::Bound } else { Stage::Idle };
            Some(CmEvent::new(id.as_c(), &to, ADDR_ERROR, negative(e)))
        }
        IdEvent::Route(Ok(mtu)) => {
            resolved::route_is_known(id, mtu);
            Some(CmEvent::new(id.as_c(), &to, ROUTE_RESOLVED, 0))
        }
        IdEvent::Route(Err(e)) => {
            id.inner().stage = Stage::AddressResolved;
            Some(CmEvent::new(id.as_c(), &to, ROUTE_ERROR, negative(e)))
        }
        IdEvent::Request { child, device, route, event } => request(id, &to, &child, device, &route, &event),
        IdEvent::Cm(event) => of_connection(id, &to, &event),
        IdEvent::Multicast(joined) => Some(of_group(id, &to, &joined)),
        IdEvent::Played(kind, status) => played(id, &to, kind, status),
    });
    if made.is_none() {
        to.unacknowledged.acknowledge(1);
    }
    made
}

/// A simulated fault. If a connection fails, its queue pair fails, too; events about a device go only to ids that have one.
fn played(id: &Id, to: &Arc<Shared>, kind: c_int, status: c_int) -> Option<Box<CmEvent>> {
    match kind {
        REJECTED | UNREACHABLE | CONNECT_ERROR => qp::fail(id),
        _ if id.device().is_err() => return None,
        _ => {}
    }
    Some(CmEvent::new(id.as_c(), to, kind, status))
}

/// A request: creates the new id.
fn request(
    listener: &Id,
    to: &Arc<Shared>,
    child: &Arc<Shared>,
    device: &'static CmDevice,
    route: &Route,
    event: &Event,
) -> Option<Box<CmEvent>> {
    let (cm, ip, local_port) = match event {
        Event::ConnectRequest { id, request, .. } => (*id, request.ip_cm(), request.service_id.as_ip()),
        Event::SidrRequest { id, request, .. } => (*id, request.ip_cm(), request.service_id.as_ip()),
        _ => return None,
    };
    let of_listener = listener.as_c();
    // SAFETY: the listener is alive, because this event is not acknowledged.
    let (channel, context, ps) = unsafe { ((*of_listener).channel, (*of_listener).context, (*of_listener).ps) };
    let Ok(id) = Id::new(Arc::clone(child), channel, context, ps, false) else {
        device.manager.destroy(cm);
        return None;
    };
    let source = SocketAddr::new(route.local, local_port.map_or(0, |(_, port)| port));
    let destination = SocketAddr::new(route.remote, ip.map_or(0, |ip: IpCm| ip.source_port));
    {
        let mut inner = id.inner();
        (inner.stage, inner.device, inner.cm) = (Stage::Requested, Some(device), Some(cm));
        (inner.source, inner.destination, inner.route) = (Some(source), Some(destination), Some(*route));
        if let Event::ConnectRequest { request, .. } = event {
            inner.link = Some(Link::asked(route, request));
        }
    }
    id.show_device(device);
    id.show_addresses(Some(source), Some(destination));
    let mut made = CmEvent::new(id.as_c(), to, CONNECT_REQUEST, 0);
    made.base.listen_id = of_listener;
    Some(match event {
        Event::ConnectRequest { request, .. } => {
            // SAFETY: the id was just created.
            unsafe {
                (*id.as_c()).qp_type = if request.transport_service.code() == 1 { IBV_QPT_UC } else { IBV_QPT_RC }
            };
            made.with_conn(consumer_data(&request.private_data, ip.is_some()), asked(request))
        }
        Event::SidrRequest { request, .. } => {
            let param = rdma_ud_param { ah_attr: way(device, route), ..no_ud() };
            made.with_ud(consumer_data(&request.private_data, ip.is_some()), param)
        }
        _ => made,
    })
}

/// The private data after the RDMA-CM's header, if there is a header.
fn consumer_data(data: &[u8], header: bool) -> &[u8] {
    if header { IpCm::consumer_data(data) } else { data }
}

/// The parameters of a request, from the view of the passive side.
fn asked(request: &Req) -> rdma_conn_param {
    rdma_conn_param {
        responder_resources: request.initiator_depth,
        initiator_depth: request.responder_resources,
        flow_control: request.end_to_end_flow_control.into(),
        retry_count: request.retry_count,
        rnr_retry_count: request.rnr_retry_count,
        srq: request.srq.into(),
        qp_num: request.local_qpn,
        ..NO_CONN
    }
}

/// The parameters of a reply, from the view of the active side.
fn replied(reply: &Rep) -> rdma_conn_param {
    rdma_conn_param {
        responder_resources: reply.initiator_depth,
        initiator_depth: reply.responder_resources,
        flow_control: reply.end_to_end_flow_control.into(),
        rnr_retry_count: reply.rnr_retry_count,
        srq: reply.srq.into(),
        qp_num: reply.local_qpn,
        ..NO_CONN
    }
}

/// An event of the connection manager about a connection.
fn of_connection(id: &Id, to: &Arc<Shared>, event: &Event) -> Option<Box<CmEvent>> {
    let new = |kind, status| CmEvent::new(id.as_c(), to, kind, status);
    Some(match event {
        Event::ConnectResponse { reply, .. } => {
            let (kind, status) = response(id, reply);
            new(kind, status).with_conn(&reply.private_data, replied(reply))
        }
        Event::Established { private_data, .. } => {
            let data = private_data.as_deref().map_or(&[][..], |data| &data[..]);
            new(ESTABLISHED, 0).with_conn(data, NO_CONN)
        }
        Event::Rejected { rej, .. } => {
            qp::fail(id);
            new(REJECTED, rej.reason.0.into()).with_conn(&rej.private_data, NO_CONN)
        }
        Event::Unreachable { .. } => {
            qp::fail(id);
            new(UNREACHABLE, -libc::ETIMEDOUT)
        }
        Event::Disconnected { how, .. } => {
            new(DISCONNECTED, if *how == Disconnect::NoAnswer { -libc::ETIMEDOUT } else { 0 })
        }
        Event::TimewaitExit { .. } => new(TIMEWAIT_EXIT, 0),
        Event::SidrResponse { reply, .. } => service(id, reply, new),
        // These events go to listeners.
        Event::ConnectRequest { .. } | Event::SidrRequest { .. } => return None,
    })
}

/// The peer accepts: if the id has a queue pair, it is connected here; otherwise the program does it.
fn response(id: &Id, reply: &Rep) -> (c_int, c_int) {
    let (device, cm) = {
        let mut inner = id.inner();
        if let Some(link) = &mut inner.link {
            link.replied(reply);
        }
        (inner.device, inner.cm)
    };
    let (Some(device), Some(cm)) = (device, cm) else { return (CONNECT_ERROR, -libc::EINVAL) };
    if id.qp().is_none() {
        return (CONNECT_RESPONSE, 0);
    }
    let ready = qp::to_rts(id).and_then(|()| Ok(device.manager.establish(cm)?));
    match ready {
        Ok(()) => (ESTABLISHED, 0),
        Err(e) => {
            qp::fail(id);
            device.manager.destroy(cm);
            (CONNECT_ERROR, negative(e))
        }
    }
}

/// The datagram queue pair that provides a service.
fn service(id: &Id, reply: &SidrRep, new: impl Fn(c_int, c_int) -> Box<CmEvent>) -> Box<CmEvent> {
    debug_assert!(id.space == PortSpace::Udp);
    if reply.status != SidrStatus::VALID {
        return new(UNREACHABLE, reply.status.0.into()).with_ud(&reply.private_data, no_ud());
    }
    let (device, route) = {
        let inner = id.inner();
        (inner.device, inner.route)
    };
    let ah_attr = match (device, route) {
        (Some(device), Some(route)) => way(device, &route),
        _ => ibv_ah_attr::default(),
    };
    let param = rdma_ud_param { ah_attr, qp_num: reply.qpn, qkey: reply.qkey, ..no_ud() };
    new(ESTABLISHED, 0).with_ud(&reply.private_data, param)
}

/// A group was joined: attaches the id's queue pair now, if there is one.
fn of_group(id: &Id, to: &Arc<Shared>, joined: &Joined) -> Box<CmEvent> {
    let context = std::ptr::with_exposed_provenance(joined.context);
    let new = |kind, status| CmEvent::new(id.as_c(), to, kind, status);
    match Group::join(joined.group, id.qp().filter(|_| joined.listens)) {
        Err(e) => {
            let param = rdma_ud_param { private_data: context, ..no_ud() };
            new(MULTICAST_ERROR, negative(e)).with_context(param)
        }
        Ok(group) => {
            let (device, local, tos) = {
                let mut inner = id.inner();
                inner.groups.push(group);
                (inner.device, inner.source.map(|s| s.ip()), inner.tos)
            };
            let ah_attr = device.map_or_else(ibv_ah_attr::default, |d| group::way(d, local, joined.group, tos));
            let qp_num = Qpn::MULTICAST.value();
            let param = rdma_ud_param { private_data: context, ah_attr, qp_num, qkey: RDMA_UDP_QKEY, ..no_ud() };
            new(MULTICAST_JOIN, 0).with_context(param)
        }
    }
}
