//! What a merge must say: a table of members and a minimum, with numbers that never wrap.

use softnic_wire::Psn;
use softnic_wire::aeth::{Aeth, Credits, NakCode, RnrTimer, Syndrome};

/// What the sender is to be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) psn: Psn,
    pub(super) aeth: Aeth,
}

#[derive(Debug, Clone, Copy, Default)]
struct Row {
    has: i64,
    msn: u32,
    /// The last message that it has a receive for.
    limit: Option<u32>,
    waits: Option<RnrTimer>,
    refuses: Option<NakCode>,
    spoke: bool,
}

/// The table.
#[derive(Debug, Clone)]
pub(super) struct Model {
    rows: Vec<Row>,
    /// Behind everything that was sent.
    end: i64,
    /// The last NAK: from where on, whether the sender may wait, and what had been sent.
    asked: Option<(i64, bool, i64)>,
    /// Where the sender was told to go back to at once, and how often.
    naks: (i64, u32),
    /// Since then it went back, and has come so far.
    back: Option<i64>,
    /// The smallest limit that the sender was told.
    limit: Option<u32>,
    refused: Option<(i64, NakCode)>,
    over: bool,
}

/// The number that is nearest to another, of all that have these 24 bits.
pub(super) fn unwrapped(psn: Psn, near: i64) -> i64 {
    let ahead = (i64::from(psn.value()) - near).rem_euclid(1 << 24);
    near + if ahead < 1 << 23 { ahead } else { ahead - (1 << 24) }
}

fn wrapped(n: i64) -> Psn {
    Psn::new(n as u32)
}

impl Model {
    pub(super) fn new(first: Psn, members: usize) -> Model {
        let first = i64::from(first.value());
        let row = Row { has: first - 1, ..Row::default() };
        Model {
            rows: vec![row; members],
            end: first,
            asked: None,
            naks: (0, 0),
            back: None,
            limit: None,
            refused: None,
            over: false,
        }
    }

    /// What all have.
    pub(super) fn minimum(&self) -> i64 {
        self.rows.iter().map(|row| row.has).min().unwrap_or(i64::MIN)
    }

    fn last(&self) -> Row {
        let least = self.minimum();
        self.rows.iter().copied().find(|row| row.has == least).unwrap_or_default()
    }

    /// The sender's packet passes; where no member gets it, why.
    pub(super) fn sent(&mut self, psn: Psn, refused: Option<NakCode>) -> Option<Told> {
        let n = unwrapped(psn, self.minimum());
        let again = n < self.end;
        if let (true, Some((from, _, end))) = (again, self.asked)
            && (n == from || self.back.is_some_and(|at| n > at && n < end))
        {
            self.back = Some(n);
        }
        self.end = self.end.max(n + 1);
        if again && self.over && n == self.minimum() + 1 {
            return self.refusal();
        }
        let code = refused?;
        if n > self.minimum() && self.refused.is_none_or(|(from, _)| n < from) {
            self.refused = Some((n, code));
        }
        self.end_of_it()
    }

    /// A member spoke.
    pub(super) fn heard(&mut self, member: usize, psn: Psn, aeth: Aeth) -> Option<Told> {
        let before = self.minimum();
        let n = unwrapped(psn, before);
        if n >= self.refused.map_or(self.end, |(from, _)| from) {
            return None;
        }
        let (row, has) = match aeth.syndrome {
            Syndrome::Ack(_) => (self.rows.get_mut(member)?, n),
            Syndrome::Nak(NakCode(0..=3)) | Syndrome::RnrNak(_) => (self.rows.get_mut(member)?, n - 1),
            _ => return None,
        };
        row.spoke = true;
        let late = has < row.has;
        if has > row.has {
            (row.has, row.msn, row.waits, row.refuses) = (has, aeth.msn, None, None);
            row.limit = row.limit.map(|limit| limit.max(aeth.msn));
        }
        match aeth.syndrome {
            Syndrome::Ack(credits) if !late => match (credits.count(), row.limit) {
                (Some(more), Some(limit)) => row.limit = Some(limit.max(aeth.msn + more)),
                (more, _) => row.limit = more.map(|more| aeth.msn + more),
            },
            Syndrome::Ack(_) => {}
            _ if late => return None,
            Syndrome::RnrNak(timer) => row.waits = Some(timer),
            Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR) => {}
            Syndrome::Nak(code) => row.refuses = Some(code),
            Syndrome::Reserved(_) => return None,
        }
        let is_last = row.has == self.minimum();
        let moved = self.minimum() > before;
        match aeth.syndrome {
            Syndrome::Ack(_) => {
                if moved && let Some(told) = self.end_of_it() {
                    return Some(told);
                }
                let credits = self.least_limit() != self.limit && self.rows.iter().all(|row| row.spoke);
                (moved || is_last || credits).then(|| self.acknowledgement())
            }
            Syndrome::RnrNak(_) => self.again(n, true, moved),
            Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR) => self.again(n, false, moved),
            _ => self.end_of_it().or_else(|| moved.then(|| self.acknowledgement())),
        }
    }

    fn least_limit(&self) -> Option<u32> {
        self.rows.iter().filter_map(|row| row.limit).min()
    }

    fn acknowledgement(&mut self) -> Told {
        let (last, limit) = (self.last(), self.least_limit());
        self.limit = limit;
        let credits = limit.map_or(Credits::UNLIMITED, |limit| Credits::at_most(limit.saturating_sub(last.msn)));
        Told { psn: wrapped(last.has), aeth: Aeth { syndrome: Syndrome::Ack(credits), msn: last.msn } }
    }

    /// Something is to be sent again, at once or after a while.
    fn again(&mut self, missing: i64, wait: bool, moved: bool) -> Option<Told> {
        if let Some(told) = self.end_of_it() {
            return Some(told);
        }
        let (last, from) = (self.last(), self.minimum() + 1);
        if let Some((asked, _, end)) = self.asked.filter(|(_, waits, _)| *waits || !wait) {
            let is_coming = match self.back {
                None => asked == from,
                Some(at) => (at + 1..end).contains(&missing),
            };
            if is_coming {
                return moved.then(|| self.acknowledgement());
            }
        }
        if self.naks.0 != from {
            self.naks = (from, 0);
        }
        self.naks.1 += u32::from(!wait);
        if !wait && self.naks.1 > 2 {
            return None;
        }
        (self.asked, self.back) = (Some((from, wait, self.end)), None);
        let longest = self.rows.iter().filter_map(|row| row.waits).max_by_key(|timer| timer.duration());
        let syndrome = match (wait, longest) {
            (true, Some(timer)) => Syndrome::RnrNak(timer),
            _ => Syndrome::Nak(NakCode::PSN_SEQUENCE_ERROR),
        };
        Some(Told { psn: wrapped(from), aeth: Aeth { syndrome, msn: last.msn } })
    }

    /// The NAK that ends the connection, when it is its turn, once.
    fn end_of_it(&mut self) -> Option<Told> {
        let told = if self.over { None } else { self.refusal() };
        self.over |= told.is_some();
        told
    }

    fn refusal(&self) -> Option<Told> {
        let (last, at) = (self.last(), self.minimum() + 1);
        let own = self.refused.filter(|(from, _)| *from == at).map(|(_, code)| code);
        let code = own.or_else(|| self.rows.iter().filter(|row| row.has == last.has).find_map(|row| row.refuses))?;
        Some(Told { psn: wrapped(at), aeth: Aeth { syndrome: Syndrome::Nak(code), msn: last.msn } })
    }
}
