//! Tests of the state machine alone: which actions it requests, and in which order.

use super::*;

const US: Duration = Duration::from_micros(1);
const MS: Duration = Duration::from_millis(1);
const S: Duration = Duration::from_secs(1);

fn at(span: Duration) -> Instant {
    Instant::ZERO + span
}

fn times() -> Times {
    Times { probe: 10 * MS, fence: 20 * MS, answer: 5 * S }
}

fn new() -> Machine {
    Machine::new(times())
}

fn actions(machine: &mut Machine) -> Vec<Action> {
    std::iter::from_fn(|| machine.poll_action()).collect()
}

/// The status of a peer that left the default in an epoch, with this many receives completed.
fn moved(epoch: u32, recv_count: u32) -> Status {
    Status {
        epoch,
        phase: Phase::Moving,
        recv_on: Side::Backup,
        recv_count,
        next_psn: [Psn::new(7), Psn::new(9)],
        returned: 0,
        woke: false,
        refused: false,
    }
}

/// Lets the running timer expire.
fn wait(machine: &mut Machine) -> Instant {
    let now = machine.poll_timeout().expect("a timer runs");
    machine.on_time(now);
    now
}

/// A machine in Fallback since a time, as its peer is.
fn fallen_back(now: Instant) -> Machine {
    let mut machine = new();
    machine.on_failure(now, Side::Default, Reason::Retries);
    machine.on_status(now, &moved(1, 0));
    actions(&mut machine);
    machine
}

/// Takes the machine and its peer from Fallback back to Default. Returns the time at which the return is complete.
fn go_back(machine: &mut Machine) -> Instant {
    for _ in 0..100_000 {
        let now = wait(machine);
        match machine.phase() {
            Phase::Fallback => machine.on_probe(now),
            Phase::WaitDrained => {}
            _ => {
                machine.on_fence_sent();
                machine.on_drained();
                machine.on_notified(now);
                let peer = Status { phase: Phase::Default, returned: machine.epoch(), ..moved(machine.epoch(), 0) };
                machine.on_status(now, &peer);
                actions(machine);
                assert_eq!((machine.phase(), machine.recv_on()), (Phase::Default, Side::Default));
                assert!(machine.poll_timeout().is_none());
                return now;
            }
        }
    }
    panic!("it does not go back");
}

#[test]
fn a_failure_halts_moves_receives_and_tells_the_peer_and_sends_wait_for_its_answer() {
    let mut machine = new();
    assert_eq!((machine.send_side(), machine.is_settled()), (Some(Side::Default), true));
    machine.on_failure(at(MS), Side::Default, Reason::Retries);
    let expected = [
        Action::Halt(Side::Default),
        Action::MoveRecvs(Side::Default),
        Action::Publish { by: Side::Backup, wake: true },
    ];
    assert_eq!(actions(&mut machine), expected);
    assert_eq!((machine.phase(), machine.recv_on(), machine.epoch()), (Phase::Moving, Side::Backup, 1));
    assert_eq!((machine.send_side(), machine.is_settled()), (None, false));
    assert_eq!(machine.poll_timeout(), Some(at(MS + 5 * S)));
    machine.on_status(at(2 * MS), &moved(1, 4));
    let expected = [
        Action::TakeSends { from: Side::Default, received: 4 },
        Action::Tell(Side::Backup, Reason::Retries),
        Action::Remake(Side::Default),
        Action::Release,
    ];
    assert_eq!(actions(&mut machine), expected);
    assert_eq!((machine.phase(), machine.send_side()), (Phase::Fallback, Some(Side::Backup)));
    assert_eq!(machine.poll_timeout(), Some(at(12 * MS)), "a probe");
}

#[test]
fn one_that_hears_of_it_by_the_peer_follows_and_needs_no_further_answer() {
    let mut machine = new();
    machine.on_status(at(MS), &Status { woke: true, ..moved(1, 2) });
    let expected = [
        Action::Halt(Side::Default),
        Action::MoveRecvs(Side::Default),
        Action::Publish { by: Side::Backup, wake: true },
        Action::TakeSends { from: Side::Default, received: 2 },
        Action::Tell(Side::Backup, Reason::Peer),
        Action::Remake(Side::Default),
        Action::Release,
    ];
    assert_eq!(actions(&mut machine), expected);
    assert_eq!((machine.phase(), machine.epoch(), machine.reason()), (Phase::Fallback, 1, Reason::Peer));
}

#[test]
fn both_that_fail_at_once_are_in_one_epoch() {
    let mut ends = [new(), new()];
    for machine in &mut ends {
        machine.on_failure(at(MS), Side::Default, Reason::Port);
        actions(machine);
    }
    let said = [ends[0].status(), ends[1].status()];
    for (machine, status) in ends.iter_mut().zip([said[1], said[0]]) {
        machine.on_status(at(MS + US), &status);
        let taken = actions(machine);
        assert_eq!(taken.iter().filter(|action| matches!(action, Action::TakeSends { .. })).count(), 1);
        assert!(!taken.iter().any(|action| matches!(action, Action::Publish { .. } | Action::Halt(_))), "{taken:?}");
        assert_eq!((machine.epoch(), machine.phase()), (1, Phase::Fallback));
    }
}

#[test]
fn the_same_status_twice_asks_for_nothing_the_second_time() {
    let mut machine = new();
    machine.on_failure(at(MS), Side::Default, Reason::Retries);
    machine.on_status(at(MS), &moved(1, 4));
    actions(&mut machine);
    let timer = machine.poll_timeout();
    machine.on_status(at(2 * MS), &moved(1, 4));
    assert_eq!((actions(&mut machine), machine.poll_timeout()), (vec![], timer));
    // Nor does another status of the same epoch without new information.
    machine.on_status(at(3 * MS), &Status { phase: Phase::Fallback, ..moved(1, 4) });
    assert_eq!((actions(&mut machine), machine.poll_timeout()), (vec![], timer));
}

#[test]
fn a_status_of_the_epoch_before_is_passed_over() {
    let mut machine = new();
    machine.on_failure(at(MS), Side::Default, Reason::Retries);
    actions(&mut machine);
    let before = Status { phase: Phase::Default, recv_on: Side::Default, ..moved(0, 0) };
    machine.on_status(at(MS), &before);
    assert_eq!((actions(&mut machine), machine.phase()), (vec![], Phase::Moving));
}

#[test]
fn an_epoch_that_cannot_be_is_a_lie() {
    for epoch in [2, 3, 1 << 31, u32::MAX - 1] {
        let mut machine = new();
        machine.on_status(at(MS), &moved(epoch, 0));
        assert_eq!(actions(&mut machine), [Action::Fail(Refusal::Lie)], "{epoch}");
        assert!(machine.status().refused && machine.poll_timeout().is_none());
        // A failed machine takes no further action.
        machine.on_status(at(MS), &moved(1, 0));
        machine.on_failure(at(MS), Side::Backup, Reason::Port);
        assert_eq!(actions(&mut machine), []);
    }
}

#[test]
fn a_peer_that_does_not_answer_in_time_is_silent() {
    let mut machine = new();
    machine.on_failure(at(MS), Side::Default, Reason::Retries);
    actions(&mut machine);
    machine.on_time(at(MS + 5 * S - US));
    assert_eq!(actions(&mut machine), []);
    machine.on_time(at(MS + 5 * S));
    assert_eq!(actions(&mut machine), [Action::Fail(Refusal::Silence)]);
}

#[test]
fn a_peer_that_refuses_ends_it_in_every_phase() {
    let refusal = Status { refused: true, phase: Phase::Failed, ..moved(1, 0) };
    let mut moving = new();
    moving.on_failure(at(MS), Side::Default, Reason::Port);
    let mut waits = fallen_back(at(MS));
    let now = wait(&mut waits);
    waits.on_probe(now);
    let mut drains = waits.clone();
    drains.on_fence_sent();
    for mut machine in [new(), moving, fallen_back(at(MS)), waits, drains] {
        actions(&mut machine);
        machine.on_status(now, &refusal);
        assert_eq!(actions(&mut machine), [Action::Fail(Refusal::Peer)]);
    }
}

#[test]
fn the_program_s_signaled_send_is_the_fence() {
    let mut machine = fallen_back(at(MS));
    let now = wait(&mut machine);
    assert_eq!(actions(&mut machine), [Action::Probe]);
    assert!(machine.awaits_probe() && machine.poll_timeout().is_none(), "the queue pair itself asks again");
    machine.on_probe(now);
    assert_eq!(actions(&mut machine), [Action::Trust]);
    assert_eq!((machine.phase(), machine.send_side()), (Phase::WaitSignaled, Some(Side::Backup)));
    machine.on_fence_sent();
    assert_eq!((machine.phase(), machine.send_side()), (Phase::WaitDrained, None), "the doorbell is withheld");
    assert_eq!((actions(&mut machine), machine.poll_timeout()), (vec![], None));
    machine.on_notified(now);
    assert_eq!(machine.phase(), Phase::WaitDrained, "no notification left yet");
    machine.on_drained();
    assert_eq!(actions(&mut machine), [Action::Publish { by: Side::Default, wake: false }]);
    assert_eq!((machine.status().returned, machine.send_side()), (1, None));
    machine.on_drained();
    assert_eq!(actions(&mut machine), [], "one notification");
    machine.on_notified(now);
    let expected = [
        Action::Trust,
        Action::Publish { by: Side::Default, wake: false },
        Action::Tell(Side::Default, Reason::Retries),
        Action::Release,
    ];
    assert_eq!(actions(&mut machine), expected);
    assert_eq!((machine.send_side(), machine.recv_on()), (Some(Side::Default), Side::Backup), "each way by itself");
}

#[test]
fn without_a_signaled_send_the_fence_is_our_own() {
    let mut machine = fallen_back(at(MS));
    let now = wait(&mut machine);
    machine.on_probe(now);
    actions(&mut machine);
    assert_eq!(machine.poll_timeout(), Some(now + 20 * MS));
    machine.on_time(now + 19 * MS);
    assert_eq!(actions(&mut machine), []);
    machine.on_time(now + 20 * MS);
    assert_eq!(actions(&mut machine), [Action::Fence]);
}

#[test]
fn receives_follow_the_peer_s_return_and_not_our_own() {
    let mut machine = fallen_back(at(MS));
    let returned = Status { phase: Phase::WaitDrained, returned: 1, ..moved(1, 0) };
    machine.on_status(at(2 * MS), &returned);
    assert_eq!(actions(&mut machine), [Action::MoveRecvs(Side::Backup)]);
    assert_eq!((machine.phase(), machine.recv_on()), (Phase::Fallback, Side::Default));
    // A return of an earlier epoch does not count in this one.
    let mut machine = fallen_back(at(MS));
    go_back(&mut machine);
    machine.on_failure(at(S), Side::Default, Reason::Port);
    machine.on_status(at(S), &Status { returned: 1, ..moved(2, 0) });
    assert!(!actions(&mut machine).contains(&Action::MoveRecvs(Side::Backup)));
}

#[test]
fn a_default_that_fails_while_the_way_back_is_prepared_is_left_again() {
    for notified in [false, true] {
        let mut machine = fallen_back(at(MS));
        let now = wait(&mut machine);
        machine.on_probe(now);
        machine.on_fence_sent();
        if notified {
            machine.on_drained();
        }
        actions(&mut machine);
        machine.on_failure(now, Side::Default, Reason::Retries);
        let asked = actions(&mut machine);
        assert_eq!(asked.last(), Some(&Action::Publish { by: Side::Backup, wake: false }));
        assert_eq!(machine.epoch(), 2);
        // Nothing is outstanding. But after the notification the peer's receives may be at the default.
        let phase = if notified { Phase::Moving } else { Phase::Fallback };
        assert_eq!(machine.phase(), phase);
        machine.on_status(now, &moved(2, 0));
        assert!(actions(&mut machine).contains(&Action::Remake(Side::Default)));
        assert_eq!((machine.phase(), machine.poll_timeout()), (Phase::Fallback, Some(now + 10 * MS)));
    }
}

#[test]
fn a_backup_that_fails_when_the_default_is_back_is_left_as_the_default_was() {
    let mut machine = fallen_back(at(MS));
    let now = wait(&mut machine);
    machine.on_probe(now);
    actions(&mut machine);
    machine.on_failure(now, Side::Backup, Reason::Port);
    let expected = [
        Action::Halt(Side::Backup),
        Action::MoveRecvs(Side::Backup),
        Action::Publish { by: Side::Default, wake: false },
    ];
    assert_eq!(actions(&mut machine), expected);
    assert_eq!((machine.phase(), machine.recv_on(), machine.epoch()), (Phase::Moving, Side::Default, 2));
    machine.on_status(now, &Status { recv_on: Side::Default, ..moved(2, 3) });
    let taken = actions(&mut machine);
    assert_eq!(taken[0], Action::TakeSends { from: Side::Backup, received: 3 });
    assert_eq!(taken[1..3], [Action::Tell(Side::Default, Reason::Port), Action::Remake(Side::Backup)]);
    assert_eq!((machine.phase(), machine.send_side()), (Phase::Default, Some(Side::Default)));
}

#[test]
fn when_neither_side_works_it_ends() {
    // The other side fails before the peer has answered,
    let mut machine = new();
    machine.on_failure(at(MS), Side::Default, Reason::Retries);
    actions(&mut machine);
    machine.on_failure(at(2 * MS), Side::Backup, Reason::Retries);
    assert_eq!(actions(&mut machine), [Action::Fail(Refusal::BothSides)]);
    // while the default is not known to work,
    let mut machine = fallen_back(at(MS));
    machine.on_failure(at(2 * MS), Side::Backup, Reason::Retries);
    assert_eq!(actions(&mut machine), [Action::Fail(Refusal::BothSides)]);
    // or each end has left the side that the other end moved to.
    let mut machine = fallen_back(at(MS));
    let now = wait(&mut machine);
    machine.on_probe(now);
    machine.on_failure(now, Side::Backup, Reason::Port);
    actions(&mut machine);
    machine.on_status(now, &moved(2, 0));
    assert_eq!(actions(&mut machine), [Action::Fail(Refusal::BothSides)]);
}

#[test]
fn a_failure_of_the_side_that_stands_by_or_was_left_changes_nothing() {
    let mut machine = new();
    machine.on_failure(at(MS), Side::Backup, Reason::Port);
    assert_eq!((actions(&mut machine), machine.epoch()), (vec![], 0));
    machine.on_failure(at(MS), Side::Default, Reason::Port);
    actions(&mut machine);
    machine.on_failure(at(MS), Side::Default, Reason::Retries);
    machine.on_status(at(MS), &moved(1, 0));
    actions(&mut machine);
    machine.on_failure(at(MS), Side::Default, Reason::Port);
    assert_eq!((actions(&mut machine), machine.epoch(), machine.phase()), (vec![], 1, Phase::Fallback));
}

#[test]
fn a_default_that_flaps_is_returned_to_later_each_time_and_that_is_forgotten() {
    let mut machine = new();
    let mut now = at(MS);
    let mut held = Vec::new();
    for epoch in 1..=10 {
        machine.on_failure(now, Side::Default, Reason::Retries);
        machine.on_status(now, &moved(epoch, 0));
        actions(&mut machine);
        let back = go_back(&mut machine);
        // The return waits for a probe every 10 ms, and for the fence.
        held.push((back - now).as_secs());
        now = back + MS;
    }
    assert_eq!(held, [0, 1, 2, 4, 8, 16, 32, 64, 64, 64]);
    // The default worked for more than twice the hold: the hold is reset.
    now = now + 200 * S;
    machine.on_failure(now, Side::Default, Reason::Retries);
    machine.on_status(now, &moved(11, 0));
    actions(&mut machine);
    assert!(go_back(&mut machine) - now < S);
}

#[test]
fn failures_without_a_return_in_between_hold_it_back_no_longer() {
    let mut machine = fallen_back(at(MS));
    let mut now = go_back(&mut machine) + MS;
    machine.on_failure(now, Side::Default, Reason::Port);
    machine.on_status(now, &moved(2, 0));
    // The peer returns, and its side fails again, three times.
    for epoch in 2..5 {
        now = now + MS;
        machine.on_status(now, &Status { phase: Phase::Default, returned: epoch, ..moved(epoch, 0) });
        machine.on_status(now, &Status { returned: epoch, ..moved(epoch + 1, 0) });
        assert_eq!((machine.phase(), machine.epoch()), (Phase::Fallback, epoch + 1));
    }
    actions(&mut machine);
    assert_eq!((go_back(&mut machine) - now).as_secs(), 1);
}
