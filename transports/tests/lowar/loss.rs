//! Whatever is lost: what can be recovered is, byte for byte and in order; and nothing comes out that was not sent.

use proptest::prelude::*;
use softnic_fault_injector::random::Random;
use softnic_transports::lowar::{Code, MAX_DEPTH};
use softnic_wire::Psn;

use crate::ends::{End, Receiver, repair_of};
use crate::messages::{Message, Packet, any_message, lay_out, template};

/// Any blocks, small ones more often.
pub(crate) fn any_code() -> impl Strategy<Value = Code> {
    let blocks = prop_oneof![1..=8u8, 1..=40u8, Just(255)];
    blocks.prop_flat_map(|r| (Just(r), 1..=r.min(MAX_DEPTH))).prop_map(|(r, c)| Code::new(r, c).unwrap())
}

/// A first PSN, near the wrap half of the time.
pub(crate) fn any_psn() -> impl Strategy<Value = Psn> {
    prop_oneof![any::<u32>().prop_map(Psn::new), (0..60u32).prop_map(|n| Psn::MAX.sub(n))]
}

#[derive(Debug, Clone)]
struct Case {
    codes: [Code; 2],
    messages: Vec<Message>,
    first: [Psn; 2],
    ipv6: bool,
    seed: u64,
}

fn any_case() -> impl Strategy<Value = Case> {
    let messages = proptest::collection::vec(any_message(), 1..8);
    (any_code(), any_code(), messages, any_psn(), any_psn(), any::<bool>(), any::<u64>()).prop_map(
        |(ours, theirs, messages, requests, responses, ipv6, seed)| Case {
            codes: [ours, theirs],
            messages,
            first: [requests, responses],
            ipv6,
            seed,
        },
    )
}

/// The packets, and all frames that the wire gets for them.
fn sent(case: &Case, random: &mut Random) -> (Vec<Packet>, Vec<Vec<u8>>) {
    let template = template(case.ipv6);
    let packets = lay_out(&case.messages, &template, case.first, || random.next_u32());
    let mut sender = End::new(&template, case.codes[0], Some(case.codes[1]));
    let frames = sender.send_all(&packets);
    let repairs = frames.iter().filter(|f| repair_of(f).is_some()).count() as u64;
    assert_eq!((sender.counters.lowar_repairs_sent, sender.counters.lowar_unprotected_blocks), (repairs, 0));
    sender.reset();
    assert!(sender.pools.lowar.are_unused());
    (packets, frames)
}

/// Which packets each repair packet was made of, by their place among the packets; and where it stands among the frames.
fn sums(packets: &[Packet], frames: &[Vec<u8>]) -> Vec<(usize, Vec<usize>)> {
    let of = |responses: bool, psn: Psn| packets.iter().position(|p| p.responses == responses && p.psn == psn).unwrap();
    let repairs = frames.iter().enumerate().filter_map(|(i, f)| Some((i, repair_of(f)?)));
    repairs
        .map(|(i, (h, base))| {
            let offsets = (u32::from(h.isn)..u32::from(h.n)).step_by(h.c.into());
            (i, offsets.map(|offset| of(h.responses, base.add(offset))).collect())
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_packet_is_part_of_one_sum_of_its_block(case in any_case()) {
        let (packets, frames) = sent(&case, &mut Random::new(case.seed));
        let mut of = vec![0; packets.len()];
        for (_, sum) in sums(&packets, &frames) {
            prop_assert!(sum.len() <= usize::from(case.codes[0].r().div_ceil(case.codes[0].c())));
            sum.iter().for_each(|&p| of[p] += 1);
        }
        prop_assert!(of.iter().all(|&n| n == 1), "{of:?}");
    }

    #[test]
    fn one_loss_of_each_sum_is_repaired_and_nobody_above_notices(case in any_case(), often in 0.1f64..1.0) {
        let mut random = Random::new(case.seed);
        let (packets, frames) = sent(&case, &mut random);
        let mut lost = vec![false; frames.len()];
        let place = |p: &Packet| frames.iter().position(|f| *f == p.frame).unwrap();
        let mut losses = 0;
        for (repair, sum) in sums(&packets, &frames) {
            if random.chance(often) {
                lost[place(&packets[sum[random.below(sum.len() as u64) as usize]])] = true;
                losses += 1;
            } else if random.chance(0.3) && packets.len() > 1 {
                // Nobody needs it; but who knows the blocks of a message only by it must get one of them.
                lost[repair] = sum.len() > 1;
            }
        }
        let template = template(case.ipv6);
        let mut receiver = Receiver::new(End::new(&template, case.codes[1], Some(case.codes[0])), &packets);
        let arriving: Vec<_> = frames.iter().zip(&lost).filter(|(_, lost)| !**lost).map(|(f, _)| f).collect();
        receiver.receive_all(arriving);
        let c = receiver.end.counters;
        prop_assert!(receiver.has_all(), "{c:?}");
        prop_assert_eq!(receiver.handed.len(), packets.len(), "each once");
        prop_assert_eq!((c.lowar_recovered_packets, c.lowar_rejected, c.lowar_failed_blocks), (losses, 0, 0));
        receiver.end.reset();
        prop_assert!(receiver.end.pools.lowar.are_unused());
    }

    #[test]
    fn whatever_is_lost_doubled_or_late_nothing_comes_out_that_was_not_sent(
        case in any_case(),
        known in any::<bool>(),
        room in (0..6u16, 0..5u32),
        faults in (0.0f64..0.5, 0.0f64..0.3, 0.0f64..0.3),
    ) {
        let mut random = Random::new(case.seed);
        let (packets, frames) = sent(&case, &mut random);
        let template = template(case.ipv6);
        let few = random.chance(0.5);
        let (units, places) = if few { (room.0, 1 << room.1) } else { (512, 1024) };
        let end = End::with_room(&template, case.codes[1], known.then_some(case.codes[0]), units, places);
        let mut receiver = Receiver::new(end, &packets);
        let (lost, doubled, late) = faults;
        let mut flying: Vec<Vec<u8>> = Vec::new();
        for frame in &frames {
            if random.chance(doubled) {
                flying.push(frame.clone());
            }
            if !random.chance(lost) {
                flying.push(frame.clone());
            }
            while !flying.is_empty() && !random.chance(late) {
                let i = if random.chance(late) { random.below(flying.len() as u64) as usize } else { 0 };
                receiver.receive(&flying.remove(i));
            }
            if random.chance(0.01) {
                receiver.time_out();
            }
        }
        receiver.receive_all(&flying);
        for turn in 0.. {
            prop_assert!(turn < 10, "it never stops to wait");
            if !receiver.time_out() {
                break;
            }
        }
        prop_assert_eq!(receiver.invented(&packets), None);
        // Go-Back-N: from the first that is missing on, until all came.
        let mut sender = End::new(&template, case.codes[0], None);
        for _ in 0..2 {
            for responses in [false, true] {
                let mine: Vec<_> = packets.iter().filter(|p| p.responses == responses).cloned().collect();
                let rest = &mine[receiver.taken[usize::from(responses)].len()..];
                let again = sender.send_all(rest);
                receiver.receive_all(&again);
            }
        }
        prop_assert!(receiver.has_all(), "{:?}", receiver.end.counters);
        receiver.end.reset();
        prop_assert!(receiver.end.pools.lowar.are_unused());
    }
}
