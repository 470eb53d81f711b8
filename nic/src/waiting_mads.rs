//! MADs of software that wait: to leave, and to be taken.

use std::net::IpAddr;

use softnic_wire::mad::MAD_LEN;
use softnic_wire::{MacAddr, Template};

/// A MAD for software.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceivedMad {
    /// The port of the Node that it came in by.
    pub port: usize,
    /// The sender's address.
    pub src: IpAddr,
    /// The address of ours that it was sent to.
    pub dst: IpAddr,
    /// The MAC address that its frame came from.
    pub src_mac: MacAddr,
    /// The whole MAD.
    pub mad: [u8; MAD_LEN],
}

/// A MAD that waits to leave.
#[derive(Debug, Clone)]
pub(crate) struct PostedMad {
    pub(crate) template: Template,
    pub(crate) mad: [u8; MAD_LEN],
}
