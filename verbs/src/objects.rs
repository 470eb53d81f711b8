//! Objects: the targets of programs' pointers, with their reference counts and the verbs that create, change and destroy them.
//!
//! Each file imports only files listed before it here. Functions that a program calls by the table of an object take objects of any kind,
//! so they are in `calls/`; an object gets its table at creation.

// The order is that of the imports: rustfmt would sort a single block.
pub(crate) mod users;

pub(crate) mod handle;

pub(crate) mod kept;

pub(crate) mod event_queue;

pub(crate) mod requesters;

pub(crate) mod shown;

pub(crate) mod counters_recorder;

pub(crate) mod nic;

pub(crate) mod link_speed;

pub(crate) mod device;

pub(crate) mod context;

pub(crate) mod domain;

pub(crate) mod mapping;

pub(crate) mod region;

pub(crate) mod completion_channel;

pub(crate) mod completion_queue;

pub(crate) mod shared_receive;

pub(crate) mod building;

pub(crate) mod queue_pair;

pub(crate) mod window;

pub(crate) mod address;

pub(crate) mod sdr_context;

pub(crate) mod sdr_region;

pub(crate) mod sdr_end;

pub(crate) mod sdr_queue_pair;
