//! DREQ and DREP: the release of a connection, and its confirmation (IBA 12.6.10, 12.6.11).

use core::fmt;

use super::DATA_LEN;
use crate::Error;
use crate::bytes::{array, be24, be32, put24, put32};

const LOCAL_COMM_ID: usize = 0;
const REMOTE_COMM_ID: usize = 4;
const DREQ_REMOTE_QPN: usize = 8;
const DREQ_PRIVATE_DATA: usize = 12;
const DREP_PRIVATE_DATA: usize = 8;

/// A request to release a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Dreq {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// The receiver's name for it.
    pub remote_comm_id: u32,
    /// The receiver's QP, or EE context for RD (24 bits).
    pub remote_qpn: u32,
    /// Whatever the consumer likes.
    pub private_data: [u8; 220],
}

impl Dreq {
    /// Reads the bytes behind the MAD header.
    pub fn parse(data: &[u8]) -> Result<Dreq, Error> {
        Error::check_len("CM DREQ", DATA_LEN, data.len())?;
        Ok(Dreq {
            local_comm_id: be32(data, LOCAL_COMM_ID),
            remote_comm_id: be32(data, REMOTE_COMM_ID),
            remote_qpn: be24(data, DREQ_REMOTE_QPN),
            private_data: array(data, DREQ_PRIVATE_DATA),
        })
    }

    /// Writes the bytes behind the MAD header.
    ///
    /// # Panics
    /// When `data` is shorter than [`DATA_LEN`].
    pub fn emit(&self, data: &mut [u8]) {
        let b = &mut data[..DATA_LEN];
        b.fill(0);
        put32(b, LOCAL_COMM_ID, self.local_comm_id);
        put32(b, REMOTE_COMM_ID, self.remote_comm_id);
        put24(b, DREQ_REMOTE_QPN, self.remote_qpn);
        b[DREQ_PRIVATE_DATA..].copy_from_slice(&self.private_data);
    }

    pub(super) fn fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            " comm_id {:#010x} remote {:#010x} remote_qpn {:#08x}",
            self.local_comm_id, self.remote_comm_id, self.remote_qpn
        )
    }
}

impl fmt::Display for Dreq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CM DREQ")?;
        self.fields(f)
    }
}

/// The reply to a request to release a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Drep {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// The receiver's name for it.
    pub remote_comm_id: u32,
    /// Whatever the consumer likes.
    pub private_data: [u8; 224],
}

impl Drep {
    /// Reads the bytes behind the MAD header.
    pub fn parse(data: &[u8]) -> Result<Drep, Error> {
        Error::check_len("CM DREP", DATA_LEN, data.len())?;
        Ok(Drep {
            local_comm_id: be32(data, LOCAL_COMM_ID),
            remote_comm_id: be32(data, REMOTE_COMM_ID),
            private_data: array(data, DREP_PRIVATE_DATA),
        })
    }

    /// Writes the bytes behind the MAD header.
    ///
    /// # Panics
    /// When `data` is shorter than [`DATA_LEN`].
    pub fn emit(&self, data: &mut [u8]) {
        let b = &mut data[..DATA_LEN];
        put32(b, LOCAL_COMM_ID, self.local_comm_id);
        put32(b, REMOTE_COMM_ID, self.remote_comm_id);
        b[DREP_PRIVATE_DATA..].copy_from_slice(&self.private_data);
    }

    pub(super) fn fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " comm_id {:#010x} remote {:#010x}", self.local_comm_id, self.remote_comm_id)
    }
}

impl fmt::Display for Drep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CM DREP")?;
        self.fields(f)
    }
}
