//! The negotiation of SDR between two NICs: offers of UC and RC queue pairs, lost MADs, peers that decline, and peers that lie.

use softnic_nic::transports::negotiation::vendor::{Kind, Negotiation, SDR_INFO};
use softnic_nic::transports::negotiation::{Choice, FallbackReason};
use softnic_nic::transports::{Event, SdrOfferError, SdrOutcome, SendOp, Status, Transport};
use softnic_nic::{ObjectError, QpKind};
use softnic_wire::mad::MAD_LEN;
use softnic_wire::sdr::{Contact, Info, InfoError, SdrSettings};
use softnic_wire::{Psn, Qpn};

use crate::common::*;

const ONE_WAY: u64 = 500_000;

/// What an SDR queue pair of this host tells its peer.
fn info(h: usize, generations: u8, channels: u8) -> Vec<u8> {
    let len = Info::len_of(generations, channels);
    let contact = |n: usize| Contact { qpn: Qpn::new((0x1000 * (h + 1) + n) as u32), psn: Psn::new(n as u32) }.bytes();
    let mut b = vec![1, 1, 0, len as u8, 10, 18, 4, 20, generations, channels, 0, 0, 0, 0, 0, 64];
    b.extend((1_u64 << 20).to_be_bytes());
    b.extend([h as u8; 4]);
    b.extend(contact(0));
    b.extend([0; 4]);
    for g in 0..usize::from(generations) {
        b.extend([g as u8; 4]);
        (0..usize::from(channels)).for_each(|c| b.extend(contact(1 + g * 16 + c)));
    }
    assert_eq!(b.len(), len);
    b
}

fn uc() -> Options {
    Options { kind: QpKind::Uc, ..Options::default() }
}

/// Two hosts; those with a scheme offer it.
fn offering(options: Options, schemes: [Option<SdrSettings>; 2]) -> World {
    let mut w = World::unconnected(options);
    for h in [A, B] {
        if let Some(settings) = schemes[h] {
            let Host { nic, qpn, .. } = &mut w.hosts[h];
            nic.offer_sdr(*qpn, settings, &info(h, 4, 3)).unwrap();
            assert_eq!(nic.sdr_agreed(*qpn), Some(SdrOutcome::Open));
        }
    }
    for h in [A, B] {
        connect(&mut w, h);
    }
    w
}

fn connect(w: &mut World, h: usize) {
    let options = w.options;
    w.modify(h, &init_attr(&options));
    let rtr = rtr_attr(&options, w.path(h), w.hosts[1 - h].qpn);
    w.modify(h, &rtr);
    w.modify(h, &rts_attr(&options));
}

fn both(options: Options) -> World {
    offering(options, [Some(SdrSettings::SDK); 2])
}

fn outcome(w: &World, h: usize) -> Option<SdrOutcome<'_>> {
    w.hosts[h].nic.sdr_agreed(w.hosts[h].qpn)
}

fn assert_agreed(w: &World, h: usize, settings: SdrSettings) {
    assert_eq!(outcome(w, h), Some(SdrOutcome::Agreed { settings, info: &info(1 - h, 4, 3) }));
}

fn assert_fell_back(w: &mut World, h: usize, reason: FallbackReason) {
    assert_eq!(outcome(w, h), Some(SdrOutcome::FellBack(reason)));
    let events = w.events(h);
    assert!(
        matches!(events[..], [Event::FellBack(qpn, _, why)] if qpn == w.hosts[h].qpn && why == reason),
        "{events:?}"
    );
}

/// A message each way arrives as ever.
fn assert_talks(w: &mut World) {
    for h in [A, B] {
        w.recv(1 - h, 8, 1024, 100);
        w.send(h, 7, SendOp::Send, 0, 100);
        w.settle(ONE_WAY);
        assert_eq!(
            (w.sent_status(h), w.received_status(1 - h)),
            (vec![(7, Status::Success)], vec![(8, Status::Success)])
        );
    }
}

fn mad_of(frame: &[u8]) -> Option<&[u8]> {
    let mad = frame.get(frame.len().checked_sub(4 + MAD_LEN)?..frame.len() - 4)?;
    Negotiation::parse(mad).ok().map(|_| mad)
}

/// Lets go over what `passes`, and timers run, until nobody has anything to send or to wait for.
fn run_out(w: &mut World, mut passes: impl FnMut(usize, &Negotiation<'_>) -> bool) {
    for _ in 0..100 {
        for h in [A, B] {
            for frame in w.transmit(h) {
                if passes(h, &Negotiation::parse(mad_of(&frame).expect("nothing else is sent")).unwrap()) {
                    w.deliver(1 - h, &frame);
                }
            }
        }
        if w.wait_for_timer(A).is_none() & w.wait_for_timer(B).is_none() {
            return;
        }
    }
    panic!("somebody waits for ever");
}

#[test]
fn two_that_offer_know_each_others_bytes_after_a_round_trip_and_talk_as_ever() {
    for options in [uc(), Options::default(), Options { ipv6: true, ..uc() }] {
        for settings in [SdrSettings::SDK, SdrSettings { scheme: 2, parameters: [9, 8, 7] }] {
            let mut w = offering(options, [Some(settings); 2]);
            assert_eq!([A, B].map(|h| outcome(&w, h)), [Some(SdrOutcome::Open); 2]);
            w.settle(ONE_WAY);
            for h in [A, B] {
                assert_agreed(&w, h, settings);
                assert_eq!((w.events(h), w.hosts[h].nic.choice(w.hosts[h].qpn)), (vec![], None));
            }
            assert_talks(&mut w);
        }
    }
}

#[test]
fn nothing_waits_for_the_negotiation() {
    for options in [uc(), Options::default()] {
        let mut w = both(options);
        w.send(A, 7, SendOp::Send, 0, 100);
        let opcodes: Vec<String> = w.transmit(A).iter().map(|f| w.parse(f).bth.opcode.to_string()).collect();
        let name = if options.kind == QpKind::Uc { "UC_SEND_ONLY" } else { "RC_SEND_ONLY" };
        assert_eq!(opcodes, ["UD_SEND_ONLY", name], "the offer, and right behind it what was posted");
        assert_eq!(outcome(&w, A), Some(SdrOutcome::Open));
    }
}

#[test]
fn a_peer_that_offers_nothing_or_another_scheme_declines_and_the_standard_is_spoken() {
    let other = SdrSettings { scheme: 1, ..SdrSettings::SDK };
    for options in [uc(), Options::default()] {
        let mut w = offering(options, [Some(SdrSettings::SDK), None]);
        w.settle(ONE_WAY);
        assert_fell_back(&mut w, A, FallbackReason::NothingInCommon);
        assert_eq!((w.events(B), outcome(&w, B)), (vec![], None));
        assert_talks(&mut w);
        let mut w = offering(options, [Some(SdrSettings::SDK), Some(other)]);
        w.settle(ONE_WAY);
        for h in [A, B] {
            assert_fell_back(&mut w, h, FallbackReason::NothingInCommon);
        }
        assert_talks(&mut w);
    }
}

#[test]
fn a_uc_queue_pair_without_an_offer_sends_no_mad() {
    let mut w = World::new(uc());
    assert_eq!((w.transmit(A), w.transmit(B), outcome(&w, A)), (vec![], vec![], None));
}

#[test]
fn the_extension_of_a_transport_and_authentication_are_agreed_on_beside_it_or_without_it() {
    let sr = Options { offers: [Some(Transport::Sr { window: 256 }); 2], ..Options::default() };
    let sealed = Options { secrets: [Some(5); 2], ..sr };
    for options in [sr, sealed, Options { offers: [None; 2], ..sealed }] {
        let mut w = both(options);
        w.settle(ONE_WAY);
        for h in [A, B] {
            assert_agreed(&w, h, SdrSettings::SDK);
            assert_eq!(w.hosts[h].nic.choice(w.hosts[h].qpn), Some(Choice::Agreed));
        }
        assert_talks(&mut w);
        // Of a peer that declines only SDR, the program of a transport with an extension hears nothing: that is spoken.
        let mut w = offering(options, [Some(SdrSettings::SDK), None]);
        w.settle(ONE_WAY);
        assert_eq!(outcome(&w, A), Some(SdrOutcome::FellBack(FallbackReason::NothingInCommon)));
        assert_eq!(w.events(A).len(), usize::from(options.offers[A].is_none()));
        assert_eq!(w.hosts[A].nic.choice(w.hosts[A].qpn), Some(Choice::Agreed));
        assert_talks(&mut w);
    }
    // A secret that is set behind the offer leaves it in place.
    let mut w = World::unconnected(Options::default());
    for h in [A, B] {
        let Host { nic, qpn, .. } = &mut w.hosts[h];
        nic.offer_sdr(*qpn, SdrSettings::SDK, &info(h, 4, 3)).unwrap();
        nic.authenticate(*qpn, &softnic_nic::transports::Secret::new(&[7; 32]).unwrap()).unwrap();
    }
    [A, B].iter().for_each(|&h| connect(&mut w, h));
    w.settle(ONE_WAY);
    [A, B].iter().for_each(|&h| assert_agreed(&w, h, SdrSettings::SDK));
}

#[test]
fn lost_mads_cost_time_and_no_agreement() {
    // Every choice of three among the first twelve.
    for lost in (0_u32..1 << 12).filter(|lost| lost.count_ones() == 3) {
        let (mut w, mut n) = (both(uc()), 0);
        run_out(&mut w, |_, _| {
            n += 1;
            n > 12 || lost >> (n - 1) & 1 == 0
        });
        [A, B].iter().for_each(|&h| assert_agreed(&w, h, SdrSettings::SDK));
    }
}

#[test]
fn a_silent_peer_is_given_up_and_heard_again_when_it_answers_late() {
    let mut w = both(uc());
    let mut answers = Vec::new();
    // All answers to A get lost.
    run_out(&mut w, |from, mad| from == A || mad.kind == Kind::Offer);
    assert_fell_back(&mut w, A, FallbackReason::Silent);
    assert_agreed(&w, B, SdrSettings::SDK);
    // The next life of A's queue pair asks once and does not wait; the answer still counts.
    w.modify(A, &to_state(softnic_nic::transports::qp::QpState::Reset));
    assert_eq!(outcome(&w, A), Some(SdrOutcome::Open));
    connect(&mut w, A);
    assert_fell_back(&mut w, A, FallbackReason::KnownSilent);
    let offer = w.transmit(A);
    w.deliver_all(B, &offer);
    answers.extend(w.transmit(B));
    assert_eq!(answers.len(), 1);
    w.deliver_all(A, &answers);
    assert_agreed(&w, A, SdrSettings::SDK);
}

#[test]
fn an_offer_that_comes_before_its_receiver_is_ready_is_answered_with_its_bytes() {
    let mut w = World::unconnected(uc());
    for h in [A, B] {
        let Host { nic, qpn, .. } = &mut w.hosts[h];
        nic.offer_sdr(*qpn, SdrSettings::SDK, &info(h, 4, 3)).unwrap();
    }
    connect(&mut w, A);
    let offer = w.transmit(A);
    w.deliver_all(B, &offer);
    assert_eq!(w.transmit(B).len(), 0);
    connect(&mut w, B);
    let frames = w.transmit(B);
    w.deliver(A, &frames[0]);
    assert_agreed(&w, A, SdrSettings::SDK);
}

/// The answer of B to A's offer, changed; its ICRC is right.
fn changed(w: &mut World, change: impl FnOnce(&mut [u8])) -> Vec<u8> {
    let offer = w.transmit(A);
    w.deliver_all(B, &offer);
    let mut answers = w.transmit(B);
    let is_answer = |f: &Vec<u8>| Negotiation::parse(mad_of(f).unwrap()).unwrap().kind != Kind::Offer;
    let mut answer = answers.remove(answers.iter().position(is_answer).unwrap());
    let at = answer.len() - 4 - MAD_LEN;
    change(&mut answer[at..at + MAD_LEN]);
    resign(&mut answer);
    answer
}

#[test]
fn a_peer_that_lies_about_its_bytes_speaks_no_sdr() {
    let rubbish: [fn(&mut [u8]); 7] = [
        |info| info.fill(0xff),
        |info| info.fill(0),
        |info| info[3] = 153,
        |info| info[2..4].copy_from_slice(&[0, 40]),
        |info| info[0] = 2,
        |info| info[4] = 33,
        |info| info[46] = 0, // the queue pair of a channel is 1
    ];
    for rubbish in rubbish {
        let mut w = both(uc());
        let answer = changed(&mut w, |mad| rubbish(&mut mad[SDR_INFO]));
        w.deliver(A, &answer);
        assert_fell_back(&mut w, A, FallbackReason::NothingInCommon);
    }
    // One who accepts what was not offered.
    let mut w = offering(Options::default(), [None, Some(SdrSettings::SDK)]);
    let offer = w.transmit(B);
    let mut forged = offer[0].clone();
    let at = forged.len() - 4 - MAD_LEN;
    forged[at + 3] = 0x81;
    resign(&mut forged);
    w.deliver(A, &forged);
    assert_eq!((outcome(&w, A), w.counters(A).rx_unasked_answers), (None, 1));
}

#[test]
fn whatever_an_answer_says_it_is_agreed_on_only_what_can_be_read() {
    let mut random = generator(7);
    let mut ends = [0; 2];
    for _ in 0..2000 {
        let mut w = both(uc());
        let answer = changed(&mut w, |mad| {
            for _ in 0..=random() % 3 {
                let at = SDR_INFO.start + random() as usize % SDR_INFO.len();
                mad[at] = if random().is_multiple_of(2) { random() as u8 } else { mad[at] ^ 1 << (random() % 8) };
            }
        });
        let expected = Negotiation::parse(mad_of(&answer).unwrap()).unwrap().sdr;
        w.deliver(A, &answer);
        match (outcome(&w, A), expected) {
            (Some(SdrOutcome::Agreed { info, .. }), Some(said)) => assert_eq!(info, said.as_bytes()),
            (outcome, None) => assert_eq!(outcome, Some(SdrOutcome::FellBack(FallbackReason::NothingInCommon))),
            other => panic!("{other:?}"),
        }
        ends[usize::from(expected.is_some())] += 1;
    }
    assert!(ends.iter().all(|&n| n > 300), "{ends:?}");
}

#[test]
fn what_cannot_be_offered_is_refused() {
    let mut w = World::unconnected(Options { kind: QpKind::Ud, ..Options::default() });
    let offer = |w: &mut World, info: &[u8]| {
        let Host { nic, qpn, .. } = &mut w.hosts[A];
        nic.offer_sdr(*qpn, SdrSettings::SDK, info)
    };
    let good = info(A, 4, 3);
    assert_eq!(offer(&mut w, &good), Err(ObjectError::Sdr(SdrOfferError::Transport)));
    let mut w = World::unconnected(uc());
    assert_eq!(offer(&mut w, &good[..50]), Err(ObjectError::Sdr(SdrOfferError::Info(InfoError::Length(50, 152)))));
    let long = offer(&mut w, &info(A, 4, 4)).unwrap_err();
    assert_eq!(
        long.to_string(),
        "4 generations of 4 channels take 184 bytes, and a MAD has room for 152: 4 generations of 3 channels fit"
    );
    assert_eq!(outcome(&w, A), None, "what was refused is not offered");
    connect(&mut w, A);
    assert_eq!(offer(&mut w, &good), Err(ObjectError::Sdr(SdrOfferError::State)));
    let gone = w.hosts[A].nic.offer_sdr(Qpn::new(5), SdrSettings::SDK, &good);
    assert_eq!((gone, w.hosts[A].nic.sdr_agreed(Qpn::new(5))), (Err(ObjectError::NoSuchQp), None));
}
