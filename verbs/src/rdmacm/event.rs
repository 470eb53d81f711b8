//! Events as programs get them. What an event changes about its id is changed when the program takes it.

use std::net::SocketAddr;
use std::sync::Arc;

use softnic_runtime::api::cm::{Disconnect, Event, IpCm, PortSpace, Rep, Req, Route, SidrRep, SidrStatus};

use super::channel::{Entry, What};
use super::devices::CmDevice;
use super::id::{Id, Shared, Stage};
use super::qp::{self, Link};
use super::resolve;
use crate::abi::*;
use crate::errno::Errno;

/// An event, with its private data behind it.
#[repr(C)]
pub(crate) struct CmEvent {
    pub(crate) base: rdma_cm_event,
    private_data: [u8; 256],
    /// Who waits until it is acknowledged.
    waiting: Arc<Shared>,
}

impl CmEvent {
    pub(crate) fn acknowledged(self) {
        self.waiting.unacknowledged.acknowledge(1);
    }

    /// Another id waits for it from now on.
    pub(crate) fn hand_to(&mut self, to: &Arc<Shared>) {
        to.unacknowledged.took_one();
        std::mem::replace(&mut self.waiting, Arc::clone(to)).unacknowledged.acknowledge(1);
    }

    fn new(id: &Id, waiting: &Arc<Shared>, kind: c_int, status: c_int) -> Box<CmEvent> {
        // SAFETY: zeros are no parameters of either kind.
        let param = unsafe { std::mem::zeroed() };
        let base = rdma_cm_event { id: id.as_c(), listen_id: std::ptr::null_mut(), event: kind, status, param };
        Box::new(CmEvent { base, private_data: [0; 256], waiting: Arc::clone(waiting) })
    }

    /// Puts private data in, and parameters that point to it.
    fn with_conn(mut self: Box<CmEvent>, data: &[u8], param: rdma_conn_param) -> Box<CmEvent> {
        let (private_data, private_data_len) = self.put(data);
        self.base.param.conn = rdma_conn_param { private_data, private_data_len, ..param };
        self
    }

    fn with_ud(mut self: Box<CmEvent>, data: &[u8], param: rdma_ud_param) -> Box<CmEvent> {
        let (private_data, private_data_len) = self.put(data);
        self.base.param.ud = rdma_ud_param { private_data, private_data_len, ..param };
        self
    }

    /// Parameters of a group: in place of private data the program gets what it gave itself.
    pub(crate) fn with_context(mut self: Box<CmEvent>, param: rdma_ud_param) -> Box<CmEvent> {
        self.base.param.ud = param;
        self
    }

    fn put(&mut self, data: &[u8]) -> (*const c_void, u8) {
        self.private_data[..data.len()].copy_from_slice(data);
        match data.len() {
            0 => (std::ptr::null(), 0),
            len => (self.private_data.as_ptr().cast(), len as u8),
        }
    }
}

const NO_CONN: rdma_conn_param = rdma_conn_param {
    private_data: std::ptr::null(),
    private_data_len: 0,
    responder_resources: 0,
    initiator_depth: 0,
    flow_control: 0,
    retry_count: 0,
    rnr_retry_count: 0,
    srq: 0,
    qp_num: 0,
};

/// Parameters of datagrams to nobody.
pub(crate) fn no_ud() -> rdma_ud_param {
    let ah_attr = ibv_ah_attr::default();
    rdma_ud_param { private_data: std::ptr::null(), private_data_len: 0, ah_attr, qp_num: 0, qkey: 0 }
}

/// A negative errno, as events have it.
fn negative(e: Errno) -> c_int {
    -e.0
}

/// What the program is told; `None` when there is nothing that it must know.
pub(crate) fn process(entry: Entry) -> Option<Box<CmEvent>> {
    let Entry { to, what } = entry;
    // SAFETY: the entry was counted when it was taken, and its id is destroyed only after it is acknowledged.
    let id = unsafe { to.id() };
    let made = id.and_then(|id| match what {
        What::Address(Ok(resolved)) => {
            Some(resolve::address_is_known(id, resolved, |kind| CmEvent::new(id, &to, kind, 0)))
        }
        What::Address(Err(e)) => {
            let mut inner = id.inner();
            inner.stage = if inner.port.is_some() { Stage::Bound } else { Stage::Idle };
            Some(CmEvent::new(id, &to, ADDR_ERROR, negative(e)))
        }
        What::Route(Ok(mtu)) => {
            resolve::route_is_known(id, mtu);
            Some(CmEvent::new(id, &to, ROUTE_RESOLVED, 0))
        }
        What::Route(Err(e)) => {
            id.inner().stage = Stage::AddressResolved;
            Some(CmEvent::new(id, &to, ROUTE_ERROR, negative(e)))
        }
        What::Request { child, device, route, event } => request(id, &to, &child, device, &route, &event),
        What::Cm(event) => of_connection(id, &to, &event),
        What::Multicast(joined) => Some(joined.tell(id, |kind, status| CmEvent::new(id, &to, kind, status))),
    });
    if made.is_none() {
        to.unacknowledged.acknowledge(1);
    }
    made
}

/// A request: the new id is made.
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
    // SAFETY: the listener is alive, for this event is not acknowledged.
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
    let mut made = CmEvent::new(id, to, CONNECT_REQUEST, 0);
    made.base.listen_id = of_listener;
    Some(match event {
        Event::ConnectRequest { request, .. } => {
            // SAFETY: the id was just made.
            unsafe {
                (*id.as_c()).qp_type = if request.transport_service.code() == 1 { IBV_QPT_UC } else { IBV_QPT_RC }
            };
            made.with_conn(consumer_data(&request.private_data, ip.is_some()), asked(request))
        }
        Event::SidrRequest { request, .. } => {
            let param = rdma_ud_param { ah_attr: qp::way(device, route), ..no_ud() };
            made.with_ud(consumer_data(&request.private_data, ip.is_some()), param)
        }
        _ => made,
    })
}

/// What is behind the RDMA-CM's header, if there is one.
fn consumer_data(data: &[u8], header: bool) -> &[u8] {
    if header { IpCm::consumer_data(data) } else { data }
}

/// A request's parameters, seen from who is asked.
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

/// A reply's parameters, seen from who asked.
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

/// What the connection manager said of a connection.
fn of_connection(id: &Id, to: &Arc<Shared>, event: &Event) -> Option<Box<CmEvent>> {
    let new = |kind, status| CmEvent::new(id, to, kind, status);
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
        Event::SidrResponse { reply, .. } => resolved(id, reply, new),
        // They come to listeners.
        Event::ConnectRequest { .. } | Event::SidrRequest { .. } => return None,
    })
}

/// The peer accepts: with a queue pair the connection is made ready, without the program does it.
fn response(id: &Id, reply: &Rep) -> (c_int, c_int) {
    let (device, cm) = {
        let mut inner = id.inner();
        if let Some(link) = &mut inner.link {
            link.replied(reply);
        }
        (inner.device, inner.cm)
    };
    let (Some(device), Some(cm)) = (device, cm) else { return (CONNECT_ERROR, -libc::EINVAL) };
    if qp::of(id).is_none() {
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

/// Which datagram queue pair serves.
fn resolved(id: &Id, reply: &SidrRep, new: impl Fn(c_int, c_int) -> Box<CmEvent>) -> Box<CmEvent> {
    debug_assert!(id.space == PortSpace::Udp);
    if reply.status != SidrStatus::VALID {
        return new(UNREACHABLE, reply.status.0.into()).with_ud(&reply.private_data, no_ud());
    }
    let (device, route) = {
        let inner = id.inner();
        (inner.device, inner.route)
    };
    let ah_attr = match (device, route) {
        (Some(device), Some(route)) => qp::way(device, &route),
        _ => ibv_ah_attr::default(),
    };
    let param = rdma_ud_param { ah_attr, qp_num: reply.qpn, qkey: reply.qkey, ..no_ud() };
    new(ESTABLISHED, 0).with_ud(&reply.private_data, param)
}
