//! Work requests that a program builds call by call, before they are posted together.

use std::cell::UnsafeCell;
use std::ops::Range;

use softnic_runtime::api::{Bind, Datagram, SendFlags, SendOp, Sge};

use crate::abi::ibv_mw;
use crate::errno::Errno;

/// Work requests that are being built, by the thread that holds the queue pair's lock since `start`.
#[derive(Default)]
pub(crate) struct Builder(pub(crate) UnsafeCell<Building>);

#[derive(Default)]
pub(crate) struct Building {
    pub(crate) requests: Vec<Built>,
    pub(crate) sges: Vec<Sge>,
    pub(crate) inline: Vec<u8>,
    /// The first error.
    pub(crate) error: Option<Errno>,
}

pub(crate) struct Built {
    pub(crate) wr_id: u64,
    pub(crate) op: SendOp,
    pub(crate) flags: SendFlags,
    pub(crate) to: Option<Datagram>,
    pub(crate) data: Source,
    /// The window to bind, and the binding.
    pub(crate) window: Option<(*mut ibv_mw, Bind)>,
}

pub(crate) enum Source {
    Sges(Range<usize>),
    Inline(Range<usize>),
}
