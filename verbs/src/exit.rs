//! The end of the process: a program may exit without closing anything.
//!
//! The messages that the program received are still acknowledged, its peers are notified that connections end, and its capture is
//! completed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, OnceLock, mpsc};
use std::time::Duration;

use softnic_runtime::api::spawn_own;

use crate::per_process::PerProcess;

/// How long an exiting process waits until its last messages are sent.
const AT_MOST: Duration = Duration::from_secs(1);

/// The steps of the end, in order.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// Connections are ended.
    Connections,
    /// NICs send their pending frames.
    Nics,
}

/// The action of each step, if there is one.
static STEPS: [OnceLock<fn()>; 2] = [const { OnceLock::new() }; 2];
/// The action after all code of the program, including its handlers of atexit(3) and its destructors: they may use verbs, too.
static LAST: OnceLock<fn()> = OnceLock::new();

/// Sets the action of a step.
pub(crate) fn at(step: Step, call: fn()) {
    // Each step has a single caller.
    let _ = STEPS[step as usize].set(call);
}

/// Sets the last action.
pub(crate) fn at_last(call: fn()) {
    // There is a single caller.
    let _ = LAST.set(call);
}

/// Functions at the end of a library are called after the handlers of atexit(3), and after those of the libraries that need it.
#[used]
#[unsafe(link_section = ".fini_array")]
static FINI: extern "C" fn() = end;

extern "C" fn end() {
    if let Some(&last) = LAST.get() {
        wait_for(last);
    }
}

/// Calls a function on a separate thread, and waits for it for a limited time.
///
/// Programs also call exit in signal handlers, and the interrupted thread may have been inside the engine. It will never leave the engine,
/// so another thread has to wait for it.
fn wait_for(call: impl FnOnce() + Send + 'static) {
    // The child of a fork has the handlers, too.
    if !WATCHED.get().load(Ordering::Relaxed) {
        return;
    }
    let (done, is_done) = mpsc::channel();
    let then = move || {
        call();
        let _ = done.send(());
    };
    if spawn_own("softnic-end", then).is_ok() {
        let _ = is_done.recv_timeout(AT_MOST);
    }
}

/// Whether this process has anything to end.
static WATCHED: PerProcess<AtomicBool> = PerProcess::new();

/// Installs the handler for the end of the process.
pub(crate) fn watch() {
    extern "C" fn settle() {
        wait_for(|| STEPS.iter().filter_map(OnceLock::get).for_each(|step| step()));
    }
    WATCHED.get().store(true, Ordering::Relaxed);
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler is a function of this library, which is never unloaded.
        unsafe { libc::atexit(settle) };
    });
}
