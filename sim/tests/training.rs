//! A training job whose NIC fails: what becomes of it with a backup and without.

use std::time::Duration;

use softnic_sim::Outage;
use softnic_sim::training::{Trained, Training, TrainingBackup, train};

const STEPS: u64 = 60;
const STEP: Duration = Duration::from_millis(1);

fn job(backup: TrainingBackup, lasts: Option<Duration>) -> Trained {
    let outage = lasts.map(|lasts| Outage { host: 0, from: STEP * 20, lasts });
    let trained = train(&Training {
        steps: STEPS,
        compute: STEP,
        gradients: 64 << 10,
        chunk: 4096,
        rate: 1_000_000_000,
        rtt: Duration::from_micros(10),
        timeout: 8,
        backup,
        probe: Duration::from_millis(1),
        outage,
        seed: 3,
    })
    .unwrap();
    assert_eq!(trained.wrong, 0, "{backup:?}");
    trained
}

fn moves(trained: &Trained) -> (u64, u64) {
    let failover = trained.failover.as_ref().unwrap();
    (failover.failovers, failover.failbacks)
}

#[test]
fn a_job_without_a_backup_ends_when_its_nic_fails() {
    let whole = job(TrainingBackup::None, None);
    assert_eq!((whole.steps.len() as u64, whole.failed), (STEPS, None));
    assert!(whole.steps.windows(2).all(|pair| pair[1] - pair[0] >= STEP), "a step computes");
    let failed = job(TrainingBackup::None, Some(Duration::MAX));
    assert!(failed.failed.unwrap() > STEP * 20 && (failed.steps.len() as u64) < STEPS);
}

#[test]
fn a_job_with_an_idle_backup_goes_on_as_if_nothing_had_happened() {
    let (whole, moved) = (job(TrainingBackup::Idle, None), job(TrainingBackup::Idle, Some(Duration::MAX)));
    assert_eq!((moves(&whole), moves(&moved)), ((0, 0), (1, 0)));
    assert_eq!((moved.steps.len() as u64, moved.failed), (STEPS, None));
    let later = *moved.steps.last().unwrap() - *whole.steps.last().unwrap();
    assert!(later < STEP, "{later:?}");
}

#[test]
fn a_job_with_a_busy_backup_is_slower_there_and_returns_when_its_nic_is_back() {
    let whole = job(TrainingBackup::Busy, None);
    let (moved, back) = (job(TrainingBackup::Busy, Some(Duration::MAX)), job(TrainingBackup::Busy, Some(STEP * 5)));
    assert_eq!((moves(&moved), moves(&back)), ((1, 0), (1, 1)));
    let end = |trained: &Trained| *trained.steps.last().unwrap();
    assert!(
        end(&whole) < end(&back) && end(&back) < end(&moved),
        "{:?} {:?} {:?}",
        end(&whole),
        end(&back),
        end(&moved)
    );
}
