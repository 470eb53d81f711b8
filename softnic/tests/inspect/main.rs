//! `softnic inspect` as people and scripts use it: the built program, its output, its exit code.

mod auth;
mod damage;
mod failover;
mod files;
mod groups;
mod human;
mod json;
mod links;
mod live;
mod lowar;
mod program;
mod sdr;
mod sr;
mod xp;
