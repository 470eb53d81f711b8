//! One negotiator and each kind of peer: who says what leads to which verdict, and when.

use super::*;

/// An answer that goes out now.
fn answer_of(n: &mut Negotiator) -> Option<(u64, Extensions, u32)> {
    let mad = n.poll_transmit(ms(0))?;
    assert_eq!(
        (mad.kind, mad.sender_qpn, mad.receiver_qpn),
        (Kind::Answer(Status::SUCCESS), QPN.value(), PEER.value())
    );
    Some((mad.transaction_id, mad.extensions, mad.settings.get::<SrSettings>().window))
}

#[test]
fn the_offer_goes_out_once_and_names_both_queue_pairs() {
    let mut n = negotiator();
    assert!(n.has_something());
    assert_eq!((n.outcome(), n.poll_timeout()), (None, None), "the clock starts with the offer");
    let mad = n.poll_transmit(ms(7)).unwrap();
    let expected = Negotiation {
        sender_qpn: QPN.value(),
        receiver_qpn: PEER.value(),
        ..says(Kind::Offer, TRANSACTION, Extensions::SR, 64)
    };
    assert_eq!(mad, expected);
    assert!(!n.has_something());
    assert_eq!((n.poll_transmit(ms(7)), n.poll_timeout()), (None, Some(ms(57))));
}

#[test]
fn a_peer_that_answers_costs_one_round_trip() {
    let mut n = asked();
    let rtt = micros(40);
    n.handle_answer(ms(0) + rtt, &answers(Extensions::SR, 32));
    assert_eq!((n.outcome(), n.rtt()), (sr(32), Some(rtt)));
    assert_eq!((n.has_something(), n.poll_timeout()), (false, None));
}

#[test]
fn the_settings_agreed_on_are_the_peer_s_whatever_ours_are() {
    for theirs in [1, 63, 64, 65, u32::MAX] {
        let mut by_answer = asked();
        by_answer.handle_answer(ms(1), &answers(Extensions::SR, theirs));
        assert_eq!(by_answer.outcome(), sr(theirs));
    }
}

#[test]
fn a_peers_offer_is_answered_with_what_both_speak_and_decides_only_with_the_answer_to_ours() {
    let mut n = Negotiator::new(
        Offer { extensions: Extensions::SR.union(Extensions::XP), settings: window(64) },
        (QPN, PEER),
        TRANSACTION,
        false,
    );
    n.handle_offer(ms(0), &offers(5, Extensions::SR.union(Extensions::SDR), 16));
    assert_eq!(answer_of(&mut n), Some((5, Extensions::SR, 64)));
    assert_eq!(n.outcome(), None, "anybody could have sent it");
    assert_eq!(n.poll_transmit(ms(0)).map(|mad| mad.kind), Some(Kind::Offer));
    n.handle_answer(ms(1), &answers(Extensions::SR, 16));
    assert_eq!((n.outcome(), n.has_something(), n.poll_timeout()), (sr(16), false, None));
}

#[test]
fn an_offer_of_ours_that_is_under_way_is_not_repeated_after_the_peers() {
    let mut n = asked();
    n.handle_offer(ms(1), &offers(5, Extensions::SR, 16));
    assert_eq!(answer_of(&mut n), Some((5, Extensions::SR, 64)));
    assert_eq!((n.has_something(), n.poll_timeout()), (false, Some(ms(50))));
    n.handle_answer(ms(2), &answers(Extensions::SR, 16));
    assert_eq!((n.outcome(), n.rtt()), (sr(16), Some(micros(2000))));
}

#[test]
fn an_offer_of_ours_that_waits_for_long_is_repeated_once_after_the_peers() {
    for (extensions, repeats) in [(Extensions::SR, true), (Extensions::XP, false)] {
        let mut n = asked();
        n.handle_timeout(ms(50));
        n.poll_transmit(ms(50));
        for repeats in [repeats, false] {
            n.handle_offer(ms(60), &offers(5, extensions, 16));
            assert!(answer_of(&mut n).is_some());
            let repeated = n.poll_transmit(ms(60)).map(|mad| (mad.kind, mad.transaction_id));
            assert_eq!(repeated, repeats.then_some((Kind::Offer, TRANSACTION)), "{extensions:?}");
            assert_eq!(n.poll_timeout(), Some(ms(150)), "its timer is as it was");
        }
    }
}

#[test]
fn an_offer_that_somebody_else_sends_in_the_peers_name_decides_nothing_whatever_it_says() {
    // The peer's own answer comes behind it: it speaks the extension, or it does not.
    for (theirs, outcome) in [(Extensions::SR, sr(16)), (Extensions::NONE, standard(FallbackReason::NothingInCommon))] {
        let mut n = asked();
        for extensions in [Extensions::NONE, Extensions::XP, Extensions::SR] {
            n.handle_offer(ms(1), &offers(5, extensions, 32));
            let accepted = extensions.intersection(Extensions::SR);
            assert_eq!(answer_of(&mut n).map(|(id, accepted, _)| (id, accepted)), Some((5, accepted)));
            assert_eq!(n.outcome(), None);
        }
        n.handle_answer(ms(2), &answers(theirs, 16));
        assert_eq!(n.outcome(), outcome);
    }
}

#[test]
fn every_offer_is_answered_also_again_and_after_the_verdict() {
    let mut n = asked();
    n.handle_answer(ms(1), &answers(Extensions::SR, 16));
    for (at, id) in [(2, 5), (52, 5), (102, 5), (103, 6)] {
        n.handle_offer(ms(at), &offers(id, Extensions::SR, 16));
        assert_eq!(answer_of(&mut n), Some((id, Extensions::SR, 64)));
        assert_eq!(answer_of(&mut n), None);
    }
    // Several that wait are one question: the last one counts.
    n.handle_offer(ms(104), &offers(6, Extensions::SR, 16));
    n.handle_offer(ms(104), &offers(7, Extensions::SR, 16));
    assert_eq!(answer_of(&mut n), Some((7, Extensions::SR, 64)));
    assert_eq!((answer_of(&mut n), n.outcome()), (None, sr(16)));
}

#[test]
fn an_offer_that_was_kept_from_before_is_answered_before_ours_goes_out() {
    let mut n = negotiator();
    n.handle_offer(ms(0), &offers(5, Extensions::SR, 16));
    assert_eq!(answer_of(&mut n), Some((5, Extensions::SR, 64)));
    assert_eq!(n.poll_transmit(ms(0)).map(|mad| mad.kind), Some(Kind::Offer));
    assert!(!n.has_something());
}

#[test]
fn an_old_softnic_that_offers_less_leaves_what_it_knows() {
    let all = Extensions::SR.union(Extensions::LOWAR).union(Extensions::XP);
    let offer = Offer { extensions: all, settings: window(64) };
    let mut n = Negotiator::new(offer, (QPN, PEER), TRANSACTION, false);
    n.poll_transmit(ms(0));
    n.handle_answer(ms(1), &answers(Extensions::SR, 8));
    assert_eq!(n.outcome(), sr(8));
}

#[test]
fn a_softnic_that_offers_nothing_says_so_at_once() {
    let none = Offer { extensions: Extensions::NONE, settings: window(64) };
    let mut old = Negotiator::new(none, (QPN, PEER), TRANSACTION, false);
    assert_eq!((old.outcome(), old.has_something()), (standard(FallbackReason::NothingInCommon), false));
    assert!(!old.accepts(Extensions::SR));
    old.handle_offer(ms(0), &offers(5, Extensions::SR, 16));
    assert_eq!(answer_of(&mut old), Some((5, Extensions::NONE, 0)));
    assert_eq!(old.outcome(), standard(FallbackReason::NothingInCommon));
    // And who hears that need not wait for more.
    let mut n = asked();
    n.handle_answer(ms(1), &answers(Extensions::NONE, 0));
    assert_eq!((n.outcome(), n.poll_timeout()), (standard(FallbackReason::NothingInCommon), None));
}

#[test]
fn a_later_version_with_unknown_bits_is_understood_as_far_as_we_know_it() {
    let unknown = Extensions(0xffff_fff0).union(Extensions::SR);
    let mut by_answer = asked();
    by_answer.handle_answer(ms(1), &Negotiation { version: 2, ..answers(unknown, 16) });
    assert_eq!(by_answer.outcome(), sr(16));
    let mut by_offer = negotiator();
    by_offer.handle_offer(ms(1), &Negotiation { version: 2, ..offers(5, unknown, 16) });
    let answer = by_offer.poll_transmit(ms(1)).unwrap();
    assert_eq!((answer.version, answer.extensions), (VERSION, Extensions::SR), "it is told what we know");
}

#[test]
fn rxe_refuses_at_once_whatever_its_answer_says() {
    let mut n = asked();
    n.handle_refusal(ms(0) + micros(70), TRANSACTION);
    assert_eq!((n.outcome(), n.rtt()), (standard(FallbackReason::Refused), Some(micros(70))));
    assert_eq!((n.has_something(), n.poll_timeout()), (false, None));

    // Linux sends the MAD back as it was, with an error status: the QPNs are those of the offer.
    let mut n = negotiator();
    let offer = n.poll_transmit(ms(0)).unwrap();
    n.handle_answer(ms(1), &Negotiation { kind: Kind::Answer(Status(0x000c)), ..offer });
    assert_eq!(n.outcome(), standard(FallbackReason::Refused));
}

#[test]
fn who_refused_may_change_its_mind_by_an_offer_and_an_answer() {
    let mut n = asked();
    n.handle_refusal(ms(1), TRANSACTION);
    n.handle_answer(ms(2), &answers(Extensions::SR, 16));
    assert_eq!(n.outcome(), standard(FallbackReason::Refused));
    n.handle_offer(ms(3), &offers(5, Extensions::SR, 16));
    assert_eq!(answer_of(&mut n), Some((5, Extensions::SR, 64)));
    assert_eq!(n.poll_transmit(ms(3)).map(|mad| mad.kind), Some(Kind::Offer), "it is asked once more");
    assert_eq!(n.outcome(), standard(FallbackReason::Refused));
    n.handle_answer(ms(4), &answers(Extensions::SR, 16));
    assert_eq!(n.outcome(), sr(16));
}

#[test]
fn a_peer_that_never_answers_is_asked_for_more_than_a_second_less_and_less_often() {
    let mut n = negotiator();
    let (sent, end) = run_alone(&mut n, ms(0));
    assert_eq!((sent, end), (vec![ms(0), ms(50), ms(150), ms(350), ms(750)], ms(1550)));
    assert_eq!((n.outcome(), n.rtt()), (standard(FallbackReason::Silent), None));
}

#[test]
fn a_timer_that_comes_early_does_nothing() {
    let mut n = asked();
    n.handle_timeout(ms(49));
    assert_eq!((n.has_something(), n.poll_timeout()), (false, Some(ms(50))));
    n.handle_timeout(ms(50));
    assert!(n.has_something());
}

#[test]
fn a_far_peer_is_given_two_round_trips_for_the_first_answer_and_three_tries_at_least() {
    for (rtt, wait, tries) in [(1, 50, 5), (25, 50, 5), (26, 52, 5), (160, 320, 3), (300, 600, 3)] {
        let mut n = negotiator().with_known_rtt(Duration::from_millis(rtt));
        let (sent, end) = run_alone(&mut n, ms(0));
        let offers: Vec<Instant> = (0..tries).map(|n| ms(((1 << n) - 1) * wait)).collect();
        assert_eq!((sent, end), (offers, ms(((1 << tries) - 1) * wait)));
    }
}

#[test]
fn a_peer_that_is_known_to_be_silent_gets_one_offer_and_nobody_waits() {
    let mut n = Negotiator::new(sr_offer(), (QPN, PEER), TRANSACTION, true);
    assert_eq!(n.outcome(), standard(FallbackReason::KnownSilent));
    assert_eq!(run_alone(&mut n, ms(0)), (vec![ms(0)], ms(0)));
    assert_eq!(n.outcome(), standard(FallbackReason::KnownSilent));
}

#[test]
fn an_answer_that_comes_late_also_after_a_late_offer_still_becomes_an_agreement() {
    let silent = {
        let mut n = negotiator();
        run_alone(&mut n, ms(0));
        n
    };
    let known_silent = {
        let mut n = Negotiator::new(sr_offer(), (QPN, PEER), TRANSACTION, true);
        run_alone(&mut n, ms(0));
        n
    };
    for before in [silent, known_silent] {
        let mut n = before;
        n.handle_answer(ms(400), &answers(Extensions::SR, 16));
        assert_eq!((n.outcome(), n.poll_timeout()), (sr(16), None));
        let mut n = before;
        n.handle_offer(ms(400), &offers(5, Extensions::SR, 16));
        assert_eq!((n.outcome(), answer_of(&mut n)), (before.outcome(), Some((5, Extensions::SR, 64))));
        assert_eq!(n.poll_transmit(ms(400)).map(|mad| mad.kind), Some(Kind::Offer));
        n.handle_answer(ms(401), &answers(Extensions::SR, 16));
        assert_eq!((n.outcome(), n.rtt()), (sr(16), None));
        let mut n = before;
        n.handle_refusal(ms(400), TRANSACTION);
        assert_eq!(n.outcome(), standard(FallbackReason::Refused));
    }
}

#[test]
fn the_round_trip_is_that_of_an_offer_that_went_out_once() {
    let mut twice = asked();
    twice.handle_timeout(ms(50));
    twice.poll_transmit(ms(50));
    twice.handle_answer(ms(60), &answers(Extensions::SR, 16));
    assert_eq!((twice.outcome(), twice.rtt()), (sr(16), None), "60 ms, or 10");
    // A far peer that was silent before is measured, so that it is given its time from then on.
    let mut far = Negotiator::new(sr_offer(), (QPN, PEER), TRANSACTION, true);
    far.poll_transmit(ms(3));
    far.handle_answer(ms(303), &answers(Extensions::SR, 16));
    assert_eq!(far.rtt(), Some(Duration::from_millis(300)));
    // An answer that comes again does not change it.
    far.handle_answer(ms(900), &answers(Extensions::SR, 16));
    assert_eq!(far.rtt(), Some(Duration::from_millis(300)));
}

#[test]
fn a_liar_that_accepts_what_was_not_offered_gets_only_what_was() {
    let mut more = asked();
    more.handle_answer(ms(1), &answers(Extensions(u32::MAX), 16));
    assert_eq!(more.outcome(), sr(16));
    let mut other = asked();
    other.handle_answer(ms(1), &answers(Extensions::XP, 16));
    assert_eq!(other.outcome(), standard(FallbackReason::NothingInCommon));
}

#[test]
fn selective_repeat_without_a_window_is_none() {
    let mut by_answer = asked();
    by_answer.handle_answer(ms(1), &answers(Extensions::SR, 0));
    assert_eq!(by_answer.outcome(), standard(FallbackReason::NothingInCommon));
    let mut by_offer = asked();
    by_offer.handle_offer(ms(1), &offers(5, Extensions::SR, 0));
    assert_eq!(by_offer.outcome(), None);
    assert_eq!(answer_of(&mut by_offer), Some((5, Extensions::NONE, 0)));
    // The rest of what it says may be true.
    let both = Offer { extensions: Extensions::SR.union(Extensions::XP), settings: window(64) };
    let mut n = Negotiator::new(both, (QPN, PEER), TRANSACTION, false);
    n.poll_transmit(ms(0));
    n.handle_answer(ms(1), &answers(Extensions(u32::MAX), 0));
    assert_eq!(
        n.outcome(),
        Some(NegotiationOutcome::Agreed(Agreed { extensions: Extensions::XP, settings: window(0) }))
    );
    // And ours: without a bitmap it is not offered.
    let mut n = Negotiator::new(Offer { settings: Settings::NONE, ..both }, (QPN, PEER), TRANSACTION, false);
    assert_eq!(n.poll_transmit(ms(0)).map(|mad| mad.extensions), Some(Extensions::XP));
    assert!(!n.accepts(Extensions::SR) && n.accepts(Extensions::XP));
}

#[test]
fn what_is_for_others_is_neither_believed_nor_answered() {
    let (answer, offer) = (answers(Extensions::SR, 16), offers(5, Extensions::SR, 16));
    let [before, mut n] = [asked(); 2];
    for (sender_qpn, receiver_qpn) in [(0x23, 0x11), (0x22, 0x12), (0x11, 0x22)] {
        n.handle_answer(ms(1), &Negotiation { sender_qpn, receiver_qpn, ..answer });
        n.handle_offer(ms(1), &Negotiation { sender_qpn, receiver_qpn, ..offer });
    }
    n.handle_answer(ms(1), &Negotiation { transaction_id: TRANSACTION + 1, ..answer });
    n.handle_refusal(ms(1), TRANSACTION + 1);
    // An offer that is no answer, and the other way round.
    n.handle_answer(ms(1), &Negotiation { kind: Kind::Offer, ..answer });
    n.handle_offer(ms(1), &Negotiation { kind: answer.kind, ..offer });
    assert_eq!(n, before);
}

#[test]
fn nobody_answers_or_refuses_what_was_not_asked_yet() {
    let [before, mut n] = [negotiator(); 2];
    n.handle_answer(ms(1), &answers(Extensions::SR, 16));
    n.handle_refusal(ms(1), TRANSACTION);
    assert_eq!(n, before);
}

#[test]
fn an_agreement_stands_whatever_comes() {
    let mut n = asked();
    n.handle_answer(ms(1), &answers(Extensions::SR, 16));
    n.handle_refusal(ms(2), TRANSACTION);
    n.handle_answer(ms(3), &answers(Extensions::NONE, 0));
    n.handle_answer(ms(3), &answers(Extensions::SR, 60));
    n.handle_offer(ms(4), &offers(5, Extensions::XP, 0));
    n.handle_timeout(ms(5000));
    assert_eq!(n.outcome(), sr(16));
}

#[test]
fn what_we_offered_is_accepted_whatever_the_verdict() {
    let mut n = negotiator();
    assert!(n.accepts(Extensions::SR) && !n.accepts(Extensions::XP));
    run_alone(&mut n, ms(0));
    assert_eq!(n.outcome(), standard(FallbackReason::Silent));
    assert!(n.accepts(Extensions::SR), "the peer may have agreed, and its answer got lost");
}
