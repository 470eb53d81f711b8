//! The size of a queue pair's state in bytes (OptiNIC, Table 4): the part that does not depend on the posted work, by the sizes of its
//! types.

use std::mem::size_of;

use softnic_wire::Template;

use crate::Transport;
use crate::endpoint;
use crate::lowar::Lowar;
use crate::rc::Rc;
use crate::recv_queue::RecvQueue;
use crate::send_queue::SendQueue;
use crate::sr::Sr;
use crate::uc::Uc;
use crate::ud::Ud;
use crate::xp::Xp;

/// The bytes of a queue pair's state. Not counted are the rings of work requests, which belong to the program, and bitmaps and buffers,
/// which grow with the data in flight.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateSize {
    /// The state machine, with the heads of its queues and the headers of its frames.
    pub machine: usize,
    /// The separately allocated state that exists from the start: the rarely used part of XP, the shim of LoWAR.
    pub apart: usize,
    /// Its attributes and its entry in the NIC's table.
    pub slot: usize,
    /// The agreement with its peer, if its transport is an extension.
    pub agreement: usize,
    /// Part of the machine: the headers of its frames, which hardware computes, and the heads of its two queues.
    pub headers_and_heads: usize,
}

impl StateSize {
    /// The size for a transport.
    pub const fn of(transport: Transport) -> StateSize {
        let (machine, apart) = match transport {
            Transport::Rc => (size_of::<Rc>(), 0),
            Transport::Lowar(_) => (size_of::<Rc>(), size_of::<Lowar>()),
            Transport::Sr { .. } => (size_of::<Sr>(), 0),
            Transport::Xp(_) => (size_of::<Xp>(), crate::xp::kept_apart()),
            Transport::Uc => (size_of::<Uc>(), 0),
            Transport::Ud => (size_of::<Ud>(), 0),
        };
        let negotiates = !matches!(transport, Transport::Rc | Transport::Uc | Transport::Ud);
        StateSize {
            machine,
            apart,
            slot: size_of::<endpoint::Endpoint>(),
            agreement: if negotiates { endpoint::terms_size() } else { 0 },
            headers_and_heads: size_of::<Template>() + size_of::<SendQueue>() + size_of::<RecvQueue>(),
        }
    }

    /// The state that packets may access: the machine and the separately allocated part.
    pub const fn state(&self) -> usize {
        self.machine + self.apart
    }

    /// The total.
    pub const fn all(&self) -> usize {
        self.state() + self.slot + self.agreement
    }
}
