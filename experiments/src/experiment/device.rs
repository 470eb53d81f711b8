//! One run in real time between two NICs on devices, over a link that the fault injector makes: rate, round trip and loss.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

use softnic_fault_injector::Spec;
use softnic_perf::session::{self, Setup};
use softnic_perf::{Amount, AskedIntervals, Measured, Op, Plan, say, stop};
use softnic_runtime::api::{DeviceSpec, OpenOptions, Progress};
use softnic_sim::Options;
use softnic_transports::Transport;
use softnic_wire::PathMtu;

use super::over;

/// The fault injector of a device keeps 4096 frames, and loses what comes beyond them: what is under way must be fewer.
pub(super) const MAX_PACKETS: f64 = 3700.0;
/// How long the server may take to be there again for the next run.
const BETWEEN: Duration = Duration::from_secs(10);

/// The two ends, as the command line names them.
#[derive(Debug, Clone)]
pub(super) struct Ends {
    pub(super) device: DeviceSpec,
    /// The server's address and port; none where both ends are in this process.
    pub(super) server: Option<(String, u16)>,
    /// Queues of the device that are used here; by default all, and of mem one.
    pub(super) queues: Option<u32>,
    /// Who makes progress.
    pub(super) progress: Option<Progress>,
}

/// The options of a command that name the ends.
#[derive(Debug, clap::Args)]
pub(super) struct EndArgs {
    /// Serve the other end of a device, one run after the other, until Ctrl-C
    #[arg(long, requires = "dev", conflicts_with = "connect", help_heading = "In real time")]
    pub(super) server: bool,
    /// Where --server runs (its address in the kernel, over which both ends find each other)
    #[arg(long, requires = "dev", value_name = "ADDR", help_heading = "In real time")]
    pub(super) connect: Option<String>,
    /// TCP port of the server
    #[arg(long, requires = "dev", default_value_t = 18515, value_name = "N", help_heading = "In real time")]
    pub(super) port: u16,
}

impl Ends {
    /// Both in this process, on a wire in memory.
    pub(super) fn in_memory() -> Ends {
        Ends { device: DeviceSpec::Mem, server: None, queues: None, progress: None }
    }

    pub(super) fn new(device: &DeviceSpec, args: &EndArgs) -> Result<Ends, String> {
        let here = *device == DeviceSpec::Mem;
        match &args.connect {
            Some(_) if here => {
                Err("mem is inside one process: --connect needs --dev shm, afxdp:INTERFACE or dgram:OURS,PEERS".into())
            }
            None if !here && !matches!(device, DeviceSpec::Shm(_)) => {
                Err(format!("{device} has another end: say --server there and --connect ADDR here"))
            }
            host => {
                let server = host.clone().map(|host| (host, args.port));
                Ok(Ends { device: device.clone(), server, queues: None, progress: None })
            }
        }
    }
}

/// Serves one run after the other until Ctrl-C.
pub(super) fn serve(device: &DeviceSpec, port: u16, seed: u64) -> Result<(), String> {
    if *device == DeviceSpec::Mem {
        return Err("mem is inside one process: --server needs --dev shm, afxdp:INTERFACE or dgram:OURS,PEERS".into());
    }
    stop::install();
    let setup = setup(device, seed);
    let said = Cell::new(false);
    let announce = || {
        if !said.replace(true) {
            say!("waiting for clients at TCP port {port}, until Ctrl-C");
        }
    };
    while !stop::requested() {
        match session::listen(&setup, false, port, &announce, &|_| Ok(())) {
            // What became of a run is the client's to tell.
            Err(e) if e.starts_with("the peer") => say!("softnic: {e}"),
            other => other?,
        }
    }
    Ok(())
}

fn setup(device: &DeviceSpec, seed: u64) -> Setup {
    let options = OpenOptions { seed, ..OpenOptions::default() };
    Setup { device: device.clone(), options, cpus: vec![], seed, secret: None, intervals: AskedIntervals::Never }
}

/// A link between the two ends.
#[derive(Debug, Clone)]
pub(super) struct Link {
    pub(super) rate: u64,
    pub(super) rtt: Duration,
    pub(super) loss: f64,
    /// What else goes wrong, in both directions.
    pub(super) faults: Spec,
}

impl Link {
    /// As the client's device needs it: on mem faults are for both directions, else for what the client sends, and with `rx.` receives.
    fn spec(&self, device: &DeviceSpec) -> Result<Spec, String> {
        let half = self.rtt.as_secs_f64() * 1e9 / 2.0;
        let (loss, rate) = (self.loss, self.rate);
        let text = format!("loss={loss},rate={rate}bit,delay={half:.0}ns");
        let both = if *device == DeviceSpec::Mem { "" } else { &format!(",rx.loss={loss},rx.delay={half:.0}ns") };
        let mut spec: Spec = format!("{text}{both}").parse().map_err(|e| format!("{text}{both}: {e}"))?;
        spec.faults.extend(self.faults.faults.iter().cloned());
        if *device != DeviceSpec::Mem {
            spec.rx.extend(self.faults.faults.iter().cloned());
        }
        spec.script = self.faults.script.clone();
        (spec.ab, spec.ba) = (self.faults.ab.clone(), self.faults.ba.clone());
        Ok(spec)
    }
}

/// What is sent over it.
#[derive(Debug, Clone)]
pub(super) struct Load {
    pub(super) op: Op,
    pub(super) transport: Transport,
    pub(super) size: u32,
    pub(super) mtu: PathMtu,
    pub(super) qps: u32,
    /// Work requests outstanding on each connection.
    pub(super) depth: u32,
    pub(super) cc: Option<String>,
    pub(super) timeout: u8,
    pub(super) seconds: f64,
}

/// What a run came to.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub(super) measured: Measured,
    pub(super) counters: BTreeMap<String, u64>,
}

/// A transport with the settings that a simulated run over the same link has.
pub(super) fn on_link(transport: Transport, rate: u64, rtt: Duration, mtu: PathMtu) -> Transport {
    over(transport, Options { rate, rtt, mtu, ..Options::default() }).transport
}

/// One run; `None` where Ctrl-C ended it.
pub(super) fn measure(ends: &Ends, link: &Link, load: &Load, seed: u64) -> Result<Option<Run>, String> {
    let transport = on_link(load.transport, link.rate, link.rtt, load.mtu);
    let plan = Plan {
        cc: load.cc.clone(),
        qps: load.qps,
        depth: load.depth,
        timeout: load.timeout,
        ..Plan::usual(load.op, transport, load.size, load.mtu.bytes(), Amount::Seconds(load.seconds))
    };
    run_plan(ends, Some(link.spec(&ends.device)?), &plan, seed)
}

/// A run of a plan, over a wire with these faults; `None` where Ctrl-C ended it.
pub(super) fn run_plan(ends: &Ends, faults: Option<Spec>, plan: &Plan, seed: u64) -> Result<Option<Run>, String> {
    let mut setup = setup(&ends.device, seed);
    (setup.options.fault, setup.options.queues, setup.options.progress) = (faults, ends.queues, ends.progress);
    plan.check()?;
    let mut found = None;
    let mut tell = |told: &Plan, measured: &Measured, counters: &BTreeMap<String, u64>| {
        if told.negotiated.as_deref() == Some("rc") {
            return Err(format!("the other end does not speak {}", plan.transport));
        }
        found = Some(Run { measured: measured.clone(), counters: counters.clone() });
        Ok(())
    };
    let mut begin = |_: &Plan, _: &str| Ok(());
    let result = match &ends.server {
        None => session::in_process(&setup, plan, &mut begin, &mut tell),
        Some((host, port)) => session::connect(&setup, plan, host, *port, BETWEEN, &mut begin, &mut tell),
    };
    match result {
        _ if stop::requested() => Ok(None),
        Ok(()) => Ok(found),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::super::lowar;
    use super::*;

    const RTT: Duration = Duration::from_millis(40);

    #[test]
    fn sr_on_a_wire_has_the_window_of_a_simulated_run_over_the_same_link() {
        let simulated = |rate| Options { rate, rtt: RTT, ..Options::default() }.over_wide_sr().transport;
        let on_link = |transport, rate| on_link(transport, rate, RTT, PathMtu::B1024);
        for rate in [50_000_000, 200_000_000, 800_000_000] {
            assert_eq!(on_link(Transport::SR, rate), simulated(rate));
        }
        assert_eq!(on_link(Transport::SR, 200_000_000), Transport::Sr { window: 4096 });
        for asked in [Transport::Rc, Transport::Sr { window: 512 }, lowar(8, 1)] {
            assert_eq!(on_link(asked, 800_000_000), asked);
        }
    }

    #[test]
    fn a_link_has_half_its_round_trip_and_its_loss_in_each_direction() {
        let faults: Spec = "jitter=10us".parse().unwrap();
        let link = Link { rate: 1_000_000, rtt: Duration::from_millis(3), loss: 0.01, faults };
        let parsed = |text: &str| text.parse::<Spec>().unwrap();
        let mem = link.spec(&DeviceSpec::Mem).unwrap();
        assert_eq!(mem, parsed("loss=0.01,rate=1Mbit,delay=1500us,jitter=10us"));
        let device = link.spec(&"afxdp:eth7".parse().unwrap()).unwrap();
        let sent = "loss=0.01,rate=1Mbit,delay=1500us,jitter=10us";
        assert_eq!(device, parsed(&format!("{sent},rx.loss=0.01,rx.delay=1500us,rx.jitter=10us")));
    }
}
