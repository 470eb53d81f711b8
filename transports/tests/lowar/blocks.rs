//! Single situations of blocks: what a test with arbitrary losses has found, and what it meets too rarely.

use softnic_transports::lowar::Code;
use softnic_wire::Psn;

use crate::ends::{End, Receiver, repair_of};
use crate::messages::{Kind, MTU, Message, template};

/// Found by the swarm (seed 201117).
#[test]
fn a_packet_that_waits_and_is_recovered_all_the_same_leaves_nothing_in_the_ring() {
    let (template, code) = (template(false), Code::new(8, 2).unwrap());
    let read = Message { kind: Kind::ReadResponse, len: 4 * MTU };
    let packets = read.packets(&template, Psn::new(70), 1);
    let mut sender = End::new(&template, code, None);
    let mut receiver = Receiver::new(End::new(&template, code, Some(code)), &packets);
    let first = sender.send_all(&packets);
    // The second and the third are lost, and so are all repairs: the last waits.
    receiver.receive_all([&first[1], &first[4]]);
    assert_eq!((receiver.handed.len(), receiver.end.counters.lowar_held_packets), (1, 1));
    // The READ goes on from the second; only that one comes of the answer, and its repair packets.
    let rest = Message { kind: Kind::ReadResponse, len: 3 * MTU };
    let again = rest.packets(&template, Psn::new(71), 2);
    let frames = sender.send_all(&again);
    receiver.receive(&frames[0]);
    let repairs: Vec<_> = frames.iter().filter(|f| repair_of(f).is_some()).collect();
    assert_eq!(repairs.len(), 2);
    receiver.receive_all(repairs);
    assert_eq!((receiver.handed.len(), receiver.end.counters.lowar_recovered_packets), (4, 2));
    assert!(receiver.invented(&[packets, again].concat()).is_none());
    receiver.end.reset();
    assert!(receiver.end.pools.lowar.are_unused());
}

/// The peer's request holds from the next block on, and a notice says so.
#[test]
fn a_request_changes_the_blocks_to_come_and_what_is_lost_of_them_is_recovered() {
    let (template, before, after) = (template(true), Code::new(4, 1).unwrap(), Code::new(6, 3).unwrap());
    let write = Message { kind: Kind::Write, len: 12 * MTU };
    let packets = write.packets(&template, Psn::MAX.sub(5), 3);
    let mut sender = End::new(&template, before, None);
    let mut receiver = Receiver::new(End::new(&template, before, Some(before)), &packets);
    let first = sender.send_all(&packets[..2]);
    receiver.receive_all(&first);
    receiver.end.request_code(after);
    for request in receiver.end.own_frames() {
        Receiver::new(End::new(&template, before, None), &[]).receive(&request);
        let mut asked = Receiver::new(std::mem::replace(&mut sender, End::new(&template, before, None)), &[]);
        asked.receive(&request);
        sender = asked.end;
    }
    assert_eq!(sender.sends(), Some(after));
    let rest = sender.send_all(&packets[2..]);
    let codes: Vec<_> = rest.iter().filter_map(|f| repair_of(f)).map(|(h, _)| (h.r, h.c, h.n)).collect();
    assert_eq!(codes, [(4, 1, 4), (6, 3, 6), (6, 3, 6), (6, 3, 6), (6, 3, 2), (6, 3, 2)]);
    // Three in a row are lost of the second block.
    let lost: Vec<_> = packets[5..8].iter().map(|p| &p.frame).collect();
    receiver.receive_all(rest.iter().filter(|f| !lost.contains(f)));
    assert!(receiver.has_all(), "{:?}", receiver.end.counters);
    assert_eq!(receiver.end.counters.lowar_recovered_packets, 3);
}
