//! `softnic run`: any verbs program on softnic, by a library of its own in the place of libibverbs and librdmacm.

mod backups;
mod child;
mod condition;
mod devices;
pub(crate) mod folder;
pub(crate) mod library;
mod mutual;
mod summary;
mod used;

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use nix::unistd::AccessFlags;
use softnic_fault_injector::calls::CallFaults;
use softnic_fault_injector::{Spec, with_whole_names};
use softnic_nic::QpKind;
use softnic_perf::say;
use softnic_runtime::api::{Transport, parse_cc, read_key_file};
use softnic_runtime::share::Share;

use crate::backup::FailoverArgs;
use crate::metrics::{Endpoint, EndpointAddress, page_of_nics};
use crate::{Common, cores};
use backups::Backups;
use condition::Condition;
use devices::Devices;
pub(crate) use folder::PrivateFolder;
use summary::Summary;

/// When the program was not started, as env(1) and timeout(1) have it.
pub(crate) const NOT_STARTED: u8 = 125;
/// When the program succeeded, and its counters say otherwise.
const FAILED_BY_COUNTERS: u8 = 122;

/// Run any verbs program on softnic, unchanged
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic run -- ib_write_bw                                     # in one terminal, without root
  softnic run -- ib_write_bw localhost                           # in another
  softnic run --dev afxdp:eth0 -- ib_write_bw -d softnic0 -a     # there
  softnic run --dev afxdp:eth0 -- ib_write_bw -d softnic0 -a 10.0.0.2
  softnic run --dev mem -- ./my_test                             # softnic0 and softnic1, joined in memory: no root, no network
  softnic run --dev afxdp:eth0 --transport sr -- ib_send_bw -d softnic0 10.0.0.2
  softnic run --dev afxdp:eth0 --transport lowar:32,1 -- ib_write_bw -d softnic0 10.0.0.2
  softnic run --dev afxdp:eth0 --cc dcqcn -- ib_write_bw -d softnic0 10.0.0.2
  softnic run --dev afxdp:eth0 --backup afxdp:eth1 -- ib_send_bw -d softnic0 10.0.0.2   # goes on by eth1 when eth0 fails
  softnic run --dev afxdp:eth0 --dev afxdp:eth1 --backup mutual -- ./my_program       # uses both, each backs the other
  softnic run --dev afxdp:eth0 --auth /etc/softnic.key -- ib_write_bw -d softnic0 10.0.0.2
  softnic run --dev afxdp:eth0 --fault loss=1e-3 --pcap lossy.pcap -- ib_send_bw -d softnic0 10.0.0.2
  softnic run --dev mem --summary --fail-on 'retransmitted_packets>0' --fail-on 'retry_exceeded_err>0' -- ./my_test

The program finds the devices softnic0, softnic1, …, one for each --dev (two for mem), port 1, with RoCEv2 GIDs: index 0 is the first
IPv4 address. The exit code is the program's, 128 + N when signal N ended it; 122 when it is 0 and a --fail-on holds; 125 when
something here is wrong, 126 when the program cannot be run, 127 when there is none. What is not given here is taken from SOFTNIC_DEV, SOFTNIC_TRANSPORT, SOFTNIC_CC, SOFTNIC_FAULT,
SOFTNIC_PCAP, SOFTNIC_TRACE, SOFTNIC_CPUS, SOFTNIC_KEY_FILE, SOFTNIC_BACKUP, SOFTNIC_FAILOVER, SOFTNIC_KV, SOFTNIC_PROBE and
SOFTNIC_BACKUP_FAULT, which is also how the library is told. SOFTNIC_LOG=warn (off, error, info,
debug, trace) has it say on stderr what happens. AF_XDP needs root, or CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF.")]
pub(crate) struct Args {
    #[command(flatten)]
    setup: Setup,
    /// Print the counters of the devices when the program has ended, those that are not 0, on stderr (with --json: all, as the last line of stdout).
    /// All processes that opened a device are in them, also those that ended before
    #[arg(long)]
    summary: bool,
    /// Exit with 122 if the program succeeds and this holds for its counters, as in 'retransmitted_packets>0': > >= < <= == !=; or if no process
    /// opened a device, so that there are no counters. May be given more than once
    #[arg(long, value_name = "CONDITION")]
    fail_on: Vec<String>,
    /// Serve counters for Prometheus at http://ADDR/metrics while it runs: a port of this machine alone, as in 9400, or ADDRESS:PORT
    #[arg(long, value_name = "ADDR")]
    metrics: Option<String>,
    /// The program and what it is given, after --
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// What a program runs on: its devices, their wire, its transports.
#[derive(Debug, clap::Args)]
pub(crate) struct Setup {
    /// A device: shm, shm:NAME (a network of processes on this host), shared:INTERFACE (that `softnic share` serves), mem, afxdp:INTERFACE[,mode=zero-copy|copy|auto][,queues=N][,chunks=N], or dgram:OURS,PEERS,ip=ADDR/LEN[,mac=M]; may be given
    /// more than once [default: the only interface that is up and has an address, if this user may use it, else shm]
    #[arg(long, short = 'd', value_name = "DEVICE")]
    dev: Vec<String>,
    /// The backup of a device, the n-th of the n-th --dev: RC connections go on by it when the device fails, or its network, and return
    /// (SHIFT). Of mem: mem. Both ends need one; the program does not see it. `mutual`: of two devices each is the other's backup. A WRITE may
    /// be carried out twice: docs/failover.md says for which programs that is wrong
    #[arg(long, value_name = "DEVICE", help_heading = "Failover")]
    backup: Vec<String>,
    #[command(flatten)]
    failover: FailoverArgs,
    /// What goes wrong on the wire: on mem in both directions, on a device for what it sends (rx. before a key: receives); and with the
    /// program's calls: verbs.post_send=ENOMEM:1e-3, verbs.poll_cq=RETRY_EXC_ERR:1e-4, cm.connect=REJECTED:28, event.PORT_ERR=5s+2s (docs/faults.md)
    #[arg(long, value_name = "SPEC")]
    fault: Option<String>,
    /// Record the frames of the devices as a pcap file; in a folder that is there one for each process and device, PID-softnic0.pcap
    #[arg(long, value_name = "FILE|FOLDER")]
    pcap: Option<PathBuf>,
    /// Write all that happens to the queue pairs as a trace (qlog): packets, losses and why, windows, states; in a folder as --pcap
    #[arg(long, value_name = "FILE|FOLDER")]
    trace: Option<PathBuf>,
    #[arg(long, help = transport_help())]
    transport: Option<String>,
    /// What decides how fast its RC and UC queue pairs send: window, no more outstanding on RC than a receiver in software has room for; none;
    /// dcqcn, with settings as in dcqcn:ai=5Mbit,timer=300us; swift, by round trips, as in swift:base=1ms;
    /// eqds, by credit of the receiver, for rc, sr and xp, as in eqds:spec=64K; or a rate and, if you like, bytes in flight, as in fixed:2Gbit:256K
    /// [default: window]
    #[arg(long, value_name = "window|none|dcqcn|swift|eqds|fixed:RATE")]
    cc: Option<String>,
    /// Authenticate every packet of RC queue pairs by the secret in FILE, 16 to 4096 bytes that nobody but the owner may read. Both ends need
    /// it: a peer without it is refused
    #[arg(long, value_name = "FILE")]
    auth: Option<PathBuf>,
    /// Cores that the NIC's own threads are pinned to, as in 0,1
    #[arg(long, value_name = "LIST")]
    cpu: Option<String>,
}

/// What the library finds in its environment.
struct Environment {
    variables: Vec<(&'static str, OsString)>,
    /// Interfaces that are shared with the program alone, as long as it runs.
    _shares: Vec<Share>,
}

pub(crate) fn run(args: &Args, common: &Common) -> Result<ExitCode, String> {
    match start(args, common) {
        Ok(code) => Ok(code),
        Err(e) => {
            say!("softnic: {e}");
            Ok(ExitCode::from(NOT_STARTED))
        }
    }
}

fn start(args: &Args, common: &Common) -> Result<ExitCode, String> {
    let conditions = args.fail_on.iter().map(|text| text.parse::<Condition>()).collect::<Result<Vec<_>, _>>();
    let conditions = conditions.map_err(|e| format!("--fail-on: {e}"))?;
    let endpoint = args.metrics.as_deref().map(|text| text.parse::<EndpointAddress>());
    let endpoint = endpoint.transpose().map_err(|e| format!("--metrics: {e}"))?;
    let endpoint = endpoint.map(|address| Endpoint::bind(&address)).transpose()?;
    let counted = args.summary || !conditions.is_empty();
    let prepare = |folder: &PrivateFolder, command: &mut Command| {
        if counted || endpoint.is_some() {
            command.env(COUNTERS, folder.make_counters()?);
        }
        if let Some(endpoint) = endpoint {
            let counters = folder.counters();
            endpoint.serve(move || page_of_nics(&Summary::read(&counters).unwrap_or_default().samples()))?;
        }
        Ok(())
    };
    let Ran { code, folder, used_verbs } = launch(&args.setup, &args.program, common.seed, prepare)?;
    if let (Some(code), Some(false)) = (code.program, used_verbs) {
        let name = Path::new(&args.program[0]).display();
        say!(
            "softnic: {name} ended ({code}) and never asked softnic's libibverbs for a device: it used no verbs, or it is setuid or statically \
             linked, and ran without softnic"
        );
    }
    if !counted || code.program.is_none() {
        return Ok(code.ours);
    }
    let summary = Summary::read(&folder.counters()).map_err(|e| format!("cannot read the counters: {e}"))?;
    let failures = summary.failures(&conditions);
    if args.summary {
        summary.print(&failures, common.json);
    }
    for (condition, value) in &failures {
        say!("softnic: failed on {condition}: it is {value}");
    }
    // A check of counters that nobody counted could never fail.
    let unchecked = !conditions.is_empty() && summary.devices.is_empty();
    if unchecked {
        say!("softnic: failed: --fail-on has no counters to check, because no process opened a device");
    }
    match code.program == Some(0) && (unchecked || !failures.is_empty()) {
        true => Ok(ExitCode::from(FAILED_BY_COUNTERS)),
        false => Ok(code.ours),
    }
}

/// A program that has ended.
pub(crate) struct Ran {
    pub(crate) code: child::Ended,
    /// With what the library left there.
    pub(crate) folder: PrivateFolder,
    /// Whether it asked for devices; `None` where that could not be watched.
    pub(crate) used_verbs: Option<bool>,
}

/// Runs a program on softnic until it ends. `prepare` says what else its library is told.
pub(crate) fn launch(
    setup: &Setup,
    program: &[OsString],
    seed: u64,
    prepare: impl FnOnce(&PrivateFolder, &mut Command) -> Result<(), String>,
) -> Result<Ran, String> {
    let libraries = library::find()?;
    let environment = Environment::of(setup, seed)?;
    // From here on a signal is for the program; the folder is removed when it has ended.
    let signals = child::Signals::block()?;
    let folder = PrivateFolder::with(&libraries)?;
    let mut command = Command::new(&program[0]);
    command.args(&program[1..]).env(SEARCH_PATH, search_path(folder.path())).envs(environment.variables);
    command.env(FILES, folder.files());
    prepare(&folder, &mut command)?;
    if libraries.preload.is_some() {
        command.env(PRELOADED, preloaded(folder.path()));
        command.env(ASAN_OPTIONS, with_old("verify_asan_link_order=0".into(), ASAN_OPTIONS));
    }
    let verbs = used::Watch::on(&folder.files());
    let code = signals.run(&mut command)?;
    Ok(Ran { code, folder, used_verbs: verbs.map(|verbs| verbs.were_used()) })
}

/// Tells the library where its files go.
const FILES: &str = "SOFTNIC_FILES";

/// Tells the library where the counters of its NICs go.
const COUNTERS: &str = "SOFTNIC_COUNTERS";

/// Where ld.so looks first.
const SEARCH_PATH: &str = "LD_LIBRARY_PATH";

/// What it loads first.
const PRELOADED: &str = "LD_PRELOAD";
/// A program that was compiled with AddressSanitizer refuses to start where anything is loaded before it, unless it is told that this is meant.
const ASAN_OPTIONS: &str = "ASAN_OPTIONS";

/// Our folder, and then where it looked before.
fn search_path(folder: &Path) -> OsString {
    with_old(folder.as_os_str().to_owned(), SEARCH_PATH)
}

/// A value, and behind it what a variable has now.
fn with_old(mut value: OsString, variable: &str) -> OsString {
    if let Some(old) = std::env::var_os(variable).filter(|old| !old.is_empty()) {
        value.push(":");
        value.push(old);
    }
    value
}

/// What others wanted to be loaded first, and then ours: they are asked before it. libibverbs is among them, because a library that is loaded
/// already is not looked for by an RPATH, and its symbols are found before those of copies under other names.
fn preloaded(folder: &Path) -> OsString {
    let mut all = std::env::var_os(PRELOADED).filter(|old| !old.is_empty()).map_or_else(OsString::new, |mut old| {
        old.push(":");
        old
    });
    all.push(folder.join(library::PRELOAD));
    all.push(":");
    all.push(folder.join(library::IBVERBS));
    all
}

/// An option, or else what the environment has for it.
pub(crate) fn given(option: Option<&str>, variable: &str) -> Result<Option<String>, String> {
    match (option, std::env::var(variable)) {
        (Some(text), _) => Ok(Some(text.into())),
        (None, Ok(text)) if !text.is_empty() => Ok(Some(text)),
        (None, Err(std::env::VarError::NotUnicode(_))) => Err(format!("{variable} is not UTF-8")),
        (None, _) => Ok(None),
    }
}

impl Environment {
    /// Everything is looked at before the program starts: a mistake is said here in one line, and not by a library inside it.
    fn of(args: &Setup, seed: u64) -> Result<Environment, String> {
        let mut all = Vec::new();
        let mut set = |name, value: Option<String>| all.extend(value.map(|v| (name, OsString::from(v))));
        let transport = given(args.transport.as_deref(), "SOFTNIC_TRANSPORT")?;
        transport.as_deref().map_or(Ok(()), check_transport)?;
        set("SOFTNIC_TRANSPORT", transport);
        let cc = given(args.cc.as_deref(), "SOFTNIC_CC")?;
        cc.as_deref().map_or(Ok(()), check_congestion_control)?;
        set("SOFTNIC_CC", cc);
        let cpus = given(args.cpu.as_deref(), "SOFTNIC_CPUS")?;
        cpus.as_deref().map_or(Ok(()), cores::check_list).map_err(|e| format!("--cpu: {e}"))?;
        set("SOFTNIC_CPUS", cpus);
        let fault = given(args.fault.as_deref(), "SOFTNIC_FAULT")?;
        let spec = fault.as_deref().map(str::parse::<Spec>).transpose().map_err(|e| format!("--fault: {e}"))?;
        let devices = match given(None, "SOFTNIC_DEV")? {
            Some(list) if args.dev.is_empty() => Devices::parse(list.split(';'))?,
            _ if args.dev.is_empty() => Devices::usual()?,
            _ => Devices::parse(args.dev.iter().map(String::as_str))?,
        };
        // Those of the program's calls are no device's.
        let of_devices = spec.map(|spec| Spec { calls: CallFaults::default(), ..spec });
        devices.check(of_devices.as_ref(), ["--dev", "--fault"])?;
        set("SOFTNIC_FAULT", with_scripts("--fault", fault)?);
        let (devices, shares) = match Backups::are_mutual(args)? {
            true => mutual::share(&devices)?,
            false => (devices, Vec::new()),
        };
        let backups = Backups::of(args, &devices)?;
        backups.check(&devices)?;
        backups.variables().for_each(|(name, value)| set(name, value));
        set("SOFTNIC_DEV", Some(devices.joined()));
        set("SOFTNIC_SEED", Some(seed.to_string()));
        let pcap = args.pcap.clone().or_else(|| std::env::var_os("SOFTNIC_PCAP").map(PathBuf::from));
        let key = args.auth.clone().or_else(|| std::env::var_os("SOFTNIC_KEY_FILE").map(PathBuf::from));
        if let Some(file) = key.filter(|file| !file.as_os_str().is_empty()) {
            read_key_file(&file).map_err(|e| format!("--auth: {e}"))?;
            let whole = std::path::absolute(&file).map_err(|e| format!("--auth: {e}"))?;
            all.push(("SOFTNIC_KEY_FILE", whole.into()));
        }
        if let Some(file) = pcap.filter(|file| !file.as_os_str().is_empty()) {
            all.push(("SOFTNIC_PCAP", file_or_folder("capture", &file)?.into()));
        }
        let trace = args.trace.clone().or_else(|| std::env::var_os("SOFTNIC_TRACE").map(PathBuf::from));
        if let Some(file) = trace.filter(|file| !file.as_os_str().is_empty()) {
            all.push(("SOFTNIC_TRACE", file_or_folder("trace", &file)?.into()));
        }
        // The library reads it itself.
        crate::log_level()?;
        Ok(Environment { variables: all, _shares: shares })
    }
}

fn check_transport(name: &str) -> Result<(), String> {
    Transport::parse_rc(name).map(|_| ()).map_err(|e| format!("--transport: {e}"))
}

fn transport_help() -> String {
    format!(
        "The transport of RC queue pairs [default: rc]:\n{}\nExtensions of the standard are negotiated: a peer that has them not is named on stderr, \
         and rc is used. lowar needs a link MTU of the path MTU and 120 more",
        Transport::help(|t| t.kind() == QpKind::Rc)
    )
}

fn check_congestion_control(name: &str) -> Result<(), String> {
    parse_cc(name).map(|_| ()).map_err(|e| format!("--cc: {e}"))
}

/// Faults for the program, wherever it goes before it reads them.
fn with_scripts(option: &str, spec: Option<String>) -> Result<Option<String>, String> {
    spec.as_deref().map(with_whole_names).transpose().map_err(|e| format!("{option}: {e}"))
}

/// The same of a file, or of a folder for one file a process and device.
fn file_or_folder(what: &str, path: &Path) -> Result<PathBuf, String> {
    if !path.is_dir() {
        return writable(what, path);
    }
    let failed = |e| format!("cannot write a {what} into {}: {e}", path.display());
    let whole = std::path::absolute(path).map_err(failed)?;
    nix::unistd::access(&whole, AccessFlags::W_OK | AccessFlags::X_OK).map_err(|e| failed(e.into()))?;
    Ok(whole)
}

/// The whole name of a file that the library will write, wherever the program goes; nothing in it is touched.
pub(crate) fn writable(what: &str, file: &Path) -> Result<PathBuf, String> {
    let failed = |e| format!("cannot write the {what} {}: {e}", file.display());
    let whole = std::path::absolute(file).map_err(failed)?;
    let is_new = !whole.exists();
    // As the library will open it.
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).custom_flags(nix::libc::O_NOFOLLOW).open(&whole).map_err(failed)?;
    if is_new {
        std::fs::remove_file(&whole).map_err(failed)?;
    }
    Ok(whole)
}
