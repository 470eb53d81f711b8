//! The NIC as a Rust program uses it: verbs, safe, from any thread.
//!
//! A [`Context`] is an opened NIC. From it come protection domains, memory regions, completion queues and queue pairs, each an owned
//! value that lives as long as somebody needs it: a queue pair keeps its completion queues, these keep the NIC.
//!
//! Work is posted and completions are taken without waiting for anybody. Frames move when somebody makes progress: a thread of the
//! program inside [`CompletionQueue::poll`], or the NIC's own thread (see [`Progress`]).

pub(crate) mod address_handle;
mod allowance;
pub mod cm;
mod company;
pub(crate) mod completion_channel;
mod completion_queue;
pub(crate) mod congestion;
pub(crate) mod context;
pub(crate) mod cq_shared;
pub(crate) mod events;
pub(crate) mod memory;
pub(crate) mod open;
pub(crate) mod path;
pub(crate) mod queue_pair;
pub(crate) mod raw;
pub(crate) mod shared_receive_queue;
pub(crate) mod status;
mod sysfs_counters;

pub use address_handle::AddressHandle;
pub use cm::{CmConnection, CmListener, CmOpenError, CmRequest, CmSink, ConnectError, ConnectionManager, FirstData};
pub use company::CompanyError;
pub use completion_channel::CompletionChannel;
pub use completion_queue::CompletionQueue;
pub use congestion::{Cc, CcError, parse_cc};
pub use context::{Context, ProtectionDomain, Running};
pub use events::EventSink;
pub use memory::{MemoryRegion, MemoryWindow};
pub use open::{DeviceSpec, DeviceSpecError, LinkDown, OpenError, OpenOptions, OwnAddresses, Progress, SHM_MAC};
pub use path::{PathError, PeerPath};
pub use queue_pair::{Connection, MulticastError, QpOptions, QueuePair};
pub use raw::{RawFrame, RawPort};
pub use shared_receive_queue::SharedReceiveQueue;
pub use status::RunningNic;
pub use sysfs_counters::{CountersByName, hardware_counters, port_counters};

pub use crate::key_file::{KeyFileError, read_key_file};
pub use crate::threads::spawn_own;
pub use softnic_fault_injector::units::parse_rate;
pub use softnic_sync::users::Users;
pub use softnic_trace::{Level as LogLevel, LevelError as LogLevelError, parse_level as parse_log_level};

// Types of the crates below that occur in calls of this API, so that a program needs no other crate.

/// Work requests and completions.
pub use softnic_nic::transports::{
    Completion, Data, Datagram, PartialReason, PostError, RecvWr, SendFlags, SendOp, SendWr, Sge, Status, WcOpcode,
};

/// Queue pairs and completion queues: attributes, states, limits, errors.
pub use softnic_nic::transports::negotiation::{Choice, FallbackReason};
pub use softnic_nic::transports::qp::{Caps, QpState};
pub use softnic_nic::transports::{AuthError, Secret, SecretError, Transport, TransportError};
pub use softnic_nic::{CqError, MAX_INLINE, MAX_SGE, ModifyError, Notify, ObjectError, QpAttr, QpKind};

/// Memory: access rights, buffers, windows.
pub use softnic_nic::transports::memory::{Access, Bind};
pub use softnic_nic::{Buffer, MrError, WindowType};

/// Asynchronous events, and counters.
pub use softnic_nic::transports::{Counters, Event};

/// Addresses, paths and numbers on the wire.
pub use softnic_nic::{AddressAttr, AddressError};
pub use softnic_wire::bth::DEFAULT_PKEY;
pub use softnic_wire::grh::Grh;
pub use softnic_wire::{MacAddr, Path, PathMtu, Psn, Qpn};
