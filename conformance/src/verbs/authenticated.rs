//! `softnic run --auth` under a verbs program: with one key at both ends every packet is authenticated; a peer without the key is refused.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Bench;
use super::ends::{self, told};
use super::judge::Ended;
use super::pair::Pair;
use super::recorded;
use super::tools::{Case, Prints, case};
use crate::guest::{Error, failed};

const CASE: Case = case("ibv_rc_pingpong", "-n 100 -c", Prints::PingPong, true);
const LIMIT: Duration = Duration::from_secs(30);
/// What the library says of a peer.
const REFUSED: &str = "has no key, or another one: its queue pairs are refused";

/// The client of a server that has a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Client {
    SameKey,
    SameKeyOverSr,
    OtherKey,
    NoKey,
}

impl Client {
    pub(super) const ALL: [Client; 4] = [Client::SameKey, Client::SameKeyOverSr, Client::OtherKey, Client::NoKey];

    pub(super) fn name(self) -> &'static str {
        match self {
            Client::SameKey => "the same key",
            Client::SameKeyOverSr => "the same key over sr",
            Client::OtherKey => "another key",
            Client::NoKey => "no key",
        }
    }

    fn key(self) -> Option<&'static [u8]> {
        match self {
            Client::SameKey | Client::SameKeyOverSr => Some(KEY),
            Client::OtherKey => Some(b"another secret, of forty-two bytes in all"),
            Client::NoKey => None,
        }
    }
}

const KEY: &[u8] = b"a secret that the server has";

/// Runs a program at both ends with these keys.
pub(super) fn run(client: Client, bench: &Bench, pair: &mut Pair) -> Result<(), Error> {
    let folder = &bench.scratch.0;
    pair.server.key = Some(key_file(&folder.join("server.key"), KEY)?);
    pair.client.key = client.key().map(|bytes| key_file(&folder.join("client.key"), bytes)).transpose()?;
    let case = Case { transport: (client == Client::SameKeyOverSr).then_some("sr"), ..CASE };
    let judged = match client {
        Client::SameKey | Client::SameKeyOverSr => authenticated(&case, bench, pair),
        Client::OtherKey | Client::NoKey => refused(&case, client, pair),
    };
    (pair.server.key, pair.client.key) = (None, None);
    judged
}

/// Writes a file that nobody else may read.
fn key_file(path: &Path, bytes: &[u8]) -> Result<PathBuf, Error> {
    fs::write(path, bytes).map_err(failed(path))?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).map_err(failed(path))?;
    Ok(path.into())
}

/// The program ends well, and each packet of its connection has a trailer.
fn authenticated(case: &Case, bench: &Bench, pair: &mut Pair) -> Result<(), Error> {
    let file = bench.scratch.0.join("authenticated.pcap");
    pair.server.pcap = Some(file.clone());
    let ran = pair.run(case);
    pair.server.pcap = None;
    let packets = ran.and_then(|()| recorded::inspected(&bench.softnic, &file).map_err(Error::Failed));
    let _ = fs::remove_file(&file);
    let of_the_connection: Vec<bool> = packets?
        .iter()
        .filter(|v| v["dest_qp"].as_u64().is_some_and(|qpn| qpn != 1))
        .map(|v| v["ext"]["auth"]["epoch"].is_u64())
        .collect();
    match of_the_connection.len() >= 200 && of_the_connection.iter().all(|&sealed| sealed) {
        true => Ok(()),
        false => {
            let sealed = of_the_connection.iter().filter(|&&sealed| sealed).count();
            Err(Error::Failed(format!("of {} packets {sealed} are authenticated", of_the_connection.len())))
        }
    }
}

/// Neither end gets a message, and whoever has a key says why.
fn refused(case: &Case, client: Client, pair: &mut Pair) -> Result<(), Error> {
    let ran = ends::run(case, &mut pair.server, &mut pair.client, LIMIT);
    let [server, client_said] = [&pair.server, &pair.client].map(|end| end.text());
    let says_so = |text: &str| text.lines().filter(|line| line.ends_with(REFUSED)).count() == 1;
    let why = match (ran, client) {
        (Ok(()), _) => "the program ends well with a peer that has no right key",
        _ if [&server, &client_said].iter().any(|text| text.contains("iters in")) => "an end got all messages",
        _ if !says_so(&server) => "the server does not say once that the peer is refused",
        (_, Client::OtherKey) if !says_so(&client_said) => "the client does not say once that the peer is refused",
        _ => return Ok(()),
    };
    let ended = |text: &str| Ended { code: None, text: text.into() };
    Err(Error::Failed(told(why, &[("server", &ended(&server)), ("client", &ended(&client_said))])))
}
