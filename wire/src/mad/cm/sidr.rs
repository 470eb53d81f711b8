//! SIDR_REQ and SIDR_REP: from a service id to the UD QP that serves it (IBA 12.11).

use core::fmt;

use super::{DATA_LEN, SidrStatus};
use crate::Error;
use crate::bytes::{array, be16, be24, be32, be64, put16, put24, put32, put64};
use crate::mad::ip_cm::{IpCm, ServiceId};

/// A request to resolve a service id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SidrReq {
    /// The asking side's name for this exchange.
    pub request_id: u32,
    /// Partition to serve in.
    pub pkey: u16,
    /// The service that is asked for.
    pub service_id: ServiceId,
    /// Whatever the consumer likes; the RDMA-CM puts an [`IpCm`] in front.
    pub private_data: [u8; 216],
}

/// SIDR_REQ's offsets.
mod req {
    pub(super) const REQUEST_ID: usize = 0;
    pub(super) const PKEY: usize = 4;
    pub(super) const SERVICE_ID: usize = 8;
    pub(super) const PRIVATE_DATA: usize = 16;
}

impl SidrReq {
    /// Reads the bytes behind the MAD header.
    pub fn parse(data: &[u8]) -> Result<SidrReq, Error> {
        Error::check_len("CM SIDR_REQ", DATA_LEN, data.len())?;
        Ok(SidrReq {
            request_id: be32(data, req::REQUEST_ID),
            pkey: be16(data, req::PKEY),
            service_id: ServiceId(be64(data, req::SERVICE_ID)),
            private_data: array(data, req::PRIVATE_DATA),
        })
    }

    /// Writes the bytes behind the MAD header.
    ///
    /// # Panics
    /// When `data` is shorter than [`DATA_LEN`].
    pub fn emit(&self, data: &mut [u8]) {
        let b = &mut data[..DATA_LEN];
        b.fill(0);
        put32(b, req::REQUEST_ID, self.request_id);
        put16(b, req::PKEY, self.pkey);
        put64(b, req::SERVICE_ID, self.service_id.0);
        b[req::PRIVATE_DATA..].copy_from_slice(&self.private_data);
    }

    /// What the RDMA-CM put in front of the private data; `None` unless the service id is of its range.
    pub fn ip_cm(&self) -> Option<IpCm> {
        self.service_id.as_ip().and_then(|_| IpCm::parse(&self.private_data).ok())
    }

    pub(super) fn fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " request {:#010x} service {} pkey {:#06x}", self.request_id, self.service_id, self.pkey)?;
        match self.ip_cm() {
            Some(ip) => write!(f, " ip {ip}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for SidrReq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CM SIDR_REQ")?;
        self.fields(f)
    }
}

/// The answer to a service id resolution request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SidrRep {
    /// The asking side's name for this exchange.
    pub request_id: u32,
    /// Whether QPN and Q_Key are valid, or why not.
    pub status: SidrStatus,
    /// How many bytes of `info` count.
    pub info_len: u8,
    /// Vendor whose options the header's attribute modifier holds (24 bits); 0 for none.
    pub vendor_id: u32,
    /// The UD QP that serves (24 bits).
    pub qpn: u32,
    /// The service that was asked for.
    pub service_id: ServiceId,
    /// Q_Key to send with.
    pub qkey: u32,
    /// Additional information: where to ask instead, on a redirect.
    pub info: [u8; 72],
    /// Whatever the consumer likes.
    pub private_data: [u8; 136],
}

/// SIDR_REP's offsets.
mod rep {
    pub(super) const REQUEST_ID: usize = 0;
    pub(super) const STATUS: usize = 4;
    pub(super) const INFO_LEN: usize = 5;
    pub(super) const VENDOR_ID_HIGH: usize = 6;
    pub(super) const QPN: usize = 8;
    pub(super) const VENDOR_ID_LOW: usize = 11;
    pub(super) const SERVICE_ID: usize = 12;
    pub(super) const QKEY: usize = 20;
    pub(super) const INFO: usize = 24;
    pub(super) const PRIVATE_DATA: usize = 96;
}

impl SidrRep {
    /// Reads the bytes behind the MAD header.
    pub fn parse(data: &[u8]) -> Result<SidrRep, Error> {
        Error::check_len("CM SIDR_REP", DATA_LEN, data.len())?;
        Ok(SidrRep {
            request_id: be32(data, rep::REQUEST_ID),
            status: SidrStatus(data[rep::STATUS]),
            info_len: data[rep::INFO_LEN],
            vendor_id: (u32::from(be16(data, rep::VENDOR_ID_HIGH)) << 8) | u32::from(data[rep::VENDOR_ID_LOW]),
            qpn: be24(data, rep::QPN),
            service_id: ServiceId(be64(data, rep::SERVICE_ID)),
            qkey: be32(data, rep::QKEY),
            info: array(data, rep::INFO),
            private_data: array(data, rep::PRIVATE_DATA),
        })
    }

    /// Writes the bytes behind the MAD header.
    ///
    /// # Panics
    /// When `data` is shorter than [`DATA_LEN`].
    pub fn emit(&self, data: &mut [u8]) {
        let b = &mut data[..DATA_LEN];
        put32(b, rep::REQUEST_ID, self.request_id);
        b[rep::STATUS] = self.status.0;
        b[rep::INFO_LEN] = self.info_len;
        put16(b, rep::VENDOR_ID_HIGH, (self.vendor_id >> 8) as u16);
        put24(b, rep::QPN, self.qpn);
        b[rep::VENDOR_ID_LOW] = self.vendor_id as u8;
        put64(b, rep::SERVICE_ID, self.service_id.0);
        put32(b, rep::QKEY, self.qkey);
        b[rep::INFO..rep::PRIVATE_DATA].copy_from_slice(&self.info);
        b[rep::PRIVATE_DATA..].copy_from_slice(&self.private_data);
    }

    /// The part of the additional information that counts; all of it where the length says more than there is.
    pub fn info(&self) -> &[u8] {
        self.info.get(..usize::from(self.info_len)).unwrap_or(&self.info)
    }

    pub(super) fn fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            " request {:#010x} service {} status {} qpn {:#08x} qkey {:#010x}",
            self.request_id, self.service_id, self.status, self.qpn, self.qkey
        )
    }
}

impl fmt::Display for SidrRep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CM SIDR_REP")?;
        self.fields(f)
    }
}
