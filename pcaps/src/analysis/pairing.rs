//! Which direction is the other one of a connection, by the answers that are in the capture.
//!
//! A packet names the queue pair that it goes to, not the one that it comes from. An answer fits a request of the other
//! direction by its PSN and its kind; where one answer fits requests of several, the next ones decide between these.

use super::direction::{Answer, Direction};

/// Answers that are looked at before a direction is left without a partner.
pub(super) const ATTEMPTS: u64 = 4096;

/// Narrows down which of the `open` directions the `answer` in direction `of` belongs to; `Some` when only one is left.
pub(super) fn narrow(all: &mut [Direction], open: &[usize], of: usize, answer: Answer) -> Option<usize> {
    let fits = |all: &[Direction], i: usize| all[i].partner.is_none() && all[i].sent.fits(answer);
    let before = all[of].candidates.take();
    let mut left: Vec<usize> = match &before {
        Some(known) => known.iter().copied().filter(|&i| fits(all, i)).collect(),
        None => Vec::new(),
    };
    // None of them any more: one was wrong, or came later.
    if left.is_empty() {
        left = open.iter().copied().filter(|&i| i != of && fits(all, i)).collect();
    }
    if left.is_empty() {
        return None;
    }
    let found = only(&left);
    all[of].candidates = Some(left);
    found
}

/// Decides one that is still open at the end: a candidate that another direction got is none any more.
pub(super) fn settle(all: &[Direction]) -> Option<(usize, usize)> {
    undecided(all).find_map(|i| Some((i, only(&candidates(all, i))?)))
}

/// Pairs by UDP ports, which most senders derive from both queue pair numbers. Where one finds no partner so, ports mean
/// something else, and another that finds one is a coincidence.
pub(super) fn settle_by_port(all: &[Direction]) -> Vec<(usize, usize)> {
    let found = undecided(all).map(|i| Some((i, only(&same_port(all, &candidates(all, i), i))?)));
    found.collect::<Option<Vec<_>>>().unwrap_or_default()
}

fn undecided(all: &[Direction]) -> impl Iterator<Item = usize> {
    (0..all.len()).filter(|&i| all[i].partner.is_none() && all[i].candidates.is_some())
}

fn candidates(all: &[Direction], i: usize) -> Vec<usize> {
    all[i].candidates.iter().flatten().copied().filter(|&c| all[c].partner.is_none()).collect()
}

/// Those that send from the same UDP port.
fn same_port(all: &[Direction], of: &[usize], as_in: usize) -> Vec<usize> {
    of.iter().copied().filter(|&i| all[i].src_port == all[as_in].src_port).collect()
}

fn only(of: &[usize]) -> Option<usize> {
    match of {
        &[one] => Some(one),
        _ => None,
    }
}
