//! `SOFTNIC_CHECK`: the calls of the program, told to the model of `softnic-check`, and what it finds, in a file.
//!
//! Each process has a model of its own, and a file of its own where the variable names a folder. Calls come from `boundary/observe.rs`; nothing
//! here runs where the variable is not set.

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

/// Where findings go, if they are wanted.
fn wanted() -> Option<&'static PathBuf> {
    static WANTED: OnceLock<Option<PathBuf>> = OnceLock::new();
    // The program may go elsewhere.
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
    /// That the file cannot be written is said once.
    has_warned: AtomicBool,
}

static CHECKER: PerProcess<Checker> = PerProcess::new();

/// Tells the model of a call of this thread, and writes what it finds.
fn tell<F: FnOnce(&mut Model, &Place)>(call: F) {
    if is_wanted() {
        // Who calls has a type of its own here, and so a function.
        let place = stack::here(tell::<F> as fn(F) as usize);
        tell_of(|model| call(model, &place));
    }
}

/// The same of a call whose place does not matter, or is known.
fn tell_of(call: impl FnOnce(&mut Model)) {
    if !is_wanted() {
        return;
    }
    let checker = CHECKER.get();
    // A model that a panic left behind half changed is better than none.
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
    // A signal may have ended the process in the midst of a call, which then never lets go of the model.
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

/// The number by which the model knows an object: its address.
fn id_of<T>(object: *const T) -> ObjectId {
    ObjectId(object.addr() as u64)
}

/// The state that a queue pair has now.
fn state_of(qp: &Qp) -> Option<QpState> {
    // In the child of a fork a thread of the parent's may hold the lock for ever.
    qp.ours.made_in.check().ok()?;
    QpState::from_number(state_code(qp.ours.qp.state()))
}
