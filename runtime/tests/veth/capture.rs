//! A capture of what a NIC sent and received.

use std::fs::File;

use softnic_nic::QpKind;
use softnic_pcaps::decode::{IcrcVerdict, decode_ethernet};
use softnic_pcaps::{LinkType, Reader};
use softnic_runtime::api::OpenOptions;

use crate::veth::longest_mtu;
use crate::world::World;

#[test]
fn a_capture_holds_every_frame_with_a_right_icrc() {
    let file = std::env::temp_dir().join(format!("softnic-veth-{}.pcap", std::process::id()));
    let options = OpenOptions { pcap: Some(file.clone()), ..OpenOptions::default() };
    let Some(w) = World::with(1, 4200, [options, OpenOptions::default()]) else { return };
    let qps = w.connected(QpKind::Rc, None);
    w.write_and_compare(&qps, 0, 100_000, 1);
    w.write_and_compare(&qps, 1, 100_000, 2);
    let counters = w.sides[0].context.counters();
    drop((qps, w));
    let mut reader = Reader::new(File::open(&file).unwrap()).unwrap();
    let [mut sent, mut received, mut longest] = [0; 3];
    while let Some(frame) = reader.next_frame().unwrap() {
        assert_eq!((frame.link, frame.data.len()), (LinkType::Ethernet, frame.original_len as usize));
        let packet = decode_ethernet(frame.data).unwrap();
        assert_eq!(packet.icrc, IcrcVerdict::Ok, "frame {}", frame.number);
        *(if packet.src == std::net::IpAddr::from([10, 77, 0, 1]) { &mut sent } else { &mut received }) += 1;
        longest = longest.max(frame.data.len() as u64);
    }
    std::fs::remove_file(&file).unwrap();
    assert_eq!((sent, received), (counters.sent_pkts, counters.rcvd_pkts));
    // Of path MTU 4096: those in two chunks are there as one.
    assert!(longest > longest_mtu().bytes().into(), "{longest}");
}
