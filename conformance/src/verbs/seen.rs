//! `SOFTNIC_SEEN`: what two processes of one program are seen to do, and a script that names one packet, or call, of one of them.
//!
//! The names of a run are taken from its files; a second run has a script with one of them, and each process has a capture: what the client
//! sent and the server did not receive is that packet alone.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use softnic_explore::record::{EXTENSION, File, Seen, read};
use softnic_fault_injector::calls::{Applied, TableKind, Verb};

use super::Bench;
use super::recorded::inspected;
use crate::guest::{Error, create_folder, failed};

const LIMIT: Duration = Duration::from_secs(60);
const SERVER: &str = "ibv_rc_pingpong -g 0 -n 20 -p 18517";
const CLIENT: &str = "ibv_rc_pingpong -g 0 -n 20 -p 18517 localhost";
/// RC_SEND_ONLY, by which the program's short messages go.
const SEND_ONLY: u8 = 0x04;

/// One run: a folder for all that it leaves.
struct Run<'a> {
    bench: &'a Bench,
    folder: PathBuf,
}

impl Run<'_> {
    /// Both processes as children of one shell, on a network of their own; the client comes when the server listens.
    fn new<'a>(bench: &'a Bench, name: &str, script: Option<&str>) -> Result<Run<'a>, Error> {
        let run = Run { bench, folder: bench.scratch.0.join(format!("seen-{name}")) };
        let (seen, captures) = (run.folder.join("seen"), run.folder.join("captures"));
        [&run.folder, &seen, &captures].into_iter().try_for_each(|folder| create_folder(folder))?;
        // 18517 in the kernel's list of sockets, in the state of one that listens.
        let listens = "grep -q ':4855 [0-9A-F:]* 0A' /proc/net/tcp /proc/net/tcp6";
        let both = format!("{SERVER} -s 512 & until {listens}; do sleep 0.02; done; {CLIENT} -s 512; wait $!");
        let mut command = Command::new(&bench.softnic);
        command.args(["run", "--dev"]).arg(format!("shm:{}", run.folder.join("network").display()));
        command.arg("--pcap").arg(&captures).env("SOFTNIC_SEEN", &seen).env("TMPDIR", bench.temporary());
        if let Some(script) = script {
            let path = run.folder.join("script.toml");
            fs::write(&path, script).map_err(failed(&path))?;
            command.arg("--fault").arg(format!("@{}", path.display()));
        }
        let out = run.folder.join("out");
        let file = fs::File::create(&out).map_err(failed(&out))?;
        let errors = file.try_clone().map_err(failed(&out))?;
        command.args(["--", "sh", "-c", &both]).stdin(Stdio::null()).stdout(file).stderr(errors);
        let mut child = command.spawn().map_err(|e| Error::Failed(format!("`softnic run` cannot be started: {e}")))?;
        let begin = Instant::now();
        let status = loop {
            match child.try_wait().map_err(failed(&out))? {
                Some(status) => break status,
                None if begin.elapsed() > LIMIT => {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Err(run.wrong("it does not end"));
                }
                None => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        if status.success() { Ok(run) } else { Err(run.wrong(&format!("it ends with {status}"))) }
    }

    fn wrong(&self, why: &str) -> Error {
        let said = fs::read_to_string(self.folder.join("out")).unwrap_or_default();
        Error::Failed(format!("{why}; it printed:\n{said}"))
    }

    /// What the process was seen to do that has this label.
    fn seen(&self, label: &str) -> Result<File, Error> {
        let label = format!("{label} -s 512");
        let folder = self.folder.join("seen");
        let entries = fs::read_dir(&folder).map_err(failed(&folder))?.flatten().map(|entry| entry.path());
        let files = entries.filter(|path| path.extension().is_some_and(|e| e == EXTENSION));
        let files: Vec<File> = files.filter_map(|path| read(&fs::read(path).ok()?)).collect();
        let mut found = files.iter().filter(|file| file.process.label == label && file.process.ordinal == 1);
        match (found.next(), files.len()) {
            (Some(file), 2) if file.lost == 0 => Ok(file.clone()),
            _ => {
                let processes: Vec<_> = files.iter().map(|file| &file.process).collect();
                Err(self.wrong(&format!("no file of {label}, or none of another process: {processes:?}")))
            }
        }
    }

    /// The packets that the client sent to the server, by opcode and PSN, in the capture of one of them.
    fn packets(&self, of: &File, to: u32) -> Result<Vec<(String, u64)>, Error> {
        let file = self.folder.join("captures").join(format!("{}-softnic0.pcap", of.process.pid));
        let packets = inspected(&self.bench.softnic, &file).map_err(Error::Failed)?;
        let here = packets.iter().filter(|packet| packet["dest_qp"].as_u64() == Some(to.into()));
        Ok(here.map(|packet| (packet["opcode"].to_string(), packet["psn"].as_u64().unwrap_or(0))).collect())
    }
}

/// The number of the queue pair of a process, and its peer's.
fn connection(file: &File) -> Option<(u32, u32)> {
    file.records.iter().find_map(|record| match record.seen {
        Seen::Connected { qp: 1, number, destination } => Some((number, destination)),
        _ => None,
    })
}

/// The rules that were applied.
fn applied(file: &File) -> Vec<Applied> {
    let one = |seen| if let Seen::Applied(applied) = seen { Some(applied) } else { None };
    file.records.iter().filter_map(|record| one(record.seen)).collect()
}

/// Both runs.
pub(super) fn run(bench: &Bench) -> Result<(), Error> {
    let plain = Run::new(bench, "plain", None)?;
    let client = plain.seen(CLIENT)?;
    let packets = client.records.iter().filter_map(|record| match record.seen {
        Seen::Packet { device: 0, destination: 1, opcode: SEND_ONLY, psn, iteration: 1, .. } => Some(psn),
        _ => None,
    });
    let packets: Vec<u32> = packets.collect();
    let posts =
        client.records.iter().filter(|record| matches!(record.seen, Seen::Call { verb: Verb::PostSend, qp: 1, .. }));
    let (posts, sends) =
        (posts.count(), client.records.iter().filter(|record| matches!(record.seen, Seen::Completion { .. })));
    if packets != (0..20).collect::<Vec<_>>() || posts != 20 || sends.count() != 40 || connection(&client).is_none() {
        let others = client.records.iter().map(|record| record.seen);
        let others: Vec<_> = others.filter(|seen| !matches!(seen, Seen::Call { verb: Verb::PostRecv, .. })).collect();
        return Err(plain.wrong(&format!("the client is seen to do {others:?}")));
    }
    let lost = packets[7];
    let script = format!(
        "[[event]]\nprocess = \"{CLIENT} *\"\naction = \"drop\"\nqpn = \"#1\"\npsn = \"+{lost}\"\nopcode = {SEND_ONLY}\niteration = 1\n\
         device = 0\n[[call]]\nprocess = \"* localhost * #1\"\nverb = \"post_send\"\nqp = \"#1\"\nnth = 3\naction = \"delay\"\n\
         delay = \"1ms\"\n[[call]]\nprocess = \"* localhost * #2\"\nverb = \"post_send\"\naction = \"kill\"\n"
    );
    let struck = Run::new(bench, "struck", Some(&script))?;
    let (client, server) = (struck.seen(CLIENT)?, struck.seen(SERVER)?);
    let Some((_, to)) = connection(&client) else { return Err(struck.wrong("the client has no connection")) };
    let (sent, came) = (struck.packets(&client, to)?, struck.packets(&server, to)?);
    judge(&sent, &came, lost).map_err(|why| struck.wrong(&why))?;
    match (&applied(&client)[..], &applied(&server)[..]) {
        ([Applied { kind: TableKind::Call, number: 1 }], []) => Ok(()),
        other => Err(struck.wrong(&format!("these rules were applied by client and server: {other:?}"))),
    }
}

/// What was sent came, in its order, but for one: the packet so far behind the first, at the first time.
fn judge(sent: &[(String, u64)], came: &[(String, u64)], lost: u32) -> Result<(), String> {
    let of_data = |all: &[(String, u64)]| -> Vec<u64> {
        all.iter().filter(|(opcode, _)| opcode.contains("SEND_ONLY")).map(|(_, psn)| *psn).collect()
    };
    let (sent, came) = (of_data(sent), of_data(came));
    let first = sent.first().copied().unwrap_or(0);
    let place = sent.iter().position(|psn| psn.wrapping_sub(first) & 0xff_ffff == u64::from(lost));
    let mut expected = sent.clone();
    place.map(|place| expected.remove(place));
    match place.is_some() && expected == came {
        true => Ok(()),
        false => Err(format!("sent are {sent:?}, and {came:?} came; missing is to be +{lost} alone")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_of_the_packet_that_is_named_may_be_missing() {
        let all = |psns: &[u64]| psns.iter().map(|&psn| ("\"RC_SEND_ONLY\"".to_string(), psn)).collect::<Vec<_>>();
        let sent = all(&[0xff_ffff, 0, 1, 1, 2]);
        assert_eq!(judge(&sent, &all(&[0xff_ffff, 0, 1, 2]), 2), Ok(()));
        for wrong in [&[0xff_ffff, 0, 1, 1, 2][..], &[0xff_ffff, 1, 1, 2], &[0xff_ffff, 0, 1], &[]] {
            assert!(judge(&sent, &all(wrong), 2).is_err(), "{wrong:?}");
        }
        assert!(judge(&all(&[1]), &all(&[1]), 5).is_err(), "it was never sent");
    }
}
