//! Frames at random, with right and wrong ICRCs, for queue pairs of every kind and in every state, with and without shared
//! receives, alone and in a group, over the wire and by loopback: nothing panics or hangs, and no byte is written elsewhere.

use crate::common::*;
use crate::victims::{Fuzz, KINDS, MANY, MEMORY, Numbers, STATES};
use softnic_nic::QpKind;
use softnic_nic::transports::qp::QpState;

const STEPS: u32 = 100_000;

fn run(seed: u32) -> Fuzz {
    let mut f = Fuzz::new(Numbers::of_seed(seed), MANY);
    for n in 0..STEPS {
        f.step();
        if n % 1000 == 0 {
            f.check_memory();
        }
    }
    f.end();
    f
}

#[test]
fn no_frame_panics_hangs_or_writes_where_it_may_not_whatever_queue_pair_it_meets() {
    let mut met = [[0; STATES.len()]; KINDS.len()];
    for seed in 1..=4 {
        let f = run(seed);
        let c = f.w.counters(B);
        for (name, count) in [
            ("writes", c.rx_write_requests),
            ("sends", c.rx_send_requests),
            ("READs", c.rx_read_requests),
            ("gaps", c.out_of_sequence),
            ("refused ranges", c.resp_remote_access_errors),
            ("refused requests", c.resp_remote_invalid_request),
            ("receives that were missing", c.out_of_buffer),
            ("receives that were too short", c.resp_local_length_error),
            ("bad ICRCs", c.rx_icrc_encapsulated),
            ("bad partitions", c.rx_bad_pkey),
            ("bad Q_Keys", c.rx_bad_qkey),
            ("bad queue pairs", c.rx_bad_qp),
            ("malformed packets", c.rx_malformed),
            ("failed sends", c.req_cqe_error),
            ("packets that LoWAR recovered", c.lowar_recovered_packets),
            ("packets that LoWAR kept", c.lowar_held_packets),
            ("blocks that LoWAR gave up", c.lowar_failed_blocks),
            ("lies in Repair Headers", c.lowar_rejected),
            ("messages that came in part", c.xp_partial_messages),
            ("messages that a later one ended", c.xp_preempted_messages),
            ("messages that ended in time", c.xp_expired_messages),
            ("sends that ended in time", c.xp_expired_sends),
            ("packets of messages that were over", c.xp_late_packets),
            ("lies in headers of XP", c.xp_rejected_packets),
            ("feedback sent", c.xp_feedback_sent),
            ("feedback received", c.xp_feedback_received),
        ] {
            assert!(count > 10, "seed {seed}: {count} {name}\n{c:#?}");
        }
        met.iter_mut().flatten().zip(f.met.iter().flatten()).for_each(|(sum, count)| *sum += count);
        for name in ["COMM_EST", "LAST_WQE_REACHED", "SQ_DRAINED", "QP_REQ_ERR", "QP_ACCESS_ERR"] {
            assert!(f.events.contains(name), "seed {seed}: no {name} among {:?}", f.events);
        }
    }
    // Every kind was met in every state that it has.
    for (kind, met) in KINDS.iter().zip(met) {
        for (state, count) in STATES.iter().zip(met) {
            let has = *state != QpState::SendQueueError || *kind != QpKind::Rc;
            assert!(count > 40 || !has, "{kind:?} in {state:?}: {count}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let (a, b) = (run(9), run(9));
    assert_eq!(a.w.counters(B), b.w.counters(B));
    assert_eq!(a.w.read(B, 0, MEMORY), b.w.read(B, 0, MEMORY));
}

#[test]
fn completion_queues_that_overflow_stop_their_queue_pairs_and_nothing_else() {
    for seed in 0..40 {
        let mut f = Fuzz::new(Numbers::of_seed(seed), seed as usize % 4);
        for _ in 0..2000 {
            f.step();
        }
        f.end();
        assert!(f.overflowed && f.events.contains("QP_FATAL") && f.events.contains("CQ_ERR"), "{:?}", f.events);
    }
}

/// Runs what a fuzzer would; when it panics the input is printed, so that it can be kept.
fn fuzz(input: &[u8]) {
    if std::panic::catch_unwind(|| crate::victims::fuzz(input)).is_err() {
        let hex: String = input.iter().map(|b| format!("{b:02x}")).collect();
        panic!("the fuzz body failed on {hex}");
    }
}

#[test]
fn what_happens_byte_by_byte() {
    let mut random = generator(5);
    for n in 0..300 {
        fuzz(&(0..n * 4).map(|_| random() as u8).collect::<Vec<_>>());
    }
}

#[test]
fn the_kept_corpus() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../fuzz/corpus/nic");
    for file in std::fs::read_dir(folder).unwrap() {
        fuzz(&std::fs::read(file.unwrap().path()).unwrap());
    }
}
