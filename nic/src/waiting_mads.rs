//! MADs of software: those that wait to be sent, and those that wait for the software.

use std::net::IpAddr;

use softnic_wire::mad::MAD_LEN;
use softnic_wire::{MacAddr, Template};

/// A received MAD for software.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedMad {
    /// The port of the Node at which it arrived.
    pub port: usize,
    /// The sender's address.
    pub src: IpAddr,
    /// The local address that it was sent to.
    pub dst: IpAddr,
    /// The source MAC address of its frame.
    pub src_mac: MacAddr,
    /// The whole MAD.
    pub mad: [u8; MAD_LEN],
}

/// A MAD that waits to be sent.
#[derive(Debug, Clone)]
pub(crate) struct PostedMad {
    pub(crate) template: Template,
    pub(crate) mad: [u8; MAD_LEN],
}
