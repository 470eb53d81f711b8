//! Ranks that are processes of their own find each other: a TCP connection between any two, lines of JSON, before and after the work.
//!
//! A rank listens at its own address of the list, and connects to the ranks before it. Both ends of a connection say who they are and what
//! they will do, so that ranks that do not agree say so in a line, and do not wait. The connections stay until the end: of a process that
//! dies the others hear at once.

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Where a rank listens that names no port.
pub const DEFAULT_PORT: u16 = 18517;
const VERSION: u32 = 1;
/// An attempt to connect; and between two looks.
const ATTEMPT: Duration = Duration::from_millis(500);
const LOOK: Duration = Duration::from_millis(5);
/// No line of ours is longer.
const LONGEST_LINE: usize = 1 << 16;

/// Where a rank listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// Its address or name.
    pub host: String,
    /// Its TCP port.
    pub port: u16,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Reads addresses of all ranks in their order: `10.0.0.1,10.0.0.2:7000,[fe80::1]:7000`.
///
/// # Errors
/// Which one is none.
pub fn parse_peers(list: &str) -> Result<Vec<Peer>, String> {
    let peer = |text: &str| {
        let wrong = || format!("`{text}` is no address of a rank: write HOST, HOST:PORT or [IPV6]:PORT");
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, port)) => (host, port.strip_prefix(':').or((port.is_empty()).then_some(""))),
            None if text.matches(':').count() > 1 => (text, Some("")),
            None => text.split_once(':').map_or((text, Some("")), |(host, port)| (host, Some(port))),
        };
        let port = match port.ok_or_else(wrong)? {
            "" => DEFAULT_PORT,
            port => port.parse().map_err(|_| wrong())?,
        };
        if host.is_empty() { Err(wrong()) } else { Ok(Peer { host: host.into(), port }) }
    };
    list.split(',').map(|text| peer(text.trim())).collect()
}

/// Who a rank is and what it will do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Intro {
    version: u32,
    rank: usize,
    ranks: usize,
    what: String,
}

/// The queue pairs of a rank for another one: numbers and first PSNs, in an order that both know; and where its NIC is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Ends {
    pub(super) address: IpAddr,
    pub(super) queue_pairs: Vec<[u32; 2]>,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Line {
    Intro(Intro),
    Ends(Ends),
    /// Its queue pairs are connected.
    Ready,
    /// It has done its work.
    Bye,
    Failed {
        reason: String,
    },
}

/// The connection to another rank.
struct Stream {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Stream {
    fn new(stream: TcpStream) -> std::io::Result<Stream> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Stream { stream, buffer: Vec::new() })
    }

    /// Lines are short: a connection that does not take one is none.
    fn send(&mut self, line: &Line) -> Result<(), String> {
        let mut text = serde_json::to_vec(line).map_err(|e| e.to_string())?;
        text.push(b'\n');
        self.stream.write_all(&text).map_err(|e| e.to_string())
    }

    fn poll(&mut self) -> Result<Option<Line>, String> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                let strange = "it speaks another language: is it softnic collective of the same version?";
                return serde_json::from_slice(&line).map(Some).map_err(|_| strange.into());
            }
            let mut bytes = [0; 4096];
            match self.stream.read(&mut bytes) {
                Ok(0) => return Err("it closed the connection".into()),
                Ok(n) if self.buffer.len() + n <= LONGEST_LINE => self.buffer.extend_from_slice(&bytes[..n]),
                Ok(_) => return Err("its line never ends".into()),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.to_string()),
            }
        }
    }
}

/// The connections of a rank to all others.
pub(super) struct Meeting {
    rank: usize,
    streams: Vec<Option<Stream>>,
    /// Who has done its work.
    pub(super) left: Vec<bool>,
}

/// What is asked again and again while somebody waits: whether to go on.
pub(super) type GoOn<'g> = &'g dyn Fn() -> bool;

impl Meeting {
    /// Meets all other ranks. `what` is what this rank will do.
    pub(super) fn gather(
        rank: usize,
        peers: &[Peer],
        what: &str,
        patience: Duration,
        go_on: GoOn<'_>,
    ) -> Result<Meeting, String> {
        let ranks = peers.len();
        let mut meeting = Meeting { rank, streams: (0..ranks).map(|_| None).collect(), left: vec![false; ranks] };
        let own = Intro { version: VERSION, rank, ranks, what: what.into() };
        let gathered = meeting.find_all(peers, &own, patience, go_on);
        if let Err(reason) = &gathered {
            meeting.tell_failure(reason);
        }
        gathered.map(|()| meeting)
    }

    fn find_all(&mut self, peers: &[Peer], own: &Intro, patience: Duration, go_on: GoOn<'_>) -> Result<(), String> {
        let until = Instant::now() + patience;
        let port = peers[self.rank].port;
        let any = TcpListener::bind(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
        let listener = any.or_else(|_| TcpListener::bind(SocketAddr::from(([0, 0, 0, 0], port))));
        let listener = listener.map_err(|e| format!("rank {} cannot listen at TCP port {port}: {e}", self.rank))?;
        listener.set_nonblocking(true).map_err(|e| e.to_string())?;
        // Those that we connected to and that have not answered; and those that came and have not said who they are.
        let mut asked: Vec<Option<Stream>> = (0..self.rank).map(|_| None).collect();
        let mut came: Vec<Stream> = Vec::new();
        loop {
            for (rank, peer) in peers.iter().enumerate().take(self.rank) {
                if self.streams[rank].is_some() {
                    continue;
                }
                if asked[rank].is_none() {
                    asked[rank] = dial(peer);
                    if let Some(stream) = &mut asked[rank] {
                        let _ = stream.send(&Line::Intro(own.clone()));
                    }
                }
                let Some(stream) = &mut asked[rank] else { continue };
                match stream.poll() {
                    Ok(None) => {}
                    Ok(Some(Line::Intro(theirs))) => {
                        if theirs.rank != rank {
                            let list = "do all ranks have the same --peers?";
                            return Err(format!(
                                "rank {} is at {peer}, where rank {rank} should be: {list}",
                                theirs.rank
                            ));
                        }
                        agree(own, &theirs)?;
                        self.streams[rank] = asked[rank].take();
                    }
                    Ok(Some(Line::Failed { reason })) => return Err(said(rank, &reason)),
                    Ok(Some(_)) => return Err(format!("rank {rank} said something out of turn")),
                    // It may come again, as one that was started too soon.
                    Err(_) => asked[rank] = None,
                }
            }
            while let Ok((stream, _)) = listener.accept() {
                came.extend(Stream::new(stream));
            }
            for mut stream in std::mem::take(&mut came) {
                match stream.poll() {
                    Ok(None) => came.push(stream),
                    Ok(Some(Line::Intro(theirs))) => {
                        // It says so as well, and in the same words.
                        let _ = stream.send(&Line::Intro(own.clone()));
                        agree(own, &theirs)?;
                        let free =
                            theirs.rank > self.rank && self.streams.get(theirs.rank).is_some_and(Option::is_none);
                        if !free {
                            let reason =
                                format!("rank {} is there already, or is no rank of {}", theirs.rank, own.ranks);
                            let _ = stream.send(&Line::Failed { reason });
                            continue;
                        }
                        self.streams[theirs.rank] = Some(stream);
                    }
                    // Whoever that was.
                    Ok(Some(_)) | Err(_) => {}
                }
            }
            let missing: Vec<String> = (0..own.ranks)
                .filter(|rank| *rank != self.rank && self.streams[*rank].is_none())
                .map(|rank| format!("rank {rank} ({})", peers[rank]))
                .collect();
            if missing.is_empty() {
                return Ok(());
            }
            if !go_on() {
                return Err(format!("rank {} was interrupted", self.rank));
            }
            if Instant::now() >= until {
                return Err(format!("{} did not come within {patience:?}", missing.join(", ")));
            }
            std::thread::sleep(LOOK);
        }
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let own = self.rank;
        (0..self.streams.len()).filter(move |rank| *rank != own)
    }

    /// Says something to a rank.
    pub(super) fn send(&mut self, rank: usize, line: &Line) -> Result<(), String> {
        let Some(stream) = &mut self.streams[rank] else { return Ok(()) };
        stream.send(line).map_err(|why| format!("rank {rank} is gone: {why}"))
    }

    /// What a rank says, if it says something.
    fn poll(&mut self, rank: usize) -> Result<Option<Line>, String> {
        let Some(stream) = &mut self.streams[rank] else { return Ok(None) };
        match stream.poll() {
            Ok(Some(Line::Failed { reason })) => Err(said(rank, &reason)),
            Ok(line) => Ok(line),
            // Who has done its work may go.
            Err(_) if self.left[rank] => Ok(None),
            Err(why) => Err(format!("rank {rank} is gone: {why}")),
        }
    }

    /// Waits for a line of each other rank.
    pub(super) fn hear_all(&mut self, patience: Duration, go_on: GoOn<'_>) -> Result<Vec<Option<Line>>, String> {
        let until = Instant::now() + patience;
        let mut heard: Vec<Option<Line>> = vec![None; self.streams.len()];
        loop {
            let mut missing = Vec::new();
            for rank in self.others() {
                if heard[rank].is_none() {
                    heard[rank] = self.poll(rank)?;
                }
                if heard[rank].is_none() {
                    missing.push(rank.to_string());
                }
            }
            if missing.is_empty() {
                return Ok(heard);
            }
            if !go_on() {
                return Err(format!("rank {} was interrupted", self.rank));
            }
            if Instant::now() >= until {
                return Err(format!("rank {} said nothing for {patience:?}", missing.join(", ")));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// While the work goes on: whether all others are still there.
    pub(super) fn check(&mut self) -> Result<(), String> {
        for rank in self.others() {
            match self.poll(rank)? {
                Some(Line::Bye) => self.left[rank] = true,
                Some(_) => return Err(format!("rank {rank} said something out of turn")),
                None => {}
            }
        }
        Ok(())
    }

    /// This rank has done its work, and waits until all others have: they may still need its answers.
    pub(super) fn part(&mut self, patience: Duration, go_on: GoOn<'_>) -> Result<(), String> {
        for rank in self.others() {
            self.send(rank, &Line::Bye)?;
        }
        let until = Instant::now() + patience;
        while self.others().any(|rank| !self.left[rank]) && go_on() {
            self.check()?;
            if Instant::now() >= until {
                let late: Vec<String> =
                    self.others().filter(|rank| !self.left[*rank]).map(|rank| rank.to_string()).collect();
                return Err(format!("rank {} does not come to its end", late.join(", ")));
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        Ok(())
    }

    /// Tells all others why there will be no more.
    pub(super) fn tell_failure(&mut self, reason: &str) {
        for rank in self.others() {
            let _ = self.send(rank, &Line::Failed { reason: reason.into() });
        }
    }
}

/// What a rank says of a failure: its own, or one that it names.
fn said(rank: usize, reason: &str) -> String {
    if reason.starts_with("rank") { reason.into() } else { format!("rank {rank} says: {reason}") }
}

fn dial(peer: &Peer) -> Option<Stream> {
    let addresses = (peer.host.as_str(), peer.port).to_socket_addrs().ok()?;
    let mut streams = addresses.filter_map(|address| TcpStream::connect_timeout(&address, ATTEMPT).ok());
    Stream::new(streams.next()?).ok()
}

fn agree(ours: &Intro, theirs: &Intro) -> Result<(), String> {
    let (a, b) = (ours, theirs);
    if a.version != b.version {
        return Err(format!("rank {} is of another version of softnic than rank {}", b.rank, a.rank));
    }
    if a.ranks != b.ranks || a.what != b.what {
        return Err(format!(
            "rank {} calls {} in a group of {}, rank {} {} in one of {}",
            b.rank, b.what, b.ranks, a.rank, a.what, a.ranks
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_ranks_have_ports_or_the_usual_one() {
        let peers = parse_peers("10.0.0.1,node-2:7000, [fe80::1]:7001,fe80::2,[fe80::3]").unwrap();
        let all: Vec<(&str, u16)> = peers.iter().map(|peer| (peer.host.as_str(), peer.port)).collect();
        let usual = DEFAULT_PORT;
        assert_eq!(
            all,
            [("10.0.0.1", usual), ("node-2", 7000), ("fe80::1", 7001), ("fe80::2", usual), ("fe80::3", usual)]
        );
        assert_eq!(peers[2].to_string(), "[fe80::1]:7001");
        for wrong in ["", "10.0.0.1,", ":7000", "a:b", "[fe80::1]7", "a:70000"] {
            assert!(parse_peers(wrong).is_err(), "{wrong}");
        }
    }

    /// Where nobody is waited for in vain.
    const AMPLE: Duration = Duration::from_secs(60);

    /// Ports that nobody has.
    fn ports() -> [u16; 3] {
        let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        listeners.map(|listener| listener.local_addr().unwrap().port())
    }

    /// Ranks of a list, each in a thread; what each of them came to.
    fn meet(ports: [u16; 3], patience: Duration, ranks: &[(usize, usize, &str)]) -> Vec<Result<(), String>> {
        std::thread::scope(|scope| {
            let threads: Vec<_> = ranks
                .iter()
                .map(|&(rank, of, what)| {
                    scope.spawn(move || {
                        let peer = |rank| Peer { host: "127.0.0.1".into(), port: ports[rank] };
                        let peers: Vec<Peer> = (0..of).map(peer).collect();
                        let mut meeting = Meeting::gather(rank, &peers, what, patience, &|| true)?;
                        meeting.part(patience, &|| true)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn ranks_meet_and_part() {
        let all = meet(ports(), AMPLE, &[(2, 3, "x"), (0, 3, "x"), (1, 3, "x")]);
        assert_eq!(all, vec![Ok(()); 3]);
    }

    #[test]
    fn a_rank_that_never_comes_and_ranks_that_disagree_are_named_at_both_ends() {
        let at = ports();
        let all = meet(at, Duration::from_secs(2), &[(0, 3, "x"), (2, 3, "x")]);
        for error in all.into_iter().map(Result::unwrap_err) {
            // Of the two that come the one may be late for the other.
            assert!(error.contains(&format!("rank 1 (127.0.0.1:{})", at[1])), "{error}");
            assert!(error.contains(" did not come within 2s"), "{error}");
        }
        let all = meet(ports(), AMPLE, &[(0, 2, "x of 4 bytes"), (1, 2, "x of 8 bytes")]);
        for error in all.into_iter().map(Result::unwrap_err) {
            assert!(
                error.contains("calls x of 8 bytes in a group of 2") || error.contains("x of 8 bytes in one of 2"),
                "{error}"
            );
            assert!(error.contains("rank 0") && error.contains("rank 1") && error.contains("x of 4 bytes"), "{error}");
        }
        let all = meet(ports(), AMPLE, &[(0, 2, "x"), (1, 3, "x")]);
        assert!(
            all[0].as_ref().is_err_and(|e| e.contains("rank 1 calls x in a group of 3, rank 0 x in one of 2")),
            "{all:?}"
        );
    }
}
