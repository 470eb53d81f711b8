//! A connection to a redis server. Commands are sent in batches. All answers must arrive within limits of time and size; otherwise the
//! connection is dropped.
//!
//! The crate `redis` encodes the commands and parses the answers. Its own connection type is not used: it limits the time of each read, but
//! neither the time nor the length of a whole answer.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::{Cmd, ErrorKind, Parser, RedisError, Value, cmd};
use softnic_fault_injector::text::on_one_line;

use crate::failover::kv::RedisUrl;
use crate::forked::Kept;

/// Timeout for a connection attempt to one address, and for all answers to one batch.
pub(super) const TIMEOUT: Duration = Duration::from_secs(1);
/// The largest number of commands in a batch.
pub(super) const BATCH: usize = 64;
/// The longest value that softnic writes.
pub(super) const MAX_VALUE: usize = 4096;
/// Size limit for the answers to a batch: values, and the protocol lines around them.
const MAX_ANSWERS: usize = BATCH * (MAX_VALUE + 64);
/// Number of addresses of a name that are tried.
const MAX_ADDRESSES: usize = 4;
/// Number of characters of a server's error that are shown.
const MAX_TEXT: usize = 200;

/// A socket that another thread may shut down.
pub(super) type Socket = Arc<Kept<TcpStream>>;

pub(super) struct Connection {
    socket: Socket,
    parser: Parser,
}

impl Connection {
    /// Connects and logs in. The error is one line. `publish` receives the socket before any wait on it.
    pub(super) fn open(url: &RedisUrl, publish: impl FnOnce(Socket)) -> Result<Connection, String> {
        let addresses = (url.host.as_str(), url.port).to_socket_addrs().map_err(|e| e.to_string())?;
        let mut why = "the name has no address".to_owned();
        let stream = addresses
            .take(MAX_ADDRESSES)
            .find_map(|address| TcpStream::connect_timeout(&address, TIMEOUT).map_err(|e| why = io_reason(&e)).ok());
        let Some(stream) = stream else { return Err(why) };
        stream.set_nodelay(true).map_err(|e| e.to_string())?;
        let socket = Arc::new(Kept::new(stream));
        publish(Arc::clone(&socket));
        let mut connection = Connection { socket, parser: Parser::new() };
        connection.log_in(url)?;
        Ok(connection)
    }

    fn log_in(&mut self, url: &RedisUrl) -> Result<(), String> {
        let mut commands = Vec::new();
        if let Some((user, password)) = &url.login {
            let mut auth = cmd("AUTH");
            if !user.is_empty() {
                auth.arg(user);
            }
            commands.push(auth.arg(password).to_owned());
        }
        if url.db != 0 {
            commands.push(cmd("SELECT").arg(url.db).to_owned());
        }
        // A server that requires a password reports that at once, and not at the first entry.
        commands.push(cmd("PING"));
        let answers = self.exchange(&commands, TIMEOUT)?;
        let (ping, before) = answers.split_last().ok_or("no answer")?;
        for answer in before {
            match answer {
                Value::Okay => {}
                other => return Err(refusal(other)),
            }
        }
        match ping {
            Value::SimpleString(pong) if pong == "PONG" => Ok(()),
            // The user may be allowed the commands that softnic needs, but not PING.
            Value::ServerError(e) if e.code() == "NOPERM" => Ok(()),
            other => Err(refusal(other)),
        }
    }

    /// Sends at most [`BATCH`] commands and waits for the answer to each. After an error, which is one line, the
    /// connection is unusable.
    pub(super) fn exchange(&mut self, commands: &[Cmd], within: Duration) -> Result<Vec<Value>, String> {
        let mut bounded = Bounded { stream: &self.socket, deadline: Instant::now() + within, left: MAX_ANSWERS };
        let mut bytes = Vec::new();
        commands.iter().for_each(|c| c.write_packed_command(&mut bytes));
        bounded.write_all(&bytes).map_err(|e| io_reason(&e))?;
        commands.iter().map(|_| self.parser.parse_value(&mut bounded).map_err(|e| reason(&e))).collect()
    }
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The text, in one line, for an answer other than the expected one.
pub(super) fn refusal(value: &Value) -> String {
    let Value::ServerError(e) = value else { return "its answer is not one to the command".into() };
    let text = [e.code(), e.details().unwrap_or_default()].join(" ");
    on_one_line(&text.chars().take(MAX_TEXT).collect::<String>()).trim_end().to_owned()
}

fn reason(e: &RedisError) -> String {
    match e.kind() {
        _ if e.is_timeout() => no_answer(),
        _ if e.is_connection_dropped() => closed(),
        ErrorKind::IoError => on_one_line(&e.to_string()),
        _ => "its answer is not one of a redis server".into(),
    }
}

fn io_reason(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => no_answer(),
        io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof => closed(),
        _ => e.to_string(),
    }
}

fn no_answer() -> String {
    format!("no answer within {} s", TIMEOUT.as_secs())
}

pub(super) fn closed() -> String {
    "it closed the connection".into()
}

/// A socket with a deadline and a limit on the number of bytes read.
struct Bounded<'a> {
    stream: &'a TcpStream,
    deadline: Instant,
    left: usize,
}

impl Bounded<'_> {
    fn time_left(&self) -> io::Result<Option<Duration>> {
        match self.deadline.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(Some(left)),
        }
    }
}

impl Read for Bounded<'_> {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            return Err(io::Error::other("its answer is too long"));
        }
        self.stream.set_read_timeout(self.time_left()?)?;
        let most = room.len().min(self.left);
        let mut stream = self.stream;
        let n = stream.read(&mut room[..most])?;
        self.left -= n;
        Ok(n)
    }
}

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.time_left()?)?;
        let mut stream = self.stream;
        stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
