//! From captures to scripts: what is found in the project's own captures, and in captures made for one question.

#[path = "../common/mod.rs"]
mod common;
mod corpus;

use softnic_pcaps::analysis::Analysis;
use softnic_pcaps::decode::Decoder;
use softnic_pcaps::faults::{MOST_EVENTS, Observer, Options, Report};
use softnic_pcaps::summary::Summary;

/// What is found in frames of Ethernet.
pub(crate) fn observe(frames: &[common::Owned], options: Options) -> Report {
    let (mut decoder, mut summary, mut analysis) = (Decoder::default(), Summary::default(), Analysis::default());
    let mut observer = Observer::new(Options { most: options.most.max(1000), ..options });
    for f in frames {
        let Ok(packet) = decoder.decode_ethernet(&f.data) else { continue };
        let order = summary.add(&packet, f.time.nanos(), f.original_len);
        let event = analysis.add(f.number, f.time, &packet, order);
        observer.add(f.number, f.time, &f.data, &packet, event);
    }
    analysis.finish();
    observer.finish(&analysis)
}

/// The same SEND MIDDLE again and again, each as far behind the one before as a PSN can be of the same connection.
#[test]
fn a_capture_whose_psns_leap_takes_bounded_memory() {
    let frames = common::frames(&common::corpus().join("loss_send_middle_nak.pcap"));
    let middle = &frames[1];
    let leaping: Vec<common::Owned> = (0..2000u64)
        .map(|n| {
            let mut frame = common::Owned { number: n + 1, ..middle.clone() };
            // Ethernet, IPv4, UDP, and nine bytes of the BTH before the PSN.
            frame.data[51..54].copy_from_slice(&(n as u32 * 65_000).to_be_bytes()[1..]);
            frame
        })
        .collect();
    let report = observe(&leaping, Options { most: usize::MAX, ..Options::default() });
    assert!(report.events.len() + report.left_out <= 2 * MOST_EVENTS, "{}", report.events.len() + report.left_out);
    assert!(report.left_out + report.events.len() >= 65_000, "the leaps are found at all");
}
