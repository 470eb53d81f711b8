//! Watching the daemon that shares an interface: when it ends the sharing the NIC has no wire any more; when it was killed the next one is looked for.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::background::Background;
use crate::engine::Engine;
use crate::share::Seat;

/// How often to look for a new daemon.
const LOOK: Duration = Duration::from_millis(500);

/// Starts the thread that watches, for a port of the engines.
pub(super) fn start(seat: &Arc<Seat>, engines: &[Arc<Engine>], number: usize) -> io::Result<Background> {
    let (seat, engines) = (Arc::clone(seat), engines.to_vec());
    Background::start("softnic-shared", move |stop| {
        while !stop.is_told() {
            let Some(connection) = seat.connection() else { return };
            if !Seat::is_orphan(&connection) {
                // The daemon says nothing unasked: its end wakes us, our own leaving, and now and then an answer that another thread waits for.
                stop.wait(&**connection, None);
                continue;
            }
            if !seat.has_device() {
                let why = format!("{} is not shared any more", seat.interface());
                engines.iter().for_each(|engine| engine.lose_port(&mut engine.control(), number, &why));
                return;
            }
            seat.look_for_daemon();
            if seat.connection().is_some_and(|connection| Seat::is_orphan(&connection)) {
                stop.wait_on(&[], Some(LOOK));
            }
        }
    })
}
