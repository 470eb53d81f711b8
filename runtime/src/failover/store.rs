//! Entries in a redis server. A separate thread writes, refreshes and looks up the entries; callers do not wait for the server.

mod connection;
#[cfg(test)]
pub(crate) mod tests;
mod worker;

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use self::connection::Socket;
use self::worker::Worker;
use super::kv::RedisUrl;
use crate::locked::lock;
use crate::threads::spawn_own;
use crate::wake::Wake;

/// How long an entry outlives the process that wrote it, unless the caller sets another lifetime.
pub(crate) const LIFETIME: Duration = Duration::from_secs(60);
/// The longest lifetime that a caller can set.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// The error of a lookup that was displaced by later lookups.
pub(crate) const TOO_MANY: &str = "too many questions at once";
/// Lookups that wait for the thread. When the queue is full, the oldest lookup is answered as unavailable.
const MAX_GETS: usize = 1024;
/// Time limit for the deletion of all entries at the end.
const FAREWELL: Duration = Duration::from_millis(500);

/// A report of the thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A lookup has found this value.
    Found { ticket: u64, value: Vec<u8> },
    /// A lookup has found no entry.
    Absent { ticket: u64 },
    /// The server was unreachable or refused the request, for this reason. A refused entry is written again soon.
    Unavailable { request: Request, why: String },
    /// The connection state has changed; a change of the reason alone is not reported.
    State(State),
}

/// A request to the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// Look up the value of an entry. The ticket is the caller's.
    Get(u64),
    /// Write the entry with this key.
    Put(String),
    /// Delete the entry with this key.
    Delete(String),
}

/// The state of the connection to the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// The first attempt to connect is in progress.
    Connecting,
    Connected,
    /// The reason, in one line. The thread keeps trying to connect.
    Unreachable(String),
}

/// The client of a redis server. After a reconnect it writes all entries again. It refreshes entries before they expire,
/// and deletes them when this value is dropped.
pub(crate) struct RedisStore {
    shared: Arc<Shared>,
}

/// State shared by callers and the thread. Neither blocks while it holds the lock.
struct Shared {
    inbox: Mutex<Inbox>,
    wake: Wake,
    /// Signaled when the thread has ended.
    ended: Condvar,
}

/// Requests of callers, and the state that they can read.
struct Inbox {
    gets: VecDeque<(String, u64)>,
    /// Tickets of lookups that were displaced by later ones.
    displaced: Vec<u64>,
    /// The last change of each key, so the number of changes is bounded by the number of keys.
    changes: BTreeMap<String, Change>,
    state: State,
    /// The socket in use. It is shut down if the thread does not end in time.
    socket: Option<Socket>,
    /// Set when the store is dropped: the time limit for the deletion of its entries.
    closing: Option<Instant>,
    ended: bool,
}

/// A change of an entry.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Change {
    Put { value: Vec<u8>, lifetime: Duration },
    Delete,
}

impl Inbox {
    fn new() -> Inbox {
        Inbox {
            gets: VecDeque::new(),
            displaced: Vec::new(),
            changes: BTreeMap::new(),
            state: State::Connecting,
            socket: None,
            closing: None,
            ended: false,
        }
    }

    fn ask(&mut self, key: &str, ticket: u64) {
        if self.gets.len() == MAX_GETS {
            self.displaced.extend(self.gets.pop_front().map(|(_, ticket)| ticket));
        }
        self.gets.push_back((key.into(), ticket));
    }
}

impl RedisStore {
    /// Starts the thread, which connects to the server. The thread calls `answer`, which must not block for long. Each lookup
    /// is answered once, unless the store is dropped first.
    ///
    /// # Errors
    /// When the system has no thread or descriptor left.
    pub(crate) fn start(url: RedisUrl, answer: impl FnMut(Answer) + Send + 'static) -> io::Result<RedisStore> {
        let (inbox, ended) = (Mutex::new(Inbox::new()), Condvar::new());
        let shared = Arc::new(Shared { inbox, wake: Wake::new()?, ended });
        let theirs = Arc::clone(&shared);
        spawn_own("softnic-store", move || {
            // Runs also when the callback panics.
            let _end = End(&theirs);
            Worker::new(url, &theirs, answer).run();
        })?;
        Ok(RedisStore { shared })
    }

    /// Looks up an entry.
    pub(crate) fn get(&self, key: &str, ticket: u64) {
        lock(&self.shared.inbox).ask(key, ticket);
        self.shared.wake.wake();
    }

    /// Writes an entry, replacing an earlier one, and keeps it refreshed. It expires `lifetime` after the last refresh.
    pub(crate) fn put(&self, key: &str, value: &[u8], lifetime: Duration) {
        self.change(key, Change::Put { value: value.into(), lifetime: lifetime.min(MAX_LIFETIME) });
    }

    /// Deletes an entry.
    pub(crate) fn delete(&self, key: &str) {
        self.change(key, Change::Delete);
    }

    /// The state of the connection.
    #[cfg(test)]
    pub(crate) fn state(&self) -> State {
        lock(&self.shared.inbox).state.clone()
    }

    /// The descriptor that the store keeps for its whole life. The child of a fork closes descriptors of connections by itself.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        vec![self.shared.wake.as_fd().as_raw_fd()]
    }

    fn change(&self, key: &str, change: Change) {
        lock(&self.shared.inbox).changes.insert(key.into(), change);
        self.shared.wake.wake();
    }
}

impl Drop for RedisStore {
    fn drop(&mut self) {
        let deadline = Instant::now() + FAREWELL;
        let mut inbox = lock(&self.shared.inbox);
        inbox.closing = Some(deadline);
        self.shared.wake.wake();
        while !inbox.ended {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                // The thread ends on its own: the socket is shut down here, and connecting or resolving a name times out.
                if let Some(socket) = &inbox.socket {
                    let _ = socket.shutdown(Shutdown::Both);
                }
                return;
            }
            let waited = self.shared.ended.wait_timeout(inbox, left);
            inbox = waited.unwrap_or_else(|p| p.into_inner()).0;
        }
    }
}

/// Signals on drop that the thread has ended.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        lock(&self.0.inbox).ended = true;
        self.0.ended.notify_all();
    }
}
