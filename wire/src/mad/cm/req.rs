//! REQ: the request for communication (IBA 12.6.5).

use core::fmt;
use core::net::Ipv6Addr;

use super::{DATA_LEN, PathMtu, TimeoutCode, TransportService};
use crate::bytes::{array, be16, be24, be32, be64, put16, put24, put32, put64};
use crate::mad::ip_cm::{IpCm, ServiceId};
use crate::{Error, Psn};

/// A request for communication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Req {
    /// The asking side's name for the connection.
    pub local_comm_id: u32,
    /// Vendor whose options the header's attribute modifier holds (24 bits); 0 for none.
    pub vendor_id: u32,
    /// The service that is asked for.
    pub service_id: ServiceId,
    /// GUID of the asking channel adapter.
    pub local_ca_guid: u64,
    /// Q_Key of the asking QP; for RD only.
    pub local_qkey: u32,
    /// The asking QP (24 bits).
    pub local_qpn: u32,
    /// READs and atomics that the asking side can answer at a time.
    pub responder_resources: u8,
    /// The asking side's EE context (24 bits); for RD only.
    pub local_eecn: u32,
    /// READs and atomics that the asking side wants in flight at a time.
    pub initiator_depth: u8,
    /// The asked side's EE context (24 bits), if there is one already; for RD only.
    pub remote_eecn: u32,
    /// In what time the asked side shall answer a CM message.
    pub remote_cm_response_timeout: TimeoutCode,
    /// RC, UC or RD.
    pub transport_service: TransportService,
    /// Whether the asking side's receive queue grants end-to-end credits.
    pub end_to_end_flow_control: bool,
    /// PSN of the first packet that the asking QP wants to receive: the other side begins with it.
    pub starting_psn: Psn,
    /// In what time the asking side answers a CM message.
    pub local_cm_response_timeout: TimeoutCode,
    /// How often the asked side shall retry after timeouts and sequence errors (3 bits).
    pub retry_count: u8,
    /// Partition of the connection.
    pub pkey: u16,
    /// Payload of a full packet.
    pub path_mtu: PathMtu,
    /// Whether the EE contexts are connected already; for RD only.
    pub rdc_exists: bool,
    /// How often the asked side shall retry after RNR NAKs (3 bits; 7 is forever).
    pub rnr_retry_count: u8,
    /// How often each side may resend a CM message (4 bits).
    pub max_cm_retries: u8,
    /// Whether the asking QP uses an SRQ.
    pub srq: bool,
    /// Names the transport when its service type is `EXTENDED` (3 bits).
    pub extended_transport: u8,
    /// The path to use.
    pub primary: Path,
    /// The path to fail over to, [`Path::NONE`] for none.
    pub alternate: Path,
    /// Whether suggested alternate paths (SAP messages) are understood.
    pub sap_supported: bool,
    /// Whatever the consumer likes; the RDMA-CM puts an [`IpCm`] in front.
    pub private_data: [u8; 92],
}

/// One path of a request, seen from the asking side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Path {
    /// LID of the asking port; 0xffff on Ethernet.
    pub local_lid: u16,
    /// LID of the asked port; 0xffff on Ethernet.
    pub remote_lid: u16,
    /// GID of the asking port; on RoCEv2 its IP address, IPv4 mapped.
    pub local_gid: Ipv6Addr,
    /// GID of the asked port.
    pub remote_gid: Ipv6Addr,
    /// Flow label of the GRH (20 bits).
    pub flow_label: u32,
    /// Static rate, as the code of IBA 9.11.1 (6 bits).
    pub packet_rate: u8,
    /// Traffic class.
    pub traffic_class: u8,
    /// Hop limit.
    pub hop_limit: u8,
    /// Service level (4 bits); on RoCE the VLAN priority.
    pub sl: u8,
    /// Whether both ports are in one subnet.
    pub subnet_local: bool,
    /// Local ACK timeout of the asked QP.
    pub local_ack_timeout: TimeoutCode,
}

mod field {
    pub(super) const LOCAL_COMM_ID: usize = 0;
    pub(super) const VENDOR_ID: usize = 5;
    pub(super) const SERVICE_ID: usize = 8;
    pub(super) const LOCAL_CA_GUID: usize = 16;
    pub(super) const LOCAL_QKEY: usize = 28;
    pub(super) const LOCAL_QPN: usize = 32;
    pub(super) const RESPONDER_RESOURCES: usize = 35;
    pub(super) const LOCAL_EECN: usize = 36;
    pub(super) const INITIATOR_DEPTH: usize = 39;
    pub(super) const REMOTE_EECN: usize = 40;
    /// Remote CM response timeout (5 bits), transport service type (2), end-to-end flow control (1).
    pub(super) const REMOTE_TIMEOUT: usize = 43;
    pub(super) const STARTING_PSN: usize = 44;
    /// Local CM response timeout (5), retry count (3).
    pub(super) const LOCAL_TIMEOUT: usize = 47;
    pub(super) const PKEY: usize = 48;
    /// Path MTU (4), RDC exists (1), RNR retry count (3).
    pub(super) const PATH_MTU: usize = 50;
    /// Max CM retries (4), SRQ (1), extended transport type (3).
    pub(super) const MAX_CM_RETRIES: usize = 51;
    pub(super) const PRIMARY: usize = 52;
    pub(super) const ALTERNATE: usize = 96;
    /// The last byte of the alternate path: its ACK timeout (5), SAP supported (1).
    pub(super) const SAP_SUPPORTED: usize = 139;
    pub(super) const PRIVATE_DATA: usize = 140;
}

impl Req {
    /// Reads the bytes behind the MAD header.
    pub fn parse(data: &[u8]) -> Result<Req, Error> {
        Error::check_len("CM REQ", DATA_LEN, data.len())?;
        let b = data;
        Ok(Req {
            local_comm_id: be32(b, field::LOCAL_COMM_ID),
            vendor_id: be24(b, field::VENDOR_ID),
            service_id: ServiceId(be64(b, field::SERVICE_ID)),
            local_ca_guid: be64(b, field::LOCAL_CA_GUID),
            local_qkey: be32(b, field::LOCAL_QKEY),
            local_qpn: be24(b, field::LOCAL_QPN),
            responder_resources: b[field::RESPONDER_RESOURCES],
            local_eecn: be24(b, field::LOCAL_EECN),
            initiator_depth: b[field::INITIATOR_DEPTH],
            remote_eecn: be24(b, field::REMOTE_EECN),
            remote_cm_response_timeout: TimeoutCode::new(b[field::REMOTE_TIMEOUT] >> 3),
            transport_service: TransportService::new(b[field::REMOTE_TIMEOUT] >> 1),
            end_to_end_flow_control: b[field::REMOTE_TIMEOUT] & 0x01 != 0,
            starting_psn: Psn::new(be24(b, field::STARTING_PSN)),
            local_cm_response_timeout: TimeoutCode::new(b[field::LOCAL_TIMEOUT] >> 3),
            retry_count: b[field::LOCAL_TIMEOUT] & 0x07,
            pkey: be16(b, field::PKEY),
            path_mtu: PathMtu::new(b[field::PATH_MTU] >> 4),
            rdc_exists: b[field::PATH_MTU] & 0x08 != 0,
            rnr_retry_count: b[field::PATH_MTU] & 0x07,
            max_cm_retries: b[field::MAX_CM_RETRIES] >> 4,
            srq: b[field::MAX_CM_RETRIES] & 0x08 != 0,
            extended_transport: b[field::MAX_CM_RETRIES] & 0x07,
            primary: Path::read(&b[field::PRIMARY..field::ALTERNATE]),
            alternate: Path::read(&b[field::ALTERNATE..field::PRIVATE_DATA]),
            sap_supported: b[field::SAP_SUPPORTED] & 0x04 != 0,
            private_data: array(b, field::PRIVATE_DATA),
        })
    }

    /// Writes the bytes behind the MAD header.
    ///
    /// # Panics
    /// When `data` is shorter than [`DATA_LEN`].
    pub fn emit(&self, data: &mut [u8]) {
        let b = &mut data[..DATA_LEN];
        b.fill(0);
        put32(b, field::LOCAL_COMM_ID, self.local_comm_id);
        put24(b, field::VENDOR_ID, self.vendor_id);
        put64(b, field::SERVICE_ID, self.service_id.0);
        put64(b, field::LOCAL_CA_GUID, self.local_ca_guid);
        put32(b, field::LOCAL_QKEY, self.local_qkey);
        put24(b, field::LOCAL_QPN, self.local_qpn);
        b[field::RESPONDER_RESOURCES] = self.responder_resources;
        put24(b, field::LOCAL_EECN, self.local_eecn);
        b[field::INITIATOR_DEPTH] = self.initiator_depth;
        put24(b, field::REMOTE_EECN, self.remote_eecn);
        b[field::REMOTE_TIMEOUT] = (self.remote_cm_response_timeout.code() << 3)
            | (self.transport_service.code() << 1)
            | u8::from(self.end_to_end_flow_control);
        put24(b, field::STARTING_PSN, self.starting_psn.value());
        b[field::LOCAL_TIMEOUT] = (self.local_cm_response_timeout.code() << 3) | (self.retry_count & 0x07);
        put16(b, field::PKEY, self.pkey);
        b[field::PATH_MTU] =
            (self.path_mtu.code() << 4) | (u8::from(self.rdc_exists) << 3) | (self.rnr_retry_count & 0x07);
        b[field::MAX_CM_RETRIES] =
            (self.max_cm_retries << 4) | (u8::from(self.srq) << 3) | (self.extended_transport & 0x07);
        self.primary.write(&mut b[field::PRIMARY..field::ALTERNATE]);
        self.alternate.write(&mut b[field::ALTERNATE..field::PRIVATE_DATA]);
        b[field::SAP_SUPPORTED] |= u8::from(self.sap_supported) << 2;
        b[field::PRIVATE_DATA..].copy_from_slice(&self.private_data);
    }

    /// What the RDMA-CM put in front of the private data; `None` unless the service id is of its range.
    pub fn ip_cm(&self) -> Option<IpCm> {
        self.service_id.as_ip().and_then(|_| IpCm::parse(&self.private_data).ok())
    }

    pub(super) fn fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            " comm_id {:#010x} service {} qpn {:#08x} psn {} {} mtu {} rd_atom {}/{} retry {} rnr_retry {} timeout {}",
            self.local_comm_id,
            self.service_id,
            self.local_qpn,
            self.starting_psn,
            self.transport_service,
            self.path_mtu,
            self.responder_resources,
            self.initiator_depth,
            self.retry_count,
            self.rnr_retry_count,
            self.primary.local_ack_timeout,
        )?;
        if self.srq {
            f.write_str(" srq")?;
        }
        match self.ip_cm() {
            Some(ip) => write!(f, " ip {ip}"),
            None => write!(f, " gid {} > {}", self.primary.local_gid, self.primary.remote_gid),
        }
    }
}

impl fmt::Display for Req {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CM REQ")?;
        self.fields(f)
    }
}

/// Offsets inside the 44 bytes of a path.
mod path {
    pub(super) const LOCAL_LID: usize = 0;
    pub(super) const REMOTE_LID: usize = 2;
    pub(super) const LOCAL_GID: usize = 4;
    pub(super) const REMOTE_GID: usize = 20;
    /// Flow label (20 bits), reserved (6), packet rate (6).
    pub(super) const FLOW_LABEL: usize = 36;
    pub(super) const TRAFFIC_CLASS: usize = 40;
    pub(super) const HOP_LIMIT: usize = 41;
    /// Service level (4), subnet local (1), reserved (3).
    pub(super) const SL: usize = 42;
    /// Local ACK timeout (5), reserved (3).
    pub(super) const LOCAL_ACK_TIMEOUT: usize = 43;
}

impl Path {
    /// No path: what stands for the alternate one when there is none.
    pub const NONE: Path = Path {
        local_lid: 0,
        remote_lid: 0,
        local_gid: Ipv6Addr::UNSPECIFIED,
        remote_gid: Ipv6Addr::UNSPECIFIED,
        flow_label: 0,
        packet_rate: 0,
        traffic_class: 0,
        hop_limit: 0,
        sl: 0,
        subnet_local: false,
        local_ack_timeout: TimeoutCode::new(0),
    };

    fn read(b: &[u8]) -> Path {
        let label_and_rate = be32(b, path::FLOW_LABEL);
        Path {
            local_lid: be16(b, path::LOCAL_LID),
            remote_lid: be16(b, path::REMOTE_LID),
            local_gid: Ipv6Addr::from(array::<16>(b, path::LOCAL_GID)),
            remote_gid: Ipv6Addr::from(array::<16>(b, path::REMOTE_GID)),
            flow_label: label_and_rate >> 12,
            packet_rate: (label_and_rate & 0x3f) as u8,
            traffic_class: b[path::TRAFFIC_CLASS],
            hop_limit: b[path::HOP_LIMIT],
            sl: b[path::SL] >> 4,
            subnet_local: b[path::SL] & 0x08 != 0,
            local_ack_timeout: TimeoutCode::new(b[path::LOCAL_ACK_TIMEOUT] >> 3),
        }
    }

    fn write(&self, b: &mut [u8]) {
        put16(b, path::LOCAL_LID, self.local_lid);
        put16(b, path::REMOTE_LID, self.remote_lid);
        b[path::LOCAL_GID..][..16].copy_from_slice(&self.local_gid.octets());
        b[path::REMOTE_GID..][..16].copy_from_slice(&self.remote_gid.octets());
        put32(b, path::FLOW_LABEL, (self.flow_label << 12) | u32::from(self.packet_rate & 0x3f));
        b[path::TRAFFIC_CLASS] = self.traffic_class;
        b[path::HOP_LIMIT] = self.hop_limit;
        b[path::SL] = (self.sl << 4) | (u8::from(self.subnet_local) << 3);
        b[path::LOCAL_ACK_TIMEOUT] = self.local_ack_timeout.code() << 3;
    }
}
