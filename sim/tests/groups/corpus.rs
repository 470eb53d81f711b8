//! The captures of a group in the corpus, one at each host: what they show is what the switch and the NICs send, byte for byte.
//!
//! Where the wire changes on purpose, `SOFTNIC_WRITE_CORPUS=1 cargo test -p softnic-sim --test sim groups::corpus` writes them anew.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;

use softnic_fault_injector::Fate;
use softnic_pcaps::{LinkType, PcapWriter, Timestamp};
use softnic_wire::Psn;

use super::{Status, WRITE, World, link, pattern};

/// What each host sees, in the order of their times.
type Seen = Rc<RefCell<Vec<Vec<(i128, Vec<u8>)>>>>;

/// At a host: what it sends, lost or not, as it leaves; what comes to it, as it arrives.
fn record(world: &mut World<'static>, hosts: usize) -> Seen {
    let seen: Seen = Rc::new(RefCell::new(vec![Vec::new(); hosts]));
    let all = Rc::clone(&seen);
    world.sim.set_tap(Box::new(move |sent| {
        let (host, comes) = (sent.link / 2, sent.link % 2 == 1);
        if comes && sent.fate == Fate::Drop {
            return;
        }
        let config = link(host, "");
        let on_its_way = config.delay.as_nanos() as i128 + sent.wire_len as i128 * 8_000_000_000 / config.rate as i128;
        let at = i128::from(sent.at.instant().as_nanos()) + if comes { on_its_way } else { 0 };
        all.borrow_mut()[host].push((at, sent.frame.to_vec()));
    }));
    seen
}

fn hold(name: &str, frames: &[(i128, Vec<u8>)]) {
    let mut file = PcapWriter::new(Vec::new(), LinkType::Ethernet).unwrap();
    for (at, frame) in frames {
        file.write(Timestamp::from_nanos(*at), frame, frame.len() as u32).unwrap();
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../pcaps/corpus").join(name);
    if std::env::var_os("SOFTNIC_WRITE_CORPUS").is_some() {
        std::fs::write(&path, file.into_inner()).unwrap();
        return;
    }
    let kept = std::fs::read(&path).unwrap();
    assert!(kept == file.into_inner(), "{name} is not what is sent now");
}

/// Two WRITEs of eight packets to two receivers; the second one loses packets, which both get again.
#[test]
fn a_group_whose_second_receiver_loses_packets() {
    let mut world = World::new(2, &["", "", "ba.loss=0.15"], Psn::MAX.sub(5), 7);
    let seen = record(&mut world, 3);
    for message in 0..2 {
        world.write(WRITE, &pattern(message)[..8000]);
        assert_eq!(world.completion(), Status::Success);
        assert!((1..=2).all(|host| world.memory(host, 8000) == pattern(message)[..8000]));
    }
    let report = world.report();
    assert!(report.counters.packets_in > 16 && report.counters.naks > 0, "{report:?}");
    drop(world);
    let names = ["group_at_sender.pcap", "group_at_receiver_1.pcap", "group_at_receiver_2.pcap"];
    for (name, frames) in names.iter().zip(seen.borrow_mut().iter_mut()) {
        frames.sort_by_key(|(at, _)| *at);
        hold(name, frames);
    }
}
