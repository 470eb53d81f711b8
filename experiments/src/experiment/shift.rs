//! `shift-…`: the evaluation of SHIFT, connections that go on by a second NIC: in virtual time, and its cost in real time.

mod fallback;
mod latency;
mod memory;
mod paper;
mod program;
mod throughput;
mod training;
mod verbs;

use std::time::Duration;

use softnic_fault_injector::Spec;
use softnic_sim::{Op, Options, Outage, Transport};

use super::Setting;

pub(super) use fallback::run as fallback;
pub(super) use latency::run as latency;
pub(super) use memory::run as memory;
pub(super) use throughput::run as throughput;
pub(super) use training::run as training;
pub(super) use verbs::run as verbs;

/// What the paper's benchmarks do, in its order.
const OPS: [(Op, &str); 3] = [(Op::Send, "SEND"), (Op::Write, "WRITE"), (Op::Read, "READ")];

/// What fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failure {
    /// The port of the host that posts requests: its NIC knows at once.
    InitiatorNic,
    /// The port of the other host.
    ResponderNic,
    /// Nothing passes, and both links stay up: only retries tell.
    SwitchPort,
}

impl Failure {
    const ALL: [Failure; 3] = [Failure::InitiatorNic, Failure::ResponderNic, Failure::SwitchPort];

    fn name(self) -> &'static str {
        match self {
            Failure::InitiatorNic => "initiator's NIC",
            Failure::ResponderNic => "responder's NIC",
            Failure::SwitchPort => "switch port",
        }
    }

    /// The same run, in which it happens.
    fn added_to(self, options: Options, from: Duration, lasts: Duration) -> Result<Options, String> {
        let outage = |host| Options { outages: vec![Outage { host, from, lasts }], ..options.clone() };
        match self {
            Failure::InitiatorNic => Ok(outage(0)),
            Failure::ResponderNic => Ok(outage(1)),
            Failure::SwitchPort => {
                let faults = format!("down={}ns+{}ns", from.as_nanos(), lasts.as_nanos());
                Ok(Options { faults: faults.parse::<Spec>().map_err(|e| e.to_string())?, ..options })
            }
        }
    }
}

/// Refuses another transport than the paper's.
fn over_rc_alone(setting: &Setting) -> Result<(), String> {
    match setting.transports(&[Transport::Rc])[..] {
        [Transport::Rc] => Ok(()),
        _ => Err(format!("{} is about rc: leave --transports out", setting.name)),
    }
}

/// Over which transport: one, RC as in the paper unless another was asked for.
fn transport(setting: &Setting) -> Result<Transport, String> {
    match setting.transports(&[Transport::Rc])[..] {
        [transport] => Ok(transport),
        _ => Err(format!("{} is about one transport at a time: give --transports one", setting.name)),
    }
}
