//! What is kept of a run: a capture of all frames, and a trace.

use std::cell::RefCell;
use std::io;

use softnic_pcaps::{LinkType, PcapWriter, Timestamp};
use softnic_trace::Trace;

use super::SimError;
use crate::pair::{A, B};
use crate::simulator::Simulator;

/// Has every frame that leaves written to `capture`, and all that happens at both hosts to the trace. Why the capture could not be written is in
/// `written`.
pub(super) fn begin<'p>(
    sim: &mut Simulator<'p>,
    capture: Option<impl io::Write + 'p>,
    trace: Option<&Trace>,
    written: &'p RefCell<io::Result<()>>,
) -> Result<(), SimError> {
    if let Some(trace) = trace {
        for (host, name) in [(A, "a"), (B, "b")] {
            sim.watch(host, trace.observer(name, 0));
            if sim.dual(host).is_some() {
                sim.watch_nic(host, 1, trace.observer(&format!("{name}-backup"), 0));
            }
        }
    }
    let Some(out) = capture else { return Ok(()) };
    let mut pcap = PcapWriter::new(out, LinkType::Ethernet).map_err(SimError::Capture)?;
    sim.set_tap(Box::new(move |sent| {
        if written.borrow().is_ok() {
            let at = Timestamp::from_nanos(i128::from(sent.at.0 / 1000));
            *written.borrow_mut() = pcap.write(at, sent.frame, sent.wire_len as u32);
        }
    }));
    Ok(())
}
