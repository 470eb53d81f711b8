//! Scenarios of peers and programs whose connections have no backup: one line says why, and all is as without.

use super::scenario::{Expected, Scenario, Trouble};
use crate::guest::Error;
use crate::verbs::Bench;
use crate::verbs::rxe::{Peer, Softnic};
use crate::verbs::tools::{Case, Prints, case};

/// What is said of a peer that has none.
const PEER: &str = "the peer has no backup";
/// And of queue pairs like those of UCX's rc_verbs, whose receives are shared.
const SHARED: &str = "only reliable connections without a shared receive queue are protected";
/// Of the plain softnic: until it is ended.
const ENDLESS: Case = case("ib_write_bw", "-s 65536 -u 16 -D 1 --run_infinitely", Prints::OneRow, false);
const UCX: Case = case("ucx_perftest", "UCX_TLS=rc_v -t tag_bw -s 65536 -n 500 -w 10", Prints::Ucx, false);
const WITH_SOFT_ROCE: Case = case("ib_write_bw", "-s 65536 -n 200", Prints::OneRow, false);

pub(super) fn scenarios() -> Vec<Scenario> {
    let plain = |case: &Case, backups, trouble, expected| {
        let scenario = Scenario::new(case.clone(), trouble);
        Scenario { backups, expected, ..scenario }
    };
    let lost = Trouble::Wire("down=0s+1h");
    vec![
        plain(&ENDLESS, [false, true], Trouble::Nothing, Expected::Unprotected(PEER)),
        plain(&ENDLESS, [true, false], Trouble::Nothing, Expected::Unprotected(PEER)),
        plain(&ENDLESS, [false, true], lost, Expected::Ends(PEER)),
        plain(&UCX, [true, true], Trouble::Nothing, Expected::Unprotected(SHARED)),
        plain(&WITH_SOFT_ROCE, [true, true], Trouble::SoftRoce, Expected::Unprotected(PEER)),
    ]
}

/// With Linux Soft-RoCE as the server, and as the client.
pub(super) fn run_with_soft_roce(case: &Case, bench: &Bench) -> Result<(), Error> {
    let mut peer = Peer::boot(bench)?;
    peer.add_backup()?;
    for softnic in [Softnic::Client, Softnic::Server] {
        peer.run(case, softnic)?;
        let text = peer.text();
        let count = text.lines().filter(|line| line.contains(PEER)).count();
        if count != 1 {
            let name = softnic.name();
            return Err(Error::Failed(format!("{name}, and says {count} times that {PEER}: {}", text.trim())));
        }
    }
    Ok(())
}
