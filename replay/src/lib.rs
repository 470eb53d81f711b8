//! Replaying captures: our NIC takes the place of each end of each connection in turn, and what it sends is held against what
//! was captured.
//!
//! Queue pairs, work requests and memory are rebuilt from the packets; what packets do not tell can come from a [`Side`] file.
//! Nothing here opens a socket or reads a clock: the capture is all there is. `docs/replay.md` explains the model.
//!
//! ```
//! use softnic_replay::{Options, ReplayVerdict, replay};
//!
//! # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../pcaps/corpus/rc_atomic.pcap");
//! let report = replay(std::fs::File::open(path)?, &Options::default())?;
//! assert_eq!(report.verdict(), ReplayVerdict::Same, "{:#?}", report.differences);
//! assert_eq!(report.counts().answers_equal, 4);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod capture;
mod findings;
mod flows;
mod lowar;
mod manager;
mod memory;
mod messages;
pub mod peers;
mod posting;
mod report;
mod requester;
mod responder;
mod rig;
mod selective;
mod side;
mod skew;

use std::io::Read;

use capture::Capture;
pub use capture::Skip;
use findings::Findings;
pub use peers::{PeerKind, Rule};
pub use report::{Counts, Difference, FlowReport, ReplayVerdict, Report, Role};
pub use side::{Side, SideError};
pub use skew::Skew;
use softnic_wire::opcode::Service;

/// How a capture is replayed.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// What the packets do not tell.
    pub side: Side,
    /// What kind of NIC both ends are; by default each is told by its packets.
    pub peer: Option<PeerKind>,
    /// Connections with Selective Repeat whose negotiation is not in the capture begin with it.
    pub begins: bool,
}

/// Replays a capture, pcap or pcapng. An error means that it could not be read at all; damage further in is in the report.
pub fn replay(source: impl Read, options: &Options) -> Result<Report, softnic_pcaps::Error> {
    let mut capture = Capture::read(source)?;
    let mut repairs = lowar::take_out(&mut capture);
    let (flows, _) = flows::survey(&capture, &options.side, options, skew::MOST);
    let skews = skew::correct(&mut capture, &flows);
    let (mut flows, skips) = flows::survey(&capture, &options.side, options, 0);
    skips.into_iter().for_each(|why| capture.skip(why));
    for flow in &mut flows {
        flow.protected = lowar::protects(&repairs, flow);
        flow.recorded_late = skews.iter().any(|s| (s.from, s.to) == (flow.requester, flow.responder));
    }
    let packets = &capture.packets;
    let end = packets.last().map_or(0, |p| p.time);
    let sdr_packets = flows::sdr_packets(&capture);
    let mut report = Report { frames: capture.frames, sdr_packets, skews, ..Report::default() };
    let segments: Vec<_> = flows.iter().map(|flow| messages::segments(flow, packets)).collect();
    // One gap may be a damaged number; several are a capture that did not keep up.
    let gaps = segments.iter().map(|s| s.len().saturating_sub(1)).sum::<usize>() > 1;
    let damaged = capture.skipped.contains_key(&Skip::BadIcrc);
    for (n, (flow, segments)) in flows.iter().zip(&segments).enumerate() {
        let mut found = Findings::new(n);
        if flow.service == Service::Sr {
            selective::replay(flow, segments, packets, &options.side, &mut found);
        } else {
            requester::replay(flow, segments, packets, (gaps, damaged), end, &mut found);
        }
        if flow.service == Service::Rc {
            responder::replay(flow, segments, packets, gaps, &options.side, &mut found);
        }
        let before = repairs.len();
        repairs = lowar::report(repairs, flow, &mut found);
        let repairs_of_flow = before - repairs.len();
        let recovered = found.counts.recovered as usize;
        let all = flow.requests.len() + flow.answers.len() + flow.acknowledgements.len() + repairs_of_flow;
        report.packets += all.saturating_sub(recovered) as u64;
        report.differences.append(&mut found.differences);
        report.allowed.append(&mut found.allowed);
        report.undetermined.append(&mut found.undetermined);
        report.flows.push(report::FlowReport {
            service: flow.service,
            requester: flow.requester,
            requester_qp: flow.requester_qp,
            responder: flow.responder,
            responder_qp: flow.responder_qp,
            requester_kind: flow.requester_kind,
            responder_kind: flow.responder_kind,
            mtu: flow.mtu.bytes(),
            requests: flow.requests.len() as u64,
            answers: flow.answers.len() as u64,
            counts: found.counts,
        });
    }
    repairs.iter().for_each(|_| capture.skip(Skip::NoConnection));
    manager::replay(&mut capture, options, &mut report);
    report.differences.sort_by_key(|d| d.packet);
    report.allowed.sort_by_key(|a| a.packet);
    report.undetermined.sort_by_key(|u| u.packet);
    report.fault = capture.fault.as_ref().map(|e| e.to_string());
    report.skipped = capture.skipped;
    Ok(report)
}
