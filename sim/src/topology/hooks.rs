//! What can be joined to a run of a topology: a look at its progress and its queues, a capture, Nodes of one's own.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use softnic_nic::Nic;
use softnic_pcaps::{LinkType, PcapngWriter, Timestamp};

use super::Topology;
use crate::Time;
use crate::node::SimNode;
use crate::simulator::Tap;
use softnic_switch::Switch;

/// What is joined to a run; by default nothing.
#[derive(Default)]
pub struct Hooks<'h> {
    /// Is told now and then how many work requests have ended.
    pub progress: Option<&'h mut dyn FnMut(u64)>,
    /// Is asked as often whether to end the run; what was done until then is reported.
    pub stop: Option<&'h dyn Fn() -> bool>,
    /// Is shown once in each interval how things stand; that changes nothing.
    pub observe: Option<(Duration, &'h mut dyn FnMut(Sample))>,
    /// Where the frames of the links go to.
    pub capture: Option<Capture<'h>>,
    /// Makes the Node of a host, by its index, from its NIC: for software on it.
    pub host: Option<&'h mut dyn FnMut(usize, Nic) -> Box<dyn SimNode>>,
    /// Makes the Node of a switch, by its index, from one that has no ports yet: for another kind of switch, which has this one in it
    /// ([`SimNode::switch`]) and does more.
    pub switch: Option<&'h mut dyn FnMut(usize, Switch) -> Box<dyn SimNode>>,
}

/// How things stand at a point in time.
#[derive(Debug, Clone)]
pub struct Sample {
    /// When.
    pub at: Time,
    /// Bytes that each host has sent so far, everything on the wire counted.
    pub sent: Vec<u64>,
    /// Bytes that wait before each port of the switches, in the order of [`TopologyReport::ports`](super::TopologyReport::ports).
    pub queues: Vec<u64>,
}

/// A capture of links: a pcapng file with an interface for each link. A frame is in it once for each link that it leaves on.
pub struct Capture<'c> {
    /// Gets the file; give it a buffer, and flush it afterwards.
    pub out: &'c mut dyn io::Write,
    /// The index of the one link whose frames are written; `None` for all links.
    pub link: Option<usize>,
}

impl<'c> Capture<'c> {
    /// Writes the head of the file; what writes the frames. An error is left in `written`, and nothing is written after it.
    pub(super) fn start<'w>(self, topology: &Topology, written: Rc<RefCell<io::Result<()>>>) -> io::Result<Tap<'w>>
    where
        'c: 'w,
    {
        let mut pcap = PcapngWriter::new(self.out)?;
        let mut interfaces = Vec::new();
        for link in 0..topology.links.len() {
            let wanted = self.link.is_none_or(|only| only == link);
            let name = topology.link_name(link);
            interfaces.push(if wanted { Some(pcap.add_interface(LinkType::Ethernet, &name)?) } else { None });
        }
        Ok(Box::new(move |sent| {
            // Each link has two directions.
            let Some(Some(interface)) = interfaces.get(sent.link / 2) else { return };
            if written.borrow().is_ok() {
                let at = Timestamp::from_nanos(i128::from(sent.at.0 / 1000));
                *written.borrow_mut() = pcap.write(*interface, at, sent.frame, sent.wire_len as u32);
            }
        }))
    }
}
