//! Budgets: the rule, its bounds, and slices of it on the messages of a collective.

use std::time::Duration;

use proptest::prelude::*;
use softnic_collectives::call::{Algorithm, Call, Element, Operation, Reduction};
use softnic_collectives::control::Control;
use softnic_collectives::member::MemberSettings;
use softnic_collectives::timeouts::{Observation, TimeoutSettings, Timeouts};

use super::world::World;

const CALL: Call = Call {
    operation: Operation::AllReduce,
    algorithm: Algorithm::Ring,
    element: Element::F32,
    reduction: Reduction::Sum,
    bytes: 1_000_000,
};
const MS: Duration = Duration::from_millis(1);

/// The paper's numbers.
fn paper() -> TimeoutSettings {
    TimeoutSettings { margin: 0.0, ..TimeoutSettings::default() }
}

fn nanos(ms: f64) -> u64 {
    (ms * 1e6) as u64
}

#[test]
fn the_first_budget_is_the_warm_up_and_a_quarter_and_50_us() {
    let mut timeouts = Timeouts::new(paper());
    assert_eq!(timeouts.next(&CALL, &mut []), None);
    timeouts.warm_up(&CALL, 4 * MS);
    assert_eq!(timeouts.proposal(&CALL, 5), Some(nanos(4.0)));
    let budget = timeouts.next(&CALL, &mut [nanos(3.0), nanos(9.0), nanos(4.0)]).unwrap();
    assert_eq!(budget.timeout, Duration::from_micros(5050));
    assert_eq!((budget.median, budget.before), (Some(4 * MS), None));
    // It has been told.
    assert_eq!(timeouts.proposal(&CALL, 5), None);
}

#[test]
fn an_update_is_a_fifth_of_the_median_and_the_margin() {
    for (margin, wanted) in [(0.0, 4.4), (0.5, 5.4)] {
        let mut timeouts = Timeouts::new(TimeoutSettings { margin, gamma: 0.0, delta: Duration::ZERO, ..paper() });
        timeouts.next(&CALL, &mut [nanos(3.0)]).unwrap();
        let budget = timeouts.next(&CALL, &mut [nanos(8.0), nanos(12.0), nanos(2.0), nanos(100.0)]).unwrap();
        // The mean of the two in the middle; 100 counts as 24.
        assert_eq!(budget.median, Some(10 * MS));
        let off = budget.timeout.as_secs_f64() - wanted / 1e3;
        assert!(off.abs() < 1e-8, "{budget:?}");
        assert_eq!(timeouts.timeout(&CALL), Some(budget.timeout));
        // Nobody has news: it stays.
        assert_eq!(timeouts.next(&CALL, &mut []).unwrap().timeout, budget.timeout);
    }
}

#[test]
fn a_rank_proposes_its_cost_for_all_bytes_and_nothing_where_it_expects_none() {
    let mut timeouts = Timeouts::new(paper());
    let observed = |elapsed, received, expected| Observation { elapsed, received, expected };
    timeouts.observe(&CALL, observed(9 * MS, 900, 1000));
    assert_eq!(timeouts.proposal(&CALL, 1000), Some(nanos(10.0)));
    assert_eq!(timeouts.proposal(&CALL, 2000), Some(nanos(20.0)));
    timeouts.observe(&CALL, observed(9 * MS, 0, 0));
    assert_eq!(timeouts.proposal(&CALL, 0), None);
    // Nothing of what was expected: as much as counts.
    timeouts.observe(&CALL, observed(9 * MS, 0, 1000));
    assert_eq!(timeouts.proposal(&CALL, 1000), Some(u64::MAX - 1));
}

#[test]
fn budgets_are_of_one_kind_of_collective_and_a_new_size_begins_with_that_of_a_larger_one() {
    let mut timeouts = Timeouts::new(paper());
    timeouts.next(&CALL, &mut [nanos(4.0)]).unwrap();
    let half = Call { bytes: CALL.bytes / 2, element: Element::F16, reduction: Reduction::Max, ..CALL };
    assert_eq!(timeouts.timeout(&half), Some(Duration::from_nanos(2_525_000)));
    // What short ones need says nothing of long ones: neither begins with the other's, nor changes it.
    let (short, empty) = (Call { bytes: 4, ..CALL }, Call { bytes: 0, ..CALL });
    for call in [short, empty] {
        assert_eq!(timeouts.next(&call, &mut [1]).unwrap().timeout, paper().delta);
    }
    assert_eq!(timeouts.timeout(&CALL), Some(Duration::from_micros(5050)));
    assert_eq!(timeouts.timeout(&Call { bytes: CALL.bytes + 4, ..CALL }), None);
    assert_eq!(timeouts.timeout(&Call { operation: Operation::AllGather, ..CALL }), None);
    assert_eq!(timeouts.timeout(&Call { algorithm: Algorithm::Tree, ..CALL }), None);
    assert_eq!(timeouts.next(&Call { algorithm: Algorithm::Tree, ..CALL }, &mut []), None);
}

#[test]
fn it_settles_within_5_percent_in_20_updates_and_in_30_after_the_load_doubles() {
    let mut timeouts = Timeouts::new(TimeoutSettings::default());
    let margin = 1.0 + TimeoutSettings::default().margin;
    let after = |timeouts: &mut Timeouts, n: usize, ms: f64| {
        (0..n).for_each(|_| _ = timeouts.next(&CALL, &mut [nanos(ms); 8]));
        timeouts.timeout(&CALL).unwrap().as_secs_f64() * 1e3
    };
    timeouts.next(&CALL, &mut [nanos(15.0); 8]);
    let settled = after(&mut timeouts, 20, 10.0);
    assert!((settled / (10.0 * margin) - 1.0).abs() < 0.05, "{settled}");
    let doubled = after(&mut timeouts, 30, 20.0);
    assert!((doubled / (20.0 * margin) - 1.0).abs() < 0.05, "{doubled}");
}

#[test]
fn a_rank_that_is_10_times_off_moves_it_by_less_than_10_percent() {
    for lie in [0, 1, nanos(1.0), nanos(100.0), 1 << 63, u64::MAX, f64::NAN.to_bits(), (-1i64) as u64] {
        for ranks in 3..20u64 {
            // What ranks need differs by a few percent.
            let honest: Vec<u64> = (0..ranks).map(|rank| nanos(10.0) + rank * 20_000).collect();
            let mut budgets = [honest.clone(), honest].map(|proposals| {
                let mut timeouts = Timeouts::new(TimeoutSettings::default());
                timeouts.next(&CALL, &mut proposals.clone());
                (timeouts, proposals)
            });
            budgets[1].1[0] = lie;
            for _ in 0..50 {
                budgets.iter_mut().for_each(|(timeouts, proposals)| _ = timeouts.next(&CALL, &mut proposals.clone()));
            }
            let [one, other] = budgets.map(|(timeouts, _)| timeouts.timeout(&CALL).unwrap().as_secs_f64());
            assert!((other / one - 1.0).abs() < 0.1, "{lie} of {ranks}: {one} {other}");
        }
    }
}

proptest! {
    #[test]
    fn no_proposals_move_it_beyond_the_bounds(
        first in 1u64..u64::MAX,
        rounds in proptest::collection::vec(proptest::collection::vec(any::<u64>(), 0..6), 1..30),
        margin in 0f64..3.0,
    ) {
        let settings = TimeoutSettings { margin, ..TimeoutSettings::default() };
        let mut timeouts = Timeouts::new(settings);
        let mut t = timeouts.next(&CALL, &mut [first]).unwrap().timeout;
        for mut proposals in rounds {
            prop_assert!(t >= settings.delta && t <= settings.most);
            let next = timeouts.next(&CALL, &mut proposals).unwrap().timeout;
            let [low, high] = [1.0 - settings.alpha, 1.0 - settings.alpha + settings.alpha * (1.0 + margin) * settings.bound];
            prop_assert!(next.as_secs_f64() >= t.as_secs_f64() * low * 0.999_999 - 1e-9);
            let most = (t.as_secs_f64() * high).max(settings.delta.as_secs_f64());
            prop_assert!(next.as_secs_f64() <= most * 1.000_001 + 1e-9);
            t = next;
        }
    }
}

#[test]
fn all_ranks_come_to_the_same_budget_and_the_last_phase_ends_with_it() {
    for algorithm in [Algorithm::Ring, Algorithm::Tree, Algorithm::Bcube] {
        let call = Call { algorithm, bytes: 400_000, ..CALL };
        let mut world = World::new(6, 9, &MemberSettings { bounded: true, ..MemberSettings::default() });
        let buffers = &mut vec![vec![0; 400_000]; 6];
        world.run_each(&[call; 6], buffers, true).unwrap();
        for round in 0..4 {
            let outcomes = world.run(&call, buffers).unwrap();
            let budget = outcomes[0].budget.unwrap();
            assert!(outcomes.iter().all(|outcome| outcome.budget == Some(budget)), "{outcomes:?}");
            assert_eq!(budget.before.is_none(), round == 0);
            for rank in 0..6 {
                let deadlines: Vec<_> = world.deadlines(rank).iter().map(|(_, at)| at.unwrap()).collect();
                let begin = deadlines.iter().max().unwrap().as_nanos() - budget.timeout.as_nanos() as u64;
                assert!(begin < world.now.as_nanos());
                assert!(deadlines.iter().all(|at| at.as_nanos() > begin));
            }
        }
    }
}

#[test]
fn sequential_steps_have_equal_slices_and_parallel_ones_share_a_deadline() {
    let timeout = 12 * MS;
    let settings = MemberSettings { bounded: true, fixed: Some(timeout), ..MemberSettings::default() };
    let mut world = World::new(4, 9, &settings);
    let call = Call { bytes: 4096, ..CALL };
    world.run(&call, &mut vec![vec![0; 4096]; 4]).unwrap();
    let deadlines = world.deadlines(0);
    // Six phases of a ring of four; the message that a phase sends is due with that which it receives.
    let at = |step: u32| deadlines.iter().find(|(i, _)| *i == step).unwrap().1.unwrap();
    for phase in 0..6 {
        assert_eq!(at(2 * phase), at(2 * phase + 1));
        assert_eq!(at(2 * phase) - at(0), 2 * MS * phase);
    }
}

#[test]
fn a_lie_about_what_was_needed_moves_the_budget_of_a_group_of_ranks_by_less_than_10_percent() {
    let run = |lie: Option<u64>| {
        let mut world = World::new(8, 4, &MemberSettings { bounded: true, ..MemberSettings::default() });
        world.tamper = Some(Box::new(move |rank, message| match (message, lie) {
            (Control::Hello { number, call, ranks, proposal: Some(_) }, Some(lie)) if rank == 5 => {
                Control::Hello { number, call, ranks, proposal: Some(lie) }
            }
            _ => message,
        }));
        let buffers = &mut vec![vec![0; 64_000]; 8];
        let call = Call { bytes: 64_000, ..CALL };
        world.run_each(&[call; 8], buffers, true).unwrap();
        (0..20).for_each(|_| drop(world.run(&call, buffers).unwrap()));
        world.members[0].timeouts().timeout(&call).unwrap().as_secs_f64()
    };
    let honest = run(None);
    for lie in [0, 1 << 63, u64::MAX - 1, f64::NAN.to_bits()] {
        // The liar itself knows its own proposal, and so does not go with the others; it deceives nobody but itself.
        let lied = run(Some(lie));
        assert!((lied / honest - 1.0).abs() < 0.1, "{lie}: {honest} {lied}");
    }
}

#[test]
fn clocks_that_differ_by_days_change_nothing() {
    let run = |clocks: Vec<Duration>| {
        let mut world = World::new(5, 6, &MemberSettings { bounded: true, ..MemberSettings::default() });
        (world.loss, world.clocks) = (20, clocks);
        let buffers = &mut vec![vec![3; 20_000]; 5];
        let call = Call { bytes: 20_000, ..CALL };
        let mut all = vec![world.run_each(&[call; 5], buffers, true).unwrap()];
        (0..10).for_each(|_| all.push(world.run(&call, buffers).unwrap()));
        (all, buffers.clone())
    };
    let same = run(vec![Duration::ZERO; 5]);
    assert!(same.0.iter().flatten().any(|outcome| !outcome.losses.is_empty()));
    assert_eq!(run([0, 86_400, 3, 1_000_000, 12].map(Duration::from_secs).to_vec()), same);
}

#[test]
fn of_two_ranks_the_budget_is_between_what_they_propose_and_one_without_news_is_not_counted() {
    // In a broadcast the root expects nothing, so it has no news: the other one alone decides.
    let call = Call { operation: Operation::Broadcast { root: 0 }, bytes: 4096, ..CALL };
    let mut world = World::new(2, 9, &MemberSettings { bounded: true, ..MemberSettings::default() });
    let buffers = &mut vec![vec![0; 4096]; 2];
    let warm_up = world.run_each(&[call; 2], buffers, true).unwrap();
    let first = world.run(&call, buffers).unwrap();
    // Both have a warm-up: of two the mean.
    let mean = (warm_up[0].elapsed + warm_up[1].elapsed) / 2;
    assert_eq!(first[0].budget.unwrap().median, Some(mean));
    let second = world.run(&call, buffers).unwrap();
    // What the other one proposes counts as an eighth of T at least.
    let least = Duration::from_nanos(first[0].budget.unwrap().timeout.as_nanos() as u64 / 8);
    assert_eq!(second[0].budget.unwrap().median, Some(first[1].elapsed.max(least)));
    assert_eq!(second[0].budget, second[1].budget);
    // Nobody expects a byte: T stays.
    let nothing = Call { bytes: 0, ..call };
    let third = world.run(&nothing, &mut vec![Vec::new(); 2]).unwrap();
    let fourth = world.run(&nothing, &mut vec![Vec::new(); 2]).unwrap();
    assert_eq!((fourth[0].budget.unwrap().median, third[0].expected), (None, 0));
    assert_eq!(fourth[0].budget.unwrap().before, third[0].budget.map(|budget| budget.timeout));
    let fifth = world.run(&call, buffers).unwrap();
    assert_eq!(fifth[0].budget.unwrap().before, second[0].budget.map(|budget| budget.timeout));
}
