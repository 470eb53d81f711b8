//! One rank in this process, on any device of the runtime; the other ranks are processes elsewhere.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use softnic_fault_injector::random::Random;
use softnic_nic::Buffer;
use softnic_runtime::api::{Choice, Connection, Context, DeviceSpec, OpenOptions, PathMtu, Psn, Qpn, QueuePair};
use softnic_transports::qp::Caps;
use softnic_transports::{Counters, Transport};
use softnic_wire::Instant;

use super::error::{DeviceError, refused};
use super::meeting::{Ends, Line, Meeting, Peer};
use super::verbs::DeviceVerbs;
use super::{AGREEMENT, NAP};
use crate::call::Call;
use crate::endpoint::{Endpoint, EndpointConfig, VerbsFabric};
use crate::member::{Member, MemberSettings, Outcome, Progress};
use crate::plan::Exchanges;
use crate::report::Report;
use crate::run::{Options, Ranks, drive};
use crate::uc::is_bounded;

/// Looks at the device between two at the connections to the others.
const LOOKS: u64 = 4096;

/// Where a rank is.
#[derive(Debug, Clone)]
pub struct Process {
    /// Its device.
    pub device: DeviceSpec,
    /// How that is opened.
    pub open: OpenOptions,
    /// Which rank it is.
    pub rank: usize,
    /// Where all ranks listen.
    pub peers: Vec<Peer>,
    /// Of the packets; without one that of the device's interface. All ranks have the same.
    pub mtu: Option<PathMtu>,
}

/// This rank of a group.
struct Rank {
    context: Context,
    rank: usize,
    mtu: PathMtu,
    member: Member,
    end: Endpoint,
    verbs: DeviceVerbs,
    meeting: Meeting,
    began: Clock,
}

/// Runs one rank of a collective, again and again; `go_on` is told how many are over, and says whether to go on.
///
/// # Errors
/// When a rank does not come, does not agree, or gives up; in a line that says who and what.
pub fn run_rank(options: &Options, process: &Process, go_on: &dyn Fn(u64) -> bool) -> Result<Report, DeviceError> {
    let mut rank = Rank::new(options, process, &|| go_on(0))?;
    let patience = options.member.patience;
    let driven = drive(&mut rank, options, go_on);
    let parted = match &driven {
        Ok(report) if report.interrupted => {
            rank.meeting.tell_failure(&format!("rank {} was interrupted", process.rank));
            Ok(())
        }
        Ok(_) => rank.meeting.part(patience, &|| go_on(options.iterations)).map_err(refused),
        Err(why) => {
            rank.meeting.tell_failure(&why.to_string());
            Ok(())
        }
    };
    let mut report = driven?;
    parted?;
    report.total_time = rank.began.elapsed();
    Ok(report)
}

impl Rank {
    fn new(options: &Options, process: &Process, go_on: &dyn Fn() -> bool) -> Result<Rank, DeviceError> {
        let (rank, ranks, bounded) = (process.rank, options.ranks, is_bounded(options.transport));
        let exchanges = Exchanges::of(&[options.call], ranks, bounded)?;
        let context = Context::open(&process.device, &process.open).map_err(refused)?;
        let mtu = process.mtu.unwrap_or(context.port().mtu);
        let what = format!(
            "{} over {}, {} times, stride {}, MTU {}{}",
            options.call,
            options.transport,
            options.iterations,
            options.stride,
            mtu.bytes(),
            if bounded { options.member.budgets() } else { String::new() }
        );
        let meeting = Meeting::gather(rank, &process.peers, &what, options.member.patience, go_on).map_err(refused)?;
        let config = EndpointConfig {
            transport: options.transport,
            mtu,
            stride: options.stride,
            lane: exchanges.lane(),
            group: 0,
        };
        let completions = Endpoint::completions(&config, ranks, exchanges.peers(rank));
        let began = Clock::now();
        let mut verbs = DeviceVerbs::new(&context, completions, began)?;
        let end = Endpoint::new(&mut &mut verbs, config, ranks, options.call.bytes)?;
        let settings = MemberSettings { bounded, ..options.member.clone() };
        let member = Member::new(rank, ranks, settings);
        let mut made = Rank { context, rank, mtu, member, end, verbs, meeting, began };
        let connected = made.connect_all(options, process, &exchanges, go_on);
        if let Err(why) = &connected {
            made.meeting.tell_failure(&why.to_string());
        }
        connected.map(|()| made)
    }

    /// The address that others reach this NIC by: of the IP version of the list, where it has one.
    fn address(&self, process: &Process) -> Result<std::net::IpAddr, DeviceError> {
        let all = self.context.addresses();
        let listed = process.peers[self.rank].host.parse::<std::net::IpAddr>().ok();
        let same = all.iter().find(|address| Some(**address) == listed);
        let like = all.iter().find(|address| listed.is_some_and(|listed| listed.is_ipv4() == address.is_ipv4()));
        let address = same.or(like).or(all.first()).copied();
        address.ok_or_else(|| refused(format!("rank {}: its device has no IP address", self.rank)))
    }

    /// Connects this rank with all others.
    fn connect_all(
        &mut self,
        options: &Options,
        process: &Process,
        exchanges: &Exchanges,
        go_on: &dyn Fn() -> bool,
    ) -> Result<(), DeviceError> {
        let patience = options.member.patience.max(AGREEMENT);
        let address = self.address(process)?;
        // What is under way of an earlier run has other PSNs.
        let time = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let mut random = Random::stream(options.seed ^ time.as_nanos() as u64, self.rank as u64);
        let mut made: Vec<Vec<(QueuePair, u32)>> = Vec::new();
        for other in 0..options.ranks {
            let kinds =
                if other == self.rank { Vec::new() } else { self.kinds(options, exchanges.has(self.rank, other)) };
            let pairs = kinds.into_iter().map(|(transport, caps)| {
                self.verbs.make(options, transport, caps).map(|qp| (qp, random.next_u32() & 0xff_ffff))
            });
            made.push(pairs.collect::<Result<_, _>>()?);
            let queue_pairs = made[other].iter().map(|(qp, psn)| [qp.qpn().value(), *psn]).collect();
            self.meeting.send(other, &Line::Ends(Ends { address, queue_pairs })).map_err(refused)?;
        }
        let heard = self.meeting.hear_all(patience, go_on).map_err(refused)?;
        for (other, line) in heard.into_iter().enumerate() {
            match line {
                Some(Line::Ends(ends)) if ends.queue_pairs.len() == made[other].len() => {
                    self.connect(options, other, &made[other], &ends)?;
                }
                Some(_) => return Err(refused(format!("rank {other} said something out of turn"))),
                None => {}
            }
        }
        let until = Clock::now() + AGREEMENT;
        for (other, pairs) in made.into_iter().enumerate() {
            while pairs.iter().any(|(qp, _)| qp.choice() == Some(Choice::Waiting)) {
                if Clock::now() > until {
                    return Err(refused(format!("rank {other} does not agree on {}", options.transport)));
                }
                self.context.progress();
                std::thread::sleep(NAP);
            }
            let numbers: Vec<Qpn> = pairs.iter().map(|(qp, _)| qp.qpn()).collect();
            for (qp, _) in pairs {
                self.verbs.queue_pairs.insert(qp.qpn().value(), qp);
            }
            if let [words, data @ ..] = &numbers[..] {
                if let Some(first) = data.first() {
                    self.end.set_data(other, *first, data.get(1).copied());
                }
                self.end.set_words(&mut &mut self.verbs, other, *words)?;
            }
        }
        for other in (0..options.ranks).filter(|other| *other != self.rank).collect::<Vec<_>>() {
            self.meeting.send(other, &Line::Ready).map_err(refused)?;
        }
        let heard = self.meeting.hear_all(patience, go_on).map_err(refused)?;
        match heard.iter().position(|line| line.as_ref().is_some_and(|line| *line != Line::Ready)) {
            Some(other) => Err(refused(format!("rank {other} said something out of turn"))),
            None => Ok(()),
        }
    }

    /// The queue pairs to another rank, in the order in which they are told.
    fn kinds(&self, options: &Options, has_data: bool) -> Vec<(Transport, Caps)> {
        let mut kinds = vec![(Transport::Rc, self.end.word_caps())];
        if has_data {
            kinds.push((options.transport, self.end.data_caps()));
            kinds.extend(self.end.warms_up().then(|| (Transport::Rc, self.end.warm_up_caps())));
        }
        kinds
    }

    /// Connects the queue pairs to another rank with those that it told.
    fn connect(
        &self,
        options: &Options,
        other: usize,
        ours: &[(QueuePair, u32)],
        theirs: &Ends,
    ) -> Result<(), DeviceError> {
        let failed = |why: String| refused(format!("rank {other} ({}): {why}", theirs.address));
        for ((qp, psn), [qpn, peer_psn]) in ours.iter().zip(&theirs.queue_pairs) {
            let path = self.context.path_to(theirs.address, qp.qpn().value()).map_err(|e| failed(e.to_string()))?;
            if path.mtu < self.mtu {
                let bytes = path.mtu.bytes();
                return Err(failed(format!("the path bears an MTU of {bytes} only: say --mtu {bytes}")));
            }
            let connection = Connection::new(path, Qpn::new(*qpn), Psn::new(*peer_psn), Psn::new(*psn));
            let timeout = options.timeout.unwrap_or(connection.timeout);
            qp.connect(&Connection { mtu: self.mtu, timeout, ..connection }).map_err(|e| failed(e.to_string()))?;
        }
        Ok(())
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.began.elapsed()
    }

    fn failed(&self, why: crate::member::MemberError) -> DeviceError {
        DeviceError::Member { rank: self.rank, why }
    }
}

impl Ranks for Rank {
    type Error = DeviceError;

    fn here(&self) -> Range<usize> {
        self.rank..self.rank + 1
    }

    fn buffer(&self, _: usize) -> Option<&Arc<Buffer>> {
        self.end.buffer()
    }

    fn member(&self, _: usize) -> &Member {
        &self.member
    }

    fn counters(&mut self, _: usize) -> Counters {
        self.context.counters()
    }

    fn collective(
        &mut self,
        call: &Call,
        warm_up: bool,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<(Outcome, Duration)>>, DeviceError> {
        let began = self.now();
        self.end.set_warming_up(warm_up);
        let mut fabric = VerbsFabric::new(&mut self.verbs, &mut self.end, began);
        let started = match warm_up {
            true => self.member.warm_up(call, &mut fabric),
            false => self.member.start(call, &mut fabric),
        };
        started.map_err(|why| self.failed(why))?;
        for look in 1u64.. {
            let now = self.now();
            let mut fabric = VerbsFabric::new(&mut self.verbs, &mut self.end, now);
            let progress = self.member.advance(&mut fabric);
            match progress.map_err(|why| self.failed(why))? {
                Progress::Done(outcome) => return Ok(Some(vec![(outcome, self.now() - began)])),
                _ if look.is_multiple_of(LOOKS) => {
                    self.meeting.check().map_err(refused)?;
                    if stop() {
                        return Ok(None);
                    }
                }
                _ => std::thread::yield_now(),
            }
        }
        Ok(None)
    }

    fn pause(&mut self, time: Duration) -> Result<(), DeviceError> {
        let until = Clock::now() + time;
        while Clock::now() < until {
            self.context.progress();
            std::thread::sleep(NAP.min(time));
        }
        Ok(())
    }
}
