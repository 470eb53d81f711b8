//! The end of the process: a program may end without closing anything.
//!
//! What the program received is acknowledged nevertheless, its peers hear that its connections end, and its capture is whole.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, OnceLock, mpsc};
use std::time::Duration;

use softnic_runtime::api::spawn_own;

use crate::per_process::PerProcess;

/// How long a process that ends waits for its last messages to go out.
const AT_MOST: Duration = Duration::from_secs(1);

/// Steps of the end, in their order.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Step {
    /// Connections end.
    Connections,
    /// NICs send what is left to send.
    Nics,
}

/// What each step does, once there is anything to do.
static STEPS: [OnceLock<fn()>; 2] = [const { OnceLock::new() }; 2];
/// What is done when all of the program has run, also its handlers of atexit(3) and its destructors: they may use verbs, too.
static LAST: OnceLock<fn()> = OnceLock::new();

/// From now on the end of the process takes this step.
pub(crate) fn at(step: Step, call: fn()) {
    // Each step is given by one place.
    let _ = STEPS[step as usize].set(call);
}

/// From now on the end of the process does this last.
pub(crate) fn at_last(call: fn()) {
    // Given by one place.
    let _ = LAST.set(call);
}

/// Functions of the end of a library are called behind the handlers of atexit(3), and behind those of the libraries that need it.
#[used]
#[unsafe(link_section = ".fini_array")]
static FINI: extern "C" fn() = end;

extern "C" fn end() {
    if let Some(&last) = LAST.get() {
        wait_for(last);
    }
}

/// Calls in a thread of its own, and waits for it, but not for ever.
///
/// Programs call exit in handlers of signals, too, and the thread that the signal found may have been inside of the engine. It will never leave
/// it, so another one asks to come in.
fn wait_for(call: impl FnOnce() + Send + 'static) {
    // A child of a fork has the handlers, too.
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

/// Whether there is anything to end in this process.
static WATCHED: PerProcess<AtomicBool> = PerProcess::new();

/// From now on the end of the process is noticed.
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
