//! The NIC core: everything between verbs and frames, free of IO and clocks.
//!
//! A [`Nic`] is a [`Node`](softnic_wire::Node): a driver passes it frames and time, polls it for frames, and calls it when its timer is
//! due. The runtime, the simulator and the replayer drive the same code.

mod address;
mod address_handles;
mod connect;
mod cq;
mod layer;
mod memory;
mod nic;
mod port;
mod qp;
mod regions;
pub mod sharing;
mod source_rates;
mod srq;
mod table;
mod timers;
mod waiting_mads;

pub use address::{AddressAttr, AddressError, multicast_mac};
pub use connect::Connection;
pub use cq::{CqError, Notify, Sink};
pub use layer::Layer;
pub use memory::Buffer;
pub use nic::{MAX_INLINE, MAX_SGE, MAX_WR, Nic, NicConfig, ObjectError, Owner, negotiated_qp, next_key};
pub use port::Port;
pub use qp::QpInit;
pub use regions::{MrError, SlotTarget, WindowBinding, WindowType};
pub use softnic_transports as transports;
pub use softnic_transports::qp::{ModifyError, NextPsns, QpAttr, QpKind};
pub use table::Generator;
pub use waiting_mads::ReceivedMad;
