//! `optinic-…`: the evaluation of OptiNIC (§5.3.1, §5.3.2, §5.3.4): collectives over each transport, their budgets, and the state of queue pairs.

mod cct;
mod grid;
mod network;
mod paper;
mod runner;
mod size;
mod state;
mod timeout;

pub(super) use cct::run as cct;
pub(super) use size::run as size;
pub(super) use state::run as state;
pub(super) use timeout::run as timeout;

use super::Setting;

/// Refuses a choice of transports: what is compared is the experiment.
fn of_all_transports(setting: &Setting) -> Result<(), String> {
    match setting.transports {
        None => Ok(()),
        Some(_) => Err(format!("{} compares rc, sr, lowar and xp: leave --transports out", setting.name)),
    }
}
