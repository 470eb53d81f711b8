//! Datagrams of the kernel's UDP by sendmmsg and recvmmsg, both ends polled: what `cargo xtask bench-peers` holds softnic against.
//!
//! ```text
//! udp_race count PORT                          counts what the next line sends, tells how much came, and ends
//! udp_race bandwidth ADDR:PORT BYTES SECONDS
//! udp_race echo PORT                           sends back what the next line sends
//! udp_race latency ADDR:PORT BYTES ROUNDS
//! ```
//! A client prints one line of JSON: `gbps`, counted at the receiver, or `us`, the median of half a round trip.
#![allow(clippy::print_stdout)]

use std::error::Error;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, sendmmsg};

/// Datagrams in a system call.
const BATCH: usize = 32;
const LONGEST: usize = 9000;
/// What a datagram is, by its first byte.
const DATA: u8 = 0;
const PING: u8 = 1;
const END: u8 = 2;
/// How long an answer may take before it is asked for again.
const PATIENCE: Duration = Duration::from_millis(50);

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words[..] {
        ["count", port] => count(port.parse()?),
        ["echo", port] => echo(port.parse()?),
        ["bandwidth", to, bytes, seconds] => bandwidth(to, bytes.parse()?, seconds.parse()?),
        ["latency", to, bytes, rounds] => latency(to, bytes.parse()?, rounds.parse()?),
        _ => {
            Err("say: count PORT, bandwidth ADDR:PORT BYTES SECONDS, echo PORT, or latency ADDR:PORT BYTES ROUNDS"
                .into())
        }
    }
}

fn listening(port: u16) -> Result<UdpSocket> {
    let socket = UdpSocket::bind(("::", port))?;
    socket.set_nonblocking(true)?;
    println!("ready");
    Ok(socket)
}

fn echo(port: u16) -> Result<()> {
    let socket = listening(port)?;
    let mut room = [0; LONGEST];
    loop {
        match socket.recv_from(&mut room) {
            Ok((len, from)) if room[0] == PING => drop(socket.send_to(&room[..len], from)?),
            Ok(_) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e.into()),
        }
    }
}

fn count(port: u16) -> Result<()> {
    let socket = listening(port)?;
    let mut room = Box::new([[0u8; LONGEST]; BATCH]);
    let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(BATCH, None);
    let (mut count, mut first, mut last) = (0u64, None, Instant::now());
    loop {
        let mut slices = room.each_mut().map(|buffer| [IoSliceMut::new(buffer)]);
        let got = match recvmmsg(socket.as_raw_fd(), &mut headers, slices.iter_mut(), MsgFlags::MSG_DONTWAIT, None) {
            Ok(results) => results.count(),
            Err(Errno::EAGAIN) => continue,
            Err(e) => return Err(e.into()),
        };
        let data = room[..got].iter().filter(|datagram| datagram[0] == DATA).count() as u64;
        if data > 0 {
            last = Instant::now();
            // What came with the first has no time of its own.
            match first {
                None => first = Some(last),
                Some(_) => count += data,
            }
        }
        if room[..got].iter().any(|datagram| datagram[0] == END) {
            break;
        }
    }
    let nanos = first.map_or(0, |first| (last - first).as_nanos() as u64);
    answer(&socket, &[count.to_be_bytes(), nanos.to_be_bytes()].concat())
}

/// Tells the client, and again as often as it asks.
fn answer(socket: &UdpSocket, result: &[u8]) -> Result<()> {
    let mut buffer = [0; LONGEST];
    let mut quiet = Instant::now();
    // The first question was taken off the socket already; it is asked again.
    while quiet.elapsed() < 10 * PATIENCE {
        if let Ok((_, from)) = socket.recv_from(&mut buffer) {
            quiet = Instant::now();
            if buffer[0] == END {
                socket.send_to(result, from)?;
            }
        }
    }
    Ok(())
}

fn bandwidth(to: &str, bytes: usize, seconds: f64) -> Result<()> {
    let socket = connected(to)?;
    let frame = vec![DATA; bytes];
    let slices = vec![[IoSlice::new(&frame)]; BATCH];
    let mut headers = MultiHeaders::<SockaddrStorage>::preallocate(BATCH, None);
    let nobody = vec![None::<SockaddrStorage>; BATCH];
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    while Instant::now() < end {
        match sendmmsg(socket.as_raw_fd(), &mut headers, &slices, &nobody, [], MsgFlags::MSG_DONTWAIT) {
            Ok(_) | Err(Errno::EAGAIN | Errno::ENOBUFS) => {}
            Err(e) => return Err(e.into()),
        }
    }
    let mut result = [0; 16];
    loop {
        socket.send(&[END])?;
        if waited(&socket, &mut result)? {
            break;
        }
    }
    let number = |at: usize| u64::from_be_bytes(result[at..at + 8].try_into().unwrap_or_default()) as f64;
    println!("{{\"gbps\":{}}}", number(0) * bytes as f64 * 8.0 / number(8));
    Ok(())
}

fn latency(to: &str, bytes: usize, rounds: usize) -> Result<()> {
    let socket = connected(to)?;
    let (ping, mut pong) = (vec![PING; bytes], [0; LONGEST]);
    let mut times = Vec::with_capacity(rounds);
    while times.len() < rounds {
        let start = Instant::now();
        socket.send(&ping)?;
        if waited(&socket, &mut pong)? {
            times.push(start.elapsed() / 2);
        }
    }
    socket.send(&[END])?;
    times.sort_unstable();
    println!("{{\"us\":{}}}", times[rounds / 2].as_nanos() as f64 / 1000.0);
    Ok(())
}

fn connected(to: &str) -> Result<UdpSocket> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(to)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Polls for an answer; whether there was one in time.
fn waited(socket: &UdpSocket, buffer: &mut [u8]) -> Result<bool> {
    let start = Instant::now();
    while start.elapsed() < PATIENCE {
        match socket.recv(buffer) {
            Ok(_) => return Ok(true),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e.into()),
        }
    }
    Ok(false)
}
