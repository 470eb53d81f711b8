//! Whether a program has loaded the library that it was given: one that has not runs without softnic, and says nothing of it.

use std::path::Path;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

/// Sees a file being opened, by whomever.
pub(super) struct Watch(Inotify);

impl Watch {
    /// From now on; `None` where the system has no watch left.
    pub(super) fn on(file: &Path) -> Option<Watch> {
        let watch = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).ok()?;
        watch.add_watch(file, AddWatchFlags::IN_OPEN).ok()?;
        Some(Watch(watch))
    }

    /// Whether it was opened.
    pub(super) fn was_opened(&self) -> bool {
        self.0.read_events().is_ok_and(|events| !events.is_empty())
    }
}
