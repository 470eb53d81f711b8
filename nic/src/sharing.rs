//! Several NICs behind one port, each of a different process: determines which of them a frame is for.
//!
//! All NICs have the port's addresses; queue pair numbers tell them apart. The upper [`PROCESS_BITS`] of a queue pair number identify the
//! process that owns the queue pair, and those of a communication id the process that owns the connection. MADs to QP1 are inspected: a
//! request is for the process that listens on its service, an answer for the process that sent the request, and a negotiation MAD for the
//! owner of the queue pair that it is about. This module keeps no state and checks no ICRC; the NIC that receives the frame checks it.

use softnic_transports::planted::{Bug, planted};
use softnic_wire::mad::cm::DATA_LEN;
use softnic_wire::mad::ip_cm::ServiceId;
use softnic_wire::mad::{Attribute, Class, HEADER_LEN, MAD_LEN, Repr, vendor};
use softnic_wire::{Layout, Qpn, bth};

use crate::nic::{Owner, mad_in, negotiated_qp};

/// Number of upper bits of a queue pair number, and of a communication id, that identify the process.
pub const PROCESS_BITS: u32 = 10;

/// The number of a process with a NIC at a shared port. The first number has the management queue pairs and the last one the multicast
/// queue pair, so no process has these numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Process(u16);

impl Process {
    /// The lowest number.
    pub const FIRST: Process = Process(1);
    /// The highest number.
    pub const LAST: Process = Process((1 << PROCESS_BITS) - 2);
    /// The maximum number of processes.
    pub const COUNT: usize = Process::LAST.0 as usize;

    /// The process with this number.
    pub const fn new(number: u32) -> Option<Process> {
        match number >= Process::FIRST.0 as u32 && number <= Process::LAST.0 as u32 {
            true => Some(Process(number as u16)),
            false => None,
        }
    }

    /// Its number.
    pub const fn number(self) -> u32 {
        self.0 as u32
    }

    /// The next number; after the last comes the first.
    pub const fn next(self) -> Process {
        if self.0 == Process::LAST.0 { Process::FIRST } else { Process(self.0 + 1) }
    }

    /// The queue pair numbers of the process; those of the engine `index`, if `bits` bits identify an engine.
    pub fn owner(self, index: u32, bits: u32) -> Owner {
        Owner { index: self.number() << bits | index, bits: PROCESS_BITS + bits }
    }

    /// The process that owns a queue pair.
    pub fn of(qpn: Qpn) -> Option<Process> {
        Process::new(Owner::of(qpn, PROCESS_BITS))
    }

    /// A communication id of this process, with random lower bits.
    pub const fn comm_id(self, drawn: u32) -> u32 {
        self.number() << (32 - PROCESS_BITS) | drawn & (u32::MAX >> PROCESS_BITS)
    }

    /// The process that drew a communication id.
    pub const fn of_comm_id(id: u32) -> Option<Process> {
        Process::new(id >> (32 - PROCESS_BITS))
    }
}

/// The addressee of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addressee {
    /// A process.
    Process(Process),
    /// The process that listens on this service. If there is none, the sender, which then refuses the request itself.
    Service(ServiceId),
    /// Every process, because the frame is for a group.
    Everybody,
    /// No process.
    Nobody,
}

impl From<Option<Process>> for Addressee {
    fn from(process: Option<Process>) -> Addressee {
        process.map_or(Addressee::Nobody, Addressee::Process)
    }
}

/// The addressee of a frame, which may contain anything.
#[inline]
pub fn addressee(frame: &[u8], layout: &Layout) -> Addressee {
    let Ok(header) = bth::Packet::new_checked(frame.get(layout.bth..).unwrap_or_default()) else {
        return Addressee::Nobody;
    };
    match header.dest_qp() {
        Qpn::GSI => addressee_of_mad(frame, layout),
        Qpn::MULTICAST => Addressee::Everybody,
        qpn if planted(Bug::SharedPortBit) => Process::new(Owner::of(qpn, PROCESS_BITS) | 1).into(),
        qpn => Process::of(qpn).into(),
    }
}

/// The addressee of a frame to QP1.
#[cold]
fn addressee_of_mad(frame: &[u8], layout: &Layout) -> Addressee {
    let Some(mad) = mad_in(frame, layout).map(|at| &frame[at..at + MAD_LEN]) else { return Addressee::Nobody };
    match Repr::parse(mad) {
        Ok(header) if header.mgmt_class == vendor::CLASS && planted(Bug::SharedNegotiation) => {
            Addressee::Process(Process::FIRST)
        }
        Ok(header) if header.mgmt_class == vendor::CLASS => negotiated_qp(frame, layout).and_then(Process::of).into(),
        Ok(header) if header.mgmt_class == Class::CM => addressee_of_cm(header.attribute_id, &mad[HEADER_LEN..]),
        _ => Addressee::Nobody,
    }
}

/// The addressee of a message of the connection manager (IBA 12.6, 12.11). All messages except requests contain the receiver's own id,
/// mostly after the sender's.
fn addressee_of_cm(attribute: Attribute, data: &[u8]) -> Addressee {
    const SERVICE_ID: usize = 8;
    const REMOTE_ID: usize = 4;
    debug_assert_eq!(data.len(), DATA_LEN, "a whole MAD");
    let id = |at: usize| data[at..].first_chunk().map_or(0, |&bytes| u32::from_be_bytes(bytes));
    match attribute {
        Attribute::CM_REQ | Attribute::CM_SIDR_REQ => {
            let bytes = data[SERVICE_ID..].first_chunk().copied().unwrap_or_default();
            Addressee::Service(ServiceId(u64::from_be_bytes(bytes)))
        }
        // The id of the request.
        Attribute::CM_SIDR_REP => Process::of_comm_id(id(0)).into(),
        _ => Process::of_comm_id(id(REMOTE_ID)).into(),
    }
}
