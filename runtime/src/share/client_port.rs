//! The port of a client: a veth pair, and the queues on its inner end.

use std::os::fd::AsFd;

use super::error::ShareError;
use super::links::{Links, Pair};
use super::namespace;
use crate::afxdp::{Device, Handed, redirect_to_sockets};

/// The name of the inner end, in a network namespace that contains no other device.
const INNER: &str = "port";
/// Number of chunks of a client for incoming frames and for frames to send, for each queue; as on a device that is not shared.
const RX_CHUNKS: u32 = 4096;
const TX_CHUNKS: u32 = 512;

/// The queues of a client, to be handed over, and the device by which they are reached.
#[derive(Debug)]
pub(super) struct ClientPort {
    pub(super) outer: u32,
    pub(super) queues: Vec<Handed>,
}

impl ClientPort {
    /// Creates a port. The outer end is a device of that name in this thread's network namespace; it is down.
    pub(super) fn make(links: &mut Links, outer: &str, queues: u32, mtu: u32) -> Result<ClientPort, ShareError> {
        let outside = namespace::here().map_err(ShareError::when("look at the network namespace"))?;
        let pair = Pair { inner: INNER, outer, outside: outside.as_fd(), queues, mtu };
        let made = namespace::in_a_fresh_one(|| make_inner(pair));
        let queues = made.map_err(ShareError::when("make a network namespace"))??;
        let index = links.index(outer).map_err(ShareError::when("find a client's device"))?;
        let outer = index.ok_or(ShareError::System {
            doing: "find a client's device",
            error: std::io::ErrorKind::NotFound.into(),
        })?;
        Ok(ClientPort { outer, queues })
    }
}

/// Creates the pair from its inner end, and the queues there. The queues keep the namespace alive.
fn make_inner(pair: Pair<'_>) -> Result<Vec<Handed>, ShareError> {
    let mut links = Links::open().map_err(ShareError::when("ask the kernel for devices"))?;
    links.make_pair(pair).map_err(ShareError::when("make a pair of devices for a client"))?;
    let device = Device::find(pair.inner)?;
    let (sockets, program) = redirect_to_sockets(pair.queues)?;
    let attach = ShareError::when("attach the XDP program of a client");
    links.attach_xdp(device.ifindex, program.as_fd()).map_err(attach)?;
    links.bring_up(device.ifindex).map_err(ShareError::when("bring up a client's device"))?;
    let queue = |n| Handed::make(&device, n, [RX_CHUNKS, TX_CHUNKS], &sockets).map_err(ShareError::from);
    (0..pair.queues).map(queue).collect()
}
