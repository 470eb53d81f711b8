//! SDR among the extensions: a bit, a scheme that both must have, and nothing else that a negotiator looks at.

use super::*;

const RELIABLE: SdrSettings = SdrSettings { scheme: 3, parameters: [16, 4, 0] };

fn offer(settings: SdrSettings) -> Offer {
    Offer { extensions: Extensions::SDR, settings: Settings::NONE.with(settings) }
}

fn asked(settings: SdrSettings) -> Negotiator {
    let mut n = Negotiator::new(offer(settings), (QPN, PEER), TRANSACTION, false);
    let mad = n.poll_transmit(ms(0)).unwrap();
    assert_eq!((mad.kind, mad.extensions, mad.settings.get()), (Kind::Offer, Extensions::SDR, settings));
    n
}

fn says(kind: Kind, transaction_id: u64, settings: SdrSettings) -> Negotiation<'static> {
    let mad = super::says(kind, transaction_id, Extensions::SDR, 0);
    Negotiation { settings: Settings::NONE.with(settings), ..mad }
}

fn answers(settings: SdrSettings) -> Negotiation<'static> {
    says(Kind::Answer(Status::SUCCESS), TRANSACTION, settings)
}

fn agreed(settings: SdrSettings) -> Option<NegotiationOutcome> {
    let settings = Settings::NONE.with(settings);
    Some(NegotiationOutcome::Agreed(Agreed { extensions: Extensions::SDR, settings }))
}

#[test]
fn both_with_the_same_scheme_agree_and_know_the_peers_settings_of_it() {
    for (ours, theirs) in [
        (SdrSettings::SDK, SdrSettings::SDK),
        (RELIABLE, RELIABLE),
        (RELIABLE, SdrSettings { parameters: [8, 2, 0], ..RELIABLE }),
    ] {
        let mut n = asked(ours);
        n.handle_answer(ms(1), &answers(theirs));
        assert_eq!((n.outcome(), n.has_something(), n.poll_timeout()), (agreed(theirs), false, None));
    }
}

#[test]
fn another_scheme_is_nothing_in_common_and_is_not_accepted() {
    for (ours, theirs) in [(SdrSettings::SDK, RELIABLE), (RELIABLE, SdrSettings::SDK)] {
        let mut n = asked(ours);
        n.handle_offer(ms(1), &says(Kind::Offer, 5, theirs));
        let answer = n.poll_transmit(ms(1)).unwrap();
        assert_eq!((answer.transaction_id, answer.extensions, answer.settings), (5, Extensions::NONE, Settings::NONE));
        n.handle_answer(ms(2), &answers(theirs));
        assert_eq!(n.outcome(), standard(FallbackReason::NothingInCommon));
    }
}

#[test]
fn an_offer_of_the_peer_is_answered_with_our_scheme_and_decides_nothing() {
    let mut n = asked(RELIABLE);
    let theirs = SdrSettings { parameters: [1, 1, 1], ..RELIABLE };
    for _ in 0..2 {
        n.handle_offer(ms(1), &says(Kind::Offer, 5, theirs));
        let answer = n.poll_transmit(ms(1)).unwrap();
        assert_eq!((answer.extensions, answer.settings.get(), n.outcome()), (Extensions::SDR, RELIABLE, None));
    }
}

#[test]
fn other_extensions_are_agreed_on_whatever_becomes_of_sdr() {
    let both = Offer { extensions: Extensions::SR.union(Extensions::SDR), settings: window(64).with(SdrSettings::SDK) };
    for theirs in [RELIABLE, SdrSettings::SDK] {
        let mut n = Negotiator::new(both, (QPN, PEER), TRANSACTION, false);
        n.poll_transmit(ms(0));
        let settings = window(16).with(theirs);
        n.handle_answer(ms(1), &Negotiation { extensions: both.extensions, settings, ..answers(theirs) });
        let expected = match theirs {
            SdrSettings::SDK => Agreed { extensions: both.extensions, settings },
            _ => Agreed { extensions: Extensions::SR, settings: window(16) },
        };
        assert_eq!(n.outcome(), Some(NegotiationOutcome::Agreed(expected)));
    }
    // One who does not offer it takes no notice of it, and is as it was without.
    let mut n = super::asked();
    let settings = window(16).with(RELIABLE);
    n.handle_answer(ms(1), &Negotiation { extensions: both.extensions, settings, ..answers(RELIABLE) });
    assert_eq!(n.outcome(), sr(16));
}

#[test]
fn refusals_silence_and_what_comes_late_are_as_for_other_extensions() {
    let mut refused = asked(SdrSettings::SDK);
    refused.handle_refusal(ms(1), TRANSACTION);
    assert_eq!(refused.outcome(), standard(FallbackReason::Refused));
    let mut silent = Negotiator::new(offer(SdrSettings::SDK), (QPN, PEER), TRANSACTION, false);
    assert_eq!(run_alone(&mut silent, ms(0)).1, ms(1550));
    assert_eq!(silent.outcome(), standard(FallbackReason::Silent));
    silent.handle_answer(ms(2000), &answers(SdrSettings::SDK));
    assert_eq!(silent.outcome(), agreed(SdrSettings::SDK));
    let mut known = Negotiator::new(offer(SdrSettings::SDK), (QPN, PEER), TRANSACTION, true);
    assert_eq!(known.outcome(), standard(FallbackReason::KnownSilent));
    known.poll_transmit(ms(0));
    known.handle_answer(ms(1), &answers(SdrSettings::SDK));
    assert_eq!(known.outcome(), agreed(SdrSettings::SDK));
    // An agreement stands.
    known.handle_answer(ms(2), &answers(RELIABLE));
    known.handle_refusal(ms(3), TRANSACTION);
    assert_eq!(known.outcome(), agreed(SdrSettings::SDK));
}
