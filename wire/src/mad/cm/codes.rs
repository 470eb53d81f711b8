//! Values of the CM messages' fields: timeouts, path MTU, service types, reasons and statuses.

use core::fmt;
use core::time::Duration;

/// A five-bit time: 4.096 µs · 2^code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct TimeoutCode(u8);

impl TimeoutCode {
    /// The low five bits of `code`.
    pub const fn new(code: u8) -> TimeoutCode {
        TimeoutCode(code & 0x1f)
    }

    /// The code, below 32.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time that is meant. As a local ACK timeout, code 0 means that there is none (IBA 9.7.6.1.3).
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(4096 << self.0)
    }

    /// The smallest code whose time is no less than `time`; the greatest code where none is.
    pub const fn at_least(time: Duration) -> TimeoutCode {
        let mut code = 0;
        while code < 0x1f && TimeoutCode(code).duration().as_nanos() < time.as_nanos() {
            code += 1;
        }
        TimeoutCode(code)
    }
}

impl fmt::Display for TimeoutCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// The path MTU's four-bit code (IBA 12.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PathMtu(u8);

impl PathMtu {
    /// 256 bytes of payload a packet.
    pub const MTU_256: PathMtu = PathMtu(1);
    /// 512 bytes.
    pub const MTU_512: PathMtu = PathMtu(2);
    /// 1024 bytes.
    pub const MTU_1024: PathMtu = PathMtu(3);
    /// 2048 bytes.
    pub const MTU_2048: PathMtu = PathMtu(4);
    /// 4096 bytes.
    pub const MTU_4096: PathMtu = PathMtu(5);

    /// The low four bits of `code`.
    pub const fn new(code: u8) -> PathMtu {
        PathMtu(code & 0x0f)
    }

    /// The code, below 16.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Bytes of payload a packet, if the code stands for any.
    pub const fn bytes(self) -> Option<usize> {
        match self.0 {
            1..=5 => Some(128 << self.0),
            _ => None,
        }
    }
}

impl fmt::Display for PathMtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes() {
            Some(bytes) => write!(f, "{bytes}"),
            None => write!(f, "code {}", self.0),
        }
    }
}

/// The two-bit transport service type of a request (IBA 12.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TransportService(u8);

impl TransportService {
    /// Reliable connection.
    pub const RC: TransportService = TransportService(0);
    /// Unreliable connection.
    pub const UC: TransportService = TransportService(1);
    /// Reliable datagram.
    pub const RD: TransportService = TransportService(2);
    /// Told by the extended transport type, of which 1 is XRC (IBA annex A14).
    pub const EXTENDED: TransportService = TransportService(3);

    /// The low two bits of `code`.
    pub const fn new(code: u8) -> TransportService {
        TransportService(code & 0x03)
    }

    /// The code, below 4.
    pub const fn code(self) -> u8 {
        self.0
    }
}

impl fmt::Display for TransportService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            0 => "RC",
            1 => "UC",
            2 => "RD",
            _ => "EXT",
        })
    }
}

/// What became of a request's alternate path: two bits of the reply (IBA 12.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Failover(u8);

impl Failover {
    /// The alternate path was accepted, or none was asked for.
    pub const ACCEPTED: Failover = Failover(0);
    /// Failover is not supported.
    pub const UNSUPPORTED: Failover = Failover(1);
    /// Failover is supported, but not to this path.
    pub const REFUSED: Failover = Failover(2);

    /// The low two bits of `code`.
    pub const fn new(code: u8) -> Failover {
        Failover(code & 0x03)
    }

    /// The code, below 4.
    pub const fn code(self) -> u8 {
        self.0
    }
}

impl fmt::Display for Failover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Failover::ACCEPTED => f.write_str("accepted"),
            Failover::UNSUPPORTED => f.write_str("unsupported"),
            Failover::REFUSED => f.write_str("refused"),
            Failover(v) => write!(f, "code {v}"),
        }
    }
}

/// Which message an MRA or a REJ responds to: two bits (IBA 12.6.6, 12.6.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Responded(u8);

impl Responded {
    /// The REQ.
    pub const REQ: Responded = Responded(0);
    /// The REP.
    pub const REP: Responded = Responded(1);
    /// In an MRA: the LAP. In a REJ: no message, as when a timeout is the cause.
    pub const LAP_OR_NONE: Responded = Responded(2);

    /// The low two bits of `code`.
    pub const fn new(code: u8) -> Responded {
        Responded(code & 0x03)
    }

    /// The code, below 4.
    pub const fn code(self) -> u8 {
        self.0
    }
}

/// Why a REJ refuses (IBA 12.6.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RejReason(pub u16);

#[allow(missing_docs)] // each name is the reason, and `Display` says it in words
impl RejReason {
    pub const NO_QP: RejReason = RejReason(1);
    pub const NO_EEC: RejReason = RejReason(2);
    pub const NO_RESOURCES: RejReason = RejReason(3);
    pub const TIMEOUT: RejReason = RejReason(4);
    pub const UNSUPPORTED: RejReason = RejReason(5);
    pub const INVALID_COMM_ID: RejReason = RejReason(6);
    pub const INVALID_COMM_INSTANCE: RejReason = RejReason(7);
    pub const INVALID_SERVICE_ID: RejReason = RejReason(8);
    pub const INVALID_TRANSPORT_TYPE: RejReason = RejReason(9);
    pub const STALE_CONNECTION: RejReason = RejReason(10);
    pub const RDC_NOT_EXIST: RejReason = RejReason(11);
    pub const INVALID_GID: RejReason = RejReason(12);
    pub const INVALID_LID: RejReason = RejReason(13);
    pub const INVALID_SL: RejReason = RejReason(14);
    pub const INVALID_TRAFFIC_CLASS: RejReason = RejReason(15);
    pub const INVALID_HOP_LIMIT: RejReason = RejReason(16);
    pub const INVALID_PACKET_RATE: RejReason = RejReason(17);
    pub const INVALID_ALT_GID: RejReason = RejReason(18);
    pub const INVALID_ALT_LID: RejReason = RejReason(19);
    pub const INVALID_ALT_SL: RejReason = RejReason(20);
    pub const INVALID_ALT_TRAFFIC_CLASS: RejReason = RejReason(21);
    pub const INVALID_ALT_HOP_LIMIT: RejReason = RejReason(22);
    pub const INVALID_ALT_PACKET_RATE: RejReason = RejReason(23);
    pub const PORT_CM_REDIRECT: RejReason = RejReason(24);
    pub const PORT_REDIRECT: RejReason = RejReason(25);
    pub const INVALID_MTU: RejReason = RejReason(26);
    pub const INSUFFICIENT_RESP_RESOURCES: RejReason = RejReason(27);
    pub const CONSUMER_DEFINED: RejReason = RejReason(28);
    pub const INVALID_RNR_RETRY: RejReason = RejReason(29);
    pub const DUPLICATE_LOCAL_COMM_ID: RejReason = RejReason(30);
    pub const INVALID_CLASS_VERSION: RejReason = RejReason(31);
    pub const INVALID_FLOW_LABEL: RejReason = RejReason(32);
    pub const INVALID_ALT_FLOW_LABEL: RejReason = RejReason(33);
    pub const VENDOR_OPTION_NOT_SUPPORTED: RejReason = RejReason(35);

    /// The reason in words, where it is a known one.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            RejReason::NO_QP => "no QP available",
            RejReason::NO_EEC => "no EE context available",
            RejReason::NO_RESOURCES => "no resources",
            RejReason::TIMEOUT => "timeout",
            RejReason::UNSUPPORTED => "unsupported request",
            RejReason::INVALID_COMM_ID => "invalid communication id",
            RejReason::INVALID_COMM_INSTANCE => "invalid communication instance",
            RejReason::INVALID_SERVICE_ID => "invalid service id",
            RejReason::INVALID_TRANSPORT_TYPE => "invalid transport service type",
            RejReason::STALE_CONNECTION => "stale connection",
            RejReason::RDC_NOT_EXIST => "RDC does not exist",
            RejReason::INVALID_GID => "primary port GID rejected",
            RejReason::INVALID_LID => "primary port LID rejected",
            RejReason::INVALID_SL => "invalid primary SL",
            RejReason::INVALID_TRAFFIC_CLASS => "invalid primary traffic class",
            RejReason::INVALID_HOP_LIMIT => "invalid primary hop limit",
            RejReason::INVALID_PACKET_RATE => "invalid primary packet rate",
            RejReason::INVALID_ALT_GID => "alternate port GID rejected",
            RejReason::INVALID_ALT_LID => "alternate port LID rejected",
            RejReason::INVALID_ALT_SL => "invalid alternate SL",
            RejReason::INVALID_ALT_TRAFFIC_CLASS => "invalid alternate traffic class",
            RejReason::INVALID_ALT_HOP_LIMIT => "invalid alternate hop limit",
            RejReason::INVALID_ALT_PACKET_RATE => "invalid alternate packet rate",
            RejReason::PORT_CM_REDIRECT => "port and CM redirection",
            RejReason::PORT_REDIRECT => "port redirection",
            RejReason::INVALID_MTU => "invalid path MTU",
            RejReason::INSUFFICIENT_RESP_RESOURCES => "insufficient responder resources",
            RejReason::CONSUMER_DEFINED => "consumer reject",
            RejReason::INVALID_RNR_RETRY => "RNR retry count rejected",
            RejReason::DUPLICATE_LOCAL_COMM_ID => "duplicate local communication id",
            RejReason::INVALID_CLASS_VERSION => "unsupported class version",
            RejReason::INVALID_FLOW_LABEL => "invalid primary flow label",
            RejReason::INVALID_ALT_FLOW_LABEL => "invalid alternate flow label",
            RejReason::VENDOR_OPTION_NOT_SUPPORTED => "vendor option not supported",
            _ => return None,
        })
    }
}

impl fmt::Display for RejReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{} ({name})", self.0),
            None => write!(f, "{}", self.0),
        }
    }
}

/// How a service id resolution went (IBA 12.11.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SidrStatus(pub u8);

impl SidrStatus {
    /// The QPN and Q_Key are valid.
    pub const VALID: SidrStatus = SidrStatus(0);
    /// Nobody serves this service id.
    pub const UNSUPPORTED: SidrStatus = SidrStatus(1);
    /// The service refused.
    pub const REJECT: SidrStatus = SidrStatus(2);
    /// No QP available.
    pub const NO_QP: SidrStatus = SidrStatus(3);
    /// Ask elsewhere: the additional information tells where.
    pub const REDIRECT: SidrStatus = SidrStatus(4);
    /// Class version not supported.
    pub const UNSUPPORTED_VERSION: SidrStatus = SidrStatus(5);
}

impl fmt::Display for SidrStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            SidrStatus::VALID => "valid",
            SidrStatus::UNSUPPORTED => "service id not supported",
            SidrStatus::REJECT => "rejected",
            SidrStatus::NO_QP => "no QP available",
            SidrStatus::REDIRECT => "redirect",
            SidrStatus::UNSUPPORTED_VERSION => "unsupported version",
            SidrStatus(v) => return write!(f, "{v}"),
        };
        write!(f, "{} ({name})", self.0)
    }
}
