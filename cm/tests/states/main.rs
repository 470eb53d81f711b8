//! Two communication managers, message by message: what each state does with each message, lost, doubled or late.

mod backup;
mod bounds;
mod common;
mod connect;
mod disconnect;
mod patience;
mod reject;
mod sidr;
mod stale;
