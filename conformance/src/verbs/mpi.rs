//! Ranks of Open MPI and MPICH over UCX: four on one host, and two on each of two hosts whose interfaces `softnic share` serves, without privileges.
//!
//! The hosts are network namespaces, and a script takes the place of ssh. The program of all ranks (verbs/tests/mpi) compares what it receives, and the counters
//! of softnic with what it sent.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::c_tests::CFLAGS;
use super::ends::{OnSoftnic, told};
use super::judge::Ended;
use super::shared::Daemon;
use super::{Bench, Lazy, processes, ucx};
use crate::guest::{Error, Space, failed};
use crate::{project, setup};

const SOURCE: &str = "verbs/tests/mpi/exchange.c";
/// What it exchanges, as its lines name that.
const PARTS: [&str; 5] = ["send and receive", "short messages", "a large message", "all-reduce", "all-to-all"];
const RANKS: &str = "4";
const RANKS_EACH: &str = "2";
/// Of both hosts: what ranks are told holds for each of them.
const INTERFACE: &str = "v0";
const ADDRESSES: [&str; 2] = ["10.80.0.1", "10.80.0.2"];
/// Path MTU 4096 with every header.
const MTU: u32 = 4216;
const UNPRIVILEGED: [&str; 3] = ["setpriv", "--bounding-set=-all", "--inh-caps=-all"];
/// The longest a run may take; most take some seconds.
const LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Library {
    OpenMpi,
    Mpich,
}

impl Library {
    /// As Debian has it behind the names of commands.
    fn name(self) -> &'static str {
        match self {
            Library::OpenMpi => "openmpi",
            Library::Mpich => "mpich",
        }
    }

    /// Installs it and compiles the ranks' program for it.
    fn compile(self, bench: &Bench) -> Result<PathBuf, Error> {
        let package = match self {
            Library::OpenMpi => setup::OPEN_MPI,
            Library::Mpich => setup::MPICH,
        };
        setup::install(&package).map_err(Error::Missing)?;
        let program = bench.scratch.0.join(format!("exchange.{}", self.name()));
        let compiler = format!("mpicc.{}", self.name());
        let mut command = Command::new(&compiler);
        command.args(CFLAGS).arg("-o").arg(&program).arg(project::root().join(SOURCE));
        let output = command.output().map_err(|e| Error::Missing(format!("`{compiler}` cannot be started: {e}")))?;
        match output.status.success() {
            true => Ok(program),
            false => Err(Error::Failed(format!("it does not compile:\n{}", String::from_utf8_lossy(&output.stderr)))),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// All ranks on one host, on a network in memory.
    Host,
    /// Two hosts, on interfaces that daemons share.
    Hosts,
}

/// One test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MpiTest {
    library: Library,
    /// UCX's name of it.
    transport: &'static str,
    place: Place,
    /// Whether every test run has it.
    pub(super) short: bool,
}

/// The tests.
pub(super) fn all() -> Vec<MpiTest> {
    use Library::{Mpich, OpenMpi};
    use Place::{Host, Hosts};
    [
        (OpenMpi, "rc_v", Host, true),
        (OpenMpi, "ud_v", Host, false),
        (Mpich, "rc_v", Host, false),
        (Mpich, "ud_v", Host, true),
        (OpenMpi, "rc_v", Hosts, false),
        (OpenMpi, "ud_v", Hosts, false),
        (Mpich, "rc_v", Hosts, true),
        (Mpich, "ud_v", Hosts, false),
    ]
    .map(|(library, transport, place, short)| MpiTest { library, transport, place, short })
    .into()
}

impl MpiTest {
    /// What it is called here.
    pub(super) fn name(&self) -> String {
        let place = match self.place {
            Place::Host => "one host",
            Place::Hosts => "two hosts",
        };
        format!("{}/{}/{place}", self.library.name(), self.transport)
    }

    /// `mpirun` with variables and options; hosts are reached by an agent, where there are several. What ranks run stands behind it.
    fn launcher(&self, agent: Option<&Path>) -> Vec<String> {
        let tls = format!("UCX_TLS={}", self.transport);
        let run = format!("mpirun.{}", self.library.name());
        let mut words =
            ["env", &tls, "UCX_NET_DEVICES=softnic0:1", "UCX_LOG_LEVEL=info", &run].map(str::to_owned).to_vec();
        let mut add = |more: &[&str]| words.extend(more.iter().map(ToString::to_string));
        let (first, second) = (ADDRESSES[0], ADDRESSES[1]);
        match self.library {
            Library::OpenMpi => {
                add(&["--allow-run-as-root", "--oversubscribe", "--mca", "pml", "ucx", "--mca", "osc", "ucx"]);
                add(&["--mca", "btl", "^openib,uct,vader,tcp"]);
            }
            Library::Mpich => {}
        }
        match (self.library, agent) {
            (_, None) => {}
            (Library::OpenMpi, Some(agent)) => {
                add(&[
                    "--mca",
                    "plm_rsh_agent",
                    &agent.display().to_string(),
                    "--mca",
                    "oob_tcp_if_include",
                    INTERFACE,
                ]);
                add(&["-x", "UCX_TLS", "-x", "UCX_NET_DEVICES", "-x", "UCX_LOG_LEVEL"]);
                add(&["--host", &format!("{first}:{RANKS_EACH},{second}:{RANKS_EACH}")]);
            }
            (Library::Mpich, Some(agent)) => {
                add(&["-launcher", "ssh", "-launcher-exec", &agent.display().to_string(), "-iface", INTERFACE]);
                add(&["-hosts", &format!("{first},{second}"), "-ppn", RANKS_EACH]);
            }
        }
        add(&["-np", RANKS]);
        words
    }

    /// Whether all ranks did what they are for, over softnic.
    fn judge(&self, ended: &Ended) -> Result<(), String> {
        ended.check("program")?;
        let says = |part: &&str| {
            let wanted = format!("{RANKS} ranks: {part}: right");
            ended.text.lines().any(|line| line.ends_with(&wanted))
        };
        if let Some(missing) = PARTS.iter().find(|part| !says(part)) {
            return Err(format!("rank 0 says nothing of {missing}"));
        }
        ucx::took(self.transport, &ended.text)
    }
}

/// What these tests run with, made when it is needed.
pub(super) struct Mpi<'a> {
    bench: &'a Bench,
    programs: [Lazy<PathBuf>; 2],
    host: Lazy<Host>,
    hosts: Lazy<Hosts>,
}

impl<'a> Mpi<'a> {
    pub(super) fn new(bench: &'a Bench) -> Mpi<'a> {
        Mpi { bench, programs: Default::default(), host: Lazy::default(), hosts: Lazy::default() }
    }

    pub(super) fn run(&mut self, test: MpiTest) -> Result<(), Error> {
        let Mpi { bench, programs, host, hosts } = self;
        programs[test.library as usize].with(
            || test.library.compile(bench),
            |program| match test.place {
                Place::Host => host.with(|| Host::new(bench), |host| host.run(test, program)),
                Place::Hosts => hosts.with(|| Hosts::new(bench), |hosts| hosts.run(test, program)),
            },
        )
    }
}

/// Waits for what was started, and judges it.
fn judged(test: MpiTest, launched: &mut OnSoftnic, verbose: bool) -> Result<(), Error> {
    let ended = launched.wait(LIMIT)?;
    if verbose {
        println!("{}", ended.text);
    }
    test.judge(&ended).map_err(|why| Error::Failed(told(&why, &[("program", &ended)])))
}

/// One host; gone when it is dropped. Programs go first.
struct Host {
    ranks: OnSoftnic,
    network: PathBuf,
    verbose: bool,
    _space: Space,
}

impl Host {
    fn new(bench: &Bench) -> Result<Host, Error> {
        let space = Space::new("verbs-mpi")?;
        // Names of sockets are short, and those of scratch folders may not be.
        let network = std::env::temp_dir().join(format!("softnic-mpi-{}", std::process::id()));
        let ranks = OnSoftnic::sharing(bench, &space, &network, "mpi-host");
        Ok(Host { ranks, network, verbose: bench.verbose, _space: space })
    }

    /// Runs a test; nothing is left of it in the network.
    fn run(&mut self, test: MpiTest, program: &Path) -> Result<(), Error> {
        let mut words = test.launcher(None);
        words.push(program.display().to_string());
        self.ranks.spawn([None, None], &words)?;
        judged(test, &mut self.ranks, self.verbose)?;
        let files = fs::read_dir(&self.network).map_err(failed(&self.network))?.flatten();
        let left: Vec<String> = files.map(|file| file.file_name().to_string_lossy().into_owned()).collect();
        match left == ["lock"] {
            true => Ok(()),
            false => Err(Error::Failed(format!("left behind on the network: {}", left.join(", ")))),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.network);
    }
}

/// Two hosts; gone when they are dropped. Programs go first, then the daemons.
struct Hosts {
    mpirun: OnSoftnic,
    softnic: PathBuf,
    agent: PathBuf,
    daemons: [Daemon; 2],
    verbose: bool,
    _spaces: [Space; 2],
}

impl Hosts {
    fn new(bench: &Bench) -> Result<Hosts, Error> {
        let spaces = [Space::new("verbs-mpi-a")?, Space::new("verbs-mpi-b")?];
        let [here, there] = spaces.each_ref();
        here.ip(&format!("link add {INTERFACE} type veth peer name {INTERFACE} netns {}", there.name()))?;
        for (space, address) in spaces.iter().zip(ADDRESSES) {
            space.ip(&format!("address add {address}/24 dev {INTERFACE}"))?;
            space.ip(&format!("link set {INTERFACE} mtu {MTU} up"))?;
        }
        let daemons = [Daemon::start(bench, here, INTERFACE)?, Daemon::start(bench, there, INTERFACE)?];
        let agent = bench.scratch.0.join("mpi-agent");
        fs::write(&agent, agent_script(there.name())).map_err(failed(&agent))?;
        fs::set_permissions(&agent, Permissions::from_mode(0o755)).map_err(failed(&agent))?;
        let mpirun = OnSoftnic::client_of(bench, here, INTERFACE, ADDRESSES[0], "mpi-hosts");
        let (softnic, verbose) = (bench.softnic.clone(), bench.verbose);
        Ok(Hosts { mpirun, softnic, agent, daemons, verbose, _spaces: spaces })
    }

    /// Runs a test; the daemons have no client of it afterwards. `mpirun` may enter the other namespace, its ranks may not.
    fn run(&mut self, test: MpiTest, program: &Path) -> Result<(), Error> {
        let mut words = test.launcher(Some(&self.agent));
        words.extend(UNPRIVILEGED.map(str::to_owned));
        words.extend([self.softnic.display().to_string()]);
        words.extend(["run", "--dev", &format!("shared:{INTERFACE}"), "--"].map(str::to_owned));
        words.push(program.display().to_string());
        self.mpirun.spawn_plain(&words)?;
        judged(test, &mut self.mpirun, self.verbose)?;
        self.daemons.iter().try_for_each(Daemon::wait_until_idle)
    }
}

/// What stands in for ssh: options of ssh, the host, and words for a shell there. Of the environment nothing goes with them but what finds programs, the mark
/// by which all of them are ended, and where findings go.
fn agent_script(namespace: &str) -> String {
    let mark = processes::NAME;
    format!(
        r#"#!/bin/sh
while [ "${{1#-}}" != "$1" ]; do shift; done
host=$1
shift
exec env -i "PATH=$PATH" "TMPDIR=$TMPDIR" "{mark}=${mark}" \
    ${{SOFTNIC_CHECK:+"SOFTNIC_CHECK=$SOFTNIC_CHECK"}} ip netns exec {namespace} \
    unshare --uts sh -c 'hostname "$0" && exec sh -c "$1"' "$host" "$*"
"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> String {
        let right = PARTS.map(|part| format!("4 ranks: {part}: right\n"));
        "[1.1] [vm:1:0] ucp_worker.c:1763 UCX  INFO    ep_cfg[0]: tag(rc_verbs/softnic0:1)\n".to_owned()
            + &right.concat()
    }

    const TEST: MpiTest = MpiTest { library: Library::Mpich, transport: "rc_v", place: Place::Host, short: true };

    #[test]
    fn a_part_that_is_missing_and_another_transport_are_failures() {
        let judge = |text: &str| TEST.judge(&Ended { code: Some(0), text: text.into() });
        assert_eq!(judge(&good()), Ok(()));
        for part in PARTS {
            assert!(judge(&good().replace(part, "nothing")).is_err(), "without {part}");
        }
        for (from, to) in [
            ("4 ranks", "3 ranks"),
            ("rc_verbs", "ud_verbs"),
            ("rc_verbs/softnic0:1", "posix/memory"),
            ("softnic0:1)", "softnic0:1) am(tcp/eth0)"),
            ("ep_cfg", ""),
        ] {
            assert!(judge(&good().replace(from, to)).is_err(), "{to} in the place of {from}");
        }
        let failed = Ended { code: Some(1), text: good() };
        assert!(TEST.judge(&failed).is_err());
    }
}
