//! The server: accepts who connects, tells it where its board is, and answers every message.

use std::net::SocketAddr;
use std::time::Duration;

use softnic_nic::transports::SendOp;
use softnic_runtime::api::{CmListener, CmRequest, ConnectionManager, Context};

use super::end::{BOARD, End, LEN, LIMIT, Result};

/// Where a client may write, and by which key. It travels in the private data of the answer to its request.
pub(crate) struct Board {
    pub(crate) addr: u64,
    pub(crate) rkey: u32,
}

impl Board {
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        [&self.addr.to_be_bytes()[..], &self.rkey.to_be_bytes()].concat()
    }

    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Board> {
        let (addr, rest) = bytes.split_first_chunk()?;
        Some(Board { addr: u64::from_be_bytes(*addr), rkey: u32::from_be_bytes(*rest.first_chunk()?) })
    }
}

/// What somebody wrote, up to the first zero: private data has zeros at its end, and so has the board.
pub(crate) fn text(bytes: &[u8]) -> String {
    let len = bytes.iter().position(|&b| b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..len]).into()
}

/// Serves so many clients, one after the other. `listens` is called when they may come.
pub(crate) fn run(context: &Context, at: SocketAddr, clients: u32, listens: impl FnOnce()) -> Result<String> {
    let manager = ConnectionManager::new(context)?;
    let listener = CmListener::bind(&manager, at)?;
    listens();
    let (mut served, mut answers) = (0, 0);
    while served < clients {
        // Nobody for an hour is no reason to stop.
        let Some(request) = listener.next(Duration::from_secs(3600)) else { continue };
        let peer = request.peer();
        if text(request.private_data()).is_empty() {
            // What is said here becomes the client's error message.
            request.reject(b"say your name, by --name")?;
            continue;
        }
        served += 1;
        // A client that dies does not keep others waiting.
        match serve(context, request) {
            Ok(n) => answers += n,
            Err(e) if clients > 1 => eprintln!("{peer}: {e}"),
            Err(e) => return Err(e),
        }
    }
    Ok(format!("clients served: {served}, messages answered: {answers}"))
}

/// Answers a client until it ends the connection; how many messages it sent.
fn serve(context: &Context, request: CmRequest<'_>) -> Result<u32> {
    let name = text(request.private_data());
    let mut end = End::new(context)?;
    let board = Board { addr: end.memory.addr() + BOARD as u64, rkey: end.memory.rkey() };
    let mut connection = request.accept(&end.qp, &board.to_bytes(), LIMIT)?;
    eprintln!("{name} connects from {}", connection.peer());
    let mut answers = 0;
    while let Some(message) = end.receive(&mut connection)? {
        // What was written before the message was sent is there when the message is.
        let mut written = [0; LEN];
        end.memory.read_at(BOARD, &mut written);
        let answer = format!("{name} says {message}, the board says {}", text(&written));
        end.send(&mut connection, SendOp::Send, answer.as_bytes())?;
        answers += 1;
    }
    eprintln!("{name} has ended the connection");
    Ok(answers)
}
