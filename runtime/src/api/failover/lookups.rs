//! The store that the control thread has: entries of the engines go there, and what it says of their peers comes back.
//!
//! Nothing waits for it. While it cannot be reached connections run as without a backup, and those that have one keep it.

use std::collections::HashMap;
use std::io;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use softnic_shift::{Lookup, Request};
use softnic_wire::Qpn;
use softnic_wire::failover::{Entry, EntryKey, Object};

use crate::engine::Engine;
use crate::failover::kv::RedisUrl;
use crate::failover::list::Control;
use crate::failover::store::{self, Answer, LIFETIME, RedisStore, State, TOO_MANY};
use crate::locked::lock;

/// The store, and who waits for it.
pub(super) struct Lookups {
    store: RedisStore,
    url: RedisUrl,
    /// What its thread has said since the last look.
    answers: Arc<Mutex<Vec<Answer>>>,
    asked: HashMap<u64, Asked>,
    next_ticket: u64,
    /// Why it was said to be out of reach, or to refuse something, since it was reached.
    lost: bool,
    refused: Option<String>,
}

/// An engine's question.
struct Asked {
    engine: usize,
    qpn: Qpn,
    object: Object,
}

impl Lookups {
    /// Begins to connect. Whatever the store says wakes the thread that has `control`.
    pub(super) fn start(url: &RedisUrl, control: &Arc<Control>) -> io::Result<Lookups> {
        let answers: Arc<Mutex<Vec<Answer>>> = Arc::default();
        let (theirs, control) = (Arc::clone(&answers), Arc::clone(control));
        let store = RedisStore::start(url.clone(), move |answer| {
            lock(&theirs).push(answer);
            control.wake();
        })?;
        let (url, asked) = (url.clone(), HashMap::new());
        Ok(Lookups { store, url, answers, asked, next_ticket: 0, lost: false, refused: None })
    }

    /// The descriptors that it holds.
    pub(super) fn descriptors(&self) -> Vec<RawFd> {
        self.store.descriptors()
    }

    /// What an engine asks of it.
    pub(super) fn request(&mut self, engine: usize, request: &Request) {
        match *request {
            Request::Path { .. } => {}
            Request::Put { object, entry } => {
                let mut value = [0; Entry::LEN];
                entry.emit(&EntryKey { prefix: &self.url.prefix, object }, &mut value);
                self.store.put(&object.to_string(), &value, LIFETIME);
            }
            Request::Delete { object } => self.store.delete(&object.to_string()),
            Request::Get { qpn, object } => {
                self.asked.insert(self.next_ticket, Asked { engine, qpn, object });
                self.store.get(&object.to_string(), self.next_ticket);
                self.next_ticket += 1;
            }
        }
    }

    /// Tells the engines what the store said; lines for people about it.
    pub(super) fn tell(&mut self, engines: &[Arc<Engine>]) -> Vec<String> {
        let answers = std::mem::take(&mut *lock(&self.answers));
        let mut lines = Vec::new();
        let mut found: Vec<(Asked, Lookup)> = Vec::new();
        let mut again = false;
        for answer in answers {
            match answer {
                Answer::Found { ticket, value } => {
                    if let Some(asked) = self.asked.remove(&ticket) {
                        let key = EntryKey { prefix: &self.url.prefix, object: asked.object };
                        // What is no entry may be overwritten by one.
                        let lookup = Entry::parse(&key, &value).map_or(Lookup::Absent, Lookup::Found);
                        found.push((asked, lookup));
                    }
                }
                Answer::Absent { ticket } => {
                    found.extend(self.asked.remove(&ticket).map(|asked| (asked, Lookup::Absent)));
                }
                Answer::Unavailable { request, why } => {
                    if let store::Request::Get(ticket) = request {
                        found.extend(self.asked.remove(&ticket).map(|asked| (asked, Lookup::Unavailable)));
                    }
                    lines.extend(self.refusal(why));
                }
                Answer::State(State::Connecting) => {}
                Answer::State(State::Connected) => {
                    (again, self.refused) = (true, None);
                    if std::mem::take(&mut self.lost) {
                        lines.push(format!("the store {} is reached again", self.url));
                    }
                }
                Answer::State(State::Unreachable(why)) => {
                    self.lost = true;
                    lines.push(format!("the store {} is not reached, connections get no backup: {why}", self.url));
                }
            }
        }
        for (index, engine) in engines.iter().enumerate() {
            if !again && found.iter().all(|(asked, _)| asked.engine != index) {
                continue;
            }
            let mut core = engine.control();
            let now = core.driver.now();
            for (Asked { qpn, object, .. }, lookup) in found.iter().filter(|(asked, _)| asked.engine == index) {
                core.dual().set_entry(now, *qpn, *object, *lookup);
            }
            if again {
                core.dual().ask_store_again(now);
            }
            drop(core);
            engine.wake();
        }
        lines
    }

    /// The line about a refusal of a server that is reached, once for each reason. Whether it was reached then the order of the answers says:
    /// by now the store may be in another state.
    fn refusal(&mut self, why: String) -> Option<String> {
        let known = self.refused.as_ref() == Some(&why);
        if known || why == TOO_MANY || self.lost {
            return None;
        }
        let line = format!("the store {} refuses what connections need for a backup: {why}", self.url);
        self.refused = Some(why);
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failover::kv::Kv;
    use crate::failover::store::tests::server::Server;

    #[test]
    fn a_question_that_a_lost_store_did_not_answer_is_no_refusal_when_the_store_is_back_already() {
        let server = Server::start();
        let Ok(Kv::Redis(url)) = format!("redis://127.0.0.1:{}", server.port).parse() else { panic!() };
        let mut lookups = Lookups::start(&url, &Control::new(None).unwrap()).unwrap();
        while lookups.store.state() != State::Connected {
            std::thread::yield_now();
        }
        let why = || String::from("WRONGPASS");
        let unanswered = Answer::Unavailable { request: store::Request::Get(7), why: why() };
        *lock(&lookups.answers) = vec![Answer::State(State::Unreachable(why())), unanswered.clone()];
        let lines = lookups.tell(&[]);
        assert!(lines.len() == 1 && lines[0].contains("is not reached"), "{lines:?}");
        *lock(&lookups.answers) = vec![Answer::State(State::Connected), unanswered];
        let lines = lookups.tell(&[]);
        assert!(lines[0].contains("reached again") && lines[1].contains("refuses"), "{lines:?}");
    }
}
