//! Scenarios of perftest: every way to fail, under writes, sends and reads.

use super::scenario::{Scenario, Trouble, Whose};
use crate::verbs::tools::{Case, Prints, case};

const PROGRAMS: [&str; 3] = ["ib_write_bw", "ib_send_bw", "ib_read_bw"];
/// For so many seconds: their exit codes count. Here and below the ACK timeout is 268 ms, and eight of them are two seconds: with perftest's own
/// 67 ms work requests run out of retries on a busy machine though nothing fails, and without a backup, too.
const SOME_SECONDS: &str = "-s 65536 -u 16 -D 10";
/// Until they are ended: each second they say how fast they are.
const ENDLESS: &str = "-s 65536 -u 16 -D 1 --run_infinitely";

fn endless(program: &'static str, short: bool) -> Case {
    case(program, ENDLESS, Prints::OneRow, short)
}

pub(super) fn scenarios() -> Vec<Scenario> {
    let mut all = Vec::new();
    for (program, whose) in PROGRAMS.iter().flat_map(|&program| Whose::BOTH.map(|whose| (program, whose))) {
        // With its exit code: one of them in every run.
        let short = program == "ib_send_bw" && whose == Whose::Initiator;
        all.push(Scenario::new(case(program, SOME_SECONDS, Prints::OneRow, short), Trouble::Down(whose)));
        all.push(Scenario::new(endless(program, false), Trouble::Down(whose)));
        all.push(Scenario::new(endless(program, false), Trouble::Flapping(whose)));
        all.push(Scenario::new(endless(program, false), Trouble::Deleted(whose)));
    }
    for program in PROGRAMS {
        let short = program == "ib_write_bw";
        all.push(Scenario::new(endless(program, short), Trouble::Wire("down=0s+1h")));
        all.push(Scenario::new(endless(program, false), Trouble::Wire("ab.loss=1")));
        all.push(Scenario::new(endless(program, false), Trouble::Wire("ba.loss=1")));
        all.push(Scenario::new(endless(program, false), Trouble::Wire("stall=0s+3s")));
        all.push(Scenario::new(endless(program, false), Trouble::DownAtBoth));
        all.push(Scenario::new(endless(program, program == "ib_read_bw"), Trouble::BothDeleted));
        for (whose, fault) in
            Whose::BOTH.iter().flat_map(|&w| ["down=8s+3s", "rx.down=8s+3s", "stall=8s+3s"].map(|f| (w, f)))
        {
            all.push(Scenario::new(endless(program, false), Trouble::Nic(whose, fault)));
        }
    }
    // Two devices, of which each is the other's backup: their interfaces are shared.
    for (program, trouble) in
        PROGRAMS.into_iter().flat_map(|p| [(p, Trouble::Down(Whose::Initiator)), (p, Trouble::BothDeleted)])
    {
        all.push(Scenario { mutual: true, ..Scenario::new(endless(program, false), trouble) });
    }
    // They wait long for their turns: an ACK timeout of a second.
    all.push(Scenario::new(
        case("ib_write_bw", "-q 1000 -s 1024 -t 4 -u 18 -D 1 --run_infinitely", Prints::OneRow, false),
        Trouble::Down(Whose::Initiator),
    ));
    // Before, within and after the handshake. The survivor of writes hears of the end by its own connection.
    for ms in [0, 5, 20, 200] {
        for whose in Whose::BOTH {
            all.push(Scenario::new(endless("ib_write_bw", false), Trouble::Killed(whose, ms)));
        }
    }
    // It compares what came.
    all.push(Scenario::new(
        case("ibv_rc_pingpong", "-c -s 65536 -n 20000", Prints::PingPong, false),
        Trouble::Down(Whose::Initiator),
    ));
    all
}
