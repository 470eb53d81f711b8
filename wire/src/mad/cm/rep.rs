//! REP and RTU: the reply to a request for communication, and its confirmation (IBA 12.6.8, 12.6.9).

use core::fmt;

use super::{DATA_LEN, Failover, TimeoutCode};
use crate::bytes::{array, be24, be32, be64, put24, put32, put64};
use crate::{Error, Psn};

/// The reply to a request for communication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rep {
    /// The replying side's name for the connection.
    pub local_comm_id: u32,
    /// The asking side's name for it.
    pub remote_comm_id: u32,
    /// Q_Key of the replying QP; for RD only.
    pub local_qkey: u32,
    /// The replying QP (24 bits).
    pub local_qpn: u32,
    /// Vendor whose options the header's attribute modifier holds (24 bits); 0 for none.
    pub vendor_id: u32,
    /// The replying side's EE context (24 bits); for RD only.
    pub local_eecn: u32,
    /// PSN of the first packet that the replying QP wants to receive: the other side begins with it.
    pub starting_psn: Psn,
    /// READs and atomics that the replying side can answer at a time.
    pub responder_resources: u8,
    /// READs and atomics that the replying side wants in flight at a time.
    pub initiator_depth: u8,
    /// How long the replying side takes at most to send an ACK.
    pub target_ack_delay: TimeoutCode,
    /// What became of the alternate path.
    pub failover: Failover,
    /// Whether the replying side's receive queue grants end-to-end credits.
    pub end_to_end_flow_control: bool,
    /// How often the asking side shall retry after RNR NAKs (3 bits; 7 is forever).
    pub rnr_retry_count: u8,
    /// Whether the replying QP uses an SRQ.
    pub srq: bool,
    /// GUID of the replying channel adapter.
    pub local_ca_guid: u64,
    /// Whatever the consumer likes.
    pub private_data: [u8; 196],
}

mod field {
    pub(super) const LOCAL_COMM_ID: usize = 0;
    pub(super) const REMOTE_COMM_ID: usize = 4;
    pub(super) const LOCAL_QKEY: usize = 8;
    pub(super) const LOCAL_QPN: usize = 12;
    pub(super) const VENDOR_ID_HIGH: usize = 15;
    pub(super) const LOCAL_EECN: usize = 16;
    pub(super) const VENDOR_ID_MIDDLE: usize = 19;
    pub(super) const STARTING_PSN: usize = 20;
    pub(super) const VENDOR_ID_LOW: usize = 23;
    pub(super) const RESPONDER_RESOURCES: usize = 24;
    pub(super) const INITIATOR_DEPTH: usize = 25;
    /// Target ACK delay (5 bits), failover accepted (2), end-to-end flow control (1).
    pub(super) const TARGET_ACK_DELAY: usize = 26;
    /// RNR retry count (3), SRQ (1), reserved (4).
    pub(super) const RNR_RETRY: usize = 27;
    pub(super) const LOCAL_CA_GUID: usize = 28;
    pub(super) const PRIVATE_DATA: usize = 36;
}

impl Rep {
    /// Reads the bytes behind the MAD header.
    pub fn parse(data: &[u8]) -> Result<Rep, Error> {
        Error::check_len("CM REP", DATA_LEN, data.len())?;
        let b = data;
        let vendor_id = [0, b[field::VENDOR_ID_HIGH], b[field::VENDOR_ID_MIDDLE], b[field::VENDOR_ID_LOW]];
        Ok(Rep {
            local_comm_id: be32(b, field::LOCAL_COMM_ID),
            remote_comm_id: be32(b, field::REMOTE_COMM_ID),
            local_qkey: be32(b, field::LOCAL_QKEY),
            local_qpn: be24(b, field::LOCAL_QPN),
            vendor_id: u32::from_be_bytes(vendor_id),
            local_eecn: be24(b, field::LOCAL_EECN),
            starting_psn: Psn::new(be24(b, field::STARTING_PSN)),
            responder_resources: b[field::RESPONDER_RESOURCES],
            initiator_depth: b[field::INITIATOR_DEPTH],
            target_ack_delay: TimeoutCode::new(b[field::TARGET_ACK_DELAY] >> 3),
            failover: Failover::new(b[field::TARGET_ACK_DELAY] >> 1),
            end_to_end_flow_control: b[field::TARGET_ACK_DELAY] & 0x01 != 0,
            rnr_retry_count: b[field::RNR_RETRY] >> 5,
            srq: b[field::RNR_RETRY] & 0x10 != 0,
            local_ca_guid: be64(b, field::LOCAL_CA_GUID),
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
        let [_, high, middle, low] = self.vendor_id.to_be_bytes();
        put32(b, field::LOCAL_COMM_ID, self.local_comm_id);
        put32(b, field::REMOTE_COMM_ID, self.remote_comm_id);
        put32(b, field::LOCAL_QKEY, self.local_qkey);
        put24(b, field::LOCAL_QPN, self.local_qpn);
        b[field::VENDOR_ID_HIGH] = high;
        put24(b, field::LOCAL_EECN, self.local_eecn);
        b[field::VENDOR_ID_MIDDLE] = middle;
        put24(b, field::STARTING_PSN, self.starting_psn.value());
        b[field::VENDOR_ID_LOW] = low;
        b[field::RESPONDER_RESOURCES] = self.responder_resources;
        b[field::INITIATOR_DEPTH] = self.initiator_depth;
        b[field::TARGET_ACK_DELAY] =
            (self.target_ack_delay.code() << 3) | (self.failover.code() << 1) | u8::from(self.end_to_end_flow_control);
        b[field::RNR_RETRY] = (self.rnr_retry_count << 5) | (u8::from(self.srq) << 4);
        put64(b, field::LOCAL_CA_GUID, self.local_ca_guid);
        b[field::PRIVATE_DATA..].copy_from_slice(&self.private_data);
    }

    pub(super) fn fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            " comm_id {:#010x} remote {:#010x} qpn {:#08x} psn {} rd_atom {}/{} rnr_retry {} ack_delay {}",
            self.local_comm_id,
            self.remote_comm_id,
            self.local_qpn,
            self.starting_psn,
            self.responder_resources,
            self.initiator_depth,
            self.rnr_retry_count,
            self.target_ack_delay,
        )?;
        if self.failover != Failover::ACCEPTED {
            write!(f, " failover {}", self.failover)?;
        }
        if self.srq { f.write_str(" srq") } else { Ok(()) }
    }
}

impl fmt::Display for Rep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CM REP")?;
        self.fields(f)
    }
}

/// Ready to use: the asking side has the reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rtu {
    /// The sender's name for the connection.
    pub local_comm_id: u32,
    /// The receiver's name for it.
    pub remote_comm_id: u32,
    /// Whatever the consumer likes.
    pub private_data: [u8; 224],
}

const RTU_PRIVATE_DATA: usize = 8;

impl Rtu {
    /// Reads the bytes behind the MAD header.
    pub fn parse(data: &[u8]) -> Result<Rtu, Error> {
        Error::check_len("CM RTU", DATA_LEN, data.len())?;
        Ok(Rtu {
            local_comm_id: be32(data, field::LOCAL_COMM_ID),
            remote_comm_id: be32(data, field::REMOTE_COMM_ID),
            private_data: array(data, RTU_PRIVATE_DATA),
        })
    }

    /// Writes the bytes behind the MAD header.
    ///
    /// # Panics
    /// When `data` is shorter than [`DATA_LEN`].
    pub fn emit(&self, data: &mut [u8]) {
        let b = &mut data[..DATA_LEN];
        put32(b, field::LOCAL_COMM_ID, self.local_comm_id);
        put32(b, field::REMOTE_COMM_ID, self.remote_comm_id);
        b[RTU_PRIVATE_DATA..].copy_from_slice(&self.private_data);
    }

    pub(super) fn fields(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " comm_id {:#010x} remote {:#010x}", self.local_comm_id, self.remote_comm_id)
    }
}

impl fmt::Display for Rtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CM RTU")?;
        self.fields(f)
    }
}
