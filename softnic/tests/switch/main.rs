//! `softnic switch` as people and scripts use it. What needs root and `ip` says on stderr that it was left out without
//! them.

mod forwarding;
mod groups;
#[path = "../common/namespaces.rs"]
mod namespaces;
mod star;
mod trouble;
