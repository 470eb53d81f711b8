//! The merge, answer by answer: the paper's examples, and what the paper leaves open.

use super::*;

const NOW: Instant = Instant::ZERO;

fn ack(msn: u32) -> Aeth {
    Aeth { syndrome: Syndrome::Ack(Credits::UNLIMITED), msn }
}

fn nak(code: NakCode) -> Aeth {
    Aeth { syndrome: Syndrome::Nak(code), msn: 0 }
}

fn rnr(code: u8) -> Aeth {
    Aeth { syndrome: Syndrome::RnrNak(RnrTimer(code)), msn: 0 }
}

const LOST: NakCode = NakCode::PSN_SEQUENCE_ERROR;

/// Members that have acknowledged so much of ten packets from PSN `first` on, of which the first is number 0.
fn at(first: u32, acked: &[u32]) -> Merge {
    let mut merge = Merge::new(Psn::new(first), acked.len());
    (0..10).for_each(|n| assert_eq!(merge.sent(Psn::new(first).add(n)), (true, None)));
    for (member, n) in acked.iter().enumerate() {
        assert_ne!(merge.heard(NOW, member, Psn::new(first).add(*n), ack(*n)), Merged::Lie);
    }
    merge
}

fn told(merged: Merged) -> Option<(u32, Syndrome)> {
    match merged {
        Merged::Tell(answer) => Some((answer.psn.value(), answer.aeth.syndrome)),
        _ => None,
    }
}

fn acked(psn: u32) -> Option<(u32, Syndrome)> {
    Some((psn, Syndrome::Ack(Credits::UNLIMITED)))
}

#[test]
fn the_minimum_goes_out_when_it_moves_whoever_moved_it() {
    let mut m = at(0, &[4, 2, 5]);
    assert_eq!(told(m.heard(NOW, 1, Psn::new(6), ack(6))), acked(4), "the paper is silent here");
    let mut m = at(0, &[4, 2, 5]);
    assert_eq!(told(m.heard(NOW, 1, Psn::new(4), ack(4))), acked(4), "the paper's example");
    assert_eq!(told(m.heard(NOW, 2, Psn::new(7), ack(7))), None, "it is not the last");
}

#[test]
fn the_msn_is_that_of_the_last_member() {
    let mut m = at(0, &[4, 2, 5]);
    let Merged::Tell(answer) = m.heard(NOW, 1, Psn::new(6), ack(60)) else { panic!("the minimum moved") };
    assert_eq!(answer.aeth.msn, 4);
    let Merged::Tell(answer) = m.heard(NOW, 0, Psn::new(9), ack(90)) else { panic!("the minimum moved") };
    assert_eq!((answer.psn.value(), answer.aeth.msn), (5, 5));
}

#[test]
fn an_old_ack_sets_nobody_back_and_is_repeated_only_from_the_last() {
    let mut m = at(0, &[4, 2, 5]);
    assert_eq!(told(m.heard(NOW, 2, Psn::new(1), ack(1))), None);
    assert_eq!(told(m.heard(NOW, 1, Psn::new(0), ack(0))), acked(2), "what was lost behind the switch comes again");
    assert_eq!(told(m.heard(NOW, 1, Psn::new(9), ack(9))), acked(4), "member 2 still has 5");
}

#[test]
fn psns_wrap_in_the_middle() {
    let first = Psn::MAX.value() - 3;
    let mut m = at(first, &[2, 1, 3]);
    assert_eq!(m.merged(), Psn::new(first + 1));
    assert_eq!(told(m.heard(NOW, 1, Psn::new(2), ack(6))), acked(first + 2));
    assert_eq!(told(m.heard(NOW, 0, Psn::new(1), ack(5))), acked(first + 3));
    assert_eq!(told(m.heard(NOW, 2, Psn::new(1), ack(5))), acked(1));
}

#[test]
fn a_nak_counts_as_its_members_ack_first() {
    let mut m = at(0, &[1, 2, 5]);
    assert_eq!(told(m.heard(NOW, 1, Psn::new(4), nak(LOST))), Some((2, Syndrome::Nak(LOST))), "the paper's example");
    let mut m = at(0, &[5, 2, 5]);
    assert_eq!(told(m.heard(NOW, 1, Psn::new(4), nak(LOST))), Some((4, Syndrome::Nak(LOST))));
}

#[test]
fn a_loss_before_the_branches_brings_one_nak_until_it_was_sent_again() {
    let mut m = at(0, &[3, 3, 3]);
    let all = |m: &mut Merge| (0..3).filter_map(|i| told(m.heard(NOW, i, Psn::new(4), nak(LOST)))).collect::<Vec<_>>();
    assert_eq!(all(&mut m), [(4, Syndrome::Nak(LOST))]);
    m.sent(Psn::new(10));
    assert_eq!(all(&mut m), [], "a new packet is not the lost one");
    m.sent(Psn::new(4));
    assert_eq!(all(&mut m), [(4, Syndrome::Nak(LOST))]);
    m.sent(Psn::new(5));
    assert_eq!(all(&mut m), [], "late, or behind another loss: who asked once does not ask again");
}

#[test]
fn members_that_lose_packets_in_turn_do_not_use_up_the_senders_retries() {
    let mut m = at(0, &[1, 3, 4]);
    assert_eq!(told(m.heard(NOW, 1, Psn::new(4), nak(LOST))), Some((2, Syndrome::Nak(LOST))));
    m.sent(Psn::new(2));
    m.sent(Psn::new(3));
    assert_eq!(told(m.heard(NOW, 2, Psn::new(6), nak(LOST))), None, "it is on the way");
    for n in 4..8 {
        m.sent(Psn::new(n));
    }
    assert_eq!(told(m.heard(NOW, 1, Psn::new(5), nak(LOST))), Some((2, Syndrome::Nak(LOST))), "it was lost again");
    assert_eq!(told(m.heard(NOW, 2, Psn::new(7), nak(LOST))), None, "it was told so");
}

#[test]
fn a_member_that_is_silent_for_a_while_does_not_cost_more_than_two_retries() {
    let mut m = at(0, &[1, 1, 1]);
    // All is sent again and again, the first member says nothing, and the others lose one packet more each time.
    let naks = (0..8).filter_map(|n| {
        (2..10).for_each(|psn| assert!(m.sent(Psn::new(psn)).0));
        told(m.heard(NOW, 1 + n % 2, Psn::new(2 + n as u32), nak(LOST)))
    });
    assert_eq!(naks.collect::<Vec<_>>(), [(2, Syndrome::Nak(LOST)); 2]);
    assert_eq!(told(m.heard(NOW, 0, Psn::new(5), ack(5))), acked(5));
    assert_eq!(told(m.heard(NOW, 0, Psn::new(7), nak(LOST))), Some((7, Syndrome::Nak(LOST))), "it goes on");
}

#[test]
fn an_old_nak_is_no_nak() {
    let mut m = at(0, &[5, 5]);
    for aeth in [nak(LOST), nak(NakCode::REMOTE_ACCESS_ERROR), rnr(5)] {
        assert_eq!(m.heard(NOW, 0, Psn::new(4), aeth), Merged::Keep);
    }
}

#[test]
fn not_ready_is_told_once_a_round_with_the_longest_time() {
    let mut m = at(0, &[3, 3, 3]);
    assert_eq!(told(m.heard(NOW, 0, Psn::new(4), rnr(5))), Some((4, Syndrome::RnrNak(RnrTimer(5)))));
    assert_eq!(told(m.heard(NOW, 1, Psn::new(4), rnr(0))), None, "code 0 is the longest of all");
    assert_eq!(told(m.heard(NOW, 2, Psn::new(4), nak(LOST))), None, "who waits need not hurry");
    m.sent(Psn::new(4));
    assert_eq!(told(m.heard(NOW, 0, Psn::new(4), rnr(5))), Some((4, Syndrome::RnrNak(RnrTimer(0)))));
    m.sent(Psn::new(4));
    assert_eq!(told(m.heard(NOW, 1, Psn::new(4), ack(4))), None);
    assert_eq!(told(m.heard(NOW, 0, Psn::new(4), rnr(5))), Some((4, Syndrome::RnrNak(RnrTimer(5)))));
}

#[test]
fn not_ready_is_told_although_a_loss_was() {
    let mut m = at(0, &[3, 3]);
    assert!(told(m.heard(NOW, 0, Psn::new(4), nak(LOST))).is_some());
    assert_eq!(told(m.heard(NOW, 1, Psn::new(4), rnr(9))), Some((4, Syndrome::RnrNak(RnrTimer(9)))));
}

#[test]
fn a_fatal_nak_waits_until_all_before_it_is_there_and_is_told_again_to_who_sends_again() {
    let bad = NakCode::REMOTE_ACCESS_ERROR;
    let mut m = at(0, &[1, 3, 3]);
    assert_eq!(m.heard(NOW, 1, Psn::new(4), nak(bad)), Merged::Keep);
    assert_eq!(told(m.heard(NOW, 0, Psn::new(2), ack(2))), acked(2));
    assert_eq!(told(m.heard(NOW, 0, Psn::new(8), ack(8))), Some((4, Syndrome::Nak(bad))));
    assert_eq!(told(m.heard(NOW, 2, Psn::new(9), ack(9))), None);
    assert_eq!(m.sent(Psn::new(5)), (true, None));
    assert_eq!(m.sent(Psn::new(4)).1.map(|a| (a.psn.value(), a.aeth.syndrome)), Some((4, Syndrome::Nak(bad))));
}

#[test]
fn of_two_fatal_naks_the_earlier_counts() {
    let (a, b) = (NakCode::REMOTE_ACCESS_ERROR, NakCode::INVALID_REQUEST);
    let mut m = at(0, &[3, 3, 3]);
    assert_eq!(told(m.heard(NOW, 0, Psn::new(7), nak(a))), None);
    assert_eq!(told(m.heard(NOW, 1, Psn::new(5), nak(b))), None);
    assert_eq!(told(m.heard(NOW, 2, Psn::new(9), ack(9))), Some((5, Syndrome::Nak(b))));
}

#[test]
fn what_was_never_sent_is_never_acknowledged() {
    let mut m = at(0, &[3, 3]);
    for aeth in [ack(9), nak(LOST), rnr(1), nak(NakCode::INVALID_REQUEST)] {
        assert_eq!(m.heard(NOW, 0, Psn::new(10), aeth), Merged::Lie);
    }
    assert_eq!(m.heard(NOW, 2, Psn::new(4), ack(4)), Merged::Lie, "there are two members");
    let reserved = Aeth { syndrome: Syndrome::Reserved(0x40), msn: 0 };
    assert_eq!(m.heard(NOW, 0, Psn::new(4), reserved), Merged::Lie);
    assert_eq!((m.merged().value(), m.behind(0)), (3, 6));
}

#[test]
fn a_request_that_no_member_gets_is_refused_in_its_turn() {
    let bad = NakCode::INVALID_REQUEST;
    let mut m = at(0, &[3, 5]);
    assert_eq!(m.refuse(Psn::new(7), bad), None);
    assert_eq!((m.sent(Psn::new(6)).0, m.sent(Psn::new(7)).0, m.sent(Psn::new(10)).0), (true, false, false));
    assert_eq!(told(m.heard(NOW, 0, Psn::new(6), ack(6))), acked(5));
    assert_eq!(m.heard(NOW, 0, Psn::new(7), ack(7)), Merged::Lie, "it did not get it");
    assert_eq!(told(m.heard(NOW, 1, Psn::new(6), ack(6))), Some((7, Syndrome::Nak(bad))));
    let mut idle = Merge::new(Psn::new(0), 2);
    idle.sent(Psn::new(0));
    assert!(idle.refuse(Psn::new(0), bad).is_some_and(|a| a.psn.value() == 0), "its turn is at once");
}

#[test]
fn the_smallest_credit_limit_counts_and_none_only_if_all_give_none() {
    let credits = |n, msn| Aeth { syndrome: Syndrome::Ack(Credits::at_most(n)), msn };
    let mut m = at(0, &[]);
    m.members = Merge::new(Psn::new(0), 3).members;
    m.heard(NOW, 0, Psn::new(3), credits(8, 3));
    m.heard(NOW, 1, Psn::new(5), credits(2, 5));
    let given = |merged| {
        told(merged).map(|(psn, syndrome)| match syndrome {
            Syndrome::Ack(credits) => (psn, credits.count()),
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(given(m.heard(NOW, 2, Psn::new(6), ack(6))), Some((3, Some(4))), "up to message 7, behind 3");
    assert_eq!(
        given(m.heard(NOW, 1, Psn::new(5), credits(6, 5))),
        Some((3, Some(8))),
        "an ACK that only gives credits"
    );
    assert_eq!(
        given(m.heard(NOW, 1, Psn::new(5), credits(2, 5))),
        None,
        "it came late: what is promised stays promised"
    );
    assert_eq!(given(at(0, &[3, 4]).heard(NOW, 0, Psn::new(4), ack(4))), Some((4, None)));
}

#[test]
fn a_limit_that_its_member_has_outgrown_gives_no_credits_and_not_all() {
    let credits = |n, msn| Aeth { syndrome: Syndrome::Ack(Credits::at_most(n)), msn };
    let lost = |msn| Aeth { syndrome: Syndrome::Nak(LOST), msn };
    let mut m = at(0, &[]);
    m.members = Merge::new(Psn::new(0), 2).members;
    m.heard(NOW, 0, Psn::new(1), credits(1, 1));
    m.heard(NOW, 1, Psn::new(1), credits(8, 1));
    // It posted receives since, and says what it has by a NAK, which has no credits.
    assert!(told(m.heard(NOW, 0, Psn::new(6), lost(5))).is_some());
    let Merged::Tell(answer) = m.heard(NOW, 1, Psn::new(5), credits(8, 5)) else { panic!("the minimum moved") };
    assert_eq!(answer.aeth, Aeth { syndrome: Syndrome::Ack(Credits::at_most(0)), msn: 5 });
}

#[test]
fn a_nak_that_nobody_has_defined_says_nothing() {
    let mut m = at(0, &[3, 3]);
    for code in 4..32 {
        assert_eq!(m.heard(NOW, 0, Psn::new(5), nak(NakCode(code))), Merged::Lie);
    }
    assert_eq!((m.merged().value(), m.behind(0)), (3, 6));
    assert_eq!(told(m.heard(NOW, 0, Psn::new(4), ack(4))), None);
    assert_eq!(told(m.heard(NOW, 1, Psn::new(4), ack(4))), acked(4), "nothing has failed");
}

#[test]
fn a_minimum_that_a_nak_moved_is_told_although_the_nak_is_not() {
    let mut m = at(0, &[3, 3]);
    assert_eq!(told(m.heard(NOW, 0, Psn::new(4), nak(LOST))), Some((4, Syndrome::Nak(LOST))));
    m.sent(Psn::new(4));
    assert_eq!(told(m.heard(NOW, 0, Psn::new(4), ack(4))), None);
    assert_eq!(told(m.heard(NOW, 1, Psn::new(8), nak(LOST))), acked(4), "what it asks for is on the way");
}
