//! The store against servers that are slow, send invalid data, or close the connection within an answer.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::super::{LIFETIME, State};
use super::{Client, until};

/// A server that accepts connections, one after the other, until it is dropped.
struct Fake {
    address: String,
    over: Arc<AtomicBool>,
    current: Arc<Mutex<Option<TcpStream>>>,
    thread: Option<JoinHandle<()>>,
}

impl Fake {
    /// `answer` writes the reply to a command, whose words are separated by spaces; `false` closes the connection.
    fn start(mut answer: impl FnMut(&str, &mut TcpStream) -> bool + Send + 'static) -> Fake {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (over, current) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let (is_over, shown) = (Arc::clone(&over), Arc::clone(&current));
        let thread = std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                *shown.lock().unwrap() = stream.try_clone().ok();
                // Checked after publishing the stream: either the owner sees the stream, or this thread sees that it is over.
                if is_over.load(Ordering::SeqCst) {
                    return;
                }
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                while let Some(command) = command(&mut reader) {
                    if !answer(&command, &mut stream) {
                        break;
                    }
                }
                let _ = stream.shutdown(Shutdown::Both);
            }
        });
        Fake { address, over, current, thread: Some(thread) }
    }

    /// A server that accepts PING as redis does, and answers all other commands with `reply`.
    fn replying(reply: &'static [u8], stays: bool) -> Fake {
        Fake::start(move |command, stream| match command {
            "PING" => stream.write_all(b"+PONG\r\n").is_ok(),
            _ => stream.write_all(reply).is_ok() && stays,
        })
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(stream) = &*self.current.lock().unwrap() {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // The thread may be waiting for a connection.
        let _ = TcpStream::connect(&self.address);
        let _ = self.thread.take().unwrap().join();
    }
}

/// Reads a command: an array of strings.
fn command(reader: &mut BufReader<TcpStream>) -> Option<String> {
    let number = |reader: &mut BufReader<TcpStream>| -> Option<usize> {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        line.get(1..)?.trim().parse().ok()
    };
    let mut words = Vec::new();
    for _ in 0..number(reader)? {
        let mut word = vec![0; number(reader)? + 2];
        reader.read_exact(&mut word).ok()?;
        words.push(String::from_utf8_lossy(word.trim_ascii_end()).into_owned());
    }
    Some(words.join(" "))
}

#[test]
fn nonsense_in_place_of_an_answer_makes_a_question_unavailable_and_never_more() {
    let deep: &[u8] = &b"*1\r\n".repeat(150);
    let long: &[u8] = &[b'$'; 1].iter().chain(b"300000\r\n").chain(&[b'x'; 300_000]).copied().collect::<Vec<_>>();
    let endless_line: &[u8] = &[b'+'; 1 << 19];
    let replies: [&[u8]; 18] = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"\r\n",
        b"\0\0\0\0",
        b"+OK\r\n",
        b":5\r\n",
        b":x\r\n",
        b"*1\r\n$1\r\nx\r\n",
        b"*1000000000\r\n",
        b"*9223372036854775807\r\n",
        b"%9223372036854775807\r\n",
        b"|-1\r\n",
        b"!-1\r\n",
        b"$9223372036854775807\r\n",
        b"$3\r\nabcde\r\n",
        b"+\xff\xfe\r\n",
        deep,
        long,
        endless_line,
    ];
    for reply in replies {
        let shown = String::from_utf8_lossy(&reply[..reply.len().min(40)]).into_owned();
        // The server closes the connection after its reply, so that no client waits for more.
        let fake = Fake::replying(reply.to_vec().leak(), false);
        let mut client = Client::connected(&fake.address);
        let why = client.get("k", 1).expect_err(&shown);
        assert_eq!(client.unreachable(), why, "{shown}");
        assert!(!why.is_empty() && why.lines().count() == 1 && why.len() < 300, "{shown}: {why}");
    }
    let fake = Fake::start(|_, stream| stream.write_all(b"220 mail.example ESMTP\r\n").is_ok());
    let mut client = Client::new(&fake.address);
    assert_eq!(client.unreachable(), "its answer is not one of a redis server");
    assert!(client.get("k", 1).is_err());
}

#[test]
fn an_error_with_control_characters_is_one_short_line() {
    let reply = [b"-ERR \x1b[31m\n", "é".repeat(1000).as_bytes(), b"\r\n"].concat();
    let fake = Fake::replying(reply.leak(), true);
    let mut client = Client::connected(&fake.address);
    let why = client.get("k", 1).unwrap_err();
    assert!(why.starts_with("ERR \\u{1b}[31m\\n") && why.chars().count() < 300, "{why}");
    assert_eq!(client.store.state(), State::Connected, "the server may well refuse");
}

#[test]
fn a_connection_that_ends_in_the_middle_of_an_answer_is_made_anew() {
    let mut commands = 0;
    let fake = Fake::start(move |command, stream| {
        commands += u32::from(command != "PING");
        match (command, commands) {
            ("PING", _) => stream.write_all(b"+PONG\r\n").is_ok(),
            (_, 1) => {
                stream.write_all(b"$10\r\nabc").unwrap();
                false
            }
            _ => stream.write_all(b"$1\r\nx\r\n").is_ok(),
        }
    });
    let mut client = Client::connected(&fake.address);
    assert_eq!(client.get("k", 1), Err("it closed the connection".into()));
    assert_eq!(client.unreachable(), "it closed the connection");
    assert_eq!(client.state(), State::Connected);
    assert_eq!(client.get("k", 2), Ok(Some(b"x".to_vec())));
}

#[test]
fn a_server_that_is_silent_or_slow_is_given_up_and_holds_up_nobody() {
    let silent = Fake::start(|_, _| true);
    // Sends a byte now and then: each read succeeds, and the answer never ends.
    let slow = Fake::start(|command, stream| match command {
        "PING" => stream.write_all(b"+PONG\r\n").is_ok(),
        _ => {
            let mut sent = stream.write_all(b"$1000\r\n").is_ok();
            while sent {
                std::thread::sleep(Duration::from_millis(50));
                sent = stream.write_all(b"x").is_ok();
            }
            false
        }
    });
    let (mut a, mut b) = (Client::new(&silent.address), Client::connected(&slow.address));
    a.store.put("k", b"1", LIFETIME);
    assert_eq!(
        (a.get("k", 1), b.get("k", 1)),
        (Err("no answer within 1 s".into()), Err("no answer within 1 s".into()))
    );
    assert_eq!((a.unreachable(), b.unreachable()), ("no answer within 1 s".into(), "no answer within 1 s".into()));
    // The drop falls within the next attempts, or between them.
    let start = Instant::now();
    drop((a, b));
    assert!(start.elapsed() < Duration::from_secs(20), "the end does not wait for an answer");
}

#[test]
fn an_entry_is_refreshed_as_long_as_the_store_lives_and_then_deleted() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&seen);
    let fake = Fake::start(move |command, stream| {
        log.lock().unwrap().push(command.to_owned());
        let reply: &[u8] = match command.split(' ').next() {
            Some("PING") => b"+PONG\r\n",
            Some("SET") => b"+OK\r\n",
            _ => b":1\r\n",
        };
        stream.write_all(reply).is_ok()
    });
    let client = Client::connected(&fake.address);
    client.store.put("k", b"v", Duration::from_millis(90));
    let count = |what: &str| seen.lock().unwrap().iter().filter(|c| *c == what).count();
    until("it is refreshed", || count("SET softnic:k v PX 90") >= 4);
    assert_eq!(count("DEL softnic:k"), 0);
    drop(client);
    assert_eq!(seen.lock().unwrap().last().map(String::as_str), Some("DEL softnic:k"));
}

#[test]
fn where_nobody_listens_and_where_there_is_no_such_name_is_said() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut client = Client::new(&free.to_string());
    assert!(client.unreachable().contains("refused"));
    assert!(client.get("k", 1).unwrap_err().contains("refused"));
    // A label has 63 characters at most, so no name server is asked.
    assert!(!Client::new(&format!("{}:1", "x".repeat(64))).unreachable().is_empty());
}
