//! Tests of the store against servers: the shared helpers, and the tests that need no server.

mod broken;
pub(crate) mod server;

use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::worker::BackOff;
use super::{Answer, Inbox, MAX_GETS, RedisStore, Request, State};
use crate::failover::kv::Kv;

/// Time limit of every wait. It ends failed tests only: successful waits take a fraction of it.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store, and its reports.
struct Client {
    store: RedisStore,
    said: Receiver<Answer>,
    /// Reports that arrived while the test waited for another one.
    earlier: Vec<Answer>,
}

impl Client {
    /// `rest` is the part of the URL behind `redis://`.
    fn new(rest: &str) -> Client {
        let Ok(Kv::Redis(url)) = format!("redis://{rest}").parse() else { panic!("{rest}") };
        let (say, said) = channel();
        let store = RedisStore::start(url, move |answer| _ = say.send(answer)).unwrap();
        Client { store, said, earlier: Vec::new() }
    }

    fn connected(rest: &str) -> Client {
        let mut client = Client::new(rest);
        assert_eq!(client.state(), State::Connected);
        client
    }

    /// Waits for the first report that `wanted` accepts, among those not yet consumed.
    fn wait<T>(&mut self, wanted: impl Fn(&Answer) -> Option<T>) -> T {
        if let Some(at) = self.earlier.iter().position(|a| wanted(a).is_some()) {
            return wanted(&self.earlier.remove(at)).unwrap();
        }
        loop {
            let answer = self.said.recv_timeout(PATIENCE);
            let answer = answer.unwrap_or_else(|_| panic!("no such answer, but {:?}", self.earlier));
            match wanted(&answer) {
                Some(found) => return found,
                None => self.earlier.push(answer),
            }
        }
    }

    /// Waits for the next change of state.
    fn state(&mut self) -> State {
        self.wait(|a| if let Answer::State(state) = a { Some(state.clone()) } else { None })
    }

    fn unreachable(&mut self) -> String {
        match self.state() {
            State::Unreachable(why) => why,
            other => panic!("{other:?}"),
        }
    }

    /// Does a lookup and waits for it: the value, nothing, or the error.
    fn get(&mut self, key: &str, ticket: u64) -> Result<Option<Vec<u8>>, String> {
        self.store.get(key, ticket);
        self.wait(|a| match a {
            Answer::Found { ticket: t, value } if *t == ticket => Some(Ok(Some(value.clone()))),
            Answer::Absent { ticket: t } if *t == ticket => Some(Ok(None)),
            Answer::Unavailable { request: Request::Get(t), why } if *t == ticket => Some(Err(why.clone())),
            _ => None,
        })
    }

    /// Waits for the error of a refused write or deletion.
    fn refused(&mut self, request: &Request) -> String {
        self.wait(|a| match a {
            Answer::Unavailable { request: of, why } if of == request => Some(why.clone()),
            _ => None,
        })
    }
}

/// Waits until a condition is true.
fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_full_queue_displaces_the_oldest_question_and_forgets_no_ticket() {
    let mut inbox = Inbox::new();
    (0..MAX_GETS as u64 + 3).for_each(|ticket| inbox.ask("k", ticket));
    assert_eq!((inbox.gets.len(), inbox.displaced.as_slice()), (MAX_GETS, &[0, 1, 2][..]));
    assert_eq!(inbox.gets.front(), Some(&("k".into(), 3)));
}

#[test]
fn attempts_come_after_a_tenth_of_a_second_and_then_ever_later_up_to_five_seconds() {
    let mut back_off = BackOff::new();
    let waits: Vec<u128> = (0..8).map(|_| back_off.next().as_millis()).collect();
    assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
}
