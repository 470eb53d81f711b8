//! Several NICs behind one wire port, each as if of a process of its own: frames find their NIC by the rules of [`softnic_nic::sharing`].
//!
//! All NICs have the port's addresses. A frame to one of these addresses, of whichever NIC, leaves by [`Nic::LOOPBACK`] and comes back there, by a link if there is one; all others leave by
//! [`Nic::WIRE`]. A frame to a group leaves by the wire, and the other NICs with members get it at once.

use std::collections::BTreeMap;

use softnic_nic::sharing::{Addressee, Process, addressee};
use softnic_nic::{Nic, Port};
use softnic_wire::mad::ip_cm::ServiceId;
use softnic_wire::{Instant, Layout, Node, TxFrame};

use crate::node::SimNode;

/// What a shared port counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SharedPortCounters {
    /// Frames from one NIC of the port to another one, or to itself.
    pub local: u64,
    /// Frames that a member of a group got from another NIC of the port, or from the wire.
    pub to_members: u64,
    /// Frames that no NIC could have: no queue pair of such a number, no listener of such a service, no member of such a group.
    pub nobody: u64,
}

/// A frame of a NIC that leaves by the other port than the one that was asked.
struct Held {
    exit: usize,
    bytes: Vec<u8>,
    wire_len: usize,
}

struct Seat {
    process: Process,
    nic: Nic,
    held: Option<Held>,
}

/// A wire port with several NICs.
pub struct SharedPort {
    port: Port,
    seats: Vec<Seat>,
    services: BTreeMap<u64, Process>,
    /// The NIC that is asked first for the next frame.
    turn: usize,
    /// Where a NIC writes a frame before anybody knows where it leaves.
    scratch: Vec<u8>,
    counters: SharedPortCounters,
}

impl SharedPort {
    /// A port without NICs, for frames of at most `max_frame` bytes.
    pub fn new(port: Port, max_frame: usize) -> SharedPort {
        SharedPort {
            port,
            seats: Vec::new(),
            services: BTreeMap::new(),
            turn: 0,
            scratch: vec![0; max_frame],
            counters: SharedPortCounters::default(),
        }
    }

    /// Puts a NIC with the port's addresses behind the port, before the NIC has queue pairs; its place.
    pub fn add(&mut self, process: Process, mut nic: Nic) -> usize {
        nic.share_addresses();
        nic.set_owner(process.owner(0, 0));
        self.seats.push(Seat { process, nic, held: None });
        self.seats.len() - 1
    }

    /// A NIC, by its place.
    pub fn nic_at(&mut self, place: usize) -> Option<&mut Nic> {
        self.seats.get_mut(place).map(|seat| &mut seat.nic)
    }

    /// Requests for a service are for this process from now on.
    pub fn listen(&mut self, service: ServiceId, process: Process) {
        self.services.insert(service.0, process);
    }

    /// What the port counted.
    pub fn counters(&self) -> SharedPortCounters {
        self.counters
    }

    /// Hands a frame to the NICs that it is for.
    fn hand(&mut self, now: Instant, frame: &mut [u8]) {
        let Ok(layout) = Layout::locate(frame) else {
            self.counters.nobody += 1;
            return;
        };
        let process = match addressee(frame, &layout) {
            Addressee::Process(process) => Some(process),
            Addressee::Service(service) => self.services.get(&service.0).copied(),
            Addressee::Nobody => None,
            Addressee::Everybody => return self.hand_to_members(now, frame, &layout, None),
        };
        match self.seats.iter_mut().find(|seat| Some(seat.process) == process) {
            Some(seat) => seat.nic.handle_frame(now, Nic::WIRE, frame),
            None => self.counters.nobody += 1,
        }
    }

    /// Hands a frame to all NICs with members of its group, but not to the one that sent it.
    fn hand_to_members(&mut self, now: Instant, frame: &[u8], layout: &Layout, sender: Option<usize>) {
        let group = layout.addresses(frame).map(|(_, group)| group);
        let mut found = false;
        for (place, seat) in self.seats.iter_mut().enumerate() {
            if Some(place) != sender && seat.nic.multicast_groups().any(|of| Some(of) == group) {
                // A NIC may write to its frame.
                seat.nic.handle_frame(now, Nic::WIRE, &mut frame.to_vec());
                self.counters.to_members += 1;
                found = true;
            }
        }
        self.counters.nobody += u64::from(!found && sender.is_none());
    }

    /// The next frame of a NIC, and the port that the frame leaves by.
    fn next_of(&mut self, now: Instant, place: usize) -> Option<Held> {
        if let Some(held) = self.seats[place].held.take() {
            return Some(held);
        }
        let mut tx = TxFrame::new(&mut self.scratch);
        if !self.seats[place].nic.poll_transmit(now, Nic::WIRE, &mut tx) {
            return None;
        }
        let wire_len = tx.wire_len();
        let bytes = tx.segments().0.to_vec();
        let mut exit = Nic::WIRE;
        if let Ok(layout) = Layout::locate(&bytes) {
            let to = layout.addresses(&bytes).map(|(_, to)| to);
            if to.is_some_and(|to| self.port.addresses.contains(&to)) {
                exit = Nic::LOOPBACK;
                self.counters.local += 1;
            } else if addressee(&bytes, &layout) == Addressee::Everybody {
                self.hand_to_members(now, &bytes, &layout, Some(place));
            }
        }
        Some(Held { exit, bytes, wire_len })
    }
}

impl Node for SharedPort {
    fn handle_frame(&mut self, now: Instant, _port: usize, frame: &mut [u8]) {
        self.hand(now, frame);
    }

    fn poll_transmit(&mut self, now: Instant, port: usize, tx: &mut TxFrame<'_>) -> bool {
        for _ in 0..self.seats.len() {
            let place = self.turn;
            self.turn = (self.turn + 1) % self.seats.len();
            match self.next_of(now, place) {
                // A frame that is too long is lost, as it would be on a wire.
                Some(held) if held.exit == port && tx.put_frame_elided(&held.bytes, held.wire_len).is_ok() => {
                    return true;
                }
                Some(held) if held.exit != port => self.seats[place].held = Some(held),
                _ => {}
            }
        }
        false
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.seats.iter().filter_map(|seat| seat.nic.poll_timeout()).min()
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.seats.iter_mut().for_each(|seat| seat.nic.handle_timeout(now));
    }
}

impl SimNode for SharedPort {
    fn nic(&mut self) -> Option<&mut Nic> {
        self.nic_at(0)
    }

    fn nic_at(&mut self, place: usize) -> Option<&mut Nic> {
        SharedPort::nic_at(self, place)
    }
}
