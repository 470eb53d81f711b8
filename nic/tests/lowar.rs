//! LoWAR, packet by packet: what is recovered without a word to the sender, what is left to Go-Back-N, who speaks it and who does not.

use softnic_nic::transports::congestion::Fixed;
use softnic_nic::transports::lowar::{Code, Lowar};
use softnic_nic::transports::negotiation::{Choice, FallbackReason};
use softnic_nic::transports::{Event, SendOp, Status, Transport};
use softnic_wire::lowar::{RepairHeader, Type};
use softnic_wire::{Opcode, bth};

use crate::common::*;

const MTU: usize = 256;
/// One way of the wire takes this long, in nanoseconds.
const ONE_WAY: u64 = 500_000;

fn code(r: u8, c: u8) -> Option<Code> {
    Some(Code::new(r, c).unwrap())
}

fn with(code: Option<Code>) -> Options {
    Options { offers: [code.map(Transport::Lowar); 2], ..Options::default() }
}

/// Each test begins far from the wrap of PSNs, and wraps in its middle; over IPv4 and IPv6.
fn each(options: Options, test: impl Fn(World)) {
    for psn in FIRST_PSNS {
        for ipv6 in [false, true] {
            let mut w = World::new(Options { psn, ipv6, ..options });
            w.settle(ONE_WAY);
            assert_eq!([A, B].map(|h| choice(&w, h)), [Some(Choice::Agreed); 2]);
            test(w);
        }
    }
}

fn choice(w: &World, h: usize) -> Option<Choice> {
    w.hosts[h].nic.choice(w.hosts[h].qpn)
}

fn header(w: &World, frame: &[u8]) -> Option<RepairHeader> {
    let packet = w.parse(frame);
    let bytes = frame[packet.payload.clone()]
        .first_chunk::<{ RepairHeader::LEN }>()
        .filter(|_| packet.bth.opcode == Opcode::LOWAR)?;
    RepairHeader::parse(bytes)
}

/// (data frames, repair frames).
fn apart(w: &World, frames: Vec<Vec<u8>>) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    frames.into_iter().partition(|f| header(w, f).is_none())
}

/// A WRITE from A to B of `packets` packets, the last of them short; all frames of it.
fn write(w: &mut World, wr_id: u64, packets: usize) -> Vec<Vec<u8>> {
    let len = packets * MTU - 100;
    w.fill(A, 0, &pattern(wr_id as u32, len));
    let op = w.write_to(B, 0);
    w.send(A, wr_id, op, 0, len);
    let frames = w.transmit(A);
    w.wait(ONE_WAY);
    frames
}

fn assert_written(w: &mut World, wr_id: u64, packets: usize) {
    w.settle(ONE_WAY);
    assert_eq!(w.sent_status(A), [(wr_id, Status::Success)]);
    assert_eq!(w.read(B, 0, packets * MTU - 100), pattern(wr_id as u32, packets * MTU - 100));
}

fn assert_unnoticed(w: &World) {
    for h in [A, B] {
        let c = w.counters(h);
        assert_eq!(
            (c.retransmitted_packets, c.sent_seq_naks, c.out_of_sequence, c.local_ack_timeout_err),
            (0, 0, 0, 0)
        );
        assert_eq!((c.lowar_failed_blocks, c.lowar_rejected), (0, 0));
    }
}

#[test]
fn any_packet_of_a_message_that_is_lost_is_recovered_and_nobody_hears_of_it() {
    // Shorter than the depth, shorter than a block, a block, longer, much longer (figure 6).
    for packets in [1, 2, 5, 8, 9, 20] {
        for lost in 0..packets {
            each(with(code(8, 2)), |mut w| {
                let (data, repairs) = {
                    let all = write(&mut w, 7, packets);
                    apart(&w, all)
                };
                let blocks = packets.div_ceil(8);
                assert_eq!(repairs.len(), (0..blocks).map(|b| (packets - b * 8).min(2)).sum::<usize>());
                // As they were sent: the repair packets of a block right behind it.
                let mut repairs = repairs.iter().peekable();
                for (i, f) in data.iter().enumerate() {
                    if i != lost {
                        w.deliver(B, f);
                    }
                    if (i + 1) % 8 == 0 || i + 1 == packets {
                        let base = w.parse(&data[i / 8 * 8]).bth.psn;
                        while let Some(r) = repairs.next_if(|r| w.parse(r).bth.psn == base) {
                            w.deliver(B, r);
                        }
                    }
                }
                assert_eq!(w.counters(B).lowar_recovered_packets, 1, "{lost} of {packets}");
                assert_written(&mut w, 7, packets);
                assert_unnoticed(&w);
            });
        }
    }
}

#[test]
fn a_burst_as_long_as_the_depth_is_recovered_wherever_it_is() {
    for first in 0..=12 {
        each(with(code(16, 4)), |mut w| {
            let (data, repairs) = {
                let all = write(&mut w, 7, 16);
                apart(&w, all)
            };
            for (i, f) in data.iter().enumerate() {
                if !(first..first + 4).contains(&i) {
                    w.deliver(B, f);
                }
            }
            w.deliver_all(B, &repairs);
            assert_eq!(w.counters(B).lowar_recovered_packets, 4);
            assert_written(&mut w, 7, 16);
            assert_unnoticed(&w);
        });
    }
}

#[test]
fn two_lost_packets_of_one_sum_are_left_to_go_back_n() {
    each(with(code(8, 2)), |mut w| {
        let all = write(&mut w, 7, 8);
        for (i, f) in all.iter().enumerate() {
            if i != 2 && i != 4 {
                w.deliver(B, f);
            }
        }
        assert_eq!(w.counters(B).lowar_failed_blocks, 1);
        let answers = w.transmit(B);
        assert_eq!(w.show(&answers), ["NAK0 +2 msn 0"], "at once, and no more than one");
        w.wait(ONE_WAY);
        w.deliver_all(A, &answers);
        let (again, repairs) = {
            let all = w.transmit(A);
            apart(&w, all)
        };
        assert_eq!(again.len(), 6);
        let h = header(&w, &repairs[0]).unwrap();
        assert_eq!(
            (h.n, h.has_first, h.has_last, w.parse(&repairs[0]).bth.psn),
            (6, false, true, w.parse(&again[0]).bth.psn)
        );
        // The first packet that is sent again is lost, too: no clock has to run out for it.
        w.wait(ONE_WAY);
        w.deliver_all(B, &again[1..]);
        w.deliver_all(B, &repairs);
        assert_eq!(w.counters(B).lowar_recovered_packets, 1);
        assert_written(&mut w, 7, 8);
        assert_eq!(w.counters(A).local_ack_timeout_err, 0);
    });
}

#[test]
fn what_waits_for_a_repair_that_never_comes_is_given_up_by_the_clock() {
    each(with(code(8, 1)), |mut w| {
        let (data, _) = {
            let all = write(&mut w, 7, 8);
            apart(&w, all)
        };
        for (i, f) in data.iter().enumerate() {
            if i != 3 {
                w.deliver(B, f);
            }
        }
        assert!(w.transmit(B).is_empty(), "nothing is said while a repair may come");
        assert_eq!(w.counters(B).lowar_held_packets, 4);
        w.wait(4_100_000);
        let answers = w.transmit(B);
        assert_eq!(w.show(&answers), ["NAK0 +3 msn 0"]);
        w.deliver_all(A, &answers);
        assert_written(&mut w, 7, 8);
    });
}

#[test]
fn what_comes_late_after_it_was_recovered_changes_nothing() {
    each(with(code(8, 1)), |mut w| {
        let all = write(&mut w, 7, 8);
        for (i, f) in all.iter().enumerate() {
            if i != 3 {
                w.deliver(B, f);
            }
        }
        w.deliver(B, &all[3]);
        w.deliver(B, &all[8]); // the repair packet again
        assert_written(&mut w, 7, 8);
        let c = w.counters(B);
        assert_eq!((c.lowar_recovered_packets, c.duplicate_request, c.lowar_failed_blocks), (1, 1, 0));
    });
}

#[test]
fn sends_immediates_reads_and_atomics_are_recovered_whole() {
    each(with(code(8, 1)), |mut w| {
        for i in 0..4 {
            w.recv(B, i, 60_000 + i as usize * 1000, 1000);
        }
        w.fill(A, 0, &pattern(1, 1000));
        w.fill(B, 20_000, &pattern(2, 5 * MTU));
        w.fill(B, 40_000, &41u64.to_ne_bytes());
        let (imm, read, add) = (w.write_imm_to(B, 50_000, 0xfeed), w.read_from(B, 20_000), w.add_to(B, 40_000, 1));
        w.send(A, 1, SendOp::Send, 0, 700);
        w.send(A, 2, SendOp::SendImm { imm: 0xcafe }, 0, 100);
        w.send(A, 3, imm, 0, 600);
        w.send(A, 4, read, 10_000, 5 * MTU);
        w.send(A, 5, add, 30_000, 8);
        // Of each message, and of each answer, a packet is lost: the first, with its RETH or AETH, or the last, with its immediate.
        for round in 0..4 {
            for (from, to) in [(A, B), (B, A)] {
                let frames = w.transmit(from);
                w.wait(ONE_WAY);
                for f in &frames {
                    let bth = w.parse(f).bth;
                    // Acknowledgements and the shim's own are not lost.
                    let protected = !matches!(bth.opcode, Opcode::LOWAR | Opcode::RC_ACKNOWLEDGE);
                    let ends = if round % 2 == 0 { bth.opcode.begins_message() } else { bth.opcode.ends_message() };
                    if !(protected && ends) {
                        w.deliver(to, f);
                    }
                }
            }
        }
        w.settle(ONE_WAY);
        assert_eq!(w.sent_status(A), [1, 2, 3, 4, 5].map(|id| (id, Status::Success)));
        let received: Vec<_> = w.received(B).iter().map(|c| (c.wr_id, c.byte_len, c.imm)).collect();
        assert_eq!(received, [(0, 700, None), (1, 100, Some(0xcafe)), (2, 600, Some(0xfeed))]);
        assert_eq!(w.read(B, 60_000, 700), pattern(1, 700));
        assert_eq!(w.read(B, 61_000, 100), pattern(1, 100));
        assert_eq!(w.read(B, 50_000, 600), pattern(1, 600));
        assert_eq!(w.read(A, 10_000, 5 * MTU), pattern(2, 5 * MTU));
        assert_eq!(
            (w.read(A, 30_000, 8), w.read(B, 40_000, 8)),
            (41u64.to_ne_bytes().into(), 42u64.to_ne_bytes().into())
        );
        assert!(w.counters(A).lowar_recovered_packets >= 2 && w.counters(B).lowar_recovered_packets >= 5);
        assert_unnoticed(&w);
    });
}

#[test]
fn data_packets_are_those_of_rc_byte_for_byte() {
    let frames = |options| {
        let mut w = World::new(options);
        w.settle(ONE_WAY);
        let (data, repairs) = {
            let all = write(&mut w, 7, 20);
            apart(&w, all)
        };
        (data, repairs.len())
    };
    // Keys and numbers of queue pairs come from a generator that the negotiation draws from, too.
    let zeroed = |mut frames: Vec<Vec<u8>>| {
        for f in &mut frames {
            let at = softnic_wire::Layout::locate(f).unwrap().bth;
            f.truncate(f.len() - 4);
            f[at + bth::LEN + 8..][..4].fill(0);
        }
        frames
    };
    let (plain, none) = frames(Options::default());
    let (coded, some) = frames(with(code(8, 2)));
    assert_eq!((none, some), (0, 6));
    assert_eq!(zeroed(plain), zeroed(coded));
}

#[test]
fn each_side_sends_blocks_of_its_own_kind() {
    let mut w =
        World::new(Options { offers: [code(8, 2), code(4, 1)].map(|c| c.map(Transport::Lowar)), ..Options::default() });
    w.settle(ONE_WAY);
    for (from, to, repairs) in [(A, B, 4), (B, A, 4)] {
        w.fill(from, 0, &pattern(3, 16 * MTU));
        let op = w.write_to(to, 30_000);
        w.send(from, 1, op, 0, 16 * MTU);
        let (data, coded) = {
            let all = w.transmit(from);
            apart(&w, all)
        };
        assert_eq!((data.len(), coded.len()), (16, repairs));
        w.deliver_all(to, &data[1..4]);
        w.deliver(to, &coded[0]);
        if from == A {
            // A block of eight: four more have to come before its sum is worth anything.
            assert_eq!(w.counters(to).lowar_recovered_packets, 0);
        }
        w.settle(ONE_WAY);
        w.wait(200_000_000);
        w.settle(ONE_WAY);
        assert_eq!(w.sent_status(from), [(1, Status::Success)]);
        assert_eq!(w.read(to, 30_000, 16 * MTU), pattern(3, 16 * MTU));
    }
}

#[test]
fn a_request_of_the_receiver_changes_the_blocks_and_a_notice_says_so() {
    each(with(code(8, 1)), |mut w| {
        let (qpn, code) = (w.hosts[B].qpn, Code::new(4, 2).unwrap());
        w.hosts[B].nic.with_shim(qpn, |lowar: &mut Lowar| lowar.request_code(code)).unwrap();
        let requests = w.transmit(B);
        assert_eq!(header(&w, &requests[0]).map(|h| (h.kind, h.r, h.c)), Some((Type::Request, 4, 2)));
        w.deliver_all(A, &requests);
        let notices = w.transmit(A);
        assert_eq!(header(&w, &notices[0]).map(|h| (h.kind, h.r, h.c)), Some((Type::Notice, 4, 2)));
        w.deliver_all(B, &notices);
        let (data, repairs) = {
            let all = write(&mut w, 7, 4);
            apart(&w, all)
        };
        assert_eq!(repairs.len(), 2);
        w.deliver_all(B, &data[2..]);
        w.deliver_all(B, &repairs);
        assert_eq!(w.counters(B).lowar_recovered_packets, 2);
        assert_written(&mut w, 7, 4);
        assert_unnoticed(&w);
    });
}

#[test]
fn a_peer_without_it_gets_plain_rc_and_no_repair_packet() {
    for lowar in [[code(8, 1), None], [None, code(8, 1)]] {
        let mut w = World::new(Options { offers: lowar.map(|c| c.map(Transport::Lowar)), ..Options::default() });
        w.settle(ONE_WAY);
        let offered = if lowar[A].is_some() { A } else { B };
        assert_eq!(choice(&w, offered), Some(Choice::Standard(FallbackReason::NothingInCommon)));
        let fell_back = |e: &Event| matches!(e, Event::FellBack(_, _, FallbackReason::NothingInCommon));
        assert_eq!(w.events(offered).iter().filter(|e| fell_back(e)).count(), 1);
        let (data, repairs) = {
            let all = write(&mut w, 7, 9);
            apart(&w, all)
        };
        assert_eq!((data.len(), repairs.len()), (9, 0));
        w.deliver_all(B, &data);
        assert_written(&mut w, 7, 9);
    }
}

#[test]
fn a_link_that_is_too_short_for_repair_packets_is_refused_with_the_mtu_it_needs() {
    for (mtu, choices) in [
        (
            MTU as u32 + 119,
            [
                Choice::Standard(FallbackReason::LinkMtu(MTU as u32 + 120)),
                Choice::Standard(FallbackReason::NothingInCommon),
            ],
        ),
        (MTU as u32 + 120, [Choice::Agreed; 2]),
    ] {
        let options = with(code(8, 1));
        let mut w = World::unconnected(options);
        w.hosts[A].nic.set_link_mtu(mtu);
        for h in [A, B] {
            let rtr = rtr_attr(&options, w.path(h), w.hosts[1 - h].qpn);
            for attr in [init_attr(&options), rtr, rts_attr(&options)] {
                w.modify(h, &attr);
            }
        }
        w.settle(ONE_WAY);
        assert_eq!([A, B].map(|h| choice(&w, h)), choices.map(Some));
        let frames = write(&mut w, 7, 9);
        // Behind the Ethernet header.
        assert!(frames.iter().all(|f| f.len() - 14 <= mtu as usize));
        w.deliver_all(B, &frames);
        assert_written(&mut w, 7, 9);
    }
}

#[test]
fn requests_wait_for_the_verdict_and_answers_do_not() {
    let mut w = World::new(with(code(8, 1)));
    let offers = [w.transmit(A), w.transmit(B)];
    let op = w.write_to(B, 0);
    w.send(A, 1, op, 0, 100);
    assert!(w.transmit(A).is_empty(), "the peer may answer yet");
    w.deliver_all(A, &offers[B]);
    assert_eq!(w.transmit(A).len(), 1, "the answer to the offer, which decides nothing");
    w.deliver_all(B, &offers[A]);
    let answer = w.transmit(B);
    w.deliver_all(A, &answer);
    let (data, repairs) = {
        let all = w.transmit(A);
        apart(&w, all)
    };
    // The notice, the WRITE twice.
    assert_eq!((data.len(), repairs.len()), (1, 2));
}

#[test]
fn repair_packets_count_for_congestion_control_and_a_mark_on_one_is_told() {
    let mut w = World::new(with(code(8, 1)));
    w.settle(ONE_WAY);
    let (qpn, rate) = (w.hosts[A].qpn, 1_000_000_000);
    w.hosts[A].nic.set_congestion_control(qpn, Some(Box::new(Fixed::new(rate, u64::MAX)))).unwrap();
    let op = w.write_to(B, 0);
    w.send(A, 7, op, 0, 32 * MTU);
    let begin = w.now;
    let (mut bytes, mut marked) = (0, 0);
    while bytes == 0 || w.sent_status(A).is_empty() {
        let mut frames = w.transmit(A);
        for f in &mut frames {
            bytes += f.len() + 24;
            if header(&w, f).is_some() && softnic_wire::transit::mark_ce(f) {
                marked += 1;
            }
        }
        w.deliver_all(B, &frames);
        let answers = w.transmit(B);
        w.deliver_all(A, &answers);
        w.wait(50);
    }
    let nanos = w.now.saturating_since(begin).as_nanos() as usize;
    // The first packet leaves at once, and the last one is not waited for.
    assert!(nanos >= (bytes - 3 * MTU) * 8, "{bytes} bytes with their gaps in {nanos} ns");
    assert_eq!((marked, w.counters(B).np_ecn_marked_roce_packets), (4, 4));
    assert!(w.counters(B).np_cnp_sent > 0 && w.counters(A).rp_cnp_handled == w.counters(B).np_cnp_sent);
}

#[test]
fn units_and_places_come_back_when_a_queue_pair_is_reset_or_destroyed() {
    let mut w = World::new(with(code(8, 4)));
    w.settle(ONE_WAY);
    let free = |w: &mut World, h: usize| w.hosts[h].nic.shim_pools().lowar.free_units();
    let all = free(&mut w, A);
    assert_eq!(all, (1024, 1024));
    let frames = write(&mut w, 7, 6);
    w.deliver_all(B, &frames[2..4]);
    assert!(free(&mut w, A).0 < 1024 && free(&mut w, B).1 < 1024);
    w.modify(B, &to_state(softnic_nic::transports::qp::QpState::Reset));
    let qpn = w.hosts[A].qpn;
    w.hosts[A].nic.destroy_qp(qpn).unwrap();
    assert_eq!((free(&mut w, A), free(&mut w, B)), (all, all));
}
