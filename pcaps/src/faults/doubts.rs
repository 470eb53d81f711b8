//! Where the capture was taken, as far as that decides what a retransmission means.

use super::record::{Record, What};
use super::{Action, At, Followed, Way};

/// Where the losses of a direction show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    /// Nothing was lost so that it tells.
    Unknown,
    /// The capture was taken before the place of the losses: what was lost is in it.
    Before,
    /// It was taken behind it: what was lost is not in it.
    Behind,
    /// Both.
    Both,
}

/// What is known when a half of a connection is followed.
#[derive(Debug, Clone, Copy)]
pub(super) struct Of {
    /// Of the requests' direction.
    pub(super) requests: Side,
    /// Of the answers' direction.
    pub(super) answers: Side,
    /// A retransmission that follows a NAK later than this has another reason.
    pub(super) patience: Option<i64>,
}

/// What the losses of all connections show.
#[derive(Debug)]
pub(super) struct Doubts {
    given: Option<At>,
    /// Losses that were seen before their place, and behind it, in each direction.
    seen: [[u64; 2]; 2],
    /// The shortest time from a NAK to what was sent again for it, and how many there were.
    reaction: Option<i64>,
    reactions: u64,
    round_trip: Option<i64>,
}

/// Nothing is decided by less, in nanoseconds: software takes its time.
const SLACK: i64 = 100_000;

impl Doubts {
    pub(super) fn new(given: Option<At>) -> Doubts {
        Doubts { given, seen: [[0; 2]; 2], reaction: None, reactions: 0, round_trip: None }
    }

    /// What holds before anything was learned.
    pub(super) fn unknown(&self) -> Of {
        let [requests, answers] = self.sides(Way::Ab, |_| Side::Unknown);
        Of { requests, answers, patience: None }
    }

    /// What holds for a half whose requests go this way.
    pub(super) fn of(&self, way: Way) -> Of {
        let [requests, answers] = self.sides(way, |way| self.side(way));
        let mut basis = self.reaction.filter(|_| self.reactions > 1);
        // A request that is in the capture, and was lost: so the responder is farther away, and the round trip is more than the responder's time.
        if matches!(requests, Side::Before | Side::Both) {
            basis = [basis, self.round_trip].into_iter().flatten().min();
        }
        let patience = basis.filter(|_| answers != Side::Behind).map(|ns| 4 * ns + SLACK);
        Of { requests, answers, patience }
    }

    fn sides(&self, way: Way, found: impl Fn(Way) -> Side) -> [Side; 2] {
        match self.given {
            None => [found(way), found(way.back())],
            Some(At::Requester) => [Side::Before, Side::Behind],
            Some(At::Responder) => [Side::Behind, Side::Before],
            Some(At::Middle) => [Side::Both; 2],
            Some(At::Senders) => [Side::Before; 2],
        }
    }

    /// What the losses of a direction show.
    pub(super) fn side(&self, way: Way) -> Side {
        match self.seen[way as usize] {
            [0, 0] => Side::Unknown,
            [_, 0] => Side::Before,
            [0, _] => Side::Behind,
            _ => Side::Both,
        }
    }

    /// Takes what was found in a half whose requests go this way, with nothing known.
    pub(super) fn learn(&mut self, way: Way, followed: &Followed, records: &[Record]) {
        for found in &followed.found {
            let (opcode, side) = match found.what {
                What::Seen(at, Action::Drop) => (Some(records[at].opcode), 0),
                What::Missing { opcode, .. } => (opcode, 1),
                // What the network did to it is seen only behind that.
                What::Copy { at, .. } | What::Late { at, .. } => (Some(records[at].opcode), 1),
                What::Seen(..) => continue,
            };
            let answer = opcode.is_some_and(|o| o.is_response());
            self.seen[if answer { way.back() } else { way } as usize][side] += 1;
        }
        self.reactions += followed.delays.len() as u64;
        let shortest = followed.delays.iter().copied().min();
        self.reaction = [self.reaction, shortest].into_iter().flatten().min();
        self.round_trip = [self.round_trip, followed.round_trip].into_iter().flatten().min();
    }
}
