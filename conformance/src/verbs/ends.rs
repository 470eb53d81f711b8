//! The two ends of a run: a program on softnic in a network namespace, or one on Soft-RoCE in the guest; a server, then its client.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::Bench;
use super::judge::{self, Ended};
use super::processes::Mark;
use super::tools::{Case, GROUP_IN_PROC, PORT, Prints, Ready};
use crate::guest::{Error, Guest, Space, failed, interrupted};

/// How long a program may take to end when it is asked to, or when its peer has.
const GRACE: Duration = Duration::from_secs(5);
/// Between two looks.
const NAP: Duration = Duration::from_millis(5);

/// One end: a program runs there at a time.
pub(super) trait End {
    /// Starts the program of a case: a server, or the client of the one at this address.
    fn start(&mut self, case: &Case, server: Option<&str>) -> Result<(), Error>;
    /// Whether the program waits for a client.
    fn listens(&mut self, case: &Case) -> Result<bool, Error>;
    /// How the program ended, if it has.
    fn ended(&mut self) -> Result<Option<Ended>, Error>;
    /// Ends it.
    fn stop(&mut self) -> Result<Ended, Error>;
    fn address(&self) -> &str;
}

/// Runs a case at both ends; the error has what both printed.
pub(super) fn run(case: &Case, server: &mut dyn End, client: &mut dyn End, limit: Duration) -> Result<(), Error> {
    let begin = Instant::now();
    server.start(case, None)?;
    let mut ends: [Option<Ended>; 2] = [None, None];
    while !server.listens(case)? {
        ends[0] = server.ended()?;
        if ends[0].is_some() || begin.elapsed() > limit || interrupted() {
            let ended = ends[0].take().map_or_else(|| server.stop(), Ok)?;
            let why = format!("the server does not begin (exit code {:?})", ended.code);
            return Err(Error::Failed(told(&why, &[("server", &ended)])));
        }
        std::thread::sleep(NAP);
    }
    let address = server.address().to_owned();
    client.start(case, Some(&address))?;
    if let Prints::PingsTwice(_) = case.prints {
        return run_twice(case, server, client, limit);
    }
    let mut one_since: Option<Instant> = None;
    let mut late = "";
    while ends.iter().any(Option::is_none) {
        if ends[0].is_none() {
            ends[0] = server.ended()?;
        }
        if ends[1].is_none() {
            ends[1] = client.ended()?;
        }
        let some = ends.iter().flatten().next();
        if let Some(ended) = some {
            // One that failed leaves the other waiting for ever.
            let waited = one_since.get_or_insert_with(Instant::now).elapsed();
            if ended.code != Some(0) && waited > GRACE {
                break;
            }
        }
        if begin.elapsed() > limit || interrupted() {
            late = "not done in time; ";
            break;
        }
        std::thread::sleep(NAP);
    }
    let [of_server, of_client] = ends;
    let of_client = of_client.map_or_else(|| client.stop(), Ok)?;
    let of_server = of_server.map_or_else(|| server.stop(), Ok)?;
    judge::both(case, &of_server, &of_client)
        .map_err(|why| Error::Failed(told(&format!("{late}{why}"), &[("server", &of_server), ("client", &of_client)])))
}

/// A client runs at a server that stays, and then another one; the server is ended.
fn run_twice(case: &Case, server: &mut dyn End, client: &mut dyn End, limit: Duration) -> Result<(), Error> {
    let (begin, mut clients) = (Instant::now(), 1);
    loop {
        if let Some(of_client) = client.ended()? {
            let good = judge::client(case, &of_client);
            if good.is_ok() && clients == 1 {
                clients = 2;
                let address = server.address().to_owned();
                client.start(case, Some(&address))?;
                continue;
            }
            let of_server = server.stop()?;
            let ends = [("server", &of_server), ("client", &of_client)];
            return good.map_err(|why| Error::Failed(told(&format!("client {clients}: {why}"), &ends)));
        }
        if begin.elapsed() > limit || interrupted() {
            let (of_client, of_server) = (client.stop()?, server.stop()?);
            return Err(Error::Failed(told("not done in time", &[("server", &of_server), ("client", &of_client)])));
        }
        std::thread::sleep(NAP);
    }
}

/// A reason, and below it what was printed.
pub(super) fn told(why: &str, ends: &[(&str, &Ended)]) -> String {
    let printed = |(name, ended): &(&str, &Ended)| {
        let text = ended.text.trim_end();
        let lines: String = text.lines().map(|l| format!("\n    {l}")).collect();
        format!("\n  the {name} (exit code {:?}) printed:{lines}", ended.code)
    };
    why.to_owned() + &ends.iter().map(printed).collect::<String>()
}

/// A program on softnic, in a namespace.
pub(super) struct OnSoftnic {
    softnic: PathBuf,
    namespace: String,
    pub(super) device: String,
    /// A second device, if it has one.
    pub(super) second: Option<String>,
    /// The device's backup, if it has one.
    pub(super) backup: Option<String>,
    /// Faults on what it sends by its backup.
    pub(super) backup_fault: Option<&'static str>,
    /// The folder of the network in memory, where that is the device.
    network: Option<PathBuf>,
    /// Whether programs have root's privileges.
    privileged: bool,
    address: String,
    temporary: PathBuf,
    output: PathBuf,
    child: Option<Child>,
    processes: Mark,
    /// Where the checker puts what it finds, if it is there.
    findings: Option<PathBuf>,
    /// Where the frames of what runs next are recorded, if they are.
    pub(super) pcap: Option<PathBuf>,
    /// The key file of what runs next, if it authenticates its peers.
    pub(super) key: Option<PathBuf>,
}

impl OnSoftnic {
    /// At this interface of a namespace.
    pub(super) fn new(bench: &Bench, space: &Space, interface: &str, address: &str) -> OnSoftnic {
        // Interfaces of other namespaces have the same names.
        let output = bench.scratch.0.join(format!("{}-{interface}.out", space.name()));
        OnSoftnic {
            softnic: bench.softnic.clone(),
            namespace: space.name().into(),
            device: format!("afxdp:{interface}"),
            second: None,
            backup: None,
            backup_fault: None,
            network: None,
            privileged: true,
            address: address.into(),
            temporary: bench.temporary(),
            processes: Mark::new(&output.to_string_lossy()),
            output,
            child: None,
            findings: bench.findings.clone(),
            pcap: None,
            key: None,
        }
    }

    /// On a network in memory, without any privilege.
    pub(super) fn sharing(bench: &Bench, space: &Space, network: &Path, name: &str) -> OnSoftnic {
        let mut end = OnSoftnic::new(bench, space, name, "127.0.0.1");
        (end.device, end.network) = (format!("shm:{}", network.display()), Some(network.into()));
        end.privileged = false;
        end
    }

    /// On an interface that a daemon shares, without any privilege.
    pub(super) fn client_of(bench: &Bench, space: &Space, interface: &str, address: &str, name: &str) -> OnSoftnic {
        let mut end = OnSoftnic::new(bench, space, name, address);
        (end.device, end.privileged) = (format!("shared:{interface}"), false);
        end
    }

    /// Starts words under `softnic run`, with this transport and these faults; what they print goes to a file.
    pub(super) fn spawn(&mut self, options: [Option<&str>; 2], words: &[String]) -> Result<u32, Error> {
        let mut command = self.in_namespace();
        if !self.privileged {
            command.args(["setpriv", "--bounding-set=-all", "--inh-caps=-all"]);
        }
        command.arg(&self.softnic).args(["run", "--dev", &self.device]);
        command.args(self.second.iter().flat_map(|device| ["--dev", device]));
        command.args(self.backup.iter().flat_map(|backup| ["--backup", backup]));
        command.args(self.backup_fault.iter().flat_map(|fault| ["--backup-fault", fault]));
        if let Some(file) = &self.pcap {
            command.arg("--pcap").arg(file);
        }
        if let Some(file) = &self.key {
            command.arg("--auth").arg(file);
        }
        for (name, value) in ["--transport", "--fault"].into_iter().zip(options) {
            command.args(value.into_iter().flat_map(|value| [name, value]));
        }
        command.arg("--").args(words);
        self.launch(command)
    }

    /// Starts words as they are, with privileges: what they start says itself that it is to be on softnic.
    pub(super) fn spawn_plain(&mut self, words: &[String]) -> Result<u32, Error> {
        let mut command = self.in_namespace();
        command.args(words);
        self.launch(command)
    }

    fn in_namespace(&self) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]);
        command
    }

    fn launch(&mut self, mut command: Command) -> Result<u32, Error> {
        // What the program before left running may hold the interface.
        self.processes.end_all();
        let out = File::create(&self.output).map_err(failed(&self.output))?;
        let errors = out.try_clone().map_err(failed(&self.output))?;
        // Some write where they are when they are told to end.
        if let Some(scratch) = self.output.parent() {
            command.current_dir(scratch);
        }
        self.processes.put_on(&mut command);
        command.envs(self.findings.iter().map(|folder| ("SOFTNIC_CHECK", folder)));
        command.env("TMPDIR", &self.temporary).stdin(Stdio::null()).stdout(out).stderr(errors);
        let child = command.spawn().map_err(|e| Error::Failed(format!("`ip netns exec` cannot be started: {e}")))?;
        let pid = child.id();
        self.child = Some(child);
        Ok(pid)
    }

    /// Waits for the end of what runs.
    pub(super) fn wait(&mut self, limit: Duration) -> Result<Ended, Error> {
        let begin = Instant::now();
        loop {
            match self.ended()? {
                Some(ended) => return Ok(ended),
                None if begin.elapsed() > limit || interrupted() => return self.stop(),
                None => std::thread::sleep(NAP),
            }
        }
    }

    /// Whether something was started whose end nobody has seen.
    pub(super) fn runs(&self) -> bool {
        self.child.is_some()
    }

    /// What was printed by what runs, or ran last.
    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.output).unwrap_or_default()).into_owned()
    }
}

/// Whether somebody waits at the port, in the network namespace of a process.
fn somebody_listens(pid: u32) -> bool {
    let wanted = format!(":{PORT:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        let path = Path::new("/proc").join(pid.to_string()).join("net").join(table);
        fs::read_to_string(path).is_ok_and(|text| {
            text.lines().any(|line| {
                let fields: Vec<&str> = line.split_whitespace().collect();
                // 0A is LISTEN.
                fields.get(3) == Some(&"0A") && fields.get(1).is_some_and(|local| local.ends_with(&wanted))
            })
        })
    })
}

impl End for OnSoftnic {
    fn start(&mut self, case: &Case, server: Option<&str>) -> Result<(), Error> {
        // The only GIDs are RoCEv2's, and the IPv4 address is the first.
        let fault = case.fault_of(server.is_some());
        self.spawn([case.transport, fault], &case.words("softnic0", 0, server)).map(drop)
    }

    fn listens(&mut self, case: &Case) -> Result<bool, Error> {
        let Some(child) = &self.child else { return Ok(false) };
        let says = |table: &str, word: &str| {
            let path = Path::new("/proc").join(child.id().to_string()).join("net").join(table);
            fs::read_to_string(path).is_ok_and(|text| text.contains(word))
        };
        Ok(match case.ready() {
            Ready::Tcp => somebody_listens(child.id()),
            // By such a socket our librdmacm keeps a port.
            Ready::Cm => says("unix", "@softnic-port/"),
            Ready::Group => match &self.network {
                // By such a file processes know of each other's members.
                Some(network) => fs::read_dir(network).is_ok_and(|mut files| {
                    files.any(|f| f.is_ok_and(|f| f.file_name().to_string_lossy().starts_with("group-")))
                }),
                None => says("igmp", GROUP_IN_PROC),
            },
        })
    }

    fn ended(&mut self) -> Result<Option<Ended>, Error> {
        let Some(child) = &mut self.child else { return Err(Error::Failed("nothing runs".into())) };
        let Some(status) = child.try_wait().map_err(failed(&self.output))? else { return Ok(None) };
        self.child = None;
        Ok(Some(Ended { code: status.code(), text: self.text() }))
    }

    fn stop(&mut self) -> Result<Ended, Error> {
        if let Some(mut child) = self.child.take() {
            // softnic passes it on, and removes its folder.
            let launcher = Pid::from_raw(child.id() as i32);
            let _ = launcher.map(|pid| kill_process(pid, Signal::TERM));
            let begin = Instant::now();
            while child.try_wait().map_err(failed(&self.output))?.is_none() {
                match begin.elapsed() {
                    waited if waited > 2 * GRACE => drop(child.kill()),
                    // A program that does not heed it is killed; softnic stays to remove the folder.
                    waited if waited > GRACE => self.processes.kill_others(launcher),
                    _ => {}
                }
                std::thread::sleep(NAP);
            }
        }
        self.processes.end_all();
        Ok(Ended { code: None, text: self.text() })
    }

    fn address(&self) -> &str {
        &self.address
    }
}

impl Drop for OnSoftnic {
    fn drop(&mut self) {
        // It may run still when the other end cannot be asked any more.
        let _ = self.stop();
    }
}

/// A program on Soft-RoCE, in the guest.
pub(super) struct OnRxe {
    pub(super) guest: Guest,
    pub(super) address: String,
    pub(super) text: String,
}

fn idle() -> Result<(), Error> {
    std::thread::sleep(Duration::from_millis(1));
    Ok(())
}

impl OnRxe {
    pub(super) fn call(&mut self, command: serde_json::Value) -> Result<serde_json::Value, Error> {
        self.guest.call(&command, &mut idle)
    }
}

impl End for OnRxe {
    fn start(&mut self, case: &Case, server: Option<&str>) -> Result<(), Error> {
        self.text.clear();
        // Its first GID is the link-local address.
        let argv = case.words("rxe0", 1, server);
        self.call(json!({"do": "start", "argv": argv})).map(drop)
    }

    fn listens(&mut self, case: &Case) -> Result<bool, Error> {
        let command = match case.ready() {
            Ready::Tcp => json!({"do": "listens", "port": PORT}),
            Ready::Cm | Ready::Group => json!({"do": "cm_listens"}),
        };
        Ok(self.call(command)?.as_bool() == Some(true))
    }

    fn ended(&mut self) -> Result<Option<Ended>, Error> {
        let answer = self.call(json!({"do": "output"}))?;
        self.text += answer["text"].as_str().unwrap_or_default();
        let ended = |code: i64| Ended { code: i32::try_from(code).ok(), text: self.text.clone() };
        Ok(answer["status"].as_i64().map(ended))
    }

    fn stop(&mut self) -> Result<Ended, Error> {
        self.call(json!({"do": "stop"}))?;
        let ended = self.ended()?;
        Ok(Ended { code: None, text: ended.map_or_else(|| self.text.clone(), |e| e.text) })
    }

    fn address(&self) -> &str {
        &self.address
    }
}
