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
    /// Whoever is at the boundary hears of the end.
    Boundary,
    /// Connections end.
    Connections,
    /// NICs send what is left to send.
    Nics,
}

/// What each step does, once there is anything to do.
static STEPS: [OnceLock<fn()>; 3] = [const { OnceLock::new() }; 3];

/// From now on the end of the process takes this step.
pub(crate) fn at(step: Step, call: fn()) {
    // Each step is given by one place.
    let _ = STEPS[step as usize].set(call);
}

/// Whether there is anything to end in this process.
static WATCHED: PerProcess<AtomicBool> = PerProcess::new();

/// From now on the end of the process is noticed.
pub(crate) fn watch() {
    extern "C" fn settle() {
        // A child of a fork has the handler, too.
        if !WATCHED.get().load(Ordering::Relaxed) {
            return;
        }
        // Programs call exit in handlers of signals, too, and the thread that the signal found may have been inside of the engine. It will
        // never leave it, so another one asks to come in; and nobody waits for that for ever.
        let (done, is_done) = mpsc::channel();
        let last = move || {
            STEPS.iter().filter_map(OnceLock::get).for_each(|step| step());
            let _ = done.send(());
        };
        if spawn_own("softnic-end", last).is_ok() {
            let _ = is_done.recv_timeout(AT_MOST);
        }
    }
    WATCHED.get().store(true, Ordering::Relaxed);
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler is a function of this library, which is never unloaded.
        unsafe { libc::atexit(settle) };
    });
}
