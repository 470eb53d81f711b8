//! What a daemon changes in the kernel's network: veth pairs, and programs on devices. By netlink and not by links of bpf(2), so that a program
//! stays as long as its device: neither the daemon's end nor a client's takes it away.

use std::os::fd::{AsRawFd, BorrowedFd};

use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE};
use netlink_packet_route::RouteNetlinkMessage::{
    self, DelLink, DelQueueDiscipline, DelTrafficFilter, GetLink, GetTrafficFilter, NewLink, NewQueueDiscipline,
    NewTrafficFilter, SetLink,
};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo, LinkMessage, LinkXdp,
};
use netlink_packet_route::tc::{TcAttribute, TcBpfFlags, TcFilterBpfOption, TcMessage, TcOption};
use rustix::io::Errno;

use crate::host_network::netlink::Netlink;

/// The parent of what stands before and behind a device's own queues, and of its filters for what comes in.
const CLSACT: u32 = 0xffff_fff1;
const INGRESS: u32 = 0xffff_fff2;
/// Our place among the filters of a device: few others stand before it.
const PREFERENCE: u32 = 4791;
const HANDLE: u32 = 1;
/// All protocols, as filters have them.
const ETH_P_ALL: u16 = 0x0003;
/// Longer than every RoCE packet.
const INNER_MTU: u32 = 9216;
/// How a program is attached: not over another, and in the driver.
const XDP_IF_NONE: u32 = 1 << 0;
const XDP_NATIVE: u32 = 1 << 2;

/// The devices of one network namespace: that of the thread which opened this.
#[derive(Debug)]
pub(super) struct Links(Netlink);

/// A pair of devices to make; frames that are sent by one arrive at the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair<'a> {
    pub(super) inner: &'a str,
    pub(super) outer: &'a str,
    /// The network namespace of the outer one.
    pub(super) outside: BorrowedFd<'a>,
    pub(super) queues: u32,
    /// The longest packets that the outer one takes from the inner one; the other way all go that RoCE has.
    pub(super) mtu: u32,
}

impl Links {
    pub(super) fn open() -> Result<Links, Errno> {
        Netlink::open().map(Links)
    }

    fn change(&mut self, message: RouteNetlinkMessage, flags: u16) -> Result<(), Errno> {
        self.0.ask(message, flags).map(drop)
    }

    fn get(&mut self, question: LinkMessage) -> Result<LinkMessage, Errno> {
        let answers = self.0.ask(GetLink(question), 0)?;
        let link = answers.into_iter().find_map(|answer| if let NewLink(link) = answer { Some(link) } else { None });
        link.ok_or(Errno::BADMSG)
    }

    /// The number of a device, if there is one of that name.
    pub(super) fn index(&mut self, name: &str) -> Result<Option<u32>, Errno> {
        let mut question = LinkMessage::default();
        question.attributes.push(LinkAttribute::IfName(name.into()));
        match self.get(question) {
            Ok(link) => Ok(Some(link.header.index)),
            Err(Errno::NODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether there is a device of that number.
    pub(super) fn exists(&mut self, index: u32) -> Result<bool, Errno> {
        match self.get(of(index)) {
            Ok(_) => Ok(true),
            Err(Errno::NODEV) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes a pair, the inner one here.
    pub(super) fn make_pair(&mut self, pair: Pair<'_>) -> Result<(), Errno> {
        let end = |name: &str, mtu| {
            let mut link = LinkMessage::default();
            link.attributes = vec![
                LinkAttribute::IfName(name.into()),
                LinkAttribute::Mtu(mtu),
                LinkAttribute::NumTxQueues(pair.queues),
                LinkAttribute::NumRxQueues(pair.queues),
            ];
            link
        };
        let (mut inner, mut outer) = (end(pair.inner, INNER_MTU), end(pair.outer, pair.mtu));
        outer.attributes.push(LinkAttribute::NetNsFd(pair.outside.as_raw_fd()));
        let data = InfoData::Veth(InfoVeth::Peer(outer));
        inner.attributes.push(LinkAttribute::LinkInfo(vec![LinkInfo::Kind(InfoKind::Veth), LinkInfo::Data(data)]));
        self.change(NewLink(inner), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Brings a device up, on which the kernel itself says nothing: it has no addresses, and asks nobody for theirs.
    pub(super) fn bring_up(&mut self, index: u32) -> Result<(), Errno> {
        let mut silent = of(index);
        let none = AfSpecInet6::AddrGenMode(netlink_packet_route::link::In6AddrGenMode::None);
        silent.attributes.push(LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![none])]));
        // A kernel without IPv6 says nothing in it anyway.
        let _ = self.change(SetLink(silent), 0);
        let mut up = of(index);
        up.header.flags = LinkFlags::Up | LinkFlags::Noarp;
        up.header.change_mask = LinkFlags::Up | LinkFlags::Noarp;
        self.change(SetLink(up), 0)
    }

    /// Changes the MTU of a device.
    pub(super) fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<(), Errno> {
        let mut link = of(index);
        link.attributes.push(LinkAttribute::Mtu(mtu));
        self.change(SetLink(link), 0)
    }

    /// Deletes a device, and the other end of its pair.
    pub(super) fn delete(&mut self, index: u32) -> Result<(), Errno> {
        match self.change(DelLink(of(index)), 0) {
            Err(Errno::NODEV) => Ok(()),
            result => result,
        }
    }

    /// The id of the XDP program on a device.
    pub(super) fn xdp_of(&mut self, index: u32) -> Result<Option<u32>, Errno> {
        let id = |xdp: &LinkXdp| if let LinkXdp::ProgId(id) = xdp { Some(*id).filter(|&id| id != 0) } else { None };
        let link = self.get(of(index))?;
        Ok(link
            .attributes
            .iter()
            .find_map(|a| if let LinkAttribute::Xdp(xdp) = a { xdp.iter().find_map(id) } else { None }))
    }

    /// Puts an XDP program into the driver of a device that has none.
    pub(super) fn attach_xdp(&mut self, index: u32, program: BorrowedFd<'_>) -> Result<(), Errno> {
        self.set_xdp(index, program.as_raw_fd(), XDP_IF_NONE | XDP_NATIVE)
    }

    /// Takes the XDP program out of the driver of a device.
    pub(super) fn detach_xdp(&mut self, index: u32) -> Result<(), Errno> {
        self.set_xdp(index, -1, XDP_NATIVE)
    }

    fn set_xdp(&mut self, index: u32, fd: i32, flags: u32) -> Result<(), Errno> {
        let mut link = of(index);
        link.attributes.push(LinkAttribute::Xdp(vec![LinkXdp::Fd(fd), LinkXdp::Flags(flags)]));
        self.change(SetLink(link), 0)
    }

    /// Has a program look at every frame that comes in by a device, in place of the one that we put there before.
    pub(super) fn filter(&mut self, index: u32, program: BorrowedFd<'_>) -> Result<(), Errno> {
        match self.change(NewQueueDiscipline(clsact(index)), NLM_F_CREATE | NLM_F_EXCL) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        let mut filter = ours(index);
        let options = [
            TcFilterBpfOption::ProgFd(program.as_raw_fd() as u32),
            TcFilterBpfOption::ProgName("softnic".into()),
            TcFilterBpfOption::Flags(TcBpfFlags::DirectAction),
        ];
        filter.attributes.push(TcAttribute::Options(options.into_iter().map(TcOption::Bpf).collect()));
        self.change(NewTrafficFilter(filter), NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// The id of the program that we put there.
    pub(super) fn filter_of(&mut self, index: u32) -> Result<Option<u32>, Errno> {
        let mut question = TcMessage::with_index(index as i32);
        question.header.parent = INGRESS.into();
        let filters = match self.0.dump(GetTrafficFilter(question)) {
            // Nothing to stand on.
            Err(Errno::INVAL | Errno::NOENT) => return Ok(None),
            filters => filters?,
        };
        let ours = ours(index).header;
        let is_ours = |filter: &TcMessage| filter.header.info == ours.info && filter.header.handle == ours.handle;
        let of_filter = |filter: &TcMessage| {
            filter.attributes.iter().find_map(|a| match a {
                TcAttribute::Options(options) => options.iter().find_map(|option| match option {
                    TcOption::Bpf(TcFilterBpfOption::ProgId(id)) => Some(*id),
                    _ => None,
                }),
                _ => None,
            })
        };
        Ok(filters.iter().find_map(|answer| match answer {
            NewTrafficFilter(filter) if is_ours(filter) => of_filter(filter),
            _ => None,
        }))
    }

    /// Takes that program off again, and what it stood on if nothing else does.
    pub(super) fn unfilter(&mut self, index: u32) -> Result<(), Errno> {
        match self.change(DelTrafficFilter(ours(index)), 0) {
            Ok(()) | Err(Errno::NOENT | Errno::INVAL | Errno::NODEV) => {}
            Err(error) => return Err(error),
        }
        for parent in [INGRESS, INGRESS + 1] {
            let mut question = TcMessage::with_index(index as i32);
            question.header.parent = parent.into();
            if !self.0.dump(GetTrafficFilter(question))?.is_empty() {
                return Ok(());
            }
        }
        match self.change(DelQueueDiscipline(clsact(index)), 0) {
            Err(Errno::NOENT | Errno::INVAL | Errno::NODEV) => Ok(()),
            result => result,
        }
    }
}

fn of(index: u32) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.header.index = index;
    link
}

fn clsact(index: u32) -> TcMessage {
    let mut qdisc = TcMessage::with_index(index as i32);
    (qdisc.header.parent, qdisc.header.handle) = (CLSACT.into(), (CLSACT & 0xffff_0000).into());
    qdisc.attributes.push(TcAttribute::Kind("clsact".into()));
    qdisc
}

/// Our filter on a device.
fn ours(index: u32) -> TcMessage {
    let mut filter = TcMessage::with_index(index as i32);
    (filter.header.parent, filter.header.handle) = (INGRESS.into(), HANDLE.into());
    filter.header.info = PREFERENCE << 16 | u32::from(ETH_P_ALL.to_be());
    filter.attributes.push(TcAttribute::Kind("bpf".into()));
    filter
}
