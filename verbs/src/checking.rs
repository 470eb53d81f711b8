//! `SOFTNIC_CHECK`: passes the calls of the program to the model of `softnic-check`, and writes the model's findings to a file.
//!
//! Each process has its own model, and its own file if the variable names a folder. Calls come from `boundary/observe.rs`; nothing here
//! runs if the variable is not set.

mod domains;
mod findings_file;
mod memory;
mod modules;
mod objects;
mod stack;
mod work;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

pub(crate) use objects::{
    acknowledged_cq_events, acknowledging_async_event, acknowledging_cm_event, created_cq, created_qp, created_qp_of,
    created_srq, created_srq_of, destroyed_srq, destroying_qp, destroying_qp_of, destroying_srq, destroying_srq_of,
    goes, going, got_async_event, got_cm_event, got_cq_event, made, modified_qp, registered, reregistered, resized_cq,
    went,
};
use softnic_check::{Model, ObjectId, Place, QpState};
pub(crate) use work::{
    binding_mw, polled, posted_built, posted_recv, posted_send, posted_srq_recv, posting_built, posting_recv,
    posting_send, posting_srq_recv,
};

use crate::codes::state_code;
use crate::environment::checks;
use crate::message::warn;
use crate::objects::queue_pair::Qp;
use crate::per_process::PerProcess;
use findings_file::FindingsFile;

/// The destination of findings, if they are requested.
fn wanted() -> Option<&'static PathBuf> {
    static WANTED: OnceLock<Option<PathBuf>> = OnceLock::new();
    // The program may change its working directory.
    WANTED.get_or_init(|| checks().map(|path| std::path::absolute(&path).unwrap_or(path))).as_ref()
}

/// Whether this process is checked.
pub(crate) fn is_wanted() -> bool {
    wanted().is_some()
}

/// The model of this process, and its file.
#[derive(Default)]
struct Checker {
    model: Mutex<Model>,
    file: OnceLock<Option<FindingsFile>>,
    /// A write error of the file is reported once.
    has_warned: AtomicBool,
}

static CHECKER: PerProcess<Checker> = PerProcess::new();

/// Passes a call of this thread to the model, and writes the findings.
fn tell<F: FnOnce(&mut Model, &Place)>(call: F) {
    if is_wanted() {
        // Each caller has its own closure type, and so its own instance of this function, whose address identifies the call path.
        let place = stack::here(tell::<F> as fn(F) as usize);
        tell_of(|model| call(model, &place));
    }
}

/// Passes a call whose place is irrelevant, or known.
fn tell_of(call: impl FnOnce(&mut Model)) {
    if !is_wanted() {
        return;
    }
    let checker = CHECKER.get();
    // A model that a panic left half changed is better than none.
    let mut model = checker.model.lock().unwrap_or_else(|p| p.into_inner());
    call(&mut model);
    checker.write(model);
}

impl Checker {
    fn write(&self, mut model: MutexGuard<'_, Model>) {
        if !model.has_findings() {
            return;
        }
        let findings = model.take_findings();
        drop(model);
        let file = self.file.get_or_init(|| Some(FindingsFile::of(wanted()?)));
        if let Some(file) = file
            && let Err(e) = file.add(&findings)
            && !self.has_warned.swap(true, Ordering::Relaxed)
        {
            warn(format_args!("cannot write findings to {}: {e}", file.path().display()));
        }
    }
}

/// The process ends by itself.
pub(crate) fn process_ends() {
    if !is_wanted() {
        return;
    }
    let checker = CHECKER.get();
    // A signal may have ended the process during a call, which then never releases the model.
    for _ in 0..20 {
        match checker.model.try_lock() {
            Ok(mut model) => {
                model.ended();
                return checker.write(model);
            }
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// The model's number of an object: its address.
fn id_of<T>(object: *const T) -> ObjectId {
    ObjectId(object.addr() as u64)
}

/// The current state of a queue pair.
fn state_of(qp: &Qp) -> Option<QpState> {
    // In the child of a fork, a thread of the parent may have held the lock, which then stays locked.
    qp.ours.made_in.check().ok()?;
    QpState::from_number(state_code(qp.ours.qp.state()))
}
