//! An HTTP/1.1 server of one page, `GET /metrics`: one thread, one request a connection, bounded in size and time.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::time::{Duration, Instant};

use softnic_perf::say;
use softnic_runtime::api::spawn_own;

use super::Page;

/// No request of a scraper is longer.
const LONGEST: usize = 8 << 10;
/// How long a client may take for its request, and for reading the answer.
const PATIENCE: Duration = Duration::from_secs(2);
/// After a client that could not be taken, as where no descriptor is left.
const PAUSE: Duration = Duration::from_millis(200);

/// Where metrics are to be had: a port of the loopback interface, or an address and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndpointAddress(Vec<SocketAddr>);

impl FromStr for EndpointAddress {
    type Err = String;

    fn from_str(s: &str) -> Result<EndpointAddress, String> {
        if let Ok(port) = s.parse::<u16>() {
            return Ok(EndpointAddress(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))]));
        }
        let wrong = |why: &str| format!("'{s}' {why}: write 9400 (on this machine alone), 0.0.0.0:9400 or [::]:9400");
        if !s.contains(':') || s.starts_with(':') {
            return Err(wrong("is no port and no ADDRESS:PORT"));
        }
        let all: Vec<SocketAddr> = s.to_socket_addrs().map_err(|e| wrong(&format!("has no address ({e})")))?.collect();
        match all.is_empty() {
            true => Err(wrong("has no address")),
            false => Ok(EndpointAddress(all)),
        }
    }
}

impl fmt::Display for EndpointAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One at least is there.
        self.0.first().map_or(Ok(()), |first| write!(f, "{first}"))
    }
}

/// An address that is ours, and that nobody is answered at yet.
#[derive(Debug)]
pub(crate) struct Endpoint(TcpListener);

impl Endpoint {
    /// Takes an address, before anything else starts.
    pub(crate) fn bind(address: &EndpointAddress) -> Result<Endpoint, String> {
        let listener = TcpListener::bind(&address.0[..]).map_err(|e| match e.kind() {
            ErrorKind::AddrInUse => format!("--metrics: another process listens at {address}"),
            ErrorKind::AddrNotAvailable => format!("--metrics: {address} is no address of this machine"),
            ErrorKind::PermissionDenied => format!("--metrics: ports below 1024 take root: {address}"),
            _ => format!("--metrics: cannot listen at {address}: {e}"),
        })?;
        Ok(Endpoint(listener))
    }

    /// Answers from now on until the process ends, each time with a new page, and says where.
    pub(crate) fn serve(self, page: impl Fn() -> Page + Send + 'static) -> Result<(), String> {
        let failed = |e: io::Error| format!("--metrics: {e}");
        say!("softnic: metrics at http://{}/metrics", self.0.local_addr().map_err(failed)?);
        let body = move || loop {
            match self.0.accept() {
                // A client that goes away, or is slow, concerns nobody else.
                Ok((stream, _)) => drop(answer(&stream, &page)),
                Err(_) => std::thread::sleep(PAUSE),
            }
        };
        spawn_own("softnic-metrics", body).map(drop).map_err(failed)
    }
}

fn answer(mut stream: &TcpStream, page: &impl Fn() -> Page) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let (status, body) = match read_request(stream)? {
        Request::Metrics => ("200 OK", page().text()),
        Request::Other => ("404 Not Found", "metrics are at /metrics\n".into()),
        Request::Method => ("405 Method Not Allowed", "only GET\n".into()),
        Request::Malformed => ("400 Bad Request", "not HTTP/1.1\n".into()),
        Request::TooLong => ("431 Request Header Fields Too Large", "at most 8 KiB\n".into()),
    };
    let allow = if status.starts_with("405") { "Allow: GET\r\n" } else { "" };
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n{allow}Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[derive(Debug, PartialEq, Eq)]
enum Request {
    Metrics,
    Other,
    Method,
    Malformed,
    TooLong,
}

fn read_request(mut stream: &TcpStream) -> io::Result<Request> {
    let (end, mut bytes, mut room) = (Instant::now() + PATIENCE, Vec::new(), [0; 1024]);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut room) {
            Ok(0) => return Ok(Request::Malformed),
            Ok(n) => bytes.extend_from_slice(&room[..n]),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
        if bytes.windows(4).any(|four| four == b"\r\n\r\n") {
            return Ok(request(&bytes));
        }
        if bytes.len() > LONGEST {
            return Ok(Request::TooLong);
        }
    }
}

/// What the first line asks for.
fn request(bytes: &[u8]) -> Request {
    let line = bytes.split(|&b| b == b'\r').next().and_then(|line| std::str::from_utf8(line).ok()).unwrap_or("");
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["GET", target, version] if version.starts_with("HTTP/1.") => {
            let path = target.split('?').next().unwrap_or("");
            if path == "/metrics" { Request::Metrics } else { Request::Other }
        }
        [method, _, version] if version.starts_with("HTTP/1.") && method.bytes().all(|b| b.is_ascii_uppercase()) => {
            Request::Method
        }
        _ => Request::Malformed,
    }
}

#[cfg(test)]
mod tests {
    use super::super::exposition::Kind;
    use super::*;

    fn endpoint() -> (Endpoint, SocketAddr) {
        let endpoint = Endpoint::bind(&"0".parse().unwrap()).unwrap();
        let address = endpoint.0.local_addr().unwrap();
        (endpoint, address)
    }

    fn ask(address: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(request).unwrap();
        let mut answer = String::new();
        // The server may close while a request that is too long is still on its way.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn an_address_is_a_port_of_loopback_or_says_more() {
        let text = |s: &str| s.parse::<EndpointAddress>().map(|a| a.to_string());
        assert_eq!(text("9400").unwrap(), "127.0.0.1:9400");
        assert_eq!(text("0.0.0.0:9400").unwrap(), "0.0.0.0:9400");
        assert_eq!(text("[::1]:80").unwrap(), "[::1]:80");
        for wrong in ["", "x", ":9400", "65536", "10.0.0.1", "10.0.0.1:x", "10.0.0.1:65536"] {
            assert!(text(wrong).unwrap_err().contains("9400"), "{wrong}");
        }
    }

    #[test]
    fn a_taken_address_is_an_error() {
        let (_taken, address) = endpoint();
        let error = Endpoint::bind(&address.to_string().parse().unwrap()).unwrap_err();
        assert!(error.contains("another process listens at 127.0.0.1:"), "{error}");
        let error = Endpoint::bind(&"192.0.2.1:9400".parse().unwrap()).unwrap_err();
        assert!(error.contains("192.0.2.1:9400 is no address of this machine"), "{error}");
    }

    #[test]
    fn only_metrics_are_served_and_a_bad_client_spoils_nothing() {
        let (endpoint, address) = endpoint();
        let page = || {
            let mut page = Page::default();
            page.add("answer", Kind::Gauge, "of all questions", &[], 42);
            page
        };
        endpoint.serve(page).unwrap();
        let get = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
        // One that says nothing is in front of the others, and is given up.
        let _silent = TcpStream::connect(address).unwrap();
        for (request, status) in [
            (&get[..], "200 OK"),
            (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200 OK"),
            (b"GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            (b"\x16\x03\x01\r\n\r\n", "400 Bad Request"),
            (&[b'x'; 20_000], "431 "),
        ] {
            let answer = ask(address, request);
            // The rest of a request that was not read resets the connection, and may take the answer along.
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status}")) || answer.is_empty() && status == "431 ",
                "{answer}"
            );
        }
        let answer = ask(address, get);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("version=0.0.4") && head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        assert_eq!(body, "# HELP answer of all questions\n# TYPE answer gauge\nanswer 42\n");
    }
}
