//! The code points of the MAD header: classes, methods, attributes, statuses (IBA 13.4).
//!
//! Each is a number with names for the values we know, so that any value off the wire can be kept, shown, sent back.

use core::fmt;

/// Management class: whose MAD this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Class(pub u8);

impl Class {
    /// Subnet management, routed by LID.
    pub const SUBN_LID_ROUTED: Class = Class(0x01);
    /// Subnet management, directed route.
    pub const SUBN_DIRECTED_ROUTE: Class = Class(0x81);
    /// Subnet administration.
    pub const SUBN_ADM: Class = Class(0x03);
    /// Performance management.
    pub const PERF: Class = Class(0x04);
    /// Baseboard management.
    pub const BM: Class = Class(0x05);
    /// Device management.
    pub const DEV_MGT: Class = Class(0x06);
    /// Communication management.
    pub const CM: Class = Class(0x07);
    /// SNMP tunneling.
    pub const SNMP: Class = Class(0x08);

    /// Whether the MAD carries an OUI behind an RMPP header (IBA 16.5: vendor range 2).
    pub const fn is_vendor_with_oui(self) -> bool {
        matches!(self.0, 0x30..=0x4f)
    }

    /// The short name, where the class has one.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Class::SUBN_LID_ROUTED => "SubnLID",
            Class::SUBN_DIRECTED_ROUTE => "SubnDR",
            Class::SUBN_ADM => "SubnAdm",
            Class::PERF => "Perf",
            Class::BM => "BM",
            Class::DEV_MGT => "DevMgt",
            Class::CM => "CM",
            Class::SNMP => "SNMP",
            _ => return None,
        })
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "class {:#04x}", self.0),
        }
    }
}

/// Method: what is asked or answered; the top bit marks a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Method(pub u8);

impl Method {
    /// Ask for an attribute.
    pub const GET: Method = Method(0x01);
    /// Change an attribute.
    pub const SET: Method = Method(0x02);
    /// A datagram without an answer of its own; all of communication management.
    pub const SEND: Method = Method(0x03);
    /// An event, unasked.
    pub const TRAP: Method = Method(0x05);
    /// An event, forwarded to who subscribed.
    pub const REPORT: Method = Method(0x06);
    /// Stop a trap from being sent again.
    pub const TRAP_REPRESS: Method = Method(0x07);
    /// Answer to Get and Set.
    pub const GET_RESP: Method = Method(0x81);
    /// Answer to Report.
    pub const REPORT_RESP: Method = Method(0x86);

    /// The bit that marks a response.
    pub const RESPONSE_BIT: u8 = 0x80;

    /// Whether this is a response.
    pub const fn is_response(self) -> bool {
        self.0 & Method::RESPONSE_BIT != 0
    }

    /// The method of the answer: Set is answered by GetResp as Get is (IBA 13.4.5).
    pub const fn response(self) -> Method {
        match self {
            Method::SET => Method::GET_RESP,
            Method(m) => Method(m | Method::RESPONSE_BIT),
        }
    }

    /// The name, where the method has one in every class.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            Method::GET => "Get",
            Method::SET => "Set",
            Method::SEND => "Send",
            Method::TRAP => "Trap",
            Method::REPORT => "Report",
            Method::TRAP_REPRESS => "TrapRepress",
            Method::GET_RESP => "GetResp",
            Method::REPORT_RESP => "ReportResp",
            _ => return None,
        })
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "method {:#04x}", self.0),
        }
    }
}

/// Attribute id: the object that a method acts on. From 0x10 on its meaning is the class's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Attribute(pub u16);

impl Attribute {
    /// What a class's agent can do; the same in every class.
    pub const CLASS_PORT_INFO: Attribute = Attribute(0x0001);
    /// An event; the same in every class.
    pub const NOTICE: Attribute = Attribute(0x0002);
    /// A subscription to events; the same in every class.
    pub const INFORM_INFO: Attribute = Attribute(0x0003);
    /// CM: request for communication.
    pub const CM_REQ: Attribute = Attribute(0x0010);
    /// CM: message receipt acknowledgment.
    pub const CM_MRA: Attribute = Attribute(0x0011);
    /// CM: reject.
    pub const CM_REJ: Attribute = Attribute(0x0012);
    /// CM: reply to request for communication.
    pub const CM_REP: Attribute = Attribute(0x0013);
    /// CM: ready to use.
    pub const CM_RTU: Attribute = Attribute(0x0014);
    /// CM: request for communication release.
    pub const CM_DREQ: Attribute = Attribute(0x0015);
    /// CM: reply to request for communication release.
    pub const CM_DREP: Attribute = Attribute(0x0016);
    /// CM: service id resolution request.
    pub const CM_SIDR_REQ: Attribute = Attribute(0x0017);
    /// CM: service id resolution response.
    pub const CM_SIDR_REP: Attribute = Attribute(0x0018);
    /// CM: load alternate path.
    pub const CM_LAP: Attribute = Attribute(0x0019);
    /// CM: alternate path response.
    pub const CM_APR: Attribute = Attribute(0x001a);

    /// The name of the attribute in `class`, where we know it.
    pub const fn name(self, class: Class) -> Option<&'static str> {
        Some(match (class, self) {
            (_, Attribute::CLASS_PORT_INFO) => "ClassPortInfo",
            (_, Attribute::NOTICE) => "Notice",
            (_, Attribute::INFORM_INFO) => "InformInfo",
            (Class::CM, Attribute::CM_REQ) => "REQ",
            (Class::CM, Attribute::CM_MRA) => "MRA",
            (Class::CM, Attribute::CM_REJ) => "REJ",
            (Class::CM, Attribute::CM_REP) => "REP",
            (Class::CM, Attribute::CM_RTU) => "RTU",
            (Class::CM, Attribute::CM_DREQ) => "DREQ",
            (Class::CM, Attribute::CM_DREP) => "DREP",
            (Class::CM, Attribute::CM_SIDR_REQ) => "SIDR_REQ",
            (Class::CM, Attribute::CM_SIDR_REP) => "SIDR_REP",
            (Class::CM, Attribute::CM_LAP) => "LAP",
            (Class::CM, Attribute::CM_APR) => "APR",
            _ => return None,
        })
    }
}

impl fmt::Display for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#06x}", self.0)
    }
}

/// Status of a response: two flags, a code in bits 2–4, and the class's own byte on top (IBA 13.4.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

impl Status {
    /// All is well.
    pub const SUCCESS: Status = Status(0x0000);
    /// Flag: ask again later.
    pub const BUSY: Status = Status(0x0001);
    /// Flag: ask elsewhere.
    pub const REDIRECT: Status = Status(0x0002);
    /// Code: base or class version not supported.
    pub const BAD_VERSION: Status = Status(0x0004);
    /// Code: method not supported.
    pub const UNSUPPORTED_METHOD: Status = Status(0x0008);
    /// Code: method and attribute do not go together; what Linux answers to a class it does not know.
    pub const UNSUPPORTED_METHOD_ATTRIB: Status = Status(0x000c);
    /// Code: a value in the attribute or its modifier is not valid.
    pub const INVALID_ATTRIB_VALUE: Status = Status(0x001c);

    /// Whether neither a flag, nor a code, nor a bit of the class is set.
    pub const fn is_success(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Status::SUCCESS => "OK",
            Status::BUSY => "BUSY",
            Status::REDIRECT => "REDIRECT",
            Status::BAD_VERSION => "BAD_VERSION",
            Status::UNSUPPORTED_METHOD => "UNSUPPORTED_METHOD",
            Status::UNSUPPORTED_METHOD_ATTRIB => "UNSUPPORTED_METHOD_ATTRIB",
            Status::INVALID_ATTRIB_VALUE => "INVALID_ATTRIB_VALUE",
            Status(v) => return write!(f, "{v:#06x}"),
        };
        f.write_str(name)
    }
}
