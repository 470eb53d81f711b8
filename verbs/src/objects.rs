//! Objects: what programs hold pointers to, with the verbs that make, change and destroy them.
//!
//! Each imports only those that stand before it here. What is called by more than one object, or needs functions that the program
//! calls by tables, is in `calls/`.

pub(crate) mod users;

pub(crate) mod event_queue;

pub(crate) mod nic;

pub(crate) mod device;

pub(crate) mod context;

pub(crate) mod domain;

pub(crate) mod region;

pub(crate) mod completion_channel;

pub(crate) mod completion_queue;

pub(crate) mod shared_receive;

pub(crate) mod building;

pub(crate) mod queue_pair;

pub(crate) mod window;

pub(crate) mod address;
