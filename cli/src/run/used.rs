//! Whether a program has used the library that it was given: one that has not runs without softnic, and says nothing of it.
//!
//! Every program loads it, because it is preloaded; it opens its folder when somebody asks for its devices.

use std::path::Path;

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};

/// Sees the library's folder being opened, by whomever.
pub(super) struct Watch(Inotify);

impl Watch {
    /// From now on; `None` where the system has no watch left.
    pub(super) fn on(folder: &Path) -> Option<Watch> {
        let watch = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).ok()?;
        watch.add_watch(folder, AddWatchFlags::IN_OPEN).ok()?;
        Some(Watch(watch))
    }

    /// Whether it was opened.
    pub(super) fn were_used(&self) -> bool {
        self.0.read_events().is_ok_and(|events| !events.is_empty())
    }
}
