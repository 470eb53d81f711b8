//! The NIC as a Rust program uses it: verbs, safe, from any thread.
//!
//! A [`Context`] is an opened NIC. From it come protection domains, memory regions, completion queues and queue pairs, each an owned
//! value that lives as long as somebody needs it: a queue pair keeps its completion queues, these keep the NIC.
//!
//! Work is posted and completions are taken without waiting for anybody. Frames move when somebody makes progress: a thread of the
//! program inside [`CompletionQueue::poll`], or the NIC's own thread (see [`Progress`]).
//!
//! Two NICs in this process, and a WRITE from one to the other over a wire that loses every tenth frame:
//!
//! ```
//! use std::time::Duration;
//! use softnic_runtime::api::{
//!     Access, Connection, Context, Data, OpenOptions, Psn, QpKind, QpOptions, SendFlags, SendOp, SendWr, Status,
//! };
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let lossy = OpenOptions { fault: Some("loss=0.1".parse()?), seed: 1, ..OpenOptions::default() };
//! let [a, b] = Context::open_pair([&lossy, &lossy])?;
//!
//! // Memory, a completion queue and a queue pair, on each NIC.
//! let rights = Access::LOCAL_WRITE | Access::REMOTE;
//! let (pd_a, pd_b) = (a.alloc_pd(), b.alloc_pd());
//! let (from, to) = (pd_a.alloc_mr(1 << 16, rights)?, pd_b.alloc_mr(1 << 16, rights)?);
//! let (cq_a, cq_b) = (a.create_cq(16)?, b.create_cq(16)?);
//! let qp_a = pd_a.create_qp(&QpOptions::new(QpKind::Rc, &cq_a))?;
//! let qp_b = pd_b.create_qp(&QpOptions::new(QpKind::Rc, &cq_b))?;
//!
//! // RESET to RTS. Programs on two hosts tell each other these numbers over TCP, or leave it to `cm`.
//! let (psn_a, psn_b) = (Psn::new(1000), Psn::new(2000));
//! let to_b = a.path_to(b.addresses()[0], qp_a.qpn().value())?;
//! let to_a = b.path_to(a.addresses()[0], qp_b.qpn().value())?;
//! qp_a.init(rights)?;
//! qp_b.init(rights)?;
//! qp_b.connect(&Connection::new(to_a, qp_a.qpn(), psn_a, psn_b))?;
//! qp_a.connect(&Connection::new(to_b, qp_b.qpn(), psn_b, psn_a))?;
//!
//! from.write_at(0, b"hello");
//! let sges = [from.sge(0, 1 << 16)];
//! let op = SendOp::Write { remote_addr: to.addr(), rkey: to.rkey() };
//! let (data, flags) = (Data::Gather(&sges), SendFlags::default());
//! qp_a.post_send(&SendWr { wr_id: 7, op, data, flags, best_effort: None, to: None })?;
//!
//! let done = loop {
//!     match cq_a.poll_one()? {
//!         Some(done) => break done,
//!         None => drop(cq_a.wait(Duration::from_secs(1))?),
//!     }
//! };
//! assert_eq!((done.wr_id, done.status), (7, Status::Success));
//! let mut greeting = [0; 5];
//! to.read_at(0, &mut greeting);
//! assert_eq!(&greeting, b"hello");
//! # Ok(())
//! # }
//! ```

pub(crate) mod address_handle;
mod allowance;
pub mod cm;
pub(crate) mod company;
pub(crate) mod completion_channel;
mod completion_queue;
pub(crate) mod congestion;
pub(crate) mod context;
pub(crate) mod cq_shared;
pub(crate) mod events;
pub(crate) mod failover;
mod groups;
pub(crate) mod link_down;
mod manager_news;
pub(crate) mod memory;
pub(crate) mod open;
pub(crate) mod path;
pub(crate) mod queue_pair;
pub(crate) mod raw;
pub mod sdr;
pub(crate) mod shared_receive_queue;
pub(crate) mod status;
mod streams;
mod sysfs_counters;

pub use crate::failover::kv::{Kv, KvError, RedisUrl};
pub use crate::failover::list::LineSink;
pub use address_handle::AddressHandle;
pub use cm::{
    CmConnection, CmEnd, CmListener, CmOpenError, CmRequest, CmSink, ConnectError, ConnectionManager, FirstData,
};
pub use company::CompanyError;
pub use completion_channel::CompletionChannel;
pub use completion_queue::CompletionQueue;
pub use congestion::{Cc, CcError, parse_cc};
pub use context::{Context, ProtectionDomain, Running};
pub use events::EventSink;
pub use link_down::LinkDown;
pub use memory::{MemoryRegion, MemoryWindow};
pub use open::{
    BackupOptions, DeviceSpec, DeviceSpecError, MUTUAL, OpenError, OpenOptions, OwnAddresses, Progress, SHM_MAC,
    mutual_backups, parse_backup, parse_failover, parse_kv, parse_probe,
};
pub use path::{PathError, PeerPath};
pub use queue_pair::{Connection, MulticastError, Protection, QpFailover, QpOptions, QueuePair};
pub use raw::{RawFrame, RawPort};
pub use shared_receive_queue::SharedReceiveQueue;
pub use status::RunningNic;
pub use streams::{Stream, StreamListener};
pub use sysfs_counters::{CountersByName, hardware_counters, port_counters};

pub use crate::key_file::{KeyFileError, read_key_file};
pub use crate::sent::PacketSink;
pub use crate::threads::spawn_own;
pub use softnic_fault_injector::Spec as FaultSpec;
pub use softnic_fault_injector::calls as call_faults;
pub use softnic_fault_injector::units::parse_rate;
pub use softnic_fault_injector::{PacketName, ProcessName};
pub use softnic_sync::users::Users;
pub use softnic_trace::{Level as LogLevel, LevelError as LogLevelError, parse_level as parse_log_level};

// Types of the crates below that occur in calls of this API, so that a program needs no other crate.

/// Work requests and completions.
pub use softnic_nic::transports::{
    BestEffort, Completion, Data, Datagram, PartialReason, PostError, RecvWr, SendFlags, SendOp, SendWr, Sge, Status,
    WcOpcode,
};

/// What is missing of a message of best effort.
pub use softnic_nic::transports::xp::missing_ranges;

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

/// Failover to a backup: its times, what it did, where a connection is and why.
pub use softnic_shift::{
    FailoverCounters, Reason as FailoverReason, Refusal as FailoverRefusal, Times as FailoverTimes,
};
pub use softnic_wire::failover::Phase as FailoverPhase;

/// Addresses, paths and numbers on the wire.
pub use softnic_nic::{AddressAttr, AddressError};
pub use softnic_wire::bth::DEFAULT_PKEY;
pub use softnic_wire::grh::Grh;
pub use softnic_wire::{MacAddr, Path, PathMtu, Psn, Qpn};
