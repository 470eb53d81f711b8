//! `--control ADDR`: lines of JSON that add, remove and list groups of a switch that runs, each answered by a line.
//!
//! Each client has a thread of its own: one that is slow waits for itself. The switch's thread is asked by short messages.

use std::fmt;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};
use softnic_perf::say;
use softnic_runtime::api::spawn_own;
use softnic_runtime::switch::Handle;

use super::group::{GroupText, Number, Word};
use super::report;

/// Bytes of a line: a group of some thousand ranges.
const LONGEST: u64 = 4 << 20;
/// Clients at a time.
const MAX_CLIENTS: usize = 16;
/// How long a client may take to read a whole answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of an answer that are written at once: a UNIX socket waits anew for each buffer of a longer write.
const PIECE: usize = 16 << 10;
/// After a client that could not be taken, as where no descriptor is left.
const PAUSE: Duration = Duration::from_millis(200);

/// Where a switch is told of groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ControlAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for ControlAddress {
    type Err = String;

    fn from_str(s: &str) -> Result<ControlAddress, String> {
        let wrong = |why: &str| format!("'{s}' {why}: write 9500, 127.0.0.1:9500, [::1]:9500 or unix:/run/switch.sock");
        if let Some(path) = s.strip_prefix("unix:") {
            return match path.is_empty() {
                true => Err(wrong("has no path")),
                false => Ok(ControlAddress::Unix(path.into())),
            };
        }
        if let Ok(port) = s.parse::<u16>() {
            return Ok(ControlAddress::Tcp(SocketAddr::from((Ipv4Addr::LOCALHOST, port))));
        }
        match s.parse::<SocketAddr>() {
            // Whoever reaches it can have packets copied to anybody.
            Ok(address) if !address.ip().is_loopback() => Err(wrong("is not of this machine alone")),
            Ok(address) => Ok(ControlAddress::Tcp(address)),
            Err(_) => Err(wrong("is no address")),
        }
    }
}

impl fmt::Display for ControlAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ControlAddress::Tcp(address) => write!(f, "{address}"),
            ControlAddress::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[derive(Debug)]
enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// An address that is ours; a path is removed with the value.
#[derive(Debug)]
pub(super) struct Control {
    listener: Arc<Listener>,
    path: Option<PathBuf>,
}

impl Drop for Control {
    fn drop(&mut self) {
        if let Some(path) = self.path.as_ref().filter(|path| is_socket(path)) {
            // Somebody may have removed it.
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Control {
    /// Takes an address, before anything else starts.
    pub(super) fn bind(address: &ControlAddress) -> Result<Control, String> {
        let failed = |e: io::Error| match e.kind() {
            ErrorKind::AddrInUse => format!("--control: another process listens at {address}"),
            ErrorKind::AlreadyExists => format!("--control: {address} is a file already, and no socket"),
            ErrorKind::AddrNotAvailable => format!("--control: {address} is no address of this machine"),
            ErrorKind::PermissionDenied => format!("--control: not permitted to listen at {address}"),
            _ => format!("--control: cannot listen at {address}: {e}"),
        };
        let (listener, path) = match address {
            ControlAddress::Tcp(address) => (Listener::Tcp(TcpListener::bind(address).map_err(failed)?), None),
            ControlAddress::Unix(path) => {
                let listener = bind_path(path).map_err(failed)?;
                (Listener::Unix(listener), Some(path.clone()))
            }
        };
        Ok(Control { listener: Arc::new(listener), path })
    }

    /// Answers from now on until the process ends, and says where.
    pub(super) fn serve(&self, switch: &Handle) -> Result<(), String> {
        let failed = |e: io::Error| format!("--control: {e}");
        let address = match (&*self.listener, &self.path) {
            (Listener::Tcp(listener), _) => ControlAddress::Tcp(listener.local_addr().map_err(failed)?),
            (Listener::Unix(_), path) => ControlAddress::Unix(path.clone().unwrap_or_default()),
        };
        say!("softnic: control at {address}");
        let (listener, switch, seats) = (Arc::clone(&self.listener), switch.clone(), Arc::new(Seats::default()));
        let body = move || loop {
            let taken = match &*listener {
                Listener::Tcp(listener) => listener.accept().map(|(stream, _)| Client::Tcp(stream)),
                Listener::Unix(listener) => listener.accept().map(|(stream, _)| Client::Unix(stream)),
            };
            match taken {
                Ok(client) => begin(client, &switch, &seats),
                Err(_) => std::thread::sleep(PAUSE),
            }
        };
        spawn_own("softnic-control", body).map(drop).map_err(failed)
    }
}

/// Whether a path is a socket itself: nothing else is ever removed.
fn is_socket(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket())
}

/// A path of its owner's alone. A socket that a process left behind is taken over.
fn bind_path(path: &Path) -> io::Result<UnixListener> {
    let bound = UnixListener::bind(path);
    let listener = match bound {
        // A file of any kind is in the way of a socket, and no file but a socket takes connections.
        Err(e) if e.kind() == ErrorKind::AddrInUse && !is_socket(path) => return Err(ErrorKind::AlreadyExists.into()),
        Err(e) if e.kind() == ErrorKind::AddrInUse => {
            let left = UnixStream::connect(path).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused);
            if !left {
                return Err(e);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        bound => bound?,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

#[derive(Debug)]
enum Client {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Client {
    fn set_write_timeout(&self, time: Duration) -> io::Result<()> {
        match self {
            Client::Tcp(stream) => stream.set_write_timeout(Some(time)),
            Client::Unix(stream) => stream.set_write_timeout(Some(time)),
        }
    }

    /// Ends the connection: its thread reads the end, or fails to write.
    fn put_out(&self) {
        // It may be gone.
        let _ = match self {
            Client::Tcp(stream) => stream.shutdown(Shutdown::Both),
            Client::Unix(stream) => stream.shutdown(Shutdown::Both),
        };
    }
}

/// Clients, the one that has been idle longest first.
#[derive(Debug, Default)]
struct Seats(Mutex<Vec<Arc<Client>>>);

impl Seats {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Client>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seats a client. Where no seat is left the client that has been idle longest is put out: clients that are
    /// forgotten must not lock out one that has something to say.
    fn take(&self, client: Client) -> Arc<Client> {
        let client = Arc::new(client);
        let mut seats = self.lock();
        if seats.len() >= MAX_CLIENTS {
            seats.remove(0).put_out();
        }
        seats.push(Arc::clone(&client));
        client
    }

    /// A line came from a client. One that was put out stays out.
    fn heard(&self, client: &Arc<Client>) {
        let mut seats = self.lock();
        if let Some(seat) = seats.iter().position(|seated| Arc::ptr_eq(seated, client)) {
            seats[seat..].rotate_left(1);
        }
    }

    fn leave(&self, client: &Arc<Client>) {
        self.lock().retain(|seated| !Arc::ptr_eq(seated, client));
    }
}

impl Read for &Client {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        match self {
            Client::Tcp(stream) => (&mut &*stream).read(room),
            Client::Unix(stream) => (&mut &*stream).read(room),
        }
    }
}

impl Write for &Client {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Client::Tcp(stream) => (&mut &*stream).write(bytes),
            Client::Unix(stream) => (&mut &*stream).write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Gives a client a seat and a thread.
fn begin(client: Client, switch: &Handle, seats: &Arc<Seats>) {
    let client = seats.take(client);
    let (switch, seated, taken) = (switch.clone(), Arc::clone(seats), Arc::clone(&client));
    let body = move || {
        // A client that goes away, or is slow, concerns nobody else.
        let _ = talk(&taken, &switch, &seated);
        seated.leave(&taken);
    };
    if spawn_own("softnic-client", body).is_err() {
        seats.leave(&client);
    }
}

fn talk(client: &Arc<Client>, switch: &Handle, seats: &Seats) -> io::Result<()> {
    let mut reader = BufReader::new(&**client);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut reader).take(LONGEST + 1).read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(());
        }
        seats.heard(client);
        if read as u64 > LONGEST {
            // Where the next one begins is not known.
            return tell(client, &refusal(&format!("a line has at most {LONGEST} bytes")));
        }
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let answer = match std::str::from_utf8(&line) {
            Ok(line) => answer(line, switch).unwrap_or_else(|why| refusal(&why)),
            Err(_) => refusal("not UTF-8"),
        };
        tell(client, &answer)?;
    }
}

fn tell(client: &Client, answer: &Value) -> io::Result<()> {
    write_within(client, format!("{answer}\n").as_bytes(), PATIENCE)
}

/// Writes all of it within a time, however many writes it takes.
fn write_within(mut client: &Client, mut bytes: &[u8], time: Duration) -> io::Result<()> {
    let begin = Instant::now();
    while !bytes.is_empty() {
        let left = time.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()).ok_or(ErrorKind::TimedOut)?;
        client.set_write_timeout(left)?;
        match client.write(&bytes[..bytes.len().min(PIECE)]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn refusal(why: &str) -> Value {
    json!({ "error": why })
}

/// What a client asks for.
#[derive(Debug, Deserialize)]
#[serde(tag = "command", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Request {
    Add { group: GroupText },
    Remove { sender: Word<IpAddr>, mc_id: Number<24> },
    List {},
    Status {},
}

pub(super) fn request(line: &str) -> Result<Request, String> {
    serde_json::from_str(line).map_err(|e| e.to_string())
}

fn answer(line: &str, switch: &Handle) -> Result<Value, String> {
    match request(line)? {
        Request::Add { group } => {
            switch.add_group(group.spec()?).map_err(|e| e.to_string())?;
            Ok(json!({ "ok": true }))
        }
        Request::Remove { sender, mc_id } => {
            switch.remove_group(sender.0, mc_id.qpn()).map_err(|e| e.to_string())?;
            Ok(json!({ "ok": true }))
        }
        Request::List {} => {
            let groups = switch.groups().map_err(|e| e.to_string())?;
            Ok(json!({ "ok": true, "groups": groups.iter().map(report::group).collect::<Vec<_>>() }))
        }
        Request::Status {} => {
            let mut status = report::status(&switch.report());
            if let Some(status) = status.as_object_mut() {
                status.insert("ok".into(), true.into());
            }
            Ok(status)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_of_this_machine_alone() {
        let text = |s: &str| s.parse::<ControlAddress>().map(|a| a.to_string());
        assert_eq!(text("9500").unwrap(), "127.0.0.1:9500");
        assert_eq!(text("[::1]:9500").unwrap(), "[::1]:9500");
        assert_eq!(text("unix:/x/y").unwrap(), "unix:/x/y");
        for wrong in ["", "x", "unix:", "0.0.0.0:9500", "10.0.0.1:9500", "65536", "127.0.0.1"] {
            assert!(text(wrong).unwrap_err().contains("127.0.0.1:9500"), "{wrong}");
        }
    }

    #[test]
    fn what_is_no_request_is_refused_in_a_line() {
        for (line, words) in [
            ("{}", "command"),
            ("list", "expected"),
            (r#"{"command":"dance"}"#, "unknown variant `dance`"),
            (r#"{"command":"list","colour":1}"#, "colour"),
            (r#"{"command":"add"}"#, "group"),
            (r#"{"command":"remove","sender":"10.0.0.1"}"#, "mc_id"),
            (r#"{"command":"remove","sender":"10.0.0.1","mc_id":1,"colour":1}"#, "colour"),
        ] {
            let said = request(line).unwrap_err();
            assert!(said.contains(words) && !said.contains('\n'), "{line}: {said}");
        }
        assert!(request(r#"{"command":"status"}"#).is_ok());
    }

    #[test]
    fn a_path_that_a_process_left_behind_is_taken_over_and_one_in_use_is_not() {
        let path = std::env::temp_dir().join(format!("softnic-control-{}", std::process::id()));
        let address = ControlAddress::Unix(path.clone());
        let first = Control::bind(&address).unwrap();
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(Control::bind(&address).unwrap_err().contains("another process listens at unix:"));
        drop(first);
        assert!(!path.exists());
        drop(UnixListener::bind(&path).unwrap());
        drop(Control::bind(&address).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_is_no_socket_is_named_and_stays() {
        let path = std::env::temp_dir().join(format!("softnic-control-file-{}", std::process::id()));
        std::fs::write(&path, "precious").unwrap();
        let said = Control::bind(&ControlAddress::Unix(path.clone())).unwrap_err();
        assert_eq!(said, format!("--control: unix:{} is a file already, and no socket", path.display()));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "precious");
        std::fs::remove_file(path).unwrap();
    }

    fn pair() -> (Client, UnixStream) {
        let (here, there) = UnixStream::pair().unwrap();
        there.set_nonblocking(true).unwrap();
        (Client::Unix(here), there)
    }

    #[test]
    fn one_client_more_than_there_may_be_puts_out_the_one_that_has_been_idle_longest() {
        let seats = Seats::default();
        let (seated, mut peers): (Vec<Arc<Client>>, Vec<UnixStream>) =
            (0..MAX_CLIENTS).map(|_| pair()).map(|(client, peer)| (seats.take(client), peer)).unzip();
        seats.heard(&seated[0]);
        let mut is_out = |n: usize| matches!(peers[n].read(&mut [0]), Ok(0));
        assert!(!(0..MAX_CLIENTS).any(&mut is_out));
        let (more, _peer) = pair();
        let more = seats.take(more);
        assert_eq!((0..MAX_CLIENTS).filter(|n| is_out(*n)).collect::<Vec<_>>(), [1]);
        // What was on its way from it gives it no seat again.
        seats.heard(&seated[1]);
        assert_eq!(seats.lock().len(), MAX_CLIENTS);
        // A seat that is free is taken first.
        seats.leave(&more);
        let (another, _peer) = pair();
        seats.take(another);
        assert_eq!((0..MAX_CLIENTS).filter(|n| is_out(*n)).collect::<Vec<_>>(), [1]);
    }

    #[test]
    fn a_client_that_reads_little_by_little_does_not_have_an_answer_written_for_ever() {
        let (client, mut peer) = pair();
        let bytes = vec![b'x'; 64 << 20];
        let reader = std::thread::spawn(move || {
            peer.set_nonblocking(false).unwrap();
            // At this pace all of it takes 20 seconds, and no single write waits long.
            let mut room = vec![0; PIECE];
            while peer.read(&mut room).unwrap() > 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let written = write_within(&client, &bytes, Duration::from_millis(400));
        assert!(matches!(written.unwrap_err().kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock));
        client.put_out();
        reader.join().unwrap();
    }
}
