//! The daemon's changes to the kernel's network: veth pairs, and programs on devices. Programs are attached by netlink rather than by links
//! of bpf(2), so that a program stays as long as its device: neither the daemon's end nor a client's detaches it.

use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::io::Errno;

use crate::host_network::netlink::Netlink;
use crate::host_network::rtnetlink::attributes::Attributes;
use crate::host_network::rtnetlink::filter::{
    Place, TCA_BPF_FD, TCA_BPF_FLAG_ACT_DIRECT, TCA_BPF_FLAGS, TCA_BPF_NAME, TCA_KIND, TCA_OPTIONS,
};
use crate::host_network::rtnetlink::link::{
    IFF_NOARP, IFF_UP, IFLA_AF_SPEC, IFLA_IFNAME, IFLA_INET6_ADDR_GEN_MODE, IFLA_INFO_DATA, IFLA_INFO_KIND,
    IFLA_LINKINFO, IFLA_MTU, IFLA_NET_NS_FD, IFLA_NUM_RX_QUEUES, IFLA_NUM_TX_QUEUES, IFLA_XDP, IFLA_XDP_FD,
    IFLA_XDP_FLAGS, IN6_ADDR_GEN_MODE_NONE, LinkMessage, VETH_INFO_PEER, of_link, with_flags,
};
use crate::host_network::rtnetlink::{
    AF_INET6, Message, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, RTM_DELLINK, RTM_DELQDISC, RTM_DELTFILTER, RTM_GETLINK,
    RTM_GETTFILTER, RTM_NEWLINK, RTM_NEWQDISC, RTM_NEWTFILTER, RTM_SETLINK, Request,
};

/// The clsact qdisc, and its parent for the filters of incoming frames.
const CLSACT: u32 = 0xffff_fff1;
const INGRESS: u32 = 0xffff_fff2;
/// The preference of the filter among the filters of a device: few others run before it.
const PREFERENCE: u32 = 4791;
const HANDLE: u32 = 1;
/// All protocols, as the filters encode them.
const ETH_P_ALL: u16 = 0x0003;
/// Larger than every RoCE packet.
const INNER_MTU: u32 = 9216;
/// Flags for attaching a program: do not replace another program, and attach in the driver.
const XDP_IF_NONE: u32 = 1 << 0;
const XDP_NATIVE: u32 = 1 << 2;

/// The devices of one network namespace: that of the thread which opened this.
#[derive(Debug)]
pub(super) struct Links(Netlink);

/// A veth pair to create; frames that are sent by one end arrive at the other.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair<'a> {
    pub(super) inner: &'a str,
    pub(super) outer: &'a str,
    /// The network namespace of the outer end.
    pub(super) outside: BorrowedFd<'a>,
    pub(super) queues: u32,
    /// The longest packet that the outer end accepts from the inner end. In the other direction all RoCE packets fit.
    pub(super) mtu: u32,
}

impl Links {
    pub(super) fn open() -> Result<Links, Errno> {
        Netlink::open().map(Links)
    }

    fn change(&mut self, kind: u16, what: Attributes, flags: u16) -> Result<(), Errno> {
        self.0.ask(&Request::new(kind, what), flags).map(drop)
    }

    fn get(&mut self, question: Attributes) -> Result<LinkMessage, Errno> {
        let answers = self.0.ask(&Request::new(RTM_GETLINK, question), 0)?;
        let link = |answer| if let Message::NewLink(link) = answer { Some(link) } else { None };
        answers.into_iter().find_map(link).ok_or(Errno::BADMSG)
    }

    /// The interface index of a device, if there is one of that name.
    pub(super) fn index(&mut self, name: &str) -> Result<Option<u32>, Errno> {
        match self.get(of_link(0).with_text(IFLA_IFNAME, name)) {
            Ok(link) => Ok(Some(link.index)),
            Err(Errno::NODEV) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether a device with that interface index exists.
    pub(super) fn exists(&mut self, index: u32) -> Result<bool, Errno> {
        match self.get(of_link(index)) {
            Ok(_) => Ok(true),
            Err(Errno::NODEV) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Creates a pair, with the inner end in this namespace.
    pub(super) fn make_pair(&mut self, pair: Pair<'_>) -> Result<(), Errno> {
        let end = |name: &str, mtu| {
            of_link(0)
                .with_text(IFLA_IFNAME, name)
                .with_u32(IFLA_MTU, mtu)
                .with_u32(IFLA_NUM_TX_QUEUES, pair.queues)
                .with_u32(IFLA_NUM_RX_QUEUES, pair.queues)
        };
        let outer = end(pair.outer, pair.mtu).with(IFLA_NET_NS_FD, &pair.outside.as_raw_fd().to_ne_bytes());
        let data = Attributes::default().with_nested(VETH_INFO_PEER, &outer);
        let info = Attributes::default().with_text(IFLA_INFO_KIND, "veth").with_nested(IFLA_INFO_DATA, &data);
        let inner = end(pair.inner, INNER_MTU).with_nested(IFLA_LINKINFO, &info);
        self.change(RTM_NEWLINK, inner, NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Brings a device up, without any traffic of the kernel's own: the device has no addresses, and resolves none.
    pub(super) fn bring_up(&mut self, index: u32) -> Result<(), Errno> {
        let none = Attributes::default().with(IFLA_INET6_ADDR_GEN_MODE, &[IN6_ADDR_GEN_MODE_NONE]);
        let of_ipv6 = Attributes::default().with_nested(AF_INET6.into(), &none);
        // A kernel without IPv6 sends no such traffic anyway.
        let _ = self.change(RTM_SETLINK, of_link(index).with_nested(IFLA_AF_SPEC, &of_ipv6), 0);
        let flags = IFF_UP | IFF_NOARP;
        self.change(RTM_SETLINK, with_flags(index, flags, flags), 0)
    }

    /// Changes the MTU of a device.
    pub(super) fn set_mtu(&mut self, index: u32, mtu: u32) -> Result<(), Errno> {
        self.change(RTM_SETLINK, of_link(index).with_u32(IFLA_MTU, mtu), 0)
    }

    /// Deletes a device, and with it the other end of its pair.
    pub(super) fn delete(&mut self, index: u32) -> Result<(), Errno> {
        match self.change(RTM_DELLINK, of_link(index), 0) {
            Err(Errno::NODEV) => Ok(()),
            result => result,
        }
    }

    /// The id of the XDP program on a device.
    pub(super) fn xdp_of(&mut self, index: u32) -> Result<Option<u32>, Errno> {
        Ok(self.get(of_link(index))?.xdp_program.filter(|&id| id != 0))
    }

    /// Attaches an XDP program in the driver of a device that has none.
    pub(super) fn attach_xdp(&mut self, index: u32, program: BorrowedFd<'_>) -> Result<(), Errno> {
        self.set_xdp(index, program.as_raw_fd(), XDP_IF_NONE | XDP_NATIVE)
    }

    /// Detaches the XDP program from the driver of a device.
    pub(super) fn detach_xdp(&mut self, index: u32) -> Result<(), Errno> {
        self.set_xdp(index, -1, XDP_NATIVE)
    }

    fn set_xdp(&mut self, index: u32, fd: i32, flags: u32) -> Result<(), Errno> {
        let xdp = Attributes::default().with(IFLA_XDP_FD, &fd.to_ne_bytes()).with_u32(IFLA_XDP_FLAGS, flags);
        self.change(RTM_SETLINK, of_link(index).with_nested(IFLA_XDP, &xdp), 0)
    }

    /// Attaches a classifier for every frame that a device receives. It replaces the classifier that softnic attached before.
    pub(super) fn filter(&mut self, index: u32, program: BorrowedFd<'_>) -> Result<(), Errno> {
        match self.change(RTM_NEWQDISC, clsact(index), NLM_F_CREATE | NLM_F_EXCL) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        let options = Attributes::default()
            .with(TCA_BPF_FD, &program.as_raw_fd().to_ne_bytes())
            .with_text(TCA_BPF_NAME, "softnic")
            .with_u32(TCA_BPF_FLAGS, TCA_BPF_FLAG_ACT_DIRECT);
        let filter = our_filter(index).with_nested(TCA_OPTIONS, &options);
        self.change(RTM_NEWTFILTER, filter, NLM_F_CREATE | NLM_F_REPLACE)
    }

    /// The filters of a device under `parent`.
    fn filters(&mut self, index: u32, parent: u32) -> Result<Vec<Message>, Errno> {
        let place = Place { index, parent, ..Place::default() };
        self.0.dump(&Request::new(RTM_GETTFILTER, place.attributes()))
    }

    /// The id of the classifier that softnic attached.
    pub(super) fn filter_of(&mut self, index: u32) -> Result<Option<u32>, Errno> {
        let filters = match self.filters(index, INGRESS) {
            // The device has no clsact qdisc.
            Err(Errno::INVAL | Errno::NOENT) => return Ok(None),
            filters => filters?,
        };
        let ours = our_place(index);
        Ok(filters.iter().find_map(|answer| match answer {
            Message::NewFilter(filter) if (filter.place.info, filter.place.handle) == (ours.info, ours.handle) => {
                filter.program
            }
            _ => None,
        }))
    }

    /// Removes softnic's classifier, and the qdisc if no other filter uses it.
    pub(super) fn unfilter(&mut self, index: u32) -> Result<(), Errno> {
        match self.change(RTM_DELTFILTER, our_filter(index), 0) {
            Ok(()) | Err(Errno::NOENT | Errno::INVAL | Errno::NODEV) => {}
            Err(error) => return Err(error),
        }
        for parent in [INGRESS, INGRESS + 1] {
            if !self.filters(index, parent)?.is_empty() {
                return Ok(());
            }
        }
        match self.change(RTM_DELQDISC, clsact(index), 0) {
            Err(Errno::NOENT | Errno::INVAL | Errno::NODEV) => Ok(()),
            result => result,
        }
    }
}

fn clsact(index: u32) -> Attributes {
    let place = Place { index, handle: CLSACT & 0xffff_0000, parent: CLSACT, info: 0 };
    place.attributes().with_text(TCA_KIND, "clsact")
}

/// The position of softnic's filter on a device.
fn our_place(index: u32) -> Place {
    Place { index, handle: HANDLE, parent: INGRESS, info: PREFERENCE << 16 | u32::from(ETH_P_ALL.to_be()) }
}

fn our_filter(index: u32) -> Attributes {
    our_place(index).attributes().with_text(TCA_KIND, "bpf")
}
