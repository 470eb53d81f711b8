//! The thread of a store: it connects, writes the entries that are due, does lookups, and sleeps until there is more to do.

use std::collections::BTreeMap;
use std::mem;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use redis::{Cmd, Value, cmd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::connection::{BATCH, Connection, MAX_VALUE, TIMEOUT, closed, refusal};
use super::{Answer, Change, LIFETIME, Request, Shared, State, TOO_MANY};
use crate::failover::kv::RedisUrl;
use crate::locked::lock;

/// The shortest refresh interval, for entries with a very short lifetime.
const MIN_REFRESH: Duration = Duration::from_millis(10);
/// Delay before a refused entry is written again: the server may be full for a moment only.
const REFUSED: Duration = Duration::from_secs(1);

/// An entry to be kept in the server, or to be deleted from it.
struct Entry {
    change: Change,
    /// When the entry is written, refreshed or deleted next.
    due: Instant,
    /// When an entry to be deleted has expired anyway.
    until: Instant,
    /// The refusal of this entry was reported.
    refused: bool,
}

/// The delay before the next connection attempt.
pub(super) struct BackOff(Duration);

impl BackOff {
    const FIRST: Duration = Duration::from_millis(100);
    const LONGEST: Duration = Duration::from_secs(5);

    pub(super) fn new() -> BackOff {
        BackOff(Self::FIRST)
    }

    /// The delay after a failure. Doubles each time, up to the longest.
    pub(super) fn next(&mut self) -> Duration {
        let wait = self.0;
        self.0 = (wait * 2).min(Self::LONGEST);
        wait
    }
}

pub(super) struct Worker<'a, F> {
    url: RedisUrl,
    shared: &'a Shared,
    answer: F,
    connection: Option<Connection>,
    retry_at: Instant,
    back_off: BackOff,
    entries: BTreeMap<String, Entry>,
}

impl<'a, F: FnMut(Answer)> Worker<'a, F> {
    pub(super) fn new(url: RedisUrl, shared: &'a Shared, answer: F) -> Worker<'a, F> {
        let (retry_at, back_off, entries) = (Instant::now(), BackOff::new(), BTreeMap::new());
        Worker { url, shared, answer, connection: None, retry_at, back_off, entries }
    }

    /// Runs until the store is dropped.
    pub(super) fn run(mut self) {
        loop {
            self.shared.wake.drain();
            let closing = lock(&self.shared.inbox).closing;
            if closing.is_none() && self.connection.is_none() && Instant::now() >= self.retry_at {
                self.connect();
            }
            // After the attempt to connect, so that lookups made before or during the attempt get its result.
            let questions = self.take_inbox();
            if let Some(deadline) = lock(&self.shared.inbox).closing {
                return self.say_farewell(deadline);
            }
            if let Err(why) = self.write_some() {
                self.lose(why);
            }
            let asked = !questions.is_empty();
            self.ask(questions);
            if !asked {
                self.sleep();
            }
        }
    }

    fn connect(&mut self) {
        let shared = self.shared;
        match Connection::open(&self.url, |socket| lock(&shared.inbox).socket = Some(socket)) {
            Ok(connection) => {
                self.connection = Some(connection);
                // The server may have restarted without its data: write all entries again.
                let now = Instant::now();
                self.entries.values_mut().for_each(|entry| entry.due = now);
                self.set_state(State::Connected);
            }
            Err(why) => self.lose(why),
        }
    }

    /// Drops the connection, if any, and schedules the next attempt.
    fn lose(&mut self, why: String) {
        self.connection = None;
        lock(&self.shared.inbox).socket = None;
        self.retry_at = Instant::now() + self.back_off.next();
        self.set_state(State::Unreachable(why));
    }

    fn set_state(&mut self, state: State) {
        let before = mem::replace(&mut lock(&self.shared.inbox).state, state.clone());
        if mem::discriminant(&before) != mem::discriminant(&state) {
            (self.answer)(Answer::State(state));
        }
    }

    /// Takes over the changes that callers requested, and returns some of their lookups.
    fn take_inbox(&mut self) -> Vec<(String, u64)> {
        let mut inbox = lock(&self.shared.inbox);
        let some = inbox.gets.len().min(BATCH);
        let questions = inbox.gets.drain(..some).collect();
        let (changes, displaced) = (mem::take(&mut inbox.changes), mem::take(&mut inbox.displaced));
        drop(inbox);
        for ticket in displaced {
            self.unavailable(Request::Get(ticket), TOO_MANY);
        }
        let due = Instant::now();
        for (key, change) in changes {
            let lifetime = match (&change, self.entries.get(&key).map(|e| &e.change)) {
                (Change::Put { lifetime, .. }, _) | (Change::Delete, Some(Change::Put { lifetime, .. })) => *lifetime,
                (Change::Delete, _) => LIFETIME,
            };
            self.entries.insert(key, Entry { change, due, until: due + lifetime, refused: false });
        }
        questions
    }

    /// Writes, refreshes or deletes some of the entries that are due, if there is a connection.
    fn write_some(&mut self) -> Result<(), String> {
        let now = Instant::now();
        self.entries.retain(|_, e| e.change != Change::Delete || now < e.until);
        let Some(connection) = &mut self.connection else { return Ok(()) };
        let due = self.entries.iter().filter(|(_, e)| e.due <= now).take(BATCH);
        let (keys, commands): (Vec<String>, Vec<Cmd>) =
            due.map(|(key, entry)| (key.clone(), command(&self.url, key, &entry.change))).unzip();
        if keys.is_empty() {
            return Ok(());
        }
        let answers = connection.exchange(&commands, TIMEOUT)?;
        self.back_off = BackOff::new();
        for (key, answer) in keys.into_iter().zip(answers) {
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            let request = match (&entry.change, &answer) {
                (Change::Put { .. }, Value::Okay) => {
                    entry.refused = false;
                    None
                }
                (Change::Delete, Value::Int(_)) => {
                    self.entries.remove(&key);
                    continue;
                }
                (Change::Put { .. }, Value::ServerError(_)) => Some(Request::Put(key)),
                (Change::Delete, Value::ServerError(_)) => Some(Request::Delete(key)),
                _ => return Err(refusal(&answer)),
            };
            let lifetime = match &entry.change {
                Change::Put { lifetime, .. } => *lifetime,
                Change::Delete => LIFETIME,
            };
            let refresh = (lifetime / 3).max(MIN_REFRESH);
            entry.due = now + if request.is_some() { refresh.min(REFUSED) } else { refresh };
            if let Some(request) = request.filter(|_| !mem::replace(&mut entry.refused, true)) {
                self.unavailable(request, &refusal(&answer));
            }
        }
        Ok(())
    }

    /// Answers all of these lookups, at most [`BATCH`].
    fn ask(&mut self, questions: Vec<(String, u64)>) {
        if questions.is_empty() {
            return;
        }
        let commands: Vec<Cmd> =
            questions.iter().map(|(key, _)| cmd("GET").arg(full(&self.url, key)).to_owned()).collect();
        let answers = match &mut self.connection {
            Some(connection) => connection.exchange(&commands, TIMEOUT),
            None => Ok(Vec::new()),
        };
        let answers = answers.unwrap_or_else(|why| {
            self.lose(why);
            Vec::new()
        });
        if !answers.is_empty() {
            self.back_off = BackOff::new();
        }
        let mut answers = answers.into_iter();
        let mut garbage = None;
        for (_, ticket) in questions {
            let request = Request::Get(ticket);
            match answers.next() {
                Some(Value::BulkString(value)) if value.len() <= MAX_VALUE => {
                    (self.answer)(Answer::Found { ticket, value });
                }
                Some(Value::BulkString(_)) => self.unavailable(request, "the entry is longer than any of ours"),
                Some(Value::Nil) => (self.answer)(Answer::Absent { ticket }),
                Some(answer) => {
                    let why = refusal(&answer);
                    self.unavailable(request, &why);
                    if !matches!(answer, Value::ServerError(_)) {
                        garbage = Some(why);
                    }
                }
                None => {
                    let why = match &lock(&self.shared.inbox).state {
                        State::Unreachable(why) => why.clone(),
                        State::Connecting | State::Connected => closed(),
                    };
                    self.unavailable(request, &why);
                }
            }
        }
        if let Some(why) = garbage {
            self.lose(why);
        }
    }

    fn unavailable(&mut self, request: Request, why: &str) {
        (self.answer)(Answer::Unavailable { request, why: why.into() });
    }

    /// Sleeps until an entry is due, a caller has a request, or the server sends unsolicited data or closes the connection.
    fn sleep(&mut self) {
        let next = match &self.connection {
            Some(_) => self.entries.values().map(|e| e.due).min(),
            None => Some(self.retry_at),
        };
        // One millisecond more, so that rounding of the clock does not end the sleep too early.
        let wait = next.map(|at| at.saturating_duration_since(Instant::now()) + Duration::from_millis(1));
        let timeout = wait.and_then(|wait| Timespec::try_from(wait).ok());
        let wake = PollFd::new(&self.shared.wake, PollFlags::IN);
        let Some(connection) = &self.connection else {
            let _ = poll(&mut [wake], timeout.as_ref());
            return;
        };
        let mut fds = [wake, PollFd::from_borrowed_fd(connection.as_fd(), PollFlags::IN)];
        let _ = poll(&mut fds, timeout.as_ref());
        if !fds[1].revents().is_empty() {
            self.lose(closed());
        }
    }

    /// Deletes all entries, as far as time allows.
    fn say_farewell(mut self, deadline: Instant) {
        let keys: Vec<String> = mem::take(&mut self.entries).into_keys().collect();
        let Some(connection) = &mut self.connection else { return };
        for keys in keys.chunks(BATCH) {
            let commands: Vec<Cmd> = keys.iter().map(|key| command(&self.url, key, &Change::Delete)).collect();
            let left = deadline.saturating_duration_since(Instant::now()).min(TIMEOUT);
            if connection.exchange(&commands, left).is_err() {
                return;
            }
        }
    }
}

fn full(url: &RedisUrl, key: &str) -> String {
    format!("{}:{key}", url.prefix)
}

fn command(url: &RedisUrl, key: &str, change: &Change) -> Cmd {
    match change {
        Change::Put { value, lifetime } => {
            let ms = (lifetime.as_millis() as u64).max(1);
            cmd("SET").arg(full(url, key)).arg(value.as_slice()).arg("PX").arg(ms).to_owned()
        }
        Change::Delete => cmd("DEL").arg(full(url, key)).to_owned(),
    }
}
