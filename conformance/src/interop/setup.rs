//! What a connection is made with, and the words for what happens on it.

use softnic_nic::QpKind;
use softnic_nic::transports::memory::Access;
use softnic_nic::transports::{Status, WcOpcode};
use softnic_sdr::QpAttr;
use softnic_wire::PathMtu;

/// Who does something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    Softnic,
    Rxe,
}

impl Side {
    pub(super) fn name(self) -> &'static str {
        match self {
            Side::Softnic => "softnic",
            Side::Rxe => "rxe",
        }
    }

    pub(super) fn other(self) -> Side {
        match self {
            Side::Softnic => Side::Rxe,
            Side::Rxe => Side::Softnic,
        }
    }
}

/// Which completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Queue {
    Send,
    Recv,
}

/// How a work request ended, at whichever end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Done {
    pub(super) wr_id: u64,
    pub(super) status: Status,
    /// Only known on success.
    pub(super) opcode: Option<WcOpcode>,
    /// Bytes received; of no meaning at a requester.
    pub(super) len: u32,
    pub(super) imm: Option<u32>,
    /// The key that the message invalidated.
    pub(super) invalidated: Option<u32>,
    /// Who sent it; only known of datagrams.
    pub(super) src_qp: Option<u32>,
}

/// What a connection is made with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setup {
    pub(super) service: QpKind,
    pub(super) requester: Side,
    pub(super) ipv6: bool,
    pub(super) mtu: PathMtu,
    /// The first PSN of both directions.
    pub(super) psn: u32,
    /// What the responder's queue pair allows.
    pub(super) qp_access: Access,
    /// What the responder's memory region allows.
    pub(super) mr_access: Access,
    pub(super) min_rnr_timer: u8,
    pub(super) rnr_retry: u8,
    pub(super) timeout: u8,
    pub(super) retry_cnt: u8,
    /// What the wire does to packets of both directions, as a fault SPEC.
    pub(super) faults: &'static str,
    /// Queue pairs at each end.
    pub(super) qps: usize,
    /// Whether the responder's queue pairs share one queue of receives.
    pub(super) srq: bool,
    /// Whether softnic offers Selective Repeat.
    pub(super) offers_sr: bool,
    /// Our end is a queue pair of SDR; what that is made of is connected by the scenario.
    pub(super) sdr: Option<QpAttr>,
}

/// Every right there is.
pub(super) const ALL: [Access; 5] =
    [Access::LOCAL_WRITE, Access::REMOTE_WRITE, Access::REMOTE_READ, Access::REMOTE_ATOMIC, Access::MW_BIND];
/// Bytes of memory at each end.
pub(super) const MEMORY: usize = 256 << 10;
/// READs and atomics outstanding at a time.
pub(super) const RD_ATOMIC: u8 = 4;
impl Setup {
    pub(super) fn new(requester: Side, ipv6: bool, mtu: PathMtu) -> Setup {
        let mr_access = ALL.into_iter().fold(Access::NONE, |a, b| a | b);
        let qp_access = Access::LOCAL_WRITE | Access::REMOTE;
        // 67 ms, and never 7 retries: rxe does not count those.
        let (timeout, retry_cnt) = (14, 6);
        let (min_rnr_timer, rnr_retry) = (14, 7); // 1 ms, for ever
        let (service, psn, faults, qps, srq, offers_sr, sdr) = (QpKind::Rc, 100, "", 1, false, false, None);
        Setup {
            service,
            requester,
            ipv6,
            mtu,
            psn,
            qp_access,
            mr_access,
            min_rnr_timer,
            rnr_retry,
            timeout,
            retry_cnt,
            faults,
            qps,
            srq,
            offers_sr,
            sdr,
        }
    }

    /// What the queue pair and the memory region of that end allow.
    pub(super) fn access(&self, side: Side) -> (Access, Access) {
        match side == self.requester {
            true => (Setup::new(side, false, self.mtu).qp_access, Setup::new(side, false, self.mtu).mr_access),
            false => (self.qp_access, self.mr_access),
        }
    }

    /// Whether the queue pairs of that end share one queue of receives.
    pub(super) fn has_srq(&self, side: Side) -> bool {
        self.srq && side != self.requester
    }
}
