//! What is found in the captures of `corpus/`: a table that was read against what its index says was done to each.

use std::fmt::Write as _;
use std::path::Path;

use softnic_pcaps::faults::{Event, Options};

use crate::common::{captures_in, corpus, frames};
use crate::observe;

/// As in `ab drop RC_SEND_MIDDLE #1 +3 (1) packet 4`; `x3` stands for the third of its opcode.
fn line(e: &Event) -> String {
    let opcode = e.opcode.map_or("?".to_owned(), |o| o.to_string());
    let action = format!("{:?}", e.action).to_lowercase();
    let mut line = format!("{} {action} {opcode}", e.way);
    let _ = match e.destination {
        Some(n) => write!(line, " #{n}"),
        None => write!(line, " {}", e.dest_qp),
    };
    let _ = match (e.after_first, e.iteration, e.nth) {
        (Some(n), Some(i), _) => write!(line, " +{n} ({i})"),
        (_, _, Some(n)) => write!(line, " x{n}"),
        _ => Ok(()),
    };
    let _ = match e.packet {
        Some(n) => write!(line, " packet {n}"),
        None => write!(line, " unseen"),
    };
    line
}

fn found_in(path: &Path) -> Vec<String> {
    observe(&frames(path), Options::default()).events.iter().map(line).collect()
}

/// What was done to each is in `corpus/INDEX.md`. In those of a group a switch keeps acknowledgements to itself, which a capture of one host
/// cannot tell from losses.
#[rustfmt::skip]
const FOUND: &[(&str, &[&str])] = &[
    ("group_at_receiver_1", &[
        "ba drop RC_ACKNOWLEDGE #1 x1 packet 9",
        "ba drop RC_ACKNOWLEDGE #1 x4 packet 15",
        "ba drop RC_ACKNOWLEDGE #1 x5 packet 17",
        "ba drop RC_ACKNOWLEDGE #1 x6 packet 19",
        "ba drop RC_ACKNOWLEDGE #1 x7 packet 21",
        "ba drop RC_ACKNOWLEDGE #1 x8 packet 23",
        "ba drop RC_ACKNOWLEDGE #1 x9 packet 25",
        "ba drop RC_ACKNOWLEDGE #1 x16 packet 46",
    ]),
    ("group_at_receiver_2", &[
        "ab drop RC_RDMA_WRITE_MIDDLE #1 +2 (1) unseen",
        "ba drop RC_ACKNOWLEDGE #1 x1 packet 4",
        "ab drop RC_RDMA_WRITE_LAST #1 +7 (1) unseen",
        "ab drop RC_RDMA_WRITE_MIDDLE #1 +2 (2) unseen",
        "ab drop RC_RDMA_WRITE_MIDDLE #1 +9 (1) unseen",
        "ba drop RC_ACKNOWLEDGE #1 x5 packet 26",
        "ab drop RC_RDMA_WRITE_MIDDLE #1 +12 (1) unseen",
    ]),
    ("group_at_sender", &[
        "ab drop RC_RDMA_WRITE_FIRST #1 +0 (1) packet 1",
        "ab drop RC_RDMA_WRITE_LAST #1 +7 (2) packet 18",
        "ab drop RC_RDMA_WRITE_FIRST #1 +8 (1) packet 28",
    ]),
    ("interop_corrupt_rxe", &[
        "ab corrupt(some(1650)) RC_SEND_FIRST #1 +0 (1) packet 1",
        "ba drop RC_ATOMIC_ACKNOWLEDGE #1 +23 (1) packet 38",
    ]),
    ("interop_corrupt_softnic", &[
        "ba corrupt(some(418)) RC_ACKNOWLEDGE #1 x1 packet 5",
        "ab drop RC_RDMA_WRITE_FIRST #1 +8 (1) packet 19",
        "ab drop RC_RDMA_WRITE_MIDDLE #1 +10 (2) packet 26",
        "ba corrupt(some(443)) RC_ACKNOWLEDGE #1 x8 packet 28",
        "ab drop RC_RDMA_WRITE_LAST_WITH_IMMEDIATE #1 +15 (1) packet 39",
    ]),
    ("interop_duplicate_rxe", &[
        "ab duplicate RC_SEND_FIRST #1 +0 (1) packet 1",
        "ab duplicate RC_RDMA_WRITE_FIRST #1 +8 (1) packet 13",
    ]),
    ("interop_duplicate_softnic", &[
        "ba duplicate RC_RDMA_READ_RESPONSE_MIDDLE #1 +15 (1) packet 27",
    ]),
    ("interop_loss_rxe", &[
        "ab drop RC_SEND_FIRST #1 +0 (1) unseen",
        "ab drop RC_SEND_FIRST #1 +4 (1) unseen",
        "ba drop RC_ATOMIC_ACKNOWLEDGE #1 +21 (1) packet 36",
        "ba drop RC_ATOMIC_ACKNOWLEDGE #1 +22 (1) packet 40",
    ]),
    ("interop_loss_softnic", &[
        "ba drop RC_ACKNOWLEDGE #1 x1 unseen",
        "ab drop RC_SEND_LAST_WITH_IMMEDIATE #1 +7 (1) packet 16",
        "ba drop RC_ACKNOWLEDGE #1 x9 unseen",
        "ab drop RC_FETCH_ADD #1 +21 (1) packet 47",
    ]),
    ("interop_many_qps_mixed_rxe", &[
        "ab reorder(2) RC_RDMA_WRITE_FIRST #3 +0 (1) packet 13",
        "ab duplicate RC_RDMA_WRITE_MIDDLE #3 +1 (1) packet 11",
        "ba drop RC_ACKNOWLEDGE #3 x1 packet 15",
        "ab drop RC_RDMA_WRITE_FIRST #5 +0 (1) packet 20",
        "ab corrupt(some(2118)) RC_RDMA_WRITE_MIDDLE #5 +1 (1) packet 21",
        "ab duplicate RC_RDMA_WRITE_LAST #5 +3 (1) packet 24",
        "ab duplicate RC_SEND_ONLY_WITH_IMMEDIATE #2 +4 (1) packet 28",
        "ab drop RC_RDMA_WRITE_LAST #4 +3 (1) unseen",
        "ab corrupt(some(1166)) RC_SEND_ONLY_WITH_IMMEDIATE #4 +4 (2) packet 35",
        "ab reorder(2) RC_RDMA_WRITE_MIDDLE #5 +1 (2) packet 42",
    ]),
    ("interop_many_qps_mixed_softnic", &[
        "ab drop RC_RDMA_WRITE_MIDDLE #1 +2 (1) packet 3",
        "ab drop RC_RDMA_WRITE_MIDDLE #1 +2 (2) packet 27",
    ]),
    ("interop_mixed_rxe", &[
        "ab reorder(2) RC_RDMA_WRITE_FIRST #1 +8 (1) packet 13",
        "ab duplicate RC_RDMA_WRITE_MIDDLE #1 +9 (1) packet 11",
        "ba drop RC_ACKNOWLEDGE #1 x3 packet 15",
        "ba drop RC_ACKNOWLEDGE #1 x4 packet 18",
        "ab drop RC_RDMA_WRITE_LAST #1 +11 (2) unseen",
        "ab corrupt(some(2118)) RC_RDMA_WRITE_MIDDLE #1 +9 (3) packet 22",
        "ab duplicate RC_RDMA_WRITE_LAST #1 +11 (3) packet 24",
        "ab duplicate RC_RDMA_WRITE_MIDDLE #1 +13 (1) packet 28",
    ]),
    ("interop_mixed_softnic", &[
        "ab drop RC_SEND_MIDDLE #1 +2 (1) packet 3",
        "ab drop RC_SEND_LAST #1 +3 (1) packet 4",
        "ba reorder(2) RC_RDMA_READ_RESPONSE_MIDDLE #1 +17 (1) packet 32",
        "ba duplicate RC_RDMA_READ_RESPONSE_LAST #1 +18 (1) packet 30",
        "ab drop RC_FETCH_ADD #1 +23 (1) packet 41",
    ]),
    ("interop_peer_gone_rxe", &[
        "ab drop RC_RDMA_WRITE_ONLY #1 +0 (1) packet 1",
        "ab drop RC_RDMA_WRITE_ONLY #1 +0 (2) packet 2",
        "ab drop RC_RDMA_WRITE_ONLY #1 +0 (3) packet 3",
    ]),
    ("interop_peer_gone_softnic", &[
        "ab drop RC_RDMA_WRITE_ONLY #1 +0 (1) packet 1",
        "ab drop RC_RDMA_WRITE_ONLY #1 +0 (2) packet 2",
        "ab drop RC_RDMA_WRITE_ONLY #1 +0 (3) packet 3",
    ]),
    ("interop_reorder_rxe", &[
        "ab reorder(2) RC_SEND_FIRST #1 +0 (1) packet 3",
        "ab reorder(2) RC_SEND_MIDDLE #1 +5 (1) packet 14",
        "ba drop RC_ATOMIC_ACKNOWLEDGE #1 +19 (1) packet 36",
        "ba drop RC_ATOMIC_ACKNOWLEDGE #1 +20 (1) packet 40",
    ]),
    ("interop_reorder_softnic", &[
        "ba drop RC_ACKNOWLEDGE #1 x1 unseen",
        "ab drop RC_SEND_LAST_WITH_IMMEDIATE #1 +7 (1) packet 17",
        "ab drop RC_RDMA_WRITE_MIDDLE #1 +13 (1) packet 33",
        "ab drop RC_FETCH_ADD #1 +22 (1) packet 51",
    ]),
    ("interop_retry_exceeded_softnic", &[
        "ab drop RC_RDMA_WRITE_ONLY #1 +0 (1) packet 1",
        "ab drop RC_RDMA_WRITE_ONLY #1 +0 (2) packet 2",
        "ab drop RC_RDMA_WRITE_ONLY #1 +0 (3) packet 3",
    ]),
    ("loss_final_ack", &[
        "ba drop RC_ACKNOWLEDGE #1 x3 unseen",
    ]),
    ("loss_read_request", &[
        "ab drop RC_RDMA_READ_REQUEST #1 +0 (1) packet 1",
    ]),
    ("loss_read_resp_last", &[
        "ba drop RC_RDMA_READ_RESPONSE_LAST #1 +17 (1) unseen",
    ]),
    ("loss_send_last_timeout", &[
        "ab drop RC_SEND_LAST #1 +17 (1) packet 20",
    ]),
    ("loss_send_middle_nak", &[
        "ab drop RC_SEND_MIDDLE #1 +3 (1) packet 4",
    ]),
    ("loss_send_random10pct", &[
        "ab drop RC_SEND_MIDDLE #1 +7 (1) packet 9",
    ]),
    ("loss_write_first_nak", &[
        "ab drop RC_RDMA_WRITE_FIRST #1 +6 (1) packet 7",
    ]),
    ("rc_retry_exceeded", &[
        "ab drop RC_RDMA_WRITE_ONLY #1 +0 (1) packet 1",
        "ab drop RC_RDMA_WRITE_ONLY #1 +0 (2) packet 2",
        "ab drop RC_RDMA_WRITE_ONLY #1 +0 (3) packet 3",
    ]),
    ("sr_read_loss", &[
        "ba drop SR_RDMA_READ_RESPONSE_MIDDLE #1 +3 (1) packet 11",
    ]),
    ("sr_write_loss", &[
        "ab drop SR_RDMA_WRITE_MIDDLE #1 +3 (1) packet 8",
    ]),
    ("xp_send_loss", &[
        "ab drop ? #1 +2 (1) unseen",
        "ab drop ? #1 +13 (1) unseen",
    ]),
];

#[test]
fn faults_are_found_in_the_captures_that_have_some_and_in_no_others() {
    let mut wrong = String::new();
    let captures = captures_in(&corpus());
    for path in &captures {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let expected = FOUND.iter().find(|(known, _)| *known == name).map_or(&[][..], |(_, lines)| lines);
        let found = found_in(path);
        if found != expected {
            let _ = writeln!(wrong, "{name}: found {found:#?}, expected {expected:#?}");
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(FOUND.iter().all(|(name, _)| captures.iter().any(|path| path.file_stem().unwrap() == *name)));
}
