//! The client: connects, writes each message on the server's board, sends it too, and expects an answer that has both.

use std::net::SocketAddr;

use softnic_nic::transports::SendOp;
use softnic_runtime::api::{CmConnection, ConnectError, ConnectionManager, Context};

use super::end::{End, LIMIT, Result};
use super::server::{Board, text};

/// The longest message: the answer has it twice, and must fit into a message too.
const LONGEST: usize = 400;

/// Says its name, sends the messages, and ends the connection.
pub(crate) fn run(context: &Context, to: SocketAddr, name: &str, messages: &[String]) -> Result<String> {
    if let Some(long) = messages.iter().find(|message| message.len() > LONGEST) {
        return Err(format!("a message of {} bytes: {LONGEST} are the most", long.len()).into());
    }
    let manager = ConnectionManager::new(context)?;
    let mut end = End::new(context)?;
    let mut connection = match CmConnection::connect(&manager, &end.qp, to, name.as_bytes(), LIMIT) {
        Ok(connection) => connection,
        Err(ConnectError::Refused { peer, private_data, .. }) if !text(&private_data).is_empty() => {
            return Err(format!("{peer} says: {}", text(&private_data)).into());
        }
        Err(e) => return Err(e.into()),
    };
    let Board { addr, rkey } = Board::from_bytes(connection.private_data()).ok_or("the server tells no address")?;
    for message in messages {
        // A zero ends what counts on the board.
        let board = [message.as_bytes(), &[0]].concat();
        end.send(&mut connection, SendOp::Write { remote_addr: addr, rkey }, &board)?;
        end.send(&mut connection, SendOp::Send, message.as_bytes())?;
        let answer = end.receive(&mut connection)?.ok_or("the server ended the connection and owes an answer")?;
        eprintln!("{answer}");
        let right = format!("{name} says {message}, the board says {message}");
        if answer != right {
            return Err(format!("the answer is `{answer}`, not `{right}`").into());
        }
    }
    match connection.disconnect(LIMIT) {
        true => Ok(format!("{} messages sent and answered", messages.len())),
        false => Err(format!("{to} does not answer: nobody knows whether it knows that the connection is over").into()),
    }
}
