//! From captures to scripts: what is found in the project's own captures, and in captures made for one question.

#[path = "../common/mod.rs"]
mod common;
mod corpus;

use softnic_pcaps::analysis::Analysis;
use softnic_pcaps::decode::Decoder;
use softnic_pcaps::faults::{Observer, Options, Report};
use softnic_pcaps::summary::Summary;

/// What is found in frames of Ethernet.
pub(crate) fn observe(frames: &[common::Owned], options: Options) -> Report {
    let (mut decoder, mut summary, mut analysis) = (Decoder::default(), Summary::default(), Analysis::default());
    let mut observer = Observer::new(Options { most: 1000, ..options });
    for f in frames {
        let Ok(packet) = decoder.decode_ethernet(&f.data) else { continue };
        let order = summary.add(&packet, f.time.nanos(), f.original_len);
        let event = analysis.add(f.number, f.time, &packet, order);
        observer.add(f.number, f.time, &f.data, &packet, event);
    }
    analysis.finish();
    observer.finish(&analysis)
}
