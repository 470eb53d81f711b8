//! Verbs on objects: listing and opening devices, querying attributes, creating queues with their tables of functions, posting work, taking
//! completions and events.

pub(crate) mod best_effort;
pub(crate) mod builder;
pub(crate) mod create_cq;
pub(crate) mod create_qp;
pub(crate) mod device_list;
pub(crate) mod events;
pub(crate) mod files;
pub(crate) mod open;
pub(crate) mod poll;
pub(crate) mod post;
pub(crate) mod qp_attributes;
pub(crate) mod query;
pub(crate) mod rates;
pub(crate) mod sdr;
pub(crate) mod sdr_receives;
pub(crate) mod sdr_reliable;
pub(crate) mod sdr_sends;
pub(crate) mod strings;
pub(crate) mod unsupported;
pub(crate) mod vendor;
pub(crate) mod wrapped;
