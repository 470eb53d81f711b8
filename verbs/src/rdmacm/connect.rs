//! Connections: requests, acceptance, refusal, end.

use std::net::SocketAddr;
use std::time::Duration;

use softnic_runtime::api::Qpn;
use softnic_runtime::api::cm::{
    Accept, Connect, PathMtu, PortSpace, RejReason, Resolve, Route, SidrReply, SidrStatus, TimeoutCode,
    TransportService,
};

use super::event::complete;
use super::id::{Id, Inner, Stage, on};
use super::link::Link;
use super::qp;
use crate::abi::*;
use crate::errno::Errno;
use crate::limits::MAX_RD_ATOMIC;

/// How long to wait until a message that ends a connection was sent: the process may exit directly afterwards, and then the message would
/// be lost.
const LEAVES_WITHIN: Duration = Duration::from_millis(200);

/// The parameters that a program gives to connect or accept, completed with defaults.
struct ConnParams<'a> {
    private_data: &'a [u8],
    responder_resources: Option<u8>,
    initiator_depth: Option<u8>,
    flow_control: bool,
    retry_count: u8,
    rnr_retry_count: u8,
    srq: bool,
    qpn: u32,
}

/// A number of READs and atomics at a time: a requested number, or the maximum of the device.
fn depth(n: u8) -> Result<Option<u8>, Errno> {
    match n {
        RDMA_MAX_DEPTH => Ok(None),
        n if n <= MAX_RD_ATOMIC => Ok(Some(n)),
        _ => Err(Errno::EINVAL),
    }
}

impl<'a> ConnParams<'a> {
    /// Reads the parameters.
    ///
    /// # Safety
    /// The program has as much private data as it states.
    unsafe fn read(id: &Id, param: Option<&'a rdma_conn_param>) -> Result<ConnParams<'a>, Errno> {
        let mut params = ConnParams {
            private_data: &[],
            responder_resources: None,
            initiator_depth: None,
            flow_control: true,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: false,
            qpn: 0,
        };
        if let Some(p) = param {
            // SAFETY: guaranteed by the contract.
            params.private_data = unsafe { bytes(p.private_data, p.private_data_len) };
            (params.responder_resources, params.initiator_depth) =
                (depth(p.responder_resources)?, depth(p.initiator_depth)?);
            (params.flow_control, params.srq, params.qpn) = (p.flow_control != 0, p.srq != 0, p.qp_num);
            (params.retry_count, params.rnr_retry_count) = (p.retry_count.min(7), p.rnr_retry_count.min(7));
        }
        if let Some(qp) = id.qp() {
            (params.qpn, params.srq) = (qp.qpn(), !qp.base.srq.is_null());
        }
        Ok(params)
    }
}

/// The private data as a slice.
///
/// # Safety
/// `data` has `len` bytes, or is NULL.
unsafe fn bytes<'a>(data: *const c_void, len: u8) -> &'a [u8] {
    match data.is_null() || len == 0 {
        true => &[],
        // SAFETY: guaranteed by the contract.
        false => unsafe { std::slice::from_raw_parts(data.cast(), len.into()) },
    }
}

/// `rdma_connect`.
///
/// # Safety
/// There is as much private data as stated.
pub(crate) unsafe extern "C" fn connect(id: &Id, param: Option<&rdma_conn_param>) -> c_int {
    on(id, || {
        // SAFETY: guaranteed by the contract.
        let params = unsafe { ConnParams::read(id, param) }?;
        match id.space {
            PortSpace::Tcp => ask(id, &params)?,
            PortSpace::Udp => ask_for_service(id, &params)?,
        }
        complete(id)
    })
}

/// The two ends and the route between them, for an id that is ready to connect.
fn resolved(inner: &Inner) -> Result<(SocketAddr, SocketAddr, Route), Errno> {
    match (inner.stage, inner.source, inner.destination, inner.route) {
        (Stage::RouteResolved, Some(from), Some(to), Some(route)) => Ok((from, to, route)),
        _ => Err(Errno::EINVAL),
    }
}

fn ask(id: &Id, params: &ConnParams<'_>) -> Result<(), Errno> {
    let device = id.device()?;
    let mut inner = id.inner();
    let (from, to, route) = resolved(&inner)?;
    let mut link = Link::asking(&route, inner.mtu)?;
    link.retry_count = params.retry_count;
    let usual = Connect::ip(from, to, Qpn::new(params.qpn), link.rq_psn)?;
    link.timeout = inner.ack_timeout.unwrap_or(usual.ack_timeout.code());
    // SAFETY: the id is alive.
    let unreliable = unsafe { (*id.as_c()).qp_type } == IBV_QPT_UC;
    let connect = Connect {
        route,
        transport: if unreliable { TransportService::UC } else { TransportService::RC },
        srq: params.srq,
        responder_resources: params.responder_resources.unwrap_or(MAX_RD_ATOMIC),
        initiator_depth: params.initiator_depth.unwrap_or(MAX_RD_ATOMIC),
        flow_control: params.flow_control,
        retry_count: params.retry_count,
        rnr_retry_count: params.rnr_retry_count,
        path_mtu: PathMtu::new(inner.mtu),
        ack_timeout: TimeoutCode::new(link.timeout),
        private_data: params.private_data,
        ..usual
    };
    // Events may arrive before this returns; they are handled only after the id is ready for them.
    inner.link = Some(link);
    inner.cm = Some(device.manager.connect(&connect, id.shared.sink())?);
    inner.stage = Stage::Connecting;
    Ok(())
}

fn ask_for_service(id: &Id, params: &ConnParams<'_>) -> Result<(), Errno> {
    let device = id.device()?;
    let mut inner = id.inner();
    let (from, to, route) = resolved(&inner)?;
    let resolve = Resolve { route, private_data: params.private_data, ..Resolve::ip(from, to)? };
    inner.cm = Some(device.manager.resolve(&resolve, id.shared.sink())?);
    inner.stage = Stage::Connecting;
    Ok(())
}

/// `rdma_accept`.
///
/// # Safety
/// There is as much private data as stated.
pub(crate) unsafe extern "C" fn accept(id: &Id, param: Option<&rdma_conn_param>) -> c_int {
    on(id, || {
        // SAFETY: guaranteed by the contract.
        let params = unsafe { ConnParams::read(id, param) }?;
        let device = id.device()?;
        let cm = {
            let inner = id.inner();
            if inner.stage != Stage::Requested {
                return Err(Errno::EINVAL);
            }
            inner.cm.ok_or(Errno::EINVAL)?
        };
        if id.space == PortSpace::Udp {
            let status = SidrStatus::VALID;
            let (qpn, private_data) = (Qpn::new(params.qpn & 0xff_ffff), params.private_data);
            device.manager.sidr_reply(cm, &SidrReply { status, qpn, qkey: RDMA_UDP_QKEY, private_data })?;
            id.inner().stage = Stage::Connecting;
            return Ok(());
        }
        let link = {
            let mut inner = id.inner();
            let link = inner.link.as_mut().ok_or(Errno::EINVAL)?;
            // The defaults are the numbers that the peer requested.
            link.max_dest_rd_atomic = params.responder_resources.unwrap_or(link.max_dest_rd_atomic);
            link.max_rd_atomic = params.initiator_depth.unwrap_or(link.max_rd_atomic);
            *link
        };
        if id.qp().is_some() {
            qp::to_rts(id)?;
        }
        let accept = Accept {
            responder_resources: link.max_dest_rd_atomic,
            initiator_depth: link.max_rd_atomic,
            flow_control: params.flow_control,
            rnr_retry_count: params.rnr_retry_count,
            srq: params.srq,
            private_data: params.private_data,
            ..Accept::new(Qpn::new(params.qpn & 0xff_ffff), link.rq_psn)
        };
        device.manager.accept(cm, &accept)?;
        id.inner().stage = Stage::Connecting;
        complete(id)
    })
}

fn refuse(id: &Id, reason: RejReason, private_data: &[u8]) -> Result<(), Errno> {
    let device = id.device()?;
    let cm = id.inner().cm.ok_or(Errno::EINVAL)?;
    match id.space {
        PortSpace::Tcp => device.manager.reject(cm, reason, private_data)?,
        PortSpace::Udp => {
            let status = SidrStatus::REJECT;
            device.manager.sidr_reply(cm, &SidrReply { status, qpn: Qpn::QP0, qkey: 0, private_data })?;
        }
    }
    id.inner().stage = Stage::Connecting;
    device.manager.flush(LEAVES_WITHIN);
    Ok(())
}

/// `rdma_reject`.
///
/// # Safety
/// There is as much private data as stated.
pub(crate) unsafe extern "C" fn reject(id: &Id, private_data: *const c_void, len: u8) -> c_int {
    // SAFETY: guaranteed by the contract.
    on(id, || refuse(id, RejReason::CONSUMER_DEFINED, unsafe { bytes(private_data, len) }))
}

/// `rdma_reject_ece`: rejects a request because of the options that the peer requested.
///
/// # Safety
/// There is as much private data as stated.
pub(crate) unsafe extern "C" fn reject_ece(id: &Id, private_data: *const c_void, len: u8) -> c_int {
    // SAFETY: guaranteed by the contract.
    on(id, || refuse(id, RejReason::VENDOR_OPTION_NOT_SUPPORTED, unsafe { bytes(private_data, len) }))
}

/// `rdma_establish`: the program's own queue pair is ready.
pub(crate) extern "C" fn establish(id: &Id) -> c_int {
    on(id, || {
        let device = id.device()?;
        let cm = id.inner().cm.ok_or(Errno::EINVAL)?;
        // If the id has a queue pair, this was done when the reply was taken.
        if id.qp().is_some() {
            return Err(Errno::EINVAL);
        }
        Ok(device.manager.establish(cm)?)
    })
}

/// `rdma_disconnect`: ends a connection, or confirms its end. The queue pair accepts no more work.
pub(crate) extern "C" fn disconnect(id: &Id) -> c_int {
    on(id, || {
        let device = id.device()?;
        let cm = id.inner().cm.ok_or(Errno::EINVAL)?;
        if id.space == PortSpace::Udp {
            return Err(Errno::EINVAL);
        }
        qp::fail(id);
        device.manager.disconnect(cm)?;
        device.manager.flush(LEAVES_WITHIN);
        complete(id)
    })
}

/// `rdma_notify`: the program saw an event of its queue pair. The only relevant event reaches the library by itself.
pub(crate) extern "C" fn notify(id: &Id, event: c_int) -> c_int {
    const IBV_EVENT_COMM_EST: c_int = 4;
    on(id, || {
        let device = id.device()?;
        if let (IBV_EVENT_COMM_EST, Some(qp)) = (event, id.qp()) {
            device.manager.first_data().came(Qpn::new(qp.qpn()));
        }
        Ok(())
    })
}
