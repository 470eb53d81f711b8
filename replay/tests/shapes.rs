//! Captures as people have them: cut, one-sided, begun too late, tagged, mixed; and damaged ones.

mod common;

use common::{Frame, explain, load, play, simulate, write};
use proptest::prelude::*;
use softnic_pcaps::{LinkType, PcapWriter};
use softnic_replay::{Options, ReplayVerdict, Skip, replay};
use softnic_sim::Options as Sim;
use softnic_wire::{Layout, icrc};

fn src_is_first(frames: &[Frame]) -> impl Fn(&Frame) -> bool + use<> {
    let layout = Layout::locate(&frames[0].data).unwrap();
    let first = layout.addresses(&frames[0].data).unwrap().0;
    move |f: &Frame| Layout::locate(&f.data).is_ok_and(|l| l.addresses(&f.data).is_some_and(|a| a.0 == first))
}

#[test]
fn one_side_alone_is_compared_as_far_as_it_goes() {
    let frames = load("loss_send_middle_nak.pcap");
    let from_first = src_is_first(&frames);
    let requests: Vec<Frame> = frames.iter().filter(|f| from_first(f)).cloned().collect();
    let report = play(&requests);
    // Without the NAK nothing explains why all is sent again, but time does.
    assert_eq!(report.counts().answers_equal, 0);
    assert!(report.counts().requests_equal >= 18, "{}", explain(&report));
    let answers: Vec<Frame> = frames.iter().filter(|f| !from_first(f)).cloned().collect();
    let report = play(&answers);
    assert_eq!((report.verdict(), report.skipped.get(&Skip::NoRequests)), (ReplayVerdict::CannotReplay, Some(&4)));
}

#[test]
fn a_capture_may_begin_in_the_middle_of_a_connection() {
    for name in ["rc_send_mtu1024.pcap", "rc_write_mtu1024.pcap", "rc_read_mtu1024.pcap", "pingpong_rc_ipv4.pcap"] {
        let frames = load(name);
        for from in 1..frames.len() - 4 {
            let report = play(&frames[from..]);
            assert_eq!(report.exit_code(), 0, "{name} from {from}: {}", explain(&report));
        }
    }
}

#[test]
fn a_capture_may_end_anywhere() {
    for name in ["loss_send_middle_nak.pcap", "loss_read_resp_last.pcap", "rc_rnr_nak.pcap", "rc_mixed_mtu256.pcap"] {
        let frames = load(name);
        for to in 1..frames.len() {
            let report = play(&frames[..to]);
            assert_eq!(report.exit_code(), 0, "{name} to {to}: {}", explain(&report));
        }
    }
}

#[test]
fn connections_may_be_interleaved() {
    let mut all: Vec<Frame> = Vec::new();
    for name in ["loss_send_middle_nak.pcap", "rc_atomic.pcap", "rc_mixed_mtu256.pcap", "uc_send_mtu1024.pcap"] {
        let frames = load(name);
        let start = frames[0].time.nanos();
        all.extend(
            frames
                .into_iter()
                .map(|f| Frame { time: softnic_pcaps::Timestamp::from_nanos(f.time.nanos() - start), ..f }),
        );
    }
    all.sort_by_key(|f| f.time);
    let report = play(&all);
    assert_eq!(report.exit_code(), 0, "{}", explain(&report));
    assert_eq!(report.counts().answers_equal, 4 + 4 + 6);
}

#[test]
fn tags_and_other_link_layers_make_no_difference() {
    let frames = load("rc_mixed_mtu1024_ipv6.pcap");
    let tagged: Vec<Frame> = frames
        .iter()
        .map(|f| {
            let mut data = f.data.clone();
            data.splice(12..12, [0x81, 0x00, 0x20, 0x07]);
            Frame { original_len: f.original_len + 4, data, ..f.clone() }
        })
        .collect();
    assert_eq!(play(&tagged).counts(), play(&frames).counts());
    let mut raw = Vec::new();
    let mut writer = PcapWriter::new(&mut raw, LinkType::RawIp).unwrap();
    for f in &frames {
        writer.write(f.time, &f.data[14..], f.original_len - 14).unwrap();
    }
    let report = replay(&raw[..], &Options::default()).unwrap();
    assert_eq!(report.counts(), play(&frames).counts(), "{}", explain(&report));
}

#[test]
fn marks_of_congestion_change_nothing() {
    let options = Sim { size: 20_000, count: 20, ..Sim::default() };
    let mut frames = simulate(&options);
    let marked: usize = frames.iter_mut().map(|f| usize::from(softnic_wire::transit::mark_ce(&mut f.data))).sum();
    assert!(marked > 400, "{marked}");
    let report = play(&frames);
    assert_eq!(report.exit_code(), 0, "{}", explain(&report));
}

#[test]
fn headers_alone_are_enough_for_all_but_the_data() {
    let frames = load("rc_mixed_mtu1024_ipv6.pcap");
    let cut: Vec<Frame> =
        frames.iter().map(|f| Frame { data: f.data[..f.data.len().min(128)].to_vec(), ..f.clone() }).collect();
    let report = play(&cut);
    assert_eq!(report.exit_code(), 0, "{}", explain(&report));
    assert_eq!(report.counts().answers_equal, 6);
    assert!(!report.undetermined.is_empty(), "the data of READs is not known");
}

#[test]
fn what_a_nic_drops_is_not_replayed() {
    let mut frames = load("rc_send_mtu1024.pcap");
    for f in &mut frames {
        let end = Layout::locate(&f.data).unwrap().end;
        f.data[end - icrc::LEN] ^= 1;
    }
    let report = play(&frames);
    assert_eq!((report.verdict(), report.skipped.get(&Skip::BadIcrc)), (ReplayVerdict::CannotReplay, Some(&24)));
}

#[test]
fn a_file_that_is_cut_is_replayed_as_far_as_it_goes() {
    let file = write(&load("rc_send_mtu1024.pcap"));
    for len in [24, 30, 200, file.len() / 2, file.len() - 1] {
        let report = replay(&file[..len], &Options::default()).unwrap();
        assert_ne!(report.exit_code(), 1, "{len}: {}", explain(&report));
        assert_eq!(report.fault.is_some(), len != 24);
    }
    assert!(replay(&file[..10], &Options::default()).is_err());
    assert!(replay(&b"no capture"[..], &Options::default()).is_err());
}

const NAMES: [&str; 13] = [
    "loss_send_random10pct.pcap",
    "lowar_read_loss.pcap",
    "lowar_write_loss.pcap",
    "sr_read_loss.pcap",
    "sr_write_loss.pcap",
    "rc_mixed_mtu256.pcap",
    "rc_atomic.pcap",
    "rc_rnr_nak.pcap",
    "rc_send_inv.pcap",
    "rc_access_err_nak.pcap",
    "cm_rping_ipv4.pcap",
    "ud_send.pcap",
    "xp_write_stride.pcap",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever a capture holds, nothing panics, and nothing takes for ever.
    #[test]
    fn no_damage_makes_it_panic(
        name in 0..NAMES.len(), flips in prop::collection::vec((any::<prop::sample::Index>(), 14usize..90, 0u8..8, any::<bool>()), 1..12),
        swaps in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>()), 0..6),
        drops in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let mut frames = load(NAMES[name]);
        for (at, byte, bit, right) in flips {
            let at = at.index(frames.len());
            let f = &mut frames[at];
            if let Some(b) = f.data.get_mut(byte) {
                *b ^= 1 << bit;
            }
            // With a right ICRC the damage gets further.
            if right && Layout::locate(&f.data).is_ok_and(|l| l.end <= f.data.len()) {
                common::sign(&mut f.data);
            }
        }
        for (a, b) in swaps {
            let (a, b) = (a.index(frames.len()), b.index(frames.len()));
            frames.swap(a, b);
        }
        for at in drops {
            if frames.len() > 1 {
                let at = at.index(frames.len());
                frames.remove(at);
            }
        }
        let report = play(&frames);
        prop_assert!(report.frames == frames.len() as u64);
    }
}
