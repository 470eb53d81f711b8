//! What a bound on time buys, in virtual time: eight ranks at 25 Gbit/s, a ring, losses at random (goals of docs/optinic.md that are cheap).

use std::time::Duration;

use softnic_collectives::call::{Algorithm, Call, Element, Operation, Reduction};
use softnic_collectives::member::MemberSettings;
use softnic_collectives::report::Report;
use softnic_collectives::run::Options;
use softnic_collectives::simulated::run;
use softnic_sim::Cc;
use softnic_sim::topology::Topology;

fn allreduce(transport: &str, timeout: u8, loss: &str) -> Report {
    let text = format!(
        "kind = \"star\"\nhosts = 8\nrate = \"25Gbit\"\ndelay = \"1us\"\nmtu = 4096\npayload = \"none\"\nfault = \"{loss}\""
    );
    let options = Options {
        call: Call {
            operation: Operation::AllReduce,
            algorithm: Algorithm::Ring,
            element: Element::F32,
            reduction: Reduction::Sum,
            bytes: 4_000_000,
        },
        ranks: 8,
        transport: transport.parse().unwrap(),
        stride: 1,
        cc: Cc::Window,
        timeout: Some(timeout),
        iterations: 30,
        pause: Duration::ZERO,
        member: MemberSettings::default(),
        seed: 1,
    };
    run(&Topology::of_network(&text).unwrap(), &options, &|_| true).unwrap()
}

#[test]
fn over_xp_the_tail_of_an_allreduce_is_as_its_mean_and_over_rc_it_is_an_ack_timeout() {
    let quiet = allreduce("xp:tail=2", 14, "");
    let [xp, rc, sr] = ["xp:tail=2", "rc", "sr"].map(|transport| allreduce(transport, 14, "ab.loss=1e-3"));
    let p99 = |report: &Report| report.times.quantile_ms(0.99);
    let mean = |report: &Report| report.times.mean_ms();
    assert!(mean(&xp) <= 1.10 * mean(&quiet), "{} and {}", mean(&xp), mean(&quiet));
    assert!(p99(&xp) <= 1.15 * mean(&xp), "{} and {}", p99(&xp), mean(&xp));
    assert!(xp.missing_fraction() > 1e-4 && xp.missing_fraction() <= 0.01, "{}", xp.missing_fraction());
    assert!(p99(&rc) >= 2.5 * p99(&xp) && mean(&rc) >= 1.6 * mean(&xp), "{} and {}", p99(&rc), p99(&xp));
    assert!(p99(&sr) >= 0.98 * p99(&xp), "{} and {}", p99(&sr), p99(&xp));
}

#[test]
fn a_last_fragment_that_is_lost_and_sent_once_waits_for_the_budget_and_no_longer() {
    let xp = allreduce("xp", 14, "ab.loss=1e-3");
    let (p99, mean) = (xp.times.quantile_ms(0.99), xp.times.mean_ms());
    let most = xp.timeouts.iter().map(|budget| budget.as_secs_f64() * 1e3).fold(0.0, f64::max);
    // The Hellos come before the budget begins.
    assert!(p99 > 1.15 * mean && p99 <= most + 0.05, "{p99}, {mean}, {most}");
}

#[test]
fn loss_at_random_alone_hardly_hurts_an_rc_whose_timeout_fits_its_network() {
    let [least, xp] = [("rc", 3), ("xp:tail=2", 3)].map(|(transport, code)| allreduce(transport, code, "ab.loss=1e-3"));
    let (rc, xp) = (least.times.quantile_ms(0.99), xp.times.quantile_ms(0.99));
    assert!(rc >= xp && rc <= 1.25 * xp, "{rc} and {xp}");
}
