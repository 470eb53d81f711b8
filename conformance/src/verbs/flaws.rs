//! Flaws of the programs themselves: races that they lose now and then, on any NIC. A run that shows one says nothing of softnic, and is done again.

/// How often a test is run before it has failed, whatever it shows.
pub(super) const TRIES: usize = 5;

/// A flaw: what the output of a run has that shows it, all of it, and what it is.
struct Flaw {
    shows: &'static [&'static str],
    what: &'static str,
}

const FLAWS: [Flaw; 4] = [
    Flaw {
        shows: &["the client exits with 139", "RDMA_CM_EVENT_REJECTED; error: 8.", "Failed to connect RDMA CM events."],
        what: "perftest's -R connects a second time at once, and where its server does not listen yet it tries again with ids that it has destroyed",
    },
    Flaw {
        shows: &["ud_ep.c", "Assertion `ep->dest_ep_id == ctl->conn_rep.src_ep_id' failed"],
        what: "UCX's ud_verbs trips over two ends that connect at a time (openucx/ucx#2453, seen on ConnectX)",
    },
    Flaw {
        shows: &["ud_ep.c", "Assertion `((int16_t)((ep->tx.acked_psn) - (ep->tx.psn)) < 0)' failed"],
        what: "UCX's UD, by which rc_v connects too, takes an acknowledgement of an endpoint's former life for one of its own (openucx/ucx#8743, mended in 1.20)",
    },
    Flaw {
        shows: &["Correlation coefficient r^2:"],
        what: "perftest holds its cycle counter against the clock for each size, and on a busy machine finds no line: it says so in the midst of its table, and a rate of 0",
    },
];

/// The flaw that a failed run shows.
pub(super) fn shown_by(why: &str) -> Option<&'static str> {
    FLAWS.iter().find(|flaw| flaw.shows.iter().all(|part| why.contains(part))).map(|flaw| flaw.what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flaw_is_known_by_all_that_it_shows() {
        let crash = "the client exits with 139\n  the client printed:\n    Event: RDMA_CM_EVENT_REJECTED; error: 8.\n    Failed to connect RDMA CM events.\n";
        assert!(shown_by(crash).is_some_and(|what| what.starts_with("perftest")));
        // A crash, and a refusal, that are somebody else's.
        assert_eq!(shown_by("the client exits with 139\n"), None);
        assert_eq!(shown_by("the client exits with 1\n    Event: RDMA_CM_EVENT_REJECTED; error: 8.\n"), None);
        let ucx = "[vm:1] ud_ep.c:891  Assertion `ep->dest_ep_id == ctl->conn_rep.src_ep_id' failed: ep=0x5";
        assert!(shown_by(ucx).is_some_and(|what| what.starts_with("UCX")));
        let stale =
            "[vm:1] ud_ep.c:721  Assertion `((int16_t)((ep->tx.acked_psn) - (ep->tx.psn)) < 0)' failed: ep 0x7f";
        assert!(shown_by(stale).is_some_and(|what| what.contains("former life")));
    }
}
