//! Two negotiators over links that lose, double, delay and reorder; an offer that comes before RTR is kept, as a NIC does.

use softnic_fault_injector::random::Random;
use softnic_transports::lowar::Code;
use softnic_wire::lowar::LowarSettings;
use softnic_wire::mad::MAD_LEN;

use super::*;

/// A side: from its RTR on it has a negotiator.
struct Side {
    ready_at: Instant,
    offer: Offer,
    known_silent: bool,
    negotiator: Option<Negotiator>,
    /// The offer that came before RTR.
    kept: Option<Negotiation<'static>>,
    /// Verdicts in the order in which they came, and when.
    outcomes: Vec<(Instant, NegotiationOutcome)>,
    /// Answers of the peer that reached a negotiator.
    heard: u32,
}

impl Side {
    fn new(ready_at: Instant, offer: Offer, known_silent: bool) -> Side {
        Side { ready_at, offer, known_silent, negotiator: None, kept: None, outcomes: vec![], heard: 0 }
    }

    fn deliver(&mut self, now: Instant, mad: Negotiation<'_>) {
        let Some(n) = &mut self.negotiator else {
            if mad.kind == Kind::Offer {
                self.kept = Some(mad.without_info());
            }
            return;
        };
        match mad.kind {
            Kind::Offer => n.handle_offer(now, &mad),
            Kind::Answer(_) => {
                self.heard += 1;
                n.handle_answer(now, &mad);
            }
        }
    }

    fn next(&self) -> Option<Instant> {
        match &self.negotiator {
            Some(n) => n.poll_timeout(),
            None => Some(self.ready_at),
        }
    }

    /// Everything that is due at `now`; what goes out is returned.
    fn run(&mut self, now: Instant, qpns: (Qpn, Qpn), transaction_id: u64) -> Vec<Negotiation<'static>> {
        if self.negotiator.is_none() && self.ready_at <= now {
            self.negotiator = Some(Negotiator::new(self.offer, qpns, transaction_id, self.known_silent));
            if let Some(mad) = self.kept.take() {
                self.deliver(now, mad);
            }
        }
        let Some(n) = &mut self.negotiator else { return vec![] };
        n.handle_timeout(now);
        let sent = std::iter::from_fn(|| n.poll_transmit(now)).collect();
        if let Some(verdict) = n.outcome()
            && self.outcomes.last().is_none_or(|&(_, last)| last != verdict)
        {
            self.outcomes.push((now, verdict));
        }
        sent
    }

    fn outcome(&self) -> NegotiationOutcome {
        self.outcomes.last().expect("there is a verdict").1
    }

    fn agreed(&self) -> Option<Agreed> {
        match self.outcome() {
            NegotiationOutcome::Agreed(agreed) => Some(agreed),
            NegotiationOutcome::Standard(_) => None,
        }
    }
}

/// Runs both to the end. `link` says when the copies of a MAD arrive that `from` sends at a time: none, one, or more.
fn run(sides: &mut [Side; 2], mut link: impl FnMut(usize, Instant, &Negotiation<'_>) -> Vec<Instant>) {
    let qpns = [Qpn::new(0x11), Qpn::new(0x22)];
    let info = some_info();
    let mut flying: Vec<(Instant, usize, [u8; MAD_LEN])> = vec![];
    while let Some(now) = sides.iter().filter_map(Side::next).chain(flying.iter().map(|f| f.0)).min() {
        while let Some(at) = flying.iter().position(|f| f.0 == now) {
            let (_, to, bytes) = flying.remove(at);
            sides[to].deliver(now, Negotiation::parse(&bytes).unwrap());
        }
        for from in 0..2 {
            for mad in sides[from].run(now, (qpns[from], qpns[1 - from]), 100 + from as u64) {
                let mut bytes = [0; MAD_LEN];
                // As an agreement does: information goes with the bit of SDR.
                let sdr = mad.extensions.contains(Extensions::SDR).then(|| Info::parse(&info).unwrap());
                Negotiation { sdr, ..mad }.emit(&mut bytes);
                flying.extend(link(from, now, &mad).into_iter().map(|at| (at.max(now), 1 - from, bytes)));
            }
        }
    }
    check(sides);
}

/// What holds whatever the links do.
fn check(sides: &[Side; 2]) {
    for (side, peer) in [(&sides[0], &sides[1]), (&sides[1], &sides[0])] {
        let in_common = common(side.offer, peer.offer);
        let n = side.negotiator.unwrap();
        let first = side.outcomes[0].0 - side.ready_at;
        assert!(first <= Duration::from_millis(1550), "an outcome comes within five tries, not {first:?}");
        // Only what both offer, and the other side takes it even if it decided otherwise.
        if let Some(agreed) = side.agreed() {
            assert_eq!(agreed, in_common);
            assert!(peer.negotiator.unwrap().accepts(agreed.extensions));
        }
        // One answer of the peer is enough; without one there is no agreement.
        assert_eq!(side.agreed().is_some(), side.heard > 0 && in_common.extensions != Extensions::NONE);
        let agreements = side.outcomes.iter().filter(|(_, v)| matches!(v, NegotiationOutcome::Agreed(_))).count();
        assert!(agreements <= 1 && side.outcomes.len() <= 2, "{:?}", side.outcomes);
        assert!(n.rtt().is_none() || side.heard > 0);
    }
}

/// What two offers have in common, as `a` sees it, in other words than the code's.
fn common(a: Offer, b: Offer) -> Agreed {
    let window_of = |offer: Offer| offer.settings.get::<SrSettings>().window;
    let has_code = |offer: Offer| {
        let LowarSettings { r, c } = offer.settings.get();
        Code::new(r, c).is_some()
    };
    let scheme = |offer: Offer| offer.settings.get::<SdrSettings>().scheme;
    let mut agreed = Agreed::default();
    for bit in 0..32 {
        let one = Extensions(1 << bit);
        let usable = match one {
            Extensions::SR => window_of(a) > 0 && window_of(b) > 0,
            Extensions::LOWAR => has_code(a) && has_code(b),
            Extensions::SDR => scheme(a) == scheme(b),
            // Credit is spent by packets of XP, or by others.
            Extensions::EQDS => a.extensions.contains(Extensions::XP) == b.extensions.contains(Extensions::XP),
            _ => true,
        };
        if usable && a.extensions.contains(one) && b.extensions.contains(one) {
            agreed.extensions = agreed.extensions.union(one);
        }
    }
    // Each side knows its own settings, so what there is to know are the peer's.
    if agreed.extensions.contains(Extensions::SR) {
        agreed.settings = agreed.settings.with(b.settings.get::<SrSettings>());
    }
    if agreed.extensions.contains(Extensions::LOWAR) {
        agreed.settings = agreed.settings.with(b.settings.get::<LowarSettings>());
    }
    if agreed.extensions.contains(Extensions::SDR) {
        agreed.settings = agreed.settings.with(b.settings.get::<SdrSettings>());
    }
    agreed
}

fn both_ready_at_once() -> [Side; 2] {
    [Side::new(ms(0), sr_offer(), false), Side::new(ms(0), Offer { settings: window(16), ..sr_offer() }, false)]
}

/// Nothing gets lost: both agree one round trip after the later RTR. Where that is before the first one gives up, there
/// was no other verdict before.
#[test]
fn without_losses_both_agree_within_a_round_trip_of_the_later_one() {
    for seed in 0..5000 {
        let mut random = Random::new(seed);
        let scale = 1 << random.below(29); // up to a quarter of a second
        let mut draw = || Duration::from_nanos(random.below(scale));
        let (delays, later) = ([draw(), draw()], draw());
        let mut sides = both_ready_at_once();
        sides[usize::from(seed % 2 == 0)].ready_at = ms(0) + later;
        run(&mut sides, |from, now, _| vec![now + delays[from]]);
        let by = ms(0) + later + delays[0] + delays[1];
        for side in &sides {
            let &(at, verdict) = side.outcomes.last().unwrap();
            assert!(
                matches!(verdict, NegotiationOutcome::Agreed(_)) && at <= by,
                "seed {seed}: {verdict:?} at {at:?}, not by {by:?}"
            );
            if by < ms(150) {
                assert_eq!(side.outcomes.len(), 1, "seed {seed}: {:?}", side.outcomes);
            }
        }
    }
}

/// Any three MADs may get lost between two that begin together, any two where one is a bit later: every choice is tried.
#[test]
fn few_losses_do_not_keep_two_from_agreeing() {
    let mut runs = 0;
    for (later, losses) in [(0, 3), (2, 2), (49, 2)] {
        for lost in (0_u32..1 << 12).filter(|lost| lost.count_ones() <= losses) {
            for delay in [0, 1, 30, 60] {
                let (mut sides, mut n) = (both_ready_at_once(), 0);
                sides[1].ready_at = ms(later);
                run(&mut sides, |_, now, _| {
                    n += 1;
                    if lost >> (n - 1) & 1 == 1 { vec![] } else { vec![now + Duration::from_millis(delay)] }
                });
                assert!(n <= 16, "{n} MADs");
                for side in &sides {
                    let outcomes = &side.outcomes;
                    assert!(side.agreed().is_some(), "{later} ms later, {lost:#b} lost, {delay} ms: {outcomes:?}");
                }
                runs += 1;
            }
        }
    }
    assert_eq!(runs, 4 * (1 + 12 + 66 + 220) + 8 * (1 + 12 + 66));
}

/// Links and peers of all kinds; `check` says what holds.
#[test]
fn whatever_the_links_do_nobody_agrees_to_what_the_other_did_not_offer() {
    let mut ends = [0_u32; 3];
    for seed in 0..20_000 {
        let mut random = Random::new(seed);
        let mut side = || {
            let extensions = Extensions(random.below(16) as u32 & random.next_u32() | random.below(2) as u32);
            let extensions = if random.chance(0.1) { Extensions(extensions.0 | 0xe0) } else { extensions };
            let lowar = LowarSettings { r: random.below(70) as u8, c: random.below(70) as u8 };
            let sdr = SdrSettings { scheme: random.below(2) as u8, parameters: [random.below(3) as u8, 0, 9] };
            let offer = Offer { extensions, settings: window(random.below(70) as u32).with(lowar).with(sdr) };
            let spread = 1 << random.below(19);
            let ready_at = ms(0) + Duration::from_micros(random.below(spread));
            Side::new(ready_at, offer, random.chance(0.2))
        };
        let mut sides = [side(), side()];
        let (loss, doubled) = ([0.0, 0.2, 0.7, 1.0][random.below(4) as usize], random.chance(0.5));
        let spread = 1 << random.below(19);
        run(&mut sides, |_, now, _| {
            let copies = if random.chance(loss) { 0 } else { 1 + u32::from(doubled && random.chance(0.5)) };
            (0..copies).map(|_| now + Duration::from_micros(random.below(spread))).collect()
        });
        ends[sides.iter().filter(|side| side.agreed().is_some()).count()] += 1;
    }
    // Neither, one, both: all of it happens often.
    assert!(ends.iter().all(|&n| n > 200), "{ends:?}");
}

/// The answers of one get lost: the other gives up, and takes what the first one sends.
#[test]
fn one_side_may_agree_and_the_other_not_and_both_understand_each_other() {
    let mut sides = both_ready_at_once();
    run(&mut sides, |from, now, mad| if from == 0 || mad.kind == Kind::Offer { vec![now] } else { vec![] });
    assert_eq!(sides[0].outcome(), NegotiationOutcome::Standard(FallbackReason::Silent));
    assert_eq!(Some(sides[1].outcome()), sr(64));
    assert!(sides[0].negotiator.unwrap().accepts(Extensions::SR));
}

/// In the usual case an offer each and an answer each are all that is sent.
#[test]
fn two_that_begin_together_exchange_four_mads() {
    let (mut sides, mut sent) = (both_ready_at_once(), vec![]);
    run(&mut sides, |from, now, mad| {
        sent.push((from, mad.kind == Kind::Offer));
        vec![now + micros(10)]
    });
    assert_eq!(sent, [(0, true), (1, true), (0, false), (1, false)]);
    for side in &sides {
        assert_eq!(side.outcomes[0].0, ms(0) + micros(20), "each decides by the answer to its own offer");
        assert_eq!(side.negotiator.unwrap().rtt(), Some(micros(20)));
    }
}
