//! Statuses of completions and events, by the names that verbs have for them without their prefix.

use super::verb::Verb;

macro_rules! named {
    ($(#[$about:meta])* $type:ident { $($(#[$doc:meta])* $item:ident $name:literal $code:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $type { $(
            #[doc = concat!("`", $name, "`.")]
            $(#[$doc])*
            $item,
        )* }

        impl $type {
            /// All of them.
            pub const ALL: &[$type] = &[$($type::$item,)*];

            /// Its name.
            pub fn name(self) -> &'static str {
                match self { $($type::$item => $name,)* }
            }

            /// Its number in the C header.
            pub fn code(self) -> i32 {
                match self { $($type::$item => $code,)* }
            }

            /// By its name.
            pub fn from_name(name: &str) -> Option<$type> {
                $type::ALL.iter().copied().find(|known| known.name() == name)
            }

            /// All names, for a message.
            pub(crate) fn names() -> String {
                $type::ALL.iter().map(|known| known.name()).collect::<Vec<_>>().join(", ")
            }
        }
    };
}

named! {
    /// Statuses that a ConnectX gives. Those of reliable datagrams are none: no hardware has them.
    WcStatus {
        LocLenErr "LOC_LEN_ERR" 1,
        LocQpOpErr "LOC_QP_OP_ERR" 2,
        LocProtErr "LOC_PROT_ERR" 4,
        WrFlushErr "WR_FLUSH_ERR" 5,
        MwBindErr "MW_BIND_ERR" 6,
        BadRespErr "BAD_RESP_ERR" 7,
        LocAccessErr "LOC_ACCESS_ERR" 8,
        RemInvReqErr "REM_INV_REQ_ERR" 9,
        RemAccessErr "REM_ACCESS_ERR" 10,
        RemOpErr "REM_OP_ERR" 11,
        RetryExcErr "RETRY_EXC_ERR" 12,
        RnrRetryExcErr "RNR_RETRY_EXC_ERR" 13,
        RemAbortErr "REM_ABORT_ERR" 16,
        /// Whatever a driver has no other number for.
        GeneralErr "GENERAL_ERR" 21,
    }
}

named! {
    /// Asynchronous events.
    AsyncEvent {
        CqErr "CQ_ERR" 0,
        QpFatal "QP_FATAL" 1,
        DeviceFatal "DEVICE_FATAL" 8,
        /// Its end is PORT_ACTIVE.
        PortErr "PORT_ERR" 10,
        LidChange "LID_CHANGE" 11,
        PkeyChange "PKEY_CHANGE" 12,
        SmChange "SM_CHANGE" 13,
        SrqErr "SRQ_ERR" 14,
        SrqLimitReached "SRQ_LIMIT_REACHED" 15,
        ClientReregister "CLIENT_REREGISTER" 17,
        GidChange "GID_CHANGE" 18,
    }
}

named! {
    /// Events of the connection manager.
    CmEvent {
        AddrResolved "ADDR_RESOLVED" 0,
        AddrError "ADDR_ERROR" 1,
        RouteResolved "ROUTE_RESOLVED" 2,
        RouteError "ROUTE_ERROR" 3,
        ConnectRequest "CONNECT_REQUEST" 4,
        ConnectResponse "CONNECT_RESPONSE" 5,
        ConnectError "CONNECT_ERROR" 6,
        Unreachable "UNREACHABLE" 7,
        Rejected "REJECTED" 8,
        Established "ESTABLISHED" 9,
        Disconnected "DISCONNECTED" 10,
        DeviceRemoval "DEVICE_REMOVAL" 11,
        MulticastJoin "MULTICAST_JOIN" 12,
        MulticastError "MULTICAST_ERROR" 13,
        AddrChange "ADDR_CHANGE" 14,
        TimewaitExit "TIMEWAIT_EXIT" 15,
    }
}

impl WcStatus {
    /// Whether sends complete with it, and whether receives do.
    pub fn occurs(self) -> (bool, bool) {
        match self {
            WcStatus::LocLenErr | WcStatus::LocQpOpErr | WcStatus::LocProtErr => (true, true),
            WcStatus::WrFlushErr | WcStatus::GeneralErr => (true, true),
            WcStatus::LocAccessErr | WcStatus::RemInvReqErr => (true, true),
            WcStatus::RemAbortErr => (true, true),
            WcStatus::MwBindErr
            | WcStatus::BadRespErr
            | WcStatus::RemAccessErr
            | WcStatus::RemOpErr
            | WcStatus::RetryExcErr
            | WcStatus::RnrRetryExcErr => (true, false),
        }
    }
}

impl AsyncEvent {
    /// Whether it is about an object that the program made.
    pub fn has_object(self) -> bool {
        matches!(self, AsyncEvent::CqErr | AsyncEvent::QpFatal | AsyncEvent::SrqErr | AsyncEvent::SrqLimitReached)
    }
}

impl CmEvent {
    /// The call that it may follow instead of what was asked for, and the status that it has then (0: the reason is given).
    pub fn instead_of(self) -> Option<(Verb, i32)> {
        const ETIMEDOUT: i32 = -110;
        match self {
            CmEvent::AddrError => Some((Verb::CmResolveAddr, ETIMEDOUT)),
            CmEvent::RouteError => Some((Verb::CmResolveRoute, ETIMEDOUT)),
            CmEvent::Rejected => Some((Verb::CmConnect, 0)),
            CmEvent::Unreachable => Some((Verb::CmConnect, ETIMEDOUT)),
            // The queue pair could not be moved on: EINVAL.
            CmEvent::ConnectError => Some((Verb::CmConnect, -22)),
            _ => None,
        }
    }

    /// Whether it happens by itself, so that it has a time.
    pub fn is_by_itself(self) -> bool {
        matches!(self, CmEvent::AddrChange | CmEvent::DeviceRemoval)
    }
}
