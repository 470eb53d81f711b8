//! Ranks on NICs of the runtime, in real time: one of them in this process ([`run_rank`]), or all of them.
//!
//! Groups in one process: ranks on two NICs of the runtime with a wire in memory between them. Ranks on one NIC reach each other
//! by its loopback, the others by the wire. One thread looks after all ranks, so this is for what is right, and not for how fast.

mod error;
mod meeting;
mod process;
mod verbs;

use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use softnic_fault_injector::Spec;
use softnic_nic::Buffer;
use softnic_runtime::api::{Choice, Connection, Context, OpenOptions, PathMtu, PeerPath, Psn, Qpn};
use softnic_transports::qp::Caps;
use softnic_transports::{Counters, Transport};
use softnic_wire::Instant;

use crate::call::Call;
use crate::endpoint::{Endpoint, EndpointConfig, VerbsFabric};
use crate::member::{Member, MemberSettings, Outcome, Progress};
use crate::plan::Exchanges;
use crate::report::Report;
use crate::run::{Options, Ranks, drive};
use crate::uc::is_bounded;

pub use error::DeviceError;
use error::refused;
pub use meeting::{DEFAULT_PORT, Peer, parse_peers};
pub use process::{Process, run_rank};
use verbs::DeviceVerbs;

/// How long queue pairs are waited for that agree on their transport.
const AGREEMENT: Duration = Duration::from_secs(10);
/// Between two looks at a queue of completions that is empty.
const NAP: Duration = Duration::from_micros(20);

/// A group of ranks on two NICs.
struct Group {
    contexts: [Context; 2],
    members: Vec<Member>,
    ends: Vec<Endpoint>,
    verbs: Vec<DeviceVerbs>,
    began: Clock,
}

/// Runs a collective again and again on two NICs with a wire in memory between them; rank i is on NIC i mod 2. `go_on` is told how many are
/// over, and says whether to go on.
///
/// # Errors
/// When it cannot be run, or a rank gives up.
pub fn run(
    options: &Options,
    fault: Option<Spec>,
    mtu: PathMtu,
    go_on: &dyn Fn(u64) -> bool,
) -> Result<Report, DeviceError> {
    let mut group = Group::new(options, fault, mtu)?;
    let mut report = drive(&mut group, options, go_on)?;
    report.total_time = group.began.elapsed();
    Ok(report)
}

impl Group {
    fn new(options: &Options, fault: Option<Spec>, mtu: PathMtu) -> Result<Group, DeviceError> {
        let ranks = options.ranks;
        let bounded = is_bounded(options.transport);
        let exchanges = Exchanges::of(&[options.call], ranks, bounded)?;
        let open = OpenOptions { fault, seed: options.seed, ..OpenOptions::default() };
        let contexts = Context::open_pair([&open, &open]).map_err(refused)?;
        let config = EndpointConfig {
            transport: options.transport,
            mtu,
            stride: options.stride,
            lane: exchanges.lane(),
            group: 0,
        };
        let settings = MemberSettings { bounded, ..options.member.clone() };
        let (mut ends, mut verbs, began) = (Vec::new(), Vec::new(), Clock::now());
        for rank in 0..ranks {
            let context = &contexts[rank % 2];
            let completions = Endpoint::completions(&config, ranks, exchanges.peers(rank));
            let mut own = DeviceVerbs::new(context, completions, began)?;
            ends.push(Endpoint::new(&mut &mut own, config, ranks, options.call.bytes)?);
            verbs.push(own);
        }
        let members = (0..ranks).map(|rank| Member::new(rank, ranks, settings.clone())).collect();
        let mut group = Group { contexts, members, ends, verbs, began };
        for pair in exchanges.all_pairs() {
            group.connect(options, mtu, pair, exchanges.has(pair[0], pair[1]))?;
        }
        Ok(group)
    }

    /// Connects two ranks.
    fn connect(
        &mut self,
        options: &Options,
        mtu: PathMtu,
        ranks: [usize; 2],
        has_data: bool,
    ) -> Result<(), DeviceError> {
        let words = self.queue_pairs(options, mtu, ranks, (Transport::Rc, self.ends[ranks[0]].word_caps()))?;
        for i in 0..2 {
            self.ends[ranks[i]].set_words(&mut &mut self.verbs[ranks[i]], ranks[1 - i], words[i])?;
        }
        if has_data {
            let caps = self.ends[ranks[0]].data_caps();
            let data = self.queue_pairs(options, mtu, ranks, (options.transport, caps))?;
            let warm_up = match self.ends[ranks[0]].warms_up() {
                true => {
                    let caps = self.ends[ranks[0]].warm_up_caps();
                    self.queue_pairs(options, mtu, ranks, (Transport::Rc, caps))?.map(Some)
                }
                false => [None; 2],
            };
            for i in 0..2 {
                self.ends[ranks[i]].set_data(ranks[1 - i], data[i], warm_up[i]);
            }
        }
        Ok(())
    }

    /// A queue pair at each of two ranks, connected and agreed on what they speak.
    fn queue_pairs(
        &mut self,
        options: &Options,
        mtu: PathMtu,
        ranks: [usize; 2],
        (transport, caps): (Transport, Caps),
    ) -> Result<[Qpn; 2], DeviceError> {
        let mut made = Vec::new();
        for rank in ranks {
            made.push(self.verbs[rank].make(options, transport, caps)?);
        }
        for i in 0..2 {
            let path = self.path(ranks[i], ranks[1 - i], made[i].qpn())?;
            let connection = Connection::new(path, made[1 - i].qpn(), Psn::new(0), Psn::new(0));
            let timeout = options.timeout.unwrap_or(connection.timeout);
            made[i].connect(&Connection { mtu, timeout, ..connection }).map_err(refused)?;
        }
        let until = Clock::now() + AGREEMENT;
        while made.iter().any(|qp| qp.choice() == Some(Choice::Waiting)) {
            if Clock::now() > until {
                return Err(refused(format!("ranks {} and {} do not agree on {transport}", ranks[0], ranks[1])));
            }
            self.contexts.iter().for_each(|context| _ = context.progress());
            std::thread::sleep(NAP);
        }
        let numbers = [made[0].qpn(), made[1].qpn()];
        for (rank, qp) in ranks.into_iter().zip(made) {
            self.verbs[rank].queue_pairs.insert(qp.qpn().value(), qp);
        }
        Ok(numbers)
    }

    /// The path from a rank to another; the other NIC is asked where it is, and has to answer.
    fn path(&self, from: usize, to: usize, qpn: Qpn) -> Result<PeerPath, DeviceError> {
        let (here, there) = (&self.contexts[from % 2], &self.contexts[to % 2]);
        let address = there.addresses().first().copied().ok_or_else(|| refused("a NIC without an address"))?;
        let asked = std::thread::scope(|scope| {
            let path = scope.spawn(|| here.path_to(address, qpn.value()));
            while !path.is_finished() {
                there.progress();
                std::thread::sleep(NAP);
            }
            path.join()
        });
        asked.map_err(|_| refused("nobody knows the way"))?.map_err(refused)
    }

    fn now(&self) -> Instant {
        Instant::ZERO + self.began.elapsed()
    }
}

impl Ranks for Group {
    type Error = DeviceError;

    fn here(&self) -> std::ops::Range<usize> {
        0..self.members.len()
    }

    fn buffer(&self, rank: usize) -> Option<&Arc<Buffer>> {
        self.ends[rank].buffer()
    }

    fn member(&self, rank: usize) -> &Member {
        &self.members[rank]
    }

    /// Of the NIC that it shares with others.
    fn counters(&mut self, rank: usize) -> Counters {
        // Each NIC counts for one of its ranks.
        if rank < 2 { self.contexts[rank].counters() } else { Counters::default() }
    }

    fn collective(
        &mut self,
        call: &Call,
        warm_up: bool,
        stop: &dyn Fn() -> bool,
    ) -> Result<Option<Vec<(Outcome, Duration)>>, DeviceError> {
        let failed = |rank| move |why| DeviceError::Member { rank, why };
        let began = self.now();
        for rank in 0..self.members.len() {
            let now = self.now();
            self.ends[rank].set_warming_up(warm_up);
            let mut fabric = VerbsFabric::new(&mut self.verbs[rank], &mut self.ends[rank], now);
            let member = &mut self.members[rank];
            let started = if warm_up { member.warm_up(call, &mut fabric) } else { member.start(call, &mut fabric) };
            started.map_err(failed(rank))?;
        }
        let mut outcomes: Vec<Option<(Outcome, Duration)>> = vec![None; self.members.len()];
        while outcomes.iter().any(Option::is_none) {
            for (rank, outcome) in outcomes.iter_mut().enumerate() {
                let now = self.now();
                let mut fabric = VerbsFabric::new(&mut self.verbs[rank], &mut self.ends[rank], now);
                if let Progress::Done(done) = self.members[rank].advance(&mut fabric).map_err(failed(rank))? {
                    *outcome = Some((done, self.now() - began));
                }
            }
            if stop() {
                return Ok(None);
            }
        }
        Ok(Some(outcomes.into_iter().flatten().collect()))
    }

    fn pause(&mut self, time: Duration) -> Result<(), DeviceError> {
        let until = Clock::now() + time;
        while Clock::now() < until {
            self.contexts.iter().for_each(|context| _ = context.progress());
            std::thread::sleep(NAP.min(time));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::{Algorithm, Element, Operation, Reduction};

    #[test]
    fn ranks_of_one_process_come_to_the_sum_over_every_transport() {
        let call = Call {
            operation: Operation::AllReduce,
            algorithm: Algorithm::Ring,
            element: Element::I32,
            reduction: Reduction::Sum,
            bytes: 100_000,
        };
        let algorithms =
            [Algorithm::Ring, Algorithm::Tree, Algorithm::Bcube, Algorithm::Ring, Algorithm::Ring, Algorithm::Tree];
        for (transport, algorithm) in ["rc", "sr", "lowar", "xp", "uc", "uc"].into_iter().zip(algorithms) {
            let call = Call { algorithm, ..call };
            let options = Options {
                call,
                ranks: 4,
                transport: transport.parse().unwrap(),
                stride: 1,
                cc: softnic_transports::congestion::Cc::Window,
                timeout: None,
                iterations: 0,
                pause: Duration::ZERO,
                // Longer than any machine needs: time decides nothing here.
                member: MemberSettings { fixed: Some(Duration::from_secs(20)), ..MemberSettings::default() },
                seed: 1,
            };
            let mut group = Group::new(&options, None, PathMtu::B1024).unwrap();
            for round in 0..3i32 {
                for rank in 0..4 {
                    let bytes = (round + (1 << rank)).to_le_bytes().repeat(25_000);
                    group.buffer(rank).unwrap().write_at(0, &bytes);
                }
                let outcomes = group.collective(&call, round == 0, &|| false).unwrap().unwrap();
                assert!(outcomes.iter().all(|(outcome, _)| outcome.losses.is_empty()), "{transport}: {outcomes:?}");
                for rank in 0..4 {
                    let mut bytes = vec![0; 100_000];
                    group.buffer(rank).unwrap().read_at(0, &mut bytes);
                    assert!(bytes == (15 + 4 * round).to_le_bytes().repeat(25_000), "{transport}, rank {rank}");
                }
            }
        }
    }
}
