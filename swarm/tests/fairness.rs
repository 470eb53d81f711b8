//! Flows through one bottleneck: with congestion control they come to fair shares and a short queue, without it the queue fills. The longest of
//! these tests run with optimisation alone, in the layer of the swarm.

use std::time::Duration;

use softnic_fault_injector::{Policy, Script, Spec};
use softnic_sim::fairness::{Fairness, Incast, Outcome, jain};
use softnic_sim::{Cc, Transport, UNITS};
use softnic_wire::PathMtu;

const MS: Duration = Duration::from_millis(1);

fn cc(name: &str) -> Cc {
    Cc::parse(name, &UNITS).unwrap()
}

fn run(fairness: &Fairness) -> Outcome {
    let o = fairness.run().unwrap();
    assert_eq!(o.failed, 0);
    assert_eq!(o.rates.len(), fairness.flows);
    assert!(o.rates.iter().all(|r| r.len() == o.times.len()) && o.queue.len() == o.times.len());
    o
}

#[test]
#[cfg_attr(debug_assertions, ignore = "a minute without optimisation: `cargo xtask test --only swarm`")]
fn two_and_four_flows_come_to_fair_shares_of_a_full_link_with_a_short_queue_and_no_loss() {
    for (flows, read) in [(2, false), (4, false), (2, true), (4, true)] {
        let o = run(&Fairness { read, ..Fairness::new(flows, cc("dcqcn")) });
        let what = format!("{flows} flows, read {read}: shares {:?}, queue {:.0}", o.shares, o.mean_queue);
        assert!(
            o.jain > 0.98 && o.utilization > 0.95 && o.utilization < 1.001,
            "{what}, {} of the link",
            o.utilization
        );
        assert!(o.mean_queue < 100_000.0 && o.max_queue < 1_000_000, "{what}, at most {}", o.max_queue);
        assert_eq!((o.dropped, o.retransmitted), (0, 0), "{what}");
        assert!(o.cnps_sent > 50 && o.marked >= o.cnps_sent, "{what}: {} CNPs for {} marks", o.cnps_sent, o.marked);
        // One may be on its way when all is over.
        assert!(o.cnps_sent - o.cnps_handled <= 1, "{what}: {} of {}", o.cnps_handled, o.cnps_sent);
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "a minute without optimisation: `cargo xtask test --only swarm`")]
fn with_swift_flows_come_to_fair_shares_of_a_full_link_and_the_queue_stays_near_the_target() {
    for transport in ["rc", "sr", "xp"] {
        for flows in [2, 4, 16] {
            let transport = transport.parse().unwrap();
            let apart = MS * if flows > 4 { 1 } else { 5 };
            let o = run(&Fairness { transport, apart, together: 30 * MS, ..Fairness::new(flows, cc("swift")) });
            let what = format!("{flows} flows over {transport}: shares {:?}, queue {:.0}", o.shares, o.mean_queue);
            assert!(o.jain > 0.99 && o.utilization > 0.99 && o.utilization < 1.001, "{what}, {}", o.utilization);
            // 26 µs of 40 Gbit/s are 130 KB, and flow scaling adds 8 µs with 16 flows.
            assert!(o.mean_queue < 160_000.0 && o.max_queue < 300_000, "{what}, at most {}", o.max_queue);
            assert_eq!((o.dropped, o.retransmitted), (0, 0), "{what}");
        }
    }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "a minute without optimisation: `cargo xtask test --only swarm`")]
fn with_swift_windows_fall_below_one_packet_where_that_many_flows_share_a_link() {
    // 26 µs and flow scaling's 100 hold 150 packets of 4 KiB at 40 Gbit/s; here 250 flows want a share.
    let fairness = Fairness { mtu: PathMtu::B4096, apart: Duration::ZERO, ..Fairness::new(250, cc("swift")) };
    let o = run(&Fairness { together: 20 * MS, ..fairness });
    // In these 10 ms each sends 48 packets.
    assert!(o.jain > 0.7 && o.utilization > 0.95, "{} of {}", o.jain, o.utilization);
}

#[test]
fn an_incast_of_fifteen_with_swift_drops_nothing_and_takes_little_longer_than_the_link_needs() {
    for transport in ["rc", "sr", "xp"] {
        let transport = transport.parse().unwrap();
        let burst = Incast::new(15, cc("swift"), transport).run().unwrap();
        assert_eq!((burst.times.len(), burst.dropped, burst.retransmitted), (15, 0, 0), "{transport}");
        let what = format!("{transport}: {} of the bound, queue {}", burst.slowdown(), burst.max_queue);
        assert!(burst.slowdown() >= 1.0 && burst.slowdown() < 1.2, "{what}");
        assert!(burst.max_queue < 500_000, "{what}");
    }
}

/// WRITEs or READs over xp, with credit.
fn with_credit(flows: usize, read: bool) -> Fairness {
    let apart = MS * if flows > 4 { 1 } else { 5 };
    let usual = Fairness::new(flows, cc("eqds"));
    Fairness { transport: Transport::XP, apart, together: 20 * MS, begin: MS, read, ..usual }
}

#[test]
#[cfg_attr(debug_assertions, ignore = "a minute without optimisation: `cargo xtask test --only swarm`")]
fn with_eqds_flows_come_to_fair_shares_of_a_full_link_and_the_queue_is_short() {
    for flows in [1, 2, 4, 16] {
        for read in [false, true] {
            let o = run(&with_credit(flows, read));
            let what = format!("{flows} flows, read {read}: shares {:?}, queue {:.0}", o.shares, o.mean_queue);
            assert!(o.jain > 0.99 && o.utilization > 0.97 && o.utilization < 0.99, "{what}, {}", o.utilization);
            // A speculative window of whoever joins.
            assert!(o.mean_queue < 10_000.0 && o.max_queue < 40_000, "{what}, at most {}", o.max_queue);
            assert_eq!(o.dropped, 0, "{what}");
        }
    }
}

#[test]
fn with_eqds_flows_of_reliable_connections_come_to_fair_shares_of_a_full_link() {
    for transport in [Transport::Rc, Transport::SR] {
        for flows in [2, 4, 16] {
            let apart = MS / if flows > 4 { 2 } else { 1 };
            let o = run(&Fairness { transport, apart, together: 6 * MS, ..with_credit(flows, false) });
            let what = format!("{flows} flows over {transport}: shares {:?}, queue {:.0}", o.shares, o.mean_queue);
            assert!(o.jain >= 0.95 && o.utilization >= 0.95 && o.utilization < 0.99, "{what}, {}", o.utilization);
            assert!(o.mean_queue < 10_000.0 && o.max_queue < 40_000, "{what}, at most {}", o.max_queue);
            assert_eq!((o.dropped, o.retransmitted), (0, 0), "{what}");
        }
    }
}

/// Of what the receiver sends one frame in ten is lost, and of what the senders ask for one packet in ten.
fn lossy() -> Spec {
    let mut faults: Spec = "ab.loss=0.1".parse().unwrap();
    let every_tenth = (0..200).map(|n| {
        format!("[[event]]\naction = \"drop\"\ndirection = \"ba\"\nopcode = \"XP_CREDIT\"\nnth = {}\n", 5 + 10 * n)
    });
    faults.script = Script::parse(&every_tenth.collect::<String>()).unwrap();
    faults
}

#[test]
#[cfg_attr(debug_assertions, ignore = "a minute without optimisation: `cargo xtask test --only swarm`")]
fn with_a_tenth_of_all_feedback_and_credit_lost_nine_tenths_of_the_goodput_are_left() {
    for control in ["dcqcn", "swift", "eqds"] {
        for flows in [1, 4, 16] {
            let of = |faults| {
                let o = run(&Fairness {
                    faults,
                    begin: Duration::from_secs(1),
                    cc: cc(control),
                    ..with_credit(flows, false)
                });
                (o.utilization, o.jain, o.dropped)
            };
            let (free, lossy) = (of(Spec::default()), of(lossy()));
            assert!(lossy.0 >= 0.9 * free.0, "{flows} flows with {control}: {lossy:?} of {free:?}");
            assert!(lossy.1 >= 0.95 && lossy.2 == 0, "{flows} flows with {control}: {lossy:?}");
        }
    }
}

#[test]
fn over_reliable_connections_the_loss_of_a_tenth_of_credit_and_acknowledgements_costs_less_than_a_tenth() {
    for transport in [Transport::Rc, Transport::SR] {
        for flows in [1, 4] {
            let of = |faults| {
                let begin = Duration::from_secs(1);
                run(&Fairness { faults, begin, transport, apart: MS, together: 8 * MS, ..with_credit(flows, false) })
            };
            let (free, lossy) = (of(Spec::default()), of(lossy()));
            let what = format!("{flows} flows over {transport}: {} of {}", lossy.utilization, free.utilization);
            assert!(lossy.utilization >= 0.9 * free.utilization, "{what}");
            assert!(lossy.jain >= 0.95 && lossy.dropped == 0, "{what}, {}", lossy.jain);
        }
    }
}

#[test]
fn an_incast_of_fifteen_with_eqds_drops_nothing_behind_the_speculative_window() {
    let over = |transport| [Spec::default(), lossy()].map(|faults| (transport, faults));
    for (transport, faults) in [Transport::XP, Transport::Rc, Transport::SR].into_iter().flat_map(over) {
        let incast = Incast::new(15, cc("eqds"), transport);
        // Fifteen speculative windows of 32 KiB fit, and nothing is left for more than that.
        let policy = Policy { limit: 15 * (32 << 10) + 10_000, ..incast.policy };
        let burst = Incast { policy, faults: faults.clone(), ..incast }.run().unwrap();
        assert_eq!((burst.times.len(), burst.dropped), (15, 0), "{transport}: {burst:?}");
        // A lost acknowledgement of the end of a message costs rc an ACK timeout.
        let most = if transport == Transport::Rc && faults != Spec::default() { 2.0 } else { 1.2 };
        assert!(burst.slowdown() >= 1.0 && burst.slowdown() < most, "{transport}: {} of the bound", burst.slowdown());
    }
}

#[test]
fn who_stays_takes_what_those_who_leave_give_back() {
    let o = run(&Fairness::new(2, cc("dcqcn")));
    let mean = |flow: usize, ms: std::ops::Range<u64>| {
        let inside = |t: &Duration| ms.contains(&(t.as_micros() as u64 / 1000));
        let at: Vec<f64> = o.times.iter().zip(&o.rates[flow]).filter(|(t, _)| inside(t)).map(|(_, r)| *r).collect();
        at.iter().sum::<f64>() / at.len() as f64
    };
    assert!(mean(0, 2..10) > 39.0, "alone at first, at the line's rate");
    assert_eq!(mean(1, 2..10), 0.0);
    // The first leaves after 70 ms, the second after 80: it rises by 40 Mbit/s in each 55 µs.
    assert!(mean(0, 72..80) < 0.1, "gone");
    assert!(mean(1, 76..80) > mean(1, 60..70) + 3.0, "{} after {}", mean(1, 76..80), mean(1, 60..70));
}

#[test]
fn without_congestion_control_the_queue_fills_or_overflows() {
    let two = run(&Fairness::new(2, Cc::None));
    assert!(two.mean_queue > 1_500_000.0, "all that the two have outstanding waits there: {}", two.mean_queue);
    assert_eq!(two.cnps_handled, 0, "nobody heeds the {} CNPs", two.cnps_sent);
    assert!(two.cnps_sent > 1000);
    let four = run(&Fairness::new(4, Cc::None));
    assert!(four.dropped > 1000 && four.retransmitted > 1000, "{} dropped", four.dropped);
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_one_other_marks() {
    let short = |seed| {
        let f = Fairness {
            together: Duration::from_millis(5),
            apart: Duration::from_millis(1),
            seed,
            ..Fairness::new(2, cc("dcqcn"))
        };
        run(&f)
    };
    let [a, again, b] = [short(1), short(1), short(2)];
    assert_eq!((a.digest, &a.rates, &a.queue), (again.digest, &again.rates, &again.queue));
    assert_ne!(a.digest, b.digest);
}

#[test]
fn settings_reach_the_flows() {
    let at = |name| {
        let f = Fairness {
            apart: Duration::from_millis(2),
            together: Duration::from_millis(6),
            ..Fairness::new(2, cc(name))
        };
        run(&f).utilization
    };
    // After the first cuts, a rate that hardly rises leaves the link empty.
    let (slow, quick) = (at("dcqcn:ai=1Mbit,hai=1Mbit"), at("dcqcn:ai=400Mbit"));
    assert!(slow < 0.5 && quick > 0.8, "{slow} and {quick}");
}

#[test]
fn jains_index_is_one_for_equal_shares_and_one_nth_for_one_alone() {
    assert_eq!((jain(&[3.0; 4]), jain(&[5.0, 0.0, 0.0, 0.0]), jain(&[])), (1.0, 0.25, 1.0));
    // 36 / (2 · 20)
    assert_eq!(jain(&[2.0, 4.0]), 0.9);
}
