//! A program and its peer on one host: two processes on a network in memory, without any privilege.

use std::path::PathBuf;
use std::time::Duration;

use super::Bench;
use super::ends::{self, End, OnSoftnic, told};
use super::judge;
use super::tools::{Case, Prints};
use crate::guest::{Error, Space};

/// The longest a run may take; few take more than a second.
const LIMIT: Duration = Duration::from_secs(60);

/// The host; gone when it is dropped. Programs go first.
pub(super) struct Host {
    server: OnSoftnic,
    client: OnSoftnic,
    network: PathBuf,
    _space: Space,
}

impl Host {
    pub(super) fn new(bench: &Bench) -> Result<Host, Error> {
        let space = Space::new("verbs-host")?;
        space.ip("link set lo up")?;
        // Names of sockets are short, and those of scratch folders may not be.
        let network = std::env::temp_dir().join(format!("softnic-host-{}", std::process::id()));
        let end = |name| OnSoftnic::sharing(bench, &space, &network, name);
        let (server, client) = (end("server"), end("client"));
        Ok(Host { server, client, network, _space: space })
    }

    /// Runs a case; nothing is left of it in the network.
    pub(super) fn run(&mut self, case: &Case) -> Result<(), Error> {
        if case.prints == Prints::Device {
            self.server.start(case, None)?;
            let ended = self.server.wait(LIMIT)?;
            let judged = judge::alone(case, &ended, self.server.address());
            return judged.map_err(|why| Error::Failed(told(&why, &[("program", &ended)])));
        }
        ends::run(case, &mut self.server, &mut self.client, LIMIT)?;
        let texts = [&self.server, &self.client].map(OnSoftnic::text);
        texts.iter().try_for_each(|text| judge::transport(case, text, None)).map_err(Error::Failed)?;
        match (case.prints, self.files()) {
            // A server that is ended, and a job of fio's, which ends by `_exit`, leave what they have to whoever comes next.
            (Prints::PingsTwice(_) | Prints::Fio, _) => Ok(()),
            (_, files) if files == ["lock"] => Ok(()),
            (_, files) => Err(Error::Failed(format!("left behind on the network: {}", files.join(", ")))),
        }
    }

    fn files(&self) -> Vec<String> {
        let files = std::fs::read_dir(&self.network).into_iter().flatten().flatten();
        files.map(|file| file.file_name().to_string_lossy().into_owned()).collect()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.network);
    }
}
