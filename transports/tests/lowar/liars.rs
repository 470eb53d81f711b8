//! Peers that lie in the Repair Header, or in what follows it: nothing panics, nothing comes out that was not sent, and what is sent
//! again comes through.

use proptest::prelude::*;
use softnic_fault_injector::random::Random;
use softnic_transports::lowar::Code;
use softnic_wire::lowar::RepairHeader;
use softnic_wire::{ExtHeaders, Opcode, Psn, Template};

use crate::ends::{End, Receiver, repair_of};
use crate::loss::{any_code, any_psn};
use crate::messages::{Message, any_message, build, headers, lay_out, template};

/// A lie: a frame with a Repair Header, made of an honest one or of nothing.
fn lie(template: &Template, near: Psn, honest: Option<&Vec<u8>>, random: &mut Random) -> Vec<u8> {
    let (mut psn, mut payload) = (near.add(random.below(40) as u32).sub(20), Vec::new());
    match honest.and_then(|f| Some((f, repair_of(f)?))) {
        Some((frame, (_, base))) if random.chance(0.8) => {
            psn = base;
            payload = frame[headers(frame) + 12..frame.len() - 4].to_vec();
        }
        _ => payload.extend((0..12 + random.below(300)).map(|_| random.next_u32() as u8)),
    }
    // One to three fields are changed: mostly to what could be, else to anything.
    for _ in 0..1 + random.below(3) {
        let at = random.below(RepairHeader::LEN as u64) as usize;
        let likely =
            [0, 1, 2, 3, 4, 8, 255, payload[at].wrapping_add(1), payload[at].wrapping_sub(1), payload[at] ^ 0x20];
        payload[at] = match random.chance(0.8) {
            true => likely[random.below(likely.len() as u64) as usize],
            false => random.next_u32() as u8,
        };
    }
    match random.below(8) {
        0 => payload.truncate(random.below(payload.len() as u64 + 1) as usize),
        1 => payload.extend([0; 300]),
        2 => psn = Psn::new(random.next_u32()),
        3 => psn = psn.add(random.below(9) as u32).sub(4),
        4 => {
            let at = random.below(payload.len() as u64) as usize;
            payload[at] ^= 1 << random.below(8);
        }
        _ => {}
    }
    // A sum longer than any packet is no frame that this wire carries.
    payload.truncate(1500);
    build(template, Opcode::LOWAR, psn, &ExtHeaders::default(), &payload)
}

fn any_messages() -> impl Strategy<Value = Vec<Message>> {
    proptest::collection::vec(any_message(), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn a_liar_gets_nothing_through_and_stops_nothing(
        codes in (any_code(), any_code()),
        messages in any_messages(),
        first in (any_psn(), any_psn()),
        lies in 0.1f64..0.9,
        lost in 0.0f64..0.3,
        seed in any::<u64>(),
    ) {
        let mut random = Random::new(seed);
        let template = template(false);
        let packets = lay_out(&messages, &template, first.into(), || random.next_u32());
        let mut sender = End::new(&template, codes.0, None);
        let frames = sender.send_all(&packets);
        let mut receiver = Receiver::new(End::new(&template, codes.1, Some(codes.0)), &packets);
        let mut lied = 0;
        for (i, frame) in frames.iter().enumerate() {
            while random.chance(lies * 0.9) {
                let near = packets[random.below(packets.len() as u64) as usize].psn;
                let honest = &frames[(i + random.below(12) as usize).min(frames.len() - 1)];
                receiver.receive(&lie(&template, near, Some(honest), &mut random));
                lied += 1;
            }
            if !random.chance(lost) {
                receiver.receive(frame);
            }
            if random.chance(0.01) {
                receiver.time_out();
            }
        }
        prop_assert_eq!(receiver.invented(&packets), None);
        // Go-Back-N beside the liar: what is due is never swallowed.
        for stream in [0, 1] {
            let mine: Vec<_> = packets.iter().filter(|p| usize::from(p.responses) == stream).collect();
            for p in &mine[receiver.taken[stream].len()..] {
                receiver.receive(&lie(&template, p.psn, None, &mut random));
                receiver.receive(&p.frame);
            }
        }
        prop_assert!(receiver.has_all(), "{:?}", receiver.end.counters);
        prop_assert_eq!(receiver.invented(&packets), None);
        prop_assert!(receiver.end.counters.lowar_rejected <= lied + packets.len() as u64 + frames.len() as u64);
        receiver.end.reset();
        prop_assert!(receiver.end.pools.lowar.are_unused());
    }
}

/// Each field that cannot be right by itself, and each that does not fit the others, is counted and does nothing.
#[test]
fn what_cannot_be_is_rejected_and_counted() {
    let template = template(false);
    let code = Code::new(8, 2).unwrap();
    let message = Message { kind: crate::messages::Kind::Write, len: 5 * crate::messages::MTU - 10 };
    let packets = message.packets(&template, Psn::new(10), 3);
    let frames = End::new(&template, code, None).send_all(&packets);
    let honest = frames.iter().find(|f| repair_of(f).is_some()).unwrap();
    // The last of the first sum is lost: what the honest one brings back. Offset in the header, and what stands there instead.
    let lies: &[(&str, &[(usize, u8)])] = &[
        ("type 0", &[(0, 0)]),
        ("type 4", &[(0, 4)]),
        ("type 255", &[(0, 255)]),
        ("R = 0", &[(3, 0)]),
        ("C = 0", &[(4, 0)]),
        ("C > R", &[(4, 9)]),
        ("N = 0", &[(5, 0)]),
        ("N > R", &[(5, 9)]),
        ("N < R without the end of the message", &[(1, 0x80)]),
        ("ISN = C", &[(2, 2)]),
        ("ISN = N", &[(2, 1), (5, 1)]),
        ("a Last_Length of nothing", &[(6, 0), (7, 0)]),
        ("an absurd Last_Length", &[(6, 0xff), (7, 0xff)]),
        ("a Last_Length one too short", &[(7, honest_last(honest).wrapping_sub(1))]),
        ("no first packet", &[(1, 0x40)]),
        ("a digest of others", &[(11, 0x55)]),
        ("another code", &[(3, 9)]),
    ];
    for (what, changes) in lies {
        let mut receiver = Receiver::new(End::new(&template, code, Some(code)), &packets);
        receiver.receive_all(frames[1..5].iter());
        let at = headers(honest) + 12;
        let mut payload = honest[at..honest.len() - 4].to_vec();
        changes.iter().for_each(|&(i, v)| payload[i] = v);
        receiver.receive(&build(&template, Opcode::LOWAR, Psn::new(10), &ExtHeaders::default(), &payload));
        let c = receiver.end.counters;
        let no_first = *what == "no first packet";
        // Who says that the block does not begin its message is believed where the first packet is not the one in question.
        let expected = if no_first { (0, 1) } else { (1, 0) };
        assert_eq!((c.lowar_rejected, c.lowar_recovered_packets), expected, "{what}");
        assert!(receiver.invented(&packets).is_none(), "{what}");
        receiver.receive(&packets[4].frame);
        assert!(receiver.has_all(), "{what}");
    }
}

fn honest_last(frame: &[u8]) -> u8 {
    repair_of(frame).unwrap().0.last_len as u8
}

/// Notices and requests by the hundreds, each with other blocks: they change what is to come, and nothing that is under way.
#[test]
fn a_flood_of_notices_and_wishes_changes_no_packet() {
    let template = template(false);
    let mut random = Random::new(5);
    let messages = [Message { kind: crate::messages::Kind::Send, len: 60 * crate::messages::MTU }; 4];
    let packets = lay_out(&messages, &template, [Psn::MAX.sub(100); 2], || random.next_u32());
    let code = Code::new(16, 4).unwrap();
    let (mut sender, mut receiver) =
        (End::new(&template, code, None), Receiver::new(End::new(&template, code, None), &packets));
    let mut arrived = 0;
    for p in &packets {
        for frame in sender.send(&p.frame) {
            for _ in 0..random.below(4) {
                let mut header = [0; RepairHeader::LEN];
                header.iter_mut().for_each(|b| *b = random.next_u32() as u8);
                header[0] = 2 + random.below(2) as u8;
                receiver.receive(&build(&template, Opcode::LOWAR, Psn::new(0), &ExtHeaders::default(), &header));
            }
            if !random.chance(0.05) {
                receiver.receive(&frame);
                arrived += 1;
            }
        }
    }
    assert!(arrived > 200 && receiver.end.counters.lowar_rejected > 20, "{:?}", receiver.end.counters);
    assert!(receiver.invented(&packets).is_none());
    let rest = receiver.taken[0].len();
    receiver.receive_all(packets[rest..].iter().map(|p| &p.frame));
    assert!(receiver.has_all());
}
