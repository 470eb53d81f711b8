//! What the backup of a NIC is to have, recorded by verbs that do not wait for it, and lines for people.
//!
//! A file of its own below the engines, which import this; the thread that takes from the list imports engines.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use softnic_nic::Buffer;
use softnic_nic::transports::memory::{Access, PdId};
use softnic_wire::Qpn;

use crate::locked::lock;
use crate::wake::Wake;

/// Something of the NIC that the backup is to have, too. What goes is taken from the backup at once, by whoever takes it from the NIC.
pub(crate) enum Shadow {
    /// A protection domain.
    Pd(PdId),
    /// A region; without a buffer one that reads as zeros.
    Mr {
        key: u32,
        pd: PdId,
        buffer: Option<Arc<Buffer>>,
        access: Access,
        /// Whether it is still registered. Changes only while its owner has all engines.
        live: Arc<AtomicBool>,
    },
    /// A queue pair that became ready to send.
    Protect {
        /// The number of its engine.
        engine: usize,
        qpn: Qpn,
    },
}

/// The list of what is to be done.
pub(crate) struct Control {
    pub(crate) list: Mutex<List>,
    /// An engine, or the store, has something to say.
    pub(crate) asked: AtomicBool,
    pub(crate) wake: Wake,
    /// Who gets lines for people.
    pub(crate) lines: Option<LineSink>,
}

/// What waits to be done, and to be said.
#[derive(Default)]
pub(crate) struct List {
    pub(crate) shadows: Vec<Shadow>,
    /// Lines of those who must not wait for a terminal.
    pub(crate) lines: Vec<String>,
}

impl Control {
    pub(crate) fn new(lines: Option<LineSink>) -> io::Result<Arc<Control>> {
        Ok(Arc::new(Control { list: Mutex::default(), asked: AtomicBool::new(true), wake: Wake::new()?, lines }))
    }

    /// The backup is to have this, too.
    pub(crate) fn record(&self, shadow: Shadow) {
        lock(&self.list).shadows.push(shadow);
        self.wake.wake_sleeper();
    }

    /// A line for people.
    pub(crate) fn say(&self, line: String) {
        lock(&self.list).lines.push(line);
        self.wake.wake_sleeper();
    }

    /// An engine, or the store, has something to say.
    #[inline]
    pub(crate) fn wake(&self) {
        self.asked.store(true, Ordering::Release);
        self.wake.wake_sleeper();
    }
}

/// Receives lines for people, by calls from a thread of the NIC's own.
#[derive(Clone)]
pub struct LineSink(Arc<dyn Fn(&str) + Send + Sync>);

impl LineSink {
    /// Calls `say` with each line.
    pub fn new(say: impl Fn(&str) + Send + Sync + 'static) -> LineSink {
        LineSink(Arc::new(say))
    }

    pub(crate) fn say(&self, line: &str) {
        (self.0)(line);
    }
}

impl fmt::Debug for LineSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LineSink")
    }
}
