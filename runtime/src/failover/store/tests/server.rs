//! The store against a real redis server.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redis::{Value, cmd};

use super::super::connection::{Connection, TIMEOUT};
use super::super::{LIFETIME, Request, State};
use super::{Client, until};
use crate::failover::kv::Kv;

/// A redis server of the test's own, on a port of 127.0.0.1.
pub(crate) struct Server {
    pub(crate) port: u16,
    process: Child,
}

impl Server {
    pub(crate) fn start() -> Server {
        for _ in 0..5 {
            // Another process may take the port first. The server then exits, and another port is tried.
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if let Some(server) = Server::start_at(port) {
                return server;
            }
        }
        panic!("redis-server ended at once, at every port");
    }

    pub(crate) fn start_at(port: u16) -> Option<Server> {
        let mut redis = Command::new("redis-server");
        redis.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--daemonize", "no"]);
        redis.args(["--port", &port.to_string(), "--dir", std::env::temp_dir().to_str().unwrap()]);
        redis.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let started = redis.spawn();
        let process = started.unwrap_or_else(|e| {
            panic!("redis-server: {e}. Install the package redis-server, or run `cargo xtask setup`")
        });
        let mut server = Server { port, process };
        let mut runs = true;
        until("a server that answers", || {
            runs = server.process.try_wait().unwrap().is_none();
            !runs || server.open("").is_ok()
        });
        runs.then_some(server)
    }

    fn open(&self, login: &str) -> Result<Connection, String> {
        let Ok(Kv::Redis(url)) = self.url(login, "").parse() else { panic!("{login}") };
        Connection::open(&url, |_| {})
    }

    fn url(&self, login: &str, rest: &str) -> String {
        format!("redis://{}", self.address(login, rest))
    }

    fn address(&self, login: &str, rest: &str) -> String {
        format!("{login}127.0.0.1:{}{rest}", self.port)
    }

    /// Sends a command, whose words are separated by spaces, and returns the server's answer.
    pub(crate) fn say(&self, line: &str) -> Value {
        let mut words = line.split(' ');
        let mut command = cmd(words.next().unwrap());
        words.for_each(|word| _ = command.arg(word));
        self.open("").unwrap().exchange(&[command], TIMEOUT).unwrap().remove(0)
    }

    /// Writes a value.
    pub(crate) fn set(&self, key: &str, value: &[u8]) {
        let command = cmd("SET").arg(key).arg(value).to_owned();
        self.open("").unwrap().exchange(&[command], TIMEOUT).unwrap();
    }

    fn holds(&self, key: &str, value: &str) -> bool {
        self.say(&format!("GET {key}")) == Value::BulkString(value.into())
    }

    fn lacks(&self, key: &str) -> bool {
        self.say(&format!("EXISTS {key}")) == Value::Int(0)
    }

    pub(crate) fn stop(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn entries_are_written_found_replaced_and_deleted_and_go_with_the_store() {
    let server = Server::start();
    let mut a = Client::connected(&server.address("", ""));
    let mut b = Client::connected(&server.address("", ""));
    assert_eq!((a.store.state(), a.store.descriptors().len()), (State::Connected, 1));
    assert_eq!(b.get("one", 1), Ok(None));
    a.store.put("one", b"1\0\r\n\xff", LIFETIME);
    assert_eq!(a.get("one", 2), Ok(Some(b"1\0\r\n\xff".to_vec())), "a question comes behind what was put before");
    assert_eq!(b.get("one", 3), Ok(Some(b"1\0\r\n\xff".to_vec())));
    let Value::Int(ms) = server.say("PTTL softnic:one") else { panic!() };
    assert!((1..=60_000).contains(&ms), "{ms}");
    a.store.put("one", b"2", LIFETIME);
    assert_eq!((a.get("one", 4), b.get("one", 5)), (Ok(Some(b"2".to_vec())), Ok(Some(b"2".to_vec()))));
    a.store.delete("one");
    assert_eq!((a.get("one", 6), b.get("one", 7)), (Ok(None), Ok(None)));
    // More lookups than fit one batch, all at once.
    (0..200).for_each(|n: u64| a.store.put(&format!("n{n}"), &n.to_be_bytes(), LIFETIME));
    until("all are written", || server.say("DBSIZE") == Value::Int(200));
    (0..200).for_each(|n: u64| b.store.get(&format!("n{n}"), 100 + n));
    for n in 0..200u64 {
        let value = b.wait(|a| match a {
            super::Answer::Found { ticket, value } if *ticket == 100 + n => Some(value.clone()),
            _ => None,
        });
        assert_eq!(value, n.to_be_bytes());
    }
    b.store.put("other", b"b", LIFETIME);
    assert_eq!(b.get("other", 8), Ok(Some(b"b".to_vec())));
    drop(a);
    assert_eq!(server.say("KEYS *"), Value::Array(vec![Value::BulkString(b"softnic:other".into())]));
}

#[test]
fn entries_outlive_a_deletion_by_others_and_a_restart_of_the_server() {
    let mut server = Server::start();
    let mut a = Client::connected(&server.address("", "/3?prefix=p"));
    a.store.put("kept", b"1", Duration::from_millis(300));
    a.store.put("short", b"1", Duration::ZERO);
    assert_eq!(a.get("kept", 1), Ok(Some(b"1".to_vec())));
    assert_eq!(server.say("EXISTS p:kept"), Value::Int(0), "another database");
    for _ in 0..3 {
        server.say("FLUSHALL");
        let mut ticket = 2;
        until("it is written again", || {
            ticket += 1;
            a.get("kept", ticket) == Ok(Some(b"1".to_vec()))
        });
    }
    a.store.put("long", b"2", Duration::MAX);
    assert_eq!(a.get("long", 1000), Ok(Some(b"2".to_vec())));
    server.stop();
    assert!(!a.unreachable().is_empty());
    assert!(a.get("long", 1001).is_err(), "there is nobody to ask, and that is said at once");
    // Changes made meanwhile take effect when the server is back.
    a.store.put("new", b"3", LIFETIME);
    a.store.delete("kept");
    let port = server.port;
    let _server = Server::start_at(port).expect("the same port");
    assert_eq!(a.state(), State::Connected);
    assert_eq!((a.get("long", 1002), a.get("new", 1003)), (Ok(Some(b"2".to_vec())), Ok(Some(b"3".to_vec()))));
    assert_eq!((a.get("kept", 1004), a.store.state()), (Ok(None), State::Connected));
}

#[test]
fn what_a_server_refuses_is_said_with_its_reason() {
    let server = Server::start();
    let mut a = Client::connected(&server.address("", ""));
    server.say("LPUSH softnic:list x");
    assert!(a.get("list", 1).unwrap_err().starts_with("WRONGTYPE"), "another type under the key");
    server.say(&format!("SET softnic:long {}", "x".repeat(5000)));
    assert!(a.get("long", 2).unwrap_err().contains("longer than any of ours"));
    assert_eq!(a.get("none", 3), Ok(None), "the connection is still of use");
    server.say("CONFIG SET maxmemory 1");
    a.store.put("full", b"x", Duration::from_millis(60));
    assert!(a.refused(&Request::Put("full".into())).starts_with("OOM"));
    server.say("CONFIG SET maxmemory 0");
    until("it is offered again", || server.holds("softnic:full", "x"));
    // A user with read access only.
    server.say("ACL SETUSER reader on >se@cret ~* +get");
    let mut reader = Client::connected(&server.address("reader:se%40cret@", ""));
    assert_eq!(reader.get("full", 1), Ok(Some(b"x".to_vec())));
    reader.store.put("mine", b"x", LIFETIME);
    reader.store.delete("full");
    assert!(reader.refused(&Request::Put("mine".into())).starts_with("NOPERM"));
    assert!(reader.refused(&Request::Delete("full".into())).starts_with("NOPERM"));
    assert!(server.lacks("softnic:mine"));
    let mut wrong = Client::new(&server.address("reader:secret@", ""));
    assert!(wrong.unreachable().starts_with("WRONGPASS"));
    assert!(wrong.get("full", 1).unwrap_err().starts_with("WRONGPASS"));
    let mut far = Client::new(&server.address("", "/99"));
    assert!(far.unreachable().contains("out of range"));
    server.say("CONFIG SET requirepass other");
    let mut nobody = Client::new(&server.address("", ""));
    assert!(nobody.unreachable().starts_with("NOAUTH"));
    Client::connected(&server.address(":other@", ""));
}
