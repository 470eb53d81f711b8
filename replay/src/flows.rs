//! The survey of a capture: which packets belong together, and the numbers that each connection was made with.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use softnic_wire::mad::cm::Message;
use softnic_wire::mad::vendor::{Extensions, Negotiation};
use softnic_wire::opcode::{Kind, Position, Service};
use softnic_wire::{PathMtu, Psn, Qpn};

use crate::capture::{Capture, Packet, Skip};
use crate::peers::PeerKind;
use crate::side::Side;
use crate::{Options, messages, selective, skew};

/// A request packet. PSNs are counted on beyond 24 bits, so that they can be compared plainly.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    /// Index in the capture.
    pub(crate) at: usize,
    pub(crate) psn: i64,
    /// PSNs that it stands for: more than one for a READ.
    pub(crate) span: i64,
}

/// An answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) at: usize,
    pub(crate) psn: i64,
}

/// Requests of one queue pair to another, and the answers to them.
#[derive(Debug)]
pub(crate) struct Flow {
    pub(crate) service: Service,
    pub(crate) requester: IpAddr,
    pub(crate) requester_qp: Option<Qpn>,
    pub(crate) responder: IpAddr,
    pub(crate) responder_qp: Qpn,
    pub(crate) requester_kind: PeerKind,
    pub(crate) responder_kind: PeerKind,
    pub(crate) mtu: PathMtu,
    /// The PSN that the connection began with, where the connection manager or the side file says so.
    pub(crate) start: Option<Psn>,
    pub(crate) requests: Vec<Request>,
    pub(crate) answers: Vec<Answer>,
    /// Acknowledgements of answers: of Selective Repeat only.
    pub(crate) acknowledgements: Vec<Answer>,
    /// Packets that show the responder's program at work: it may have changed its memory by then.
    pub(crate) signs: Vec<usize>,
    /// Its requests were recorded late.
    pub(crate) recorded_late: bool,
    /// LoWAR repairs what is lost of it.
    pub(crate) protected: bool,
    /// Keys of the responder that other flows use too.
    pub(crate) shared_keys: HashSet<u32>,
}

/// Packets from one address to a queue pair of another. The last number tells connections apart that had the same numbers,
/// one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Half {
    src: IpAddr,
    dst: IpAddr,
    qp: Qpn,
    service: u8,
    /// The sender's queue pair: of datagrams only.
    from: Option<Qpn>,
    epoch: usize,
}

/// A queue pair that the connection manager told of.
#[derive(Debug, Clone, Copy)]
struct Announced {
    at: u64,
    addr: IpAddr,
    qp: Qpn,
    psn: Psn,
    mtu: Option<PathMtu>,
    comm_id: u32,
    /// The name that the other side gave the connection: of replies only.
    remote_comm_id: Option<u32>,
    peer: IpAddr,
}

fn announcements(capture: &Capture) -> Vec<Announced> {
    let mut all: Vec<Announced> = Vec::new();
    for p in &capture.management {
        let Ok((_, message)) = Message::parse(p.payload()) else { continue };
        let (comm_id, remote_comm_id, qpn, psn, mtu) = match message {
            Message::Req(r) => {
                (r.local_comm_id, None, r.local_qpn, r.starting_psn, PathMtu::from_code(r.path_mtu.code()))
            }
            Message::Rep(r) => (r.local_comm_id, Some(r.remote_comm_id), r.local_qpn, r.starting_psn, None),
            _ => continue,
        };
        let qp = Qpn::new(qpn);
        // A message of the connection manager may be sent again.
        if !all.iter().any(|a| (a.addr, a.qp, a.comm_id) == (p.src, qp, comm_id)) {
            all.push(Announced { at: p.number, addr: p.src, qp, psn, mtu, comm_id, remote_comm_id, peer: p.dst });
        }
    }
    all
}

/// Upper bits of opcodes.
const RC: u8 = 0;
const SR: u8 = 6;

/// A MAD by which two queue pairs negotiated extensions.
struct Negotiated {
    at: u64,
    src: IpAddr,
    dst: IpAddr,
    sender_qp: Qpn,
    receiver_qp: Qpn,
    selective: bool,
}

impl Negotiated {
    /// Whether the queue pairs of a half spoke of Selective Repeat.
    fn is_of(&self, h: &Half) -> bool {
        let there = (self.src, self.dst, self.receiver_qp);
        let back = (self.dst, self.src, self.sender_qp);
        self.selective && [there, back].contains(&(h.src, h.dst, h.qp))
    }
}

fn negotiations(capture: &Capture) -> Vec<Negotiated> {
    let of = |p: &Packet| {
        let mad = Negotiation::parse(p.payload()).ok()?;
        Some(Negotiated {
            at: p.number,
            src: p.src,
            dst: p.dst,
            sender_qp: Qpn::new(mad.sender_qpn),
            receiver_qp: Qpn::new(mad.receiver_qpn),
            selective: mad.extensions.contains(Extensions::SR),
        })
    };
    capture.management.iter().filter_map(of).collect()
}

/// Packets to queue pairs of SDR-RDMA, as their own end told the other by a MAD: data, and control messages.
pub(crate) fn sdr_packets(capture: &Capture) -> u64 {
    let mut of_sdr: HashSet<(IpAddr, Qpn)> = HashSet::new();
    for p in &capture.management {
        if let Some(info) = Negotiation::parse(p.payload()).ok().and_then(|mad| mad.sdr) {
            let channels = info.generations().flat_map(|generation| generation.channels());
            of_sdr.extend(channels.chain([info.control]).map(|contact| (p.src, contact.qpn)));
        }
    }
    capture.packets.iter().filter(|p| of_sdr.contains(&(p.dst, p.dest_qp))).count() as u64
}

/// The PSN of the request that an answer is about.
fn answered(p: &Packet) -> Psn {
    match (p.opcode.service(), p.opcode.kind()) {
        (Service::Sr, Kind::Acknowledge) => p.psn.add(0xff_ffff),
        (Service::Sr, _) => Psn::new(p.ext.sr.map_or(0, |sr| sr.number)),
        _ => p.psn,
    }
}

/// Sorts the packets of a capture into flows, and says what belongs to none. Answers may stand `early` nanoseconds before their requests.
pub(crate) fn survey(capture: &Capture, side: &Side, options: &Options, early: u64) -> (Vec<Flow>, Vec<Skip>) {
    let announced = announcements(capture);
    let negotiated = negotiations(capture);
    let epoch = |addr: IpAddr, qp: Qpn, number: u64| {
        announced.iter().filter(|a| a.addr == addr && a.qp == qp && a.at < number).count()
    };
    let mut halves: BTreeMap<Half, Vec<usize>> = BTreeMap::new();
    for (i, p) in capture.packets.iter().enumerate() {
        let service = p.opcode.service();
        let half = Half {
            src: p.src,
            dst: if service == Service::Ud { p.src } else { p.dst },
            qp: if service == Service::Ud { Qpn::new(0) } else { p.dest_qp },
            service: p.opcode.0 >> 5,
            from: p.ext.deth.map(|d| d.src_qp),
            epoch: epoch(p.dst, p.dest_qp, p.number),
        };
        halves.entry(half).or_default().push(i);
    }
    let mut paired = pair(&halves, &capture.packets, &announced, &negotiated, epoch, early);
    // Answers before all of their requests belong to them all the same, and are wrong.
    let left = halves.keys().any(|h| matches!(h.service, RC | SR) && !paired.contains_key(h));
    if left && early < skew::MOST {
        for (half, other) in pair(&halves, &capture.packets, &announced, &negotiated, epoch, skew::MOST) {
            if !paired.contains_key(&half) && !paired.contains_key(&other) {
                paired.insert(half, other);
                paired.insert(other, half);
            }
        }
    }
    let kinds = Kinds::new(&halves, &capture.packets, options);
    let mut flows = Vec::new();
    let mut skips = Vec::new();
    let none = Vec::new();
    for (half, list) in &halves {
        if half.service == SR && !options.begins && !negotiated.iter().any(|n| n.is_of(half)) {
            skips.extend(list.iter().map(|_| Skip::SelectiveRepeat));
            continue;
        }
        let is_request = |&&i: &&usize| capture.packets[i].opcode.is_request();
        let requests: Vec<usize> = list.iter().filter(is_request).copied().collect();
        let back = paired.get(half);
        if requests.is_empty() {
            if back.is_none() {
                skips.extend(list.iter().map(|_| Skip::NoRequests));
            }
            continue;
        }
        let back_list = back.and_then(|b| halves.get(b)).unwrap_or(&none);
        let of_responses = |&&i: &&usize| selective::is_of_responses(&capture.packets[i]);
        let is_answer = |i: &&usize| capture.packets[**i].opcode.is_response() && !of_responses(i);
        let answers: Vec<usize> = back_list.iter().filter(is_answer).copied().collect();
        let acknowledgements: Vec<usize> = list.iter().filter(of_responses).copied().collect();
        let first = &capture.packets[requests[0]];
        if matches!(first.dest_qp.value(), 0..2 | 0xff_ffff) && first.opcode.service() != Service::Ud {
            skips.extend(list.iter().map(|_| Skip::NoConnection));
            continue;
        }
        let told = announced.iter().filter(|a| a.addr == half.dst && a.qp == half.qp).nth(half.epoch.wrapping_sub(1));
        let by_side = side.qp(half.dst, half.qp);
        let mtu = by_side
            .and_then(|s| s.mtu())
            .or_else(|| told.and_then(|t| partner_mtu(&announced, t)))
            .unwrap_or_else(|| guess_mtu(&capture.packets, list.iter().chain(back_list)));
        let start = by_side.and_then(|s| s.initial_psn).map(Psn::new).or(told.map(|t| t.psn));
        let uses_receive = |&i: &usize| {
            let op = capture.packets[i].opcode;
            op.kind() == Kind::Send || capture.packets[i].ext.imm.is_some()
        };
        let mut signs: Vec<usize> = requests.iter().copied().filter(uses_receive).collect();
        signs.extend(back_list.iter().filter(is_request));
        signs.sort_unstable();
        let (requests, answers) = number(&capture.packets, &requests, &answers, mtu);
        let acknowledgements = number_acknowledgements(&capture.packets, &requests, &answers, &acknowledgements);
        flows.push(Flow {
            service: first.opcode.service(),
            requester: half.src,
            requester_qp: back.map(|b| b.qp).or(half.from),
            responder: first.dst,
            responder_qp: first.dest_qp,
            requester_kind: kinds.of(half.src),
            responder_kind: kinds.of(half.dst),
            mtu,
            start,
            requests,
            answers,
            acknowledgements,
            signs,
            recorded_late: false,
            protected: false,
            shared_keys: HashSet::new(),
        });
    }
    flows.sort_by_key(|f| f.requests.first().map(|r| r.at));
    mark_shared_keys(&mut flows, &capture.packets);
    (flows, skips)
}

/// The path MTU stands in the request for communication, which is this side's own or the other's.
fn partner_mtu(announced: &[Announced], told: &Announced) -> Option<PathMtu> {
    told.mtu.or_else(|| {
        let request = |a: &&Announced| Some(a.comm_id) == told.remote_comm_id && a.addr == told.peer;
        announced.iter().find(request).and_then(|a| a.mtu)
    })
}

/// What kind of NIC each address has.
struct Kinds {
    forced: Option<PeerKind>,
    by_address: HashMap<IpAddr, PeerKind>,
}

impl Kinds {
    fn new(halves: &BTreeMap<Half, Vec<usize>>, packets: &[Packet], options: &Options) -> Kinds {
        let sources: HashSet<IpAddr> = halves.keys().map(|h| h.src).collect();
        let kind = |src: IpAddr| PeerKind::of(packets.iter().filter(move |p| p.src == src));
        Kinds { forced: options.peer, by_address: sources.into_iter().map(|src| (src, kind(src))).collect() }
    }

    fn of(&self, address: IpAddr) -> PeerKind {
        self.forced.or(self.by_address.get(&address).copied()).unwrap_or(PeerKind::Hardware)
    }
}

/// A request's index, and whose it is.
type Sender<'a> = (usize, &'a Half);

/// Finds the two halves of each connection: by the connection manager's words, by PSNs that answer others, and what is left
/// by the time at which it began.
fn pair(
    halves: &BTreeMap<Half, Vec<usize>>,
    packets: &[Packet],
    announced: &[Announced],
    negotiated: &[Negotiated],
    epoch: impl Fn(IpAddr, Qpn, u64) -> usize + Copy,
    early: u64,
) -> HashMap<Half, Half> {
    let before = |request: usize, answer: usize| {
        request < answer || early > 0 && packets[request].time <= packets[answer].time + early
    };
    let mut pairs: HashMap<Half, Half> = HashMap::new();
    let rc: Vec<&Half> = halves.keys().filter(|h| matches!(h.service, RC | SR)).collect();
    for n in negotiated {
        for service in [RC, SR] {
            let find = |src: IpAddr, dst: IpAddr, qp: Qpn| {
                let same = |h: &&&Half| (h.src, h.dst, h.qp, h.service) == (src, dst, qp, service);
                rc.iter().filter(same).find(|h| h.epoch == epoch(dst, qp, n.at))
            };
            if let (Some(a), Some(b)) = (find(n.src, n.dst, n.receiver_qp), find(n.dst, n.src, n.sender_qp)) {
                pairs.insert(**a, **b);
                pairs.insert(**b, **a);
            }
        }
    }
    for reply in announced.iter().filter(|a| a.remote_comm_id.is_some()) {
        let asks = |a: &&Announced| Some(a.comm_id) == reply.remote_comm_id && a.addr == reply.peer;
        let Some(ask) = announced.iter().find(asks) else { continue };
        let find = |to: &Announced, from: &Announced| {
            let want = epoch(to.addr, to.qp, to.at + 1);
            rc.iter().find(|h| h.dst == to.addr && h.qp == to.qp && h.src == from.addr && h.epoch == want)
        };
        if let (Some(a), Some(b)) = (find(reply, ask), find(ask, reply)) {
            pairs.insert(**a, **b);
            pairs.insert(**b, **a);
        }
    }
    // PSNs of requests, and who sent them.
    let mut by_psn: HashMap<(IpAddr, IpAddr, Psn), Vec<Sender<'_>>> = HashMap::new();
    for half in rc.iter().filter(|h| !pairs.contains_key(**h)) {
        for &i in halves[half].iter().filter(|&&i| packets[i].opcode.is_request()) {
            by_psn.entry((half.src, half.dst, packets[i].psn)).or_default().push((i, half));
        }
    }
    // All requests between two addresses, in order: an answer mostly follows the request that it answers.
    let mut sent: HashMap<(IpAddr, IpAddr), Vec<Sender<'_>>> = HashMap::new();
    for half in rc.iter().filter(|h| !pairs.contains_key(**h)) {
        let requests = halves[half].iter().filter(|&&i| packets[i].opcode.is_request());
        sent.entry((half.src, half.dst)).or_default().extend(requests.map(|&i| (i, *half)));
    }
    sent.values_mut().for_each(|list| list.sort_unstable_by_key(|s| s.0));
    let mut scores: BTreeMap<(&Half, &Half), u64> = BTreeMap::new();
    for half in rc.iter().filter(|h| !pairs.contains_key(**h)) {
        for &i in halves[half].iter().filter(|&&i| packets[i].opcode.is_response()) {
            let fitting = by_psn.get(&(half.dst, half.src, answered(&packets[i]))).into_iter().flatten();
            let fitting = fitting.filter(|(_, asked)| asked.service == half.service);
            let fitting: Vec<&Sender<'_>> = fitting.filter(|(at, asked)| before(*at, i) && *asked != *half).collect();
            let newest = fitting.iter().max_by_key(|s| s.0).map(|s| s.1);
            let asked: BTreeSet<&Half> = fitting.iter().map(|s| s.1).collect();
            // Of the responses to a READ only the first follows it.
            let plain = packets[i].opcode.kind() == Kind::Acknowledge;
            let last = sent.get(&(half.dst, half.src)).filter(|_| plain).and_then(|list| {
                let earlier = list.partition_point(|s| s.0 < i);
                earlier.checked_sub(1).map(|n| list[n].1)
            });
            let words = asked.into_iter().map(|h| (h, 1)).chain(newest.map(|h| (h, 3))).chain(last.map(|h| (h, 2)));
            for (asked, weight) in words.filter(|(h, _)| h != half) {
                *scores.entry((asked, half)).or_default() += weight;
            }
        }
    }
    // Both directions of a connection speak for it.
    let both = |a: &Half, b: &Half| scores.get(&(a, b)).unwrap_or(&0) + scores.get(&(b, a)).unwrap_or(&0);
    let mut ranked: Vec<(u64, &Half, &Half)> = scores.keys().map(|&(a, b)| (both(a, b), a, b)).collect();
    ranked.sort_by(|x, y| y.0.cmp(&x.0).then(x.1.cmp(y.1)).then(x.2.cmp(y.2)));
    for (_, a, b) in ranked {
        if !pairs.contains_key(a) && !pairs.contains_key(b) {
            pairs.insert(*a, *b);
            pairs.insert(*b, *a);
        }
    }
    // Answers that fit nothing: they belong to the requests that began last before them and have no partner.
    let has = |h: &Half, want: fn(&Packet) -> bool| halves[h].iter().any(|&i| want(&packets[i]));
    for half in &rc {
        if pairs.contains_key(*half) || !has(half, |p| p.opcode.is_response()) {
            continue;
        }
        let begins = halves[half][0];
        let fits = |h: &&&Half| {
            h.src == half.dst
                && h.dst == half.src
                && **h != *half
                && h.service == half.service
                && !pairs.contains_key(**h)
                && has(h, |p| p.opcode.is_request())
                && before(halves[*h][0], begins)
        };
        if let Some(found) = rc.iter().filter(fits).max_by_key(|h| halves[**h][0]).copied() {
            pairs.insert(**half, *found);
            pairs.insert(*found, **half);
        }
    }
    pairs
}

/// The path MTU: what FIRST and MIDDLE packets carry; without any, the smallest that all payloads fit into.
fn guess_mtu<'a>(packets: &[Packet], list: impl Iterator<Item = &'a usize>) -> PathMtu {
    let mut longest = 0;
    for &i in list {
        let len = packets[i].payload.len() as u32;
        if matches!(packets[i].opcode.position(), Position::First | Position::Middle)
            && let Some(mtu) = PathMtu::from_bytes(len)
        {
            return mtu;
        }
        longest = longest.max(len);
    }
    // Most networks have at least 1024; a READ of more tells by its responses.
    let at_least = longest.max(1024);
    PathMtu::ALL.into_iter().find(|m| m.bytes() >= at_least).unwrap_or(PathMtu::B4096)
}

/// Counts PSNs on beyond 24 bits: each is near the one before it.
fn number(packets: &[Packet], requests: &[usize], answers: &[usize], mtu: PathMtu) -> (Vec<Request>, Vec<Answer>) {
    let mut numbered: Vec<Request> = Vec::with_capacity(requests.len());
    let mut last: Option<(Psn, i64)> = None;
    for &at in requests {
        let p = &packets[at];
        let psn = last.map_or(i64::from(p.psn.value()), |(psn, n)| n + i64::from(p.psn.distance(psn)));
        last = Some((p.psn, psn));
        numbered.push(Request { at, psn, span: messages::span(p, mtu) });
    }
    let near = |at: usize, psn: Psn| {
        let before = numbered.partition_point(|r| r.at < at);
        let r = numbered[before.saturating_sub(1)];
        r.psn + i64::from(psn.distance(packets[r.at].psn))
    };
    // Of Selective Repeat, answers with data have PSNs of their own.
    let mut data = (packets[numbered[0].at].psn, numbered[0].psn);
    let mut number = |at: usize| {
        let p = &packets[at];
        if p.opcode.service() == Service::Sr && p.opcode.kind() != Kind::Acknowledge {
            data = (p.psn, data.1 + i64::from(p.psn.distance(data.0)));
            return data.1;
        }
        near(at, p.psn)
    };
    let answers = answers.iter().map(|&at| Answer { at, psn: number(at) }).collect();
    (numbered, answers)
}

/// The same for acknowledgements of answers with data: each is near the answer before it.
fn number_acknowledgements(
    packets: &[Packet],
    requests: &[Request],
    answers: &[Answer],
    list: &[usize],
) -> Vec<Answer> {
    let data: Vec<&Answer> = answers.iter().filter(|a| packets[a.at].opcode.kind() != Kind::Acknowledge).collect();
    let near = |at: usize| match data.partition_point(|a| a.at < at).checked_sub(1) {
        Some(before) => (packets[data[before].at].psn, data[before].psn),
        None => (packets[requests[0].at].psn, requests[0].psn),
    };
    let number = |&at: &usize| Answer { at, psn: near(at).1 + i64::from(packets[at].psn.distance(near(at).0)) };
    list.iter().map(number).collect()
}

/// Where several flows touch the same region, none of them knows what it finds there.
fn mark_shared_keys(flows: &mut [Flow], packets: &[Packet]) {
    let mut users: HashMap<(IpAddr, u32), HashSet<usize>> = HashMap::new();
    let mut mixed: Vec<Vec<u32>> = Vec::new();
    for (n, flow) in flows.iter().enumerate() {
        for r in &flow.requests {
            if let Some(key) = messages::remote_key(&packets[r.at]) {
                users.entry((flow.responder, key)).or_default().insert(n);
            }
        }
        // With Selective Repeat a READ may find what a later WRITE brought.
        let keys = |written: bool| {
            let wanted = flow
                .requests
                .iter()
                .map(|r| &packets[r.at])
                .filter(move |p| flow.service == Service::Sr && (p.opcode.kind() == Kind::Write) == written);
            wanted.filter_map(messages::remote_key).collect::<HashSet<u32>>()
        };
        mixed.push(keys(true).intersection(&keys(false)).copied().collect::<Vec<u32>>());
    }
    flows.iter_mut().zip(mixed).for_each(|(flow, keys)| flow.shared_keys.extend(keys));
    for ((_, key), who) in users.into_iter().filter(|(_, who)| who.len() > 1) {
        for n in who {
            flows[n].shared_keys.insert(key);
        }
    }
}
