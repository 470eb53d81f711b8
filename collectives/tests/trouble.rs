//! Ranks that do not come, that call something else, and that say what nobody understands.

use std::time::Duration;

use softnic_collectives::call::{Algorithm, Call, Element, Operation, Reduction};
use softnic_collectives::control::{Control, KEYS};
use softnic_collectives::fabric::Window;
use softnic_collectives::member::{MemberError, MemberSettings};

use super::world::World;

const CALL: Call = Call {
    operation: Operation::AllReduce,
    algorithm: Algorithm::Ring,
    element: Element::F32,
    reduction: Reduction::Sum,
    bytes: 4096,
};

fn world(ranks: usize) -> World {
    World::new(ranks, 3, &MemberSettings { patience: Duration::from_secs(1), ..MemberSettings::default() })
}

#[test]
fn a_rank_that_does_not_come_is_named() {
    let mut world = world(4);
    world.dead = vec![1, 3];
    let error = world.run(&CALL, &mut vec![vec![0; 4096]; 4]).unwrap_err();
    assert_eq!(error.to_string(), "ranks 1, 3 did not come to collective 0 within 1s");
    // From then on it says so at once.
    assert_eq!(world.run(&CALL, &mut vec![vec![0; 4096]; 4]).unwrap_err(), error);
}

#[test]
fn a_rank_that_is_gone_later_is_named_too() {
    let mut world = world(3);
    world.run(&CALL, &mut vec![vec![0; 4096]; 3]).unwrap();
    world.dead = vec![2];
    let error = world.run(&CALL, &mut vec![vec![0; 4096]; 3]).unwrap_err();
    assert_eq!(error.to_string(), "rank 2 did not come to collective 1 within 1s");
}

#[test]
fn ranks_that_disagree_are_named_with_what_they_call() {
    let other = [
        Call { bytes: 4092, ..CALL },
        Call { element: Element::F16, ..CALL },
        Call { operation: Operation::Broadcast { root: 1 }, ..CALL },
        Call { reduction: Reduction::Max, ..CALL },
    ];
    let words = ["allreduce of 4092 bytes of f32", "f16", "broadcast", "(max)"];
    for (call, word) in other.into_iter().zip(words) {
        let mut world = world(3);
        let buffers = &mut vec![vec![0; 4096]; 3];
        let error = world.run_each(&[CALL, CALL, call], buffers, false).unwrap_err().to_string();
        assert!(error.contains("rank 2 ") && error.contains(word) && error.contains("4096 bytes of f32"), "{error}");
    }
    // A rank that thinks that the group is larger.
    let mut world = world(3);
    world.tamper = Some(Box::new(|rank, said| match said {
        Control::Hello { number, call, proposal, .. } if rank == 1 => {
            Control::Hello { number, call, ranks: 5, proposal }
        }
        _ => said,
    }));
    let error = world.run(&CALL, &mut vec![vec![0; 4096]; 3]).unwrap_err();
    assert!(matches!(error, MemberError::Disagree { rank: 1, theirs: (_, 5), .. }), "{error}");
}

#[test]
fn a_rank_that_gave_up_an_earlier_collective_is_heard_and_not_waited_for() {
    let mut world = world(3);
    world.run(&CALL, &mut vec![vec![0; 4096]; 3]).unwrap();
    world.tamper = Some(Box::new(|rank, message| match message {
        Control::Hello { .. } if rank == 1 => Control::Abort { number: 0, culprit: 2 },
        other => other,
    }));
    let error = world.run(&CALL, &mut vec![vec![0; 4096]; 3]).unwrap_err();
    assert!(matches!(error, MemberError::Aborted { rank: 1, culprit: 2 }), "{error}");
}

#[test]
fn a_rank_that_never_takes_the_last_message_is_named() {
    let mut world = world(2);
    world.tamper = Some(Box::new(|rank, message| match message {
        Control::Ready { .. } if rank == 1 => Control::Ready { number: 99 },
        other => other,
    }));
    // The root of a broadcast receives nothing itself.
    let call = Call { operation: Operation::Broadcast { root: 0 }, ..CALL };
    let error = world.run(&call, &mut vec![vec![0; 4096]; 2]).unwrap_err();
    assert_eq!(error.to_string(), "collective 0 stands still: nothing from rank 1 for 1s");
}

#[test]
fn what_is_no_message_is_counted_and_a_hello_said_twice_counts_once() {
    let mut world = world(2);
    let (mut hello, mut tails) = (None, 0);
    world.tamper = Some(Box::new(move |rank, message| {
        if rank == 0 {
            return message;
        }
        match message {
            Control::Hello { number, call, proposal, .. } => {
                hello = Some(Control::Hello { number, call, ranks: 3, proposal });
            }
            Control::Tail { .. } => tails += 1,
            _ => {}
        }
        // In place of what says nothing, behind a Hello: the Hello again, with other words; then keys that nobody can have.
        match (message, tails, hello) {
            (Control::Tail { .. }, 1, Some(again)) => again,
            (Control::Tail { number }, 3, _) => {
                let windows = [Some(Window { addr: u64::MAX, key: 7 }); KEYS];
                Control::Keys { number, first: u32::MAX, windows }
            }
            _ => message,
        }
    }));
    (0..2).for_each(|_| _ = world.run(&CALL, &mut vec![vec![0; 4096]; 2]).unwrap());
    assert_eq!(world.members[0].counters().control_dropped, 1 + KEYS as u64);
    world.tamper = Some(Box::new(|rank, message| match message {
        Control::Ready { .. } if rank == 0 => Control::Ready { number: 99 },
        other => other,
    }));
    let error = world.run(&CALL, &mut vec![vec![0; 4096]; 2]).unwrap_err();
    assert!(matches!(error, MemberError::Silent { .. } | MemberError::Aborted { .. }), "{error}");
    assert!(world.members[1].counters().control_dropped > 0);
}

#[test]
fn a_call_that_no_group_can_make_is_refused_in_a_line() {
    let wrong = [
        (Call { algorithm: Algorithm::Tree, operation: Operation::AllToAll, ..CALL }, "tree has no alltoall"),
        (Call { bytes: 4095, ..CALL }, "4095 bytes are no whole number of elements of f32"),
        (Call { operation: Operation::Broadcast { root: 9 }, ..CALL }, "there is no rank 9 to broadcast"),
    ];
    for (call, line) in wrong {
        let error = world(2).run(&call, &mut vec![vec![0; 4096]; 2]).unwrap_err().to_string();
        assert!(error.contains(line) && !error.contains('\n'), "{error}");
    }
}
