//! Two ends send each other a small message, back and forth.
//!
//! ```text
//! cargo run --release --example ping_pong                                          both ends here, a wire in memory
//! cargo run --release --example ping_pong -- --dev afxdp:eth0 --server             on one host
//! cargo run --release --example ping_pong -- --dev afxdp:eth0 --connect 10.0.0.1   on the other
//! ```

mod common;

use std::time::Instant;

use common::{End, Result};
use softnic_nic::transports::{SendOp, WcOpcode};

const ROUNDS: u32 = 10_000;
const LEN: usize = 64;
/// Messages are received in another place than they are sent from.
const RECEIVE_AT: usize = LEN;

/// Waits until a message has come; that our own was sent is no news.
fn receive(end: &End) -> Result<u32> {
    while end.completion()?.opcode != WcOpcode::Recv {}
    let mut number = [0; 4];
    end.mr.read_at(RECEIVE_AT, &mut number);
    Ok(u32::from_be_bytes(number))
}

fn send(end: &End, number: u32) -> Result<()> {
    // The answer needs a receive, and may come at once.
    end.post_recv(RECEIVE_AT, LEN)?;
    end.mr.write_at(0, &number.to_be_bytes());
    end.post(SendOp::Send, 0, LEN)
}

fn server(mut end: End) -> Result<()> {
    end.post_recv(RECEIVE_AT, LEN)?;
    end.tell("ready")?;
    for _ in 0..ROUNDS {
        let number = receive(&end)?;
        send(&end, number + 1)?;
    }
    // Stay until the last answer has arrived.
    end.ask().map(drop)
}

fn client(mut end: End) -> Result<String> {
    end.ask()?;
    let start = Instant::now();
    for round in 0..ROUNDS {
        send(&end, round)?;
        let answer = receive(&end)?;
        if answer != round + 1 {
            return Err(format!("{round} was answered by {answer}").into());
        }
    }
    let half = start.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS) / 2.0;
    end.tell("done")?;
    Ok(format!("{ROUNDS} round trips, {half:.2} us each way on average"))
}

pub(crate) fn run(args: &[String]) -> Result<String> {
    common::run(args, 2 * LEN, server, client)
}

#[allow(clippy::print_stdout)]
fn main() -> Result<()> {
    println!("{}", run(&std::env::args().collect::<Vec<_>>())?);
    Ok(())
}
