//! Groups in captures around a switch that copies packets (MC-RDMA): which packets are copies of which, and whose acknowledgements became one.
//!
//! Nothing in a packet says that it is a copy. Its sender, UDP source port, PSN, opcode and payload are those of another one, seen
//! at another place, and its destination is not: that is what a copy is. So groups are found where a capture was taken at
//! several places: interfaces of a switch, or links with a file each.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;

use softnic_wire::aeth::Syndrome;
use softnic_wire::opcode::{Kind, Service};
use softnic_wire::{Opcode, Psn, Qpn};

use crate::PacketNumber;
use crate::decode::{Dissection, IcrcVerdict};
use crate::reader::Frame;

/// Requests that are remembered, to know their copies.
const REMEMBERED: usize = 1 << 16;
/// Groups that are followed.
const MAX_GROUPS: usize = 4096;
/// Receivers of a group that are followed.
const MAX_MEMBERS: usize = 256;

/// Where a frame was seen: one interface of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place(Option<u16>, Option<u32>);

impl Place {
    /// Of a frame.
    pub fn of(frame: &Frame<'_>) -> Place {
        Place(PacketNumber(frame.number).file(), frame.interface)
    }

    /// Whether there may be another one.
    pub fn is_one_of_several(self) -> bool {
        self.0.is_some() || self.1.is_some()
    }
}

/// What a packet is to a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupPacket {
    /// The sender's address.
    pub sender: IpAddr,
    /// The destination of the sender's packets, which is no receiver's queue pair.
    pub mc_id: Qpn,
    /// What it is.
    pub part: GroupPart,
}

/// What a packet is to its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupPart {
    /// The sender's own.
    Sent,
    /// A copy for a receiver.
    Copy(IpAddr),
    /// A copy that another switch copies again; the first of those it is for.
    Branch(IpAddr),
    /// What a receiver says.
    Said {
        /// The receiver.
        member: IpAddr,
        /// All receivers have everything up to this one; unknown before all have spoken.
        merged: Option<Psn>,
    },
    /// What the sender is told for all: they have everything up to this one. A congestion notification says nothing of the kind.
    Merged(Option<Psn>),
}

impl GroupPart {
    /// In a word.
    pub fn name(&self) -> &'static str {
        match self {
            GroupPart::Sent => "sent",
            GroupPart::Copy(_) => "copy",
            GroupPart::Branch(_) => "branch",
            GroupPart::Said { .. } => "said",
            GroupPart::Merged(_) => "merged",
        }
    }

    /// The receiver that it is for or from.
    pub fn member(&self) -> Option<IpAddr> {
        match *self {
            GroupPart::Copy(member) | GroupPart::Branch(member) | GroupPart::Said { member, .. } => Some(member),
            GroupPart::Sent | GroupPart::Merged(_) => None,
        }
    }

    /// Up to where all receivers have everything, as far as it tells.
    pub fn merged_psn(&self) -> Option<Psn> {
        match *self {
            GroupPart::Said { merged, .. } | GroupPart::Merged(merged) => merged,
            _ => None,
        }
    }
}

/// As in `group 10.0.0.1/0x777777 copy 10.0.0.3`.
impl fmt::Display for GroupPacket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {}/{} {}", self.sender, self.mc_id, self.part.name())?;
        if let Some(member) = self.part.member() {
            write!(f, " {member}")?;
        }
        match self.part.merged_psn() {
            Some(psn) => write!(f, " all to {psn}"),
            None => Ok(()),
        }
    }
}

/// A receiver of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupMember {
    /// Its queue pair; that of copies for several is no receiver's.
    pub qpn: Option<Qpn>,
    /// It has said that it has everything up to this one.
    pub acked: Option<Psn>,
}

/// A group that was found.
#[derive(Debug, Clone)]
pub struct Group {
    /// The sender's address.
    pub sender: IpAddr,
    /// The destination of the sender's packets.
    pub mc_id: Qpn,
    /// The sender's queue pair, once a receiver has answered.
    pub sender_qpn: Option<Qpn>,
    /// Its receivers.
    pub members: BTreeMap<IpAddr, GroupMember>,
    /// Packets of the sender's.
    pub sent: u64,
    /// Copies of them, those that are copied again among them.
    pub copies: u64,
    /// What receivers said.
    pub said: u64,
    /// What of this the sender was told.
    pub merged: u64,
    /// The destination of the sender's packets, which is the first receiver's address.
    first: IpAddr,
    /// Where the sender's packets are seen.
    place: Place,
    /// Of the sender's packets: the first one seen, and the furthest.
    psns: Option<(Psn, Psn)>,
}

/// What is the same in a packet and its copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Request {
    src: IpAddr,
    src_port: Option<u16>,
    opcode: u8,
    psn: u32,
    payload: u64,
}

/// Where a request went when it was seen first.
#[derive(Debug, Clone, Copy)]
struct Origin {
    dst: IpAddr,
    dest_qp: Qpn,
    place: Place,
}

/// Finds the groups of captures.
#[derive(Debug, Default)]
pub struct Groups {
    groups: Vec<Group>,
    /// By sender, first receiver and MC_ID.
    by_sender: HashMap<(IpAddr, IpAddr, Qpn), usize>,
    /// By sender and its queue pair.
    by_answers: HashMap<(IpAddr, Qpn), usize>,
    requests: HashMap<Request, Origin>,
    order: VecDeque<Request>,
}

impl Groups {
    /// All that were found, in the order of their first copies.
    pub fn found(&self) -> &[Group] {
        &self.groups
    }

    /// Forgets what was counted, and keeps who is in which group: for a second run over the same captures.
    pub fn begin_again(&mut self) {
        self.requests.clear();
        self.order.clear();
        for group in &mut self.groups {
            (group.sent, group.copies, group.said, group.merged) = (0, 0, 0, 0);
            group.psns = None;
            group.members.values_mut().for_each(|member| member.acked = None);
        }
    }

    /// What a packet is to a group. The sender's first packet tells nothing: its copies do. One that was seen elsewhere, too, passes
    /// a switch as it is: it is `seen` the second time, and counts once.
    pub fn add(&mut self, place: Place, seen: bool, p: &Dissection<'_>) -> Option<GroupPacket> {
        if !place.is_one_of_several() || p.icrc == IcrcVerdict::Bad {
            return None;
        }
        let opcode = p.opcode?;
        match opcode.kind() {
            Kind::Send | Kind::Write if opcode.service() == Service::Rc => self.request(place, seen, p, opcode),
            Kind::CongestionNotification => self.answer(place, seen, p, None),
            _ if opcode == Opcode::RC_ACKNOWLEDGE => {
                let psn = p.psn?;
                let has = match p.ext.aeth?.syndrome {
                    Syndrome::Ack(_) => psn,
                    _ => psn.sub(1), // a NAK is an acknowledgement of all before it
                };
                self.answer(place, seen, p, Some((psn, has)))
            }
            _ => None,
        }
    }

    fn request(&mut self, place: Place, seen: bool, p: &Dissection<'_>, opcode: Opcode) -> Option<GroupPacket> {
        let (dest_qp, psn) = (p.dest_qp?, p.psn?);
        let key = Request { src: p.src, src_port: p.src_port, opcode: opcode.0, psn: psn.value(), payload: digest(p) };
        if let Some(&index) = self.by_sender.get(&(p.src, p.dst, dest_qp))
            && self.groups[index].place == place
        {
            let group = &mut self.groups[index];
            group.sent += 1;
            group.saw(psn);
            let packet = group.packet(GroupPart::Sent);
            self.remember(key, Origin { dst: p.dst, dest_qp, place });
            return Some(packet);
        }
        let origin = match self.requests.get(&key) {
            Some(origin) => *origin,
            None => {
                self.remember(key, Origin { dst: p.dst, dest_qp, place });
                return None;
            }
        };
        let is_same = (origin.dst, origin.dest_qp) == (p.dst, dest_qp);
        let known = self.by_sender.get(&(p.src, origin.dst, origin.dest_qp)).copied();
        if origin.place == place || is_same && known.is_none() {
            return None; // sent again, or forwarded
        }
        let index = known.or_else(|| self.begin(p.src, origin, psn))?;
        let group = &mut self.groups[index];
        group.copies += u64::from(!seen);
        let part = if dest_qp == group.mc_id { GroupPart::Branch(p.dst) } else { GroupPart::Copy(p.dst) };
        let qpn = (dest_qp != group.mc_id).then_some(dest_qp);
        if group.members.len() < MAX_MEMBERS {
            let member = group.members.entry(p.dst).or_insert(GroupMember { qpn, acked: None });
            member.qpn = qpn.or(member.qpn);
        }
        Some(group.packet(part))
    }

    /// A group of which the first copy was seen.
    fn begin(&mut self, sender: IpAddr, origin: Origin, psn: Psn) -> Option<usize> {
        if self.groups.len() >= MAX_GROUPS {
            return None;
        }
        let index = self.groups.len();
        self.by_sender.insert((sender, origin.dst, origin.dest_qp), index);
        self.groups.push(Group {
            sender,
            mc_id: origin.dest_qp,
            sender_qpn: None,
            members: BTreeMap::new(),
            sent: 1,
            copies: 0,
            said: 0,
            merged: 0,
            first: origin.dst,
            place: origin.place,
            psns: Some((psn, psn)),
        });
        Some(index)
    }

    /// What somebody says to a group's sender: a PSN, and up to where everything is there.
    fn answer(
        &mut self,
        place: Place,
        seen: bool,
        p: &Dissection<'_>,
        said: Option<(Psn, Psn)>,
    ) -> Option<GroupPacket> {
        let dest_qp = p.dest_qp?;
        let index = match self.by_answers.entry((p.dst, dest_qp)) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(unknown) => {
                let (psn, _) = said?;
                let is_free = |g: &Group| g.sender == p.dst && g.sender_qpn.is_none();
                let fits = |g: &Group| is_free(g) && g.place != place && g.expects(p.src, psn);
                let index = self.groups.iter().position(fits)?;
                self.groups[index].sender_qpn = Some(dest_qp);
                *unknown.insert(index)
            }
        };
        let group = &mut self.groups[index];
        if place == group.place {
            if p.src != group.first {
                return None;
            }
            group.merged += 1;
            return Some(group.packet(GroupPart::Merged(said.map(|(_, has)| has))));
        }
        let member = group.members.get_mut(&p.src)?;
        group.said += u64::from(!seen);
        if let Some((_, has)) = said
            && member.acked.is_none_or(|acked| has.is_after(acked))
        {
            member.acked = Some(has);
        }
        let merged = group.minimum();
        Some(group.packet(GroupPart::Said { member: p.src, merged }))
    }

    fn remember(&mut self, key: Request, origin: Origin) {
        if self.requests.insert(key, origin).is_some() {
            return;
        }
        self.order.push_back(key);
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.requests.remove(&oldest);
        }
    }
}

impl Group {
    fn packet(&self, part: GroupPart) -> GroupPacket {
        GroupPacket { sender: self.sender, mc_id: self.mc_id, part }
    }

    fn saw(&mut self, psn: Psn) {
        self.psns = Some(match self.psns {
            None => (psn, psn),
            Some((first, last)) => (first, if psn.is_after(last) { psn } else { last }),
        });
    }

    /// Whether a receiver may answer with this PSN.
    fn expects(&self, member: IpAddr, psn: Psn) -> bool {
        let within = |(first, last): (Psn, Psn)| !psn.is_before(first) && !psn.is_after(last);
        self.members.contains_key(&member) && self.psns.is_some_and(within)
    }

    /// Up to where all receivers have everything.
    pub fn minimum(&self) -> Option<Psn> {
        let mut all = self.members.values().filter(|m| m.qpn.is_some()).map(|m| m.acked);
        let first = all.next()??;
        all.try_fold(first, |min, acked| acked.map(|acked| if acked.is_before(min) { acked } else { min }))
    }
}

fn digest(p: &Dissection<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    (p.payload_len, p.payload).hash(&mut hasher);
    hasher.finish()
}
