//! A CRC is linear: why a right ICRC does not prove that a packet was recovered from the packets that were added up, and what does.

use softnic_transports::lowar::Code;
use softnic_wire::{Layout, Psn, icrc};

use crate::ends::{End, Receiver, repair_of};
use crate::messages::{Kind, MTU, Message, headers, template};

fn sum(bodies: [&[u8]; 3]) -> Vec<u8> {
    (0..bodies[0].len()).map(|i| bodies[0][i] ^ bodies[1][i] ^ bodies[2][i]).collect()
}

/// A READ is answered twice, and the memory changed in between; packets of both answers come, and a repair packet of the first.
#[test]
fn packets_of_two_answers_are_never_mixed_though_the_icrc_would_be_right() {
    let (template, code) = (template(false), Code::new(8, 1).unwrap());
    let read = Message { kind: Kind::ReadResponse, len: 4 * MTU };
    // Only what is read differs, not the headers.
    let [old, new] = [1, 2].map(|memory| read.packets_of(&template, Psn::MAX.sub(1), 9, memory));
    let mut sender = End::new(&template, code, None);
    let first = sender.send_all(&old);
    let repair = first.iter().find(|f| repair_of(f).is_some()).unwrap();
    let mut receiver = Receiver::new(End::new(&template, code, Some(code)), &old);

    // Of the first answer the first and the last packet are lost; the first one of the second answer comes in its stead.
    receiver.receive_all([&old[1].frame, &old[2].frame]);
    receiver.receive(&new[0].frame);
    assert_eq!(receiver.handed, [new[0].body(), old[1].body(), old[2].body()]);

    // What the repair packet and these three add up to: a packet with a right ICRC that is neither the old one nor the new one.
    let wrong = sum([old[3].body(), old[0].body(), new[0].body()]);
    let at = headers(&old[3].frame);
    let frame = [&old[3].frame[..at], &wrong].concat();
    let layout = Layout::locate(&frame).unwrap();
    assert!(icrc::verify_shared(&frame, &layout).is_ok(), "the ICRC says nothing");
    assert!(wrong != old[3].body() && wrong != new[3].body());
    assert_eq!(wrong[..16], old[3].body()[..16], "and neither do the headers");

    // The digest does.
    receiver.receive(repair);
    let c = receiver.end.counters;
    assert_eq!((c.lowar_rejected, c.lowar_recovered_packets, receiver.handed.len()), (1, 0, 3));

    // What the sender sends next is taken: Go-Back-N.
    receiver.receive(&new[3].frame);
    assert_eq!(receiver.handed[3], new[3].body());
}
