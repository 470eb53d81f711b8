//! Entries in a redis server: written, kept alive and asked for by a thread of its own that no caller waits for.

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

/// How long an entry outlives the process that wrote it, unless said otherwise.
pub(crate) const LIFETIME: Duration = Duration::from_secs(60);
/// The longest that it can be said for.
const MAX_LIFETIME: Duration = Duration::from_secs(24 * 3600);
/// Why a question was not asked that had to go for others.
pub(crate) const TOO_MANY: &str = "too many questions at once";
/// Questions that wait for the thread; before one more, the oldest is answered as not available.
const MAX_GETS: usize = 1024;
/// For the deletion of all entries at the end.
const FAREWELL: Duration = Duration::from_millis(500);

/// What the thread says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A question's: the value of the entry.
    Found { ticket: u64, value: Vec<u8> },
    /// A question's: there is no such entry.
    Absent { ticket: u64 },
    /// The server could not be asked, or refused, for this reason. An entry that it refused is offered again soon.
    Unavailable { request: Request, why: String },
    /// The server is reached now, or not any more; the reason alone does not make a change.
    State(State),
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// The value of an entry, by the caller's ticket.
    Get(u64),
    /// To write the entry with this key.
    Put(String),
    /// To delete the entry with this key.
    Delete(String),
}

/// Whether the server is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// The first attempt is under way.
    Connecting,
    Connected,
    /// In one line why; it is tried again.
    Unreachable(String),
}

/// A redis server. Entries that were put are written again after a reconnect, refreshed before they expire, and
/// deleted when this value is dropped.
pub(crate) struct RedisStore {
    shared: Arc<Shared>,
}

/// What callers and the thread share. Nobody holds the lock while waiting for anything.
struct Shared {
    inbox: Mutex<Inbox>,
    wake: Wake,
    /// The thread has ended.
    ended: Condvar,
}

/// What callers want, and what they can see.
struct Inbox {
    gets: VecDeque<(String, u64)>,
    /// Tickets of questions that had to go for others.
    displaced: Vec<u64>,
    /// The last word about each key: there are no more of them than keys.
    changes: BTreeMap<String, Change>,
    state: State,
    /// The socket in use, to be shut down when the end cannot wait.
    socket: Option<Socket>,
    /// The store is dropped; until then its entries may be deleted.
    closing: Option<Instant>,
    ended: bool,
}

/// What is to become of an entry.
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
    /// Starts the thread, which connects. It calls `answer`, which must not wait for long: each question is answered
    /// once, unless the store is dropped first.
    ///
    /// # Errors
    /// When the system has no thread or descriptor left.
    pub(crate) fn start(url: RedisUrl, answer: impl FnMut(Answer) + Send + 'static) -> io::Result<RedisStore> {
        let (inbox, ended) = (Mutex::new(Inbox::new()), Condvar::new());
        let shared = Arc::new(Shared { inbox, wake: Wake::new()?, ended });
        let theirs = Arc::clone(&shared);
        spawn_own("softnic-store", move || {
            // Also when the callback panics.
            let _end = End(&theirs);
            Worker::new(url, &theirs, answer).run();
        })?;
        Ok(RedisStore { shared })
    }

    /// Asks for an entry.
    pub(crate) fn get(&self, key: &str, ticket: u64) {
        lock(&self.shared.inbox).ask(key, ticket);
        self.shared.wake.wake();
    }

    /// Writes an entry, in place of an earlier one, and keeps it alive. It is gone after `lifetime` without us.
    pub(crate) fn put(&self, key: &str, value: &[u8], lifetime: Duration) {
        self.change(key, Change::Put { value: value.into(), lifetime: lifetime.min(MAX_LIFETIME) });
    }

    /// Deletes an entry.
    pub(crate) fn delete(&self, key: &str) {
        self.change(key, Change::Delete);
    }

    /// Whether the server is reached.
    #[cfg(test)]
    pub(crate) fn state(&self) -> State {
        lock(&self.shared.inbox).state.clone()
    }

    /// The descriptor that it keeps for as long as it lives; the child of a fork closes those of connections by itself.
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
                // The thread ends by itself: its socket is shut down, or connecting or resolving a name ends.
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

/// Says that the thread has ended.
struct End<'a>(&'a Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        lock(&self.0.inbox).ended = true;
        self.0.ended.notify_all();
    }
}
