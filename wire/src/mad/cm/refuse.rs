//! MRA and REJ: asking for more time, and saying no (IBA 12.6.6, 12.6.7).

use core::fmt;

use super::{DATA_LEN, RejReason, Responded, TimeoutCode};
use crate::Error;
use crate::bytes::{array, be16, be32, put16, put32};

const LOCAL_COMM_ID: usize = 0;
const REMOTE_COMM_ID: usize = 4;
/// Which message this responds to (2 bits), reserved (6).
const RESPONDED: usize = 8;
/// MRA: service timeout (5 bits), reserved (3).
const SERVICE_TIMEOUT: usize = 9;
const MRA_PRIVATE_DATA: usize = 10;
/// REJ: length of the additional information (7 bits), reserved (1).
const INFO_LEN: usize = 9;
const REASON: usize = 10;
const ARI: usize = 12;
const REJ_PRIVATE_DATA: usize = 84;

/// Message receipt acknowledgment: the message came, the answer will take a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Mra {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// The receiver's name for it.
    pub remote_comm_id: u32,
    /// The message that came.
    pub message: Responded,
    /// In what time its answer will come.
    pub service_timeout: TimeoutCode,
    /// Whatever the consumer likes.
    pub private_data: [u8; 222],
}

impl Mra {
    /// Reads the bytes behind the MAD header.
    pub fn parse(data: &[u8]) -> Result<Mra, Error> {
        Error::check_len("CM MRA", DATA_LEN, data.len())?;
        Ok(Mra {
            local_comm_id: be32(data, LOCAL_COMM_ID),
            remote_comm_id: be32(data, REMOTE_COMM_ID),
            message: Responded::new(data[RESPONDED] >> 6),
            service_timeout: TimeoutCode::new(data[SERVICE_TIMEOUT] >> 3),
            private_data: array(data, MRA_PRIVATE_DATA),
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
        b[RESPONDED] = self.message.code() << 6;
        b[SERVICE_TIMEOUT] = self.service_timeout.code() << 3;
        b[MRA_PRIVATE_DATA..].copy_from_slice(&self.private_data);
    }

    pub(super) fn fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = match self.message {
            Responded::REQ => "REQ",
            Responded::REP => "REP",
            Responded::LAP_OR_NONE => "LAP",
            _ => "?",
        };
        write!(
            f,
            " comm_id {:#010x} remote {:#010x} of {message} service_timeout {}",
            self.local_comm_id, self.remote_comm_id, self.service_timeout
        )
    }
}

impl fmt::Display for Mra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CM MRA")?;
        self.fields(f)
    }
}

/// Reject: there will be no connection, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rej {
    /// The sender's name for the connection; 0 where it has none.
    pub local_comm_id: u32,
    /// The receiver's name for it; 0 where it is not known.
    pub remote_comm_id: u32,
    /// The message that is refused.
    pub message: Responded,
    /// How many bytes of `info` count (7 bits).
    pub info_len: u8,
    /// Why.
    pub reason: RejReason,
    /// Additional reject information (ARI): for most reasons the value that would have been accepted.
    pub info: [u8; 72],
    /// Whatever the consumer likes.
    pub private_data: [u8; 148],
}

impl Rej {
    /// Reads the bytes behind the MAD header.
    pub fn parse(data: &[u8]) -> Result<Rej, Error> {
        Error::check_len("CM REJ", DATA_LEN, data.len())?;
        Ok(Rej {
            local_comm_id: be32(data, LOCAL_COMM_ID),
            remote_comm_id: be32(data, REMOTE_COMM_ID),
            message: Responded::new(data[RESPONDED] >> 6),
            info_len: data[INFO_LEN] >> 1,
            reason: RejReason(be16(data, REASON)),
            info: array(data, ARI),
            private_data: array(data, REJ_PRIVATE_DATA),
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
        b[RESPONDED] = self.message.code() << 6;
        b[INFO_LEN] = self.info_len << 1;
        put16(b, REASON, self.reason.0);
        b[ARI..REJ_PRIVATE_DATA].copy_from_slice(&self.info);
        b[REJ_PRIVATE_DATA..].copy_from_slice(&self.private_data);
    }

    /// The part of the additional information that counts; all of it where the length says more than there is.
    pub fn info(&self) -> &[u8] {
        self.info.get(..usize::from(self.info_len)).unwrap_or(&self.info)
    }

    pub(super) fn fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = match self.message {
            Responded::REQ => "REQ",
            Responded::REP => "REP",
            _ => "no message",
        };
        write!(
            f,
            " comm_id {:#010x} remote {:#010x} of {message} reason {}",
            self.local_comm_id, self.remote_comm_id, self.reason
        )
    }
}

impl fmt::Display for Rej {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CM REJ")?;
        self.fields(f)
    }
}
