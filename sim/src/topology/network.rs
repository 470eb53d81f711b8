//! A network with software of one's own on its hosts, which steps it: collectives, protocols under test.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use softnic_nic::Nic;
use softnic_wire::{Psn, Qpn};

use super::Topology;
use super::flows::Run;
use super::hooks::{Capture, Sample};
use super::report::TopologyReport;
use super::running::Running;
use super::world::{Connecting, World};
use crate::Time;
use crate::workload::SimError;

/// A topology as a network that a caller steps, with queue pairs of the caller's own on its hosts. Flows, groups and background traffic of
/// the topology run beside them.
///
/// ```
/// use softnic_nic::transports::qp::{Caps, QpKind};
/// use softnic_nic::QpInit;
/// use softnic_sim::topology::{Connecting, Network, Topology};
///
/// let star = Topology::of_network("kind = \"star\"\nhosts = 2\nrate = \"25Gbit\"").unwrap();
/// let mut network = Network::new(&star, 1).unwrap();
/// let caps = Caps { max_send_wr: 4, max_recv_wr: 4, max_send_sge: 1, max_recv_sge: 1, max_inline: 0 };
/// let qpns = [0, 1].map(|host| {
///     let nic = network.nic(host);
///     let (pd, cq) = (nic.alloc_pd(), nic.create_cq(16));
///     nic.create_qp(&QpInit::new(QpKind::Rc, pd, cq, cq, caps)).unwrap()
/// });
/// network.connect([0, 1], qpns, &Connecting::default()).unwrap();
/// // Post work to a host's NIC, tell the network, and step it.
/// network.touch(0);
/// while let Some(host) = network.step().unwrap() {
///     // Poll the completion queues of this host.
///     assert!(host < 3, "two hosts and a switch");
/// }
/// ```
pub struct Network<'t> {
    run: Run<'t>,
    /// What became of the capture, where there is one.
    written: Option<Rc<RefCell<io::Result<()>>>>,
    begun: bool,
}

impl<'t> Network<'t> {
    /// Makes the hosts, switches and links, and the queue pairs of all flows. The same topology, seed and calls give the same run.
    pub fn new(topology: &'t Topology, seed: u64) -> Result<Network<'t>, SimError> {
        let run = Run::new(World::new(topology, seed, None, None), seed)?;
        Ok(Network { run, written: None, begun: false })
    }

    /// Writes every frame that leaves from now on to a capture. An error of it ends the run: [`Network::step`] returns it.
    pub fn capture(&mut self, capture: Capture<'t>) -> Result<(), SimError> {
        self.written = Some(self.run.capture(capture)?);
        Ok(())
    }

    /// What the network was made from.
    pub fn topology(&self) -> &'t Topology {
        self.run.world.topology
    }

    /// The present.
    pub fn now(&self) -> Time {
        self.run.world.sim.now()
    }

    /// The NIC of a host. After work was posted to it, call [`Network::touch`].
    ///
    /// # Panics
    /// When there is no such host.
    pub fn nic(&mut self, host: usize) -> &mut Nic {
        self.run.world.sim.nic(host)
    }

    /// The NIC of a host has work to do: what it has to send leaves.
    pub fn touch(&mut self, host: usize) {
        self.run.world.sim.touch(host);
    }

    /// Turns the faults of all links off or on again, as for what comes before a measurement. Their delays and rates stay.
    pub fn set_faults_enabled(&mut self, enabled: bool) {
        self.run.world.sim.set_faults_enabled(enabled);
    }

    /// Makes [`Network::step`] return this host at this time, whatever else happens.
    pub fn wake_at(&mut self, at: Time, host: usize) {
        self.run.world.sim.wake_at(at, host);
    }

    /// Connects a queue pair of one host with one of another. Both are of a connected transport, and new.
    pub fn connect(&mut self, hosts: [usize; 2], qpns: [Qpn; 2], how: &Connecting) -> Result<(), SimError> {
        let world = &mut self.run.world;
        let psns = [0; 2].map(|_: u32| Psn::new(world.draw()));
        for side in [0, 1] {
            let peer = 1 - side;
            world.connect_qp([hosts[side], hosts[peer]], how, [qpns[side], qpns[peer]], [psns[side], psns[peer]])?;
        }
        Ok(())
    }

    /// The rate of a host's link, in bits a second.
    pub fn line_rate(&self, host: usize) -> u64 {
        self.run.world.line_rate(host)
    }

    /// The longest round trip between two hosts: with all queues on the way full, or with all empty.
    pub fn round_trip(&self, queues_are_full: bool) -> Duration {
        match queues_are_full {
            true => self.run.world.longest_round_trip(),
            false => self.run.world.round_trip(Duration::ZERO),
        }
    }

    /// Goes to the next event. Returns the host that it happened to, or a switch, counted behind the hosts; `None` when nothing will ever
    /// happen again.
    pub fn step(&mut self) -> Result<Option<usize>, SimError> {
        if !std::mem::replace(&mut self.begun, true) {
            self.run.begin();
        }
        self.check_capture()?;
        self.run.step()
    }

    fn check_capture(&self) -> Result<(), SimError> {
        match &self.written {
            Some(written) if written.borrow().is_err() => written.replace(Ok(())).map_err(SimError::Capture),
            _ => Ok(()),
        }
    }

    /// Whether all work requests of the topology's flows and groups have ended.
    pub fn flows_are_done(&self) -> bool {
        self.run.is_done()
    }

    /// How things stand.
    pub fn sample(&mut self) -> Sample {
        self.run.sample(self.now())
    }

    /// Takes something that happened to the caller's software into the digest of the run.
    pub fn record(&mut self, word: u64) {
        self.run.world.sim.record(word);
    }

    /// The digest of the run so far.
    pub fn digest(&self) -> u64 {
        self.run.world.sim.digest()
    }

    /// What came of the flows, and what hosts, switches and links counted, the caller's traffic included.
    pub fn report(self) -> Result<TopologyReport, SimError> {
        self.check_capture()?;
        self.run.flows.iter().try_for_each(Running::verify)?;
        Ok(self.run.report())
    }
}
