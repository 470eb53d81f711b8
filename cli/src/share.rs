//! `softnic share`: one interface for any number of processes without privileges.

mod notify;

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use softnic_fault_injector::units::parse_rate;
use softnic_perf::{say, stop};
use softnic_runtime::api::{ConnectionManager, Context, DeviceSpec, DeviceSpecError, OpenOptions, Progress};
use softnic_runtime::share::{ClientStatus, Limits, Served, Share, ShareOptions, served};

use crate::Common;
use crate::metrics::{Endpoint, EndpointAddress, page_of_share};

/// How often to look whether it is time to end.
const NAP: Duration = Duration::from_millis(100);

/// Share an interface: any number of processes without privileges use it as shared:IF
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic share --dev afxdp:eth0                                # as root; for every user of this machine
  softnic share --dev afxdp:eth0 --group users                  # for members of a group
  softnic run --dev shared:eth0 -- ib_write_bw 10.0.0.2         # as anybody; `softnic run` alone finds it, too
  softnic share --dev afxdp:eth0 --list                         # who uses it, with counters

Frames do not pass through this process: each client has a virtual device and AF_XDP sockets of its own, and programs in the kernel
carry frames between them and the interface. When this process is killed, clients go on, and the next one takes over; when it ends by
Ctrl-C or SIGTERM, all clients lose the interface. Needs root, or CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF, CAP_SYS_ADMIN and CAP_IPC_LOCK.
docs/sharing.md has more, and a unit for systemd.")]
pub(crate) struct Args {
    /// The interface: afxdp:IF
    #[arg(long, value_name = "DEV", value_parser = interface)]
    dev: String,
    /// Who may use it: members of this group, by name or number
    #[arg(long, value_name = "GROUP", value_parser = group)]
    group: Option<u32>,
    /// The mode of the socket that clients connect to [default: 0666, with --group 0660]
    #[arg(long, value_name = "MODE", value_parser = mode)]
    mode: Option<u32>,
    /// How many clients there may be
    #[arg(long, value_name = "N", default_value_t = 255, value_parser = clap::value_parser!(u32).range(1..=1021))]
    clients: u32,
    /// How many of them may be one user's [default: all]
    #[arg(long, value_name = "N")]
    per_user: Option<u32>,
    /// Queues of a client that does not say how many it wants
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    queues: u32,
    /// What each client may send, as in 10Gbit; frames above it are dropped and counted
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<u64>,
    /// Queue pairs of each client
    #[arg(long, value_name = "N")]
    queue_pairs: Option<u32>,
    /// Memory regions of each client
    #[arg(long, value_name = "N")]
    regions: Option<u32>,
    /// Serve counters for Prometheus at http://ADDR/metrics while it runs: a port of this machine alone, as in 9400, or ADDRESS:PORT
    #[arg(long, value_name = "ADDR")]
    metrics: Option<EndpointAddress>,
    /// Show the clients of the daemon that shares it, and end
    #[arg(long)]
    list: bool,
}

fn interface(s: &str) -> Result<String, String> {
    let device: DeviceSpec = s.parse().map_err(|e: DeviceSpecError| e.to_string())?;
    match &device {
        DeviceSpec::AfXdp { interface, .. } if device == DeviceSpec::afxdp(interface) => Ok(interface.clone()),
        DeviceSpec::AfXdp { interface, .. } => Err(format!("a shared interface has no options: say afxdp:{interface}")),
        _ => Err("only an interface can be shared: afxdp:IF".into()),
    }
}

fn mode(s: &str) -> Result<u32, String> {
    let mode = u32::from_str_radix(s, 8).map_err(|_| format!("`{s}` is no mode: write it as in 0660"))?;
    match mode & !0o666 {
        0 => Ok(mode),
        _ => Err("a socket is read and written: at most 0666".into()),
    }
}

/// A group's number.
fn group(s: &str) -> Result<u32, String> {
    if let Ok(number) = s.parse() {
        return Ok(number);
    }
    match nix::unistd::Group::from_name(s) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        _ => Err(format!(
            "there is no group `{s}`: `groupadd --system {s}` makes it, `usermod -aG {s} USER` adds a user"
        )),
    }
}

pub(crate) fn run(args: &Args, common: &Common) -> Result<ExitCode, String> {
    if args.list {
        let served = served(&args.dev).map_err(|e| e.to_string())?;
        return match list(&served, common.json) {
            Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot write the output: {e}")),
            _ => Ok(ExitCode::SUCCESS),
        };
    }
    let clients = args.clients as usize;
    let options = ShareOptions {
        interface: args.dev.clone(),
        group: args.group,
        mode: args.mode.unwrap_or(if args.group.is_some() { 0o660 } else { 0o666 }),
        clients,
        clients_of_user: args.per_user.map_or(clients, |n| n as usize),
        queues: args.queues,
        limits: Limits {
            queue_pairs: args.queue_pairs.unwrap_or(0),
            regions: args.regions.unwrap_or(0),
            rate: args.rate.unwrap_or(0),
        },
    };
    let endpoint = args.metrics.as_ref().map(Endpoint::bind).transpose()?;
    stop::install();
    let share = Share::start(options).map_err(|e| e.to_string())?;
    let warden = warden(&args.dev)?;
    let left = match share.taken_over() {
        0 => String::new(),
        n => format!(", with {n} clients of the daemon before"),
    };
    // On stderr: it is there when clients are let in, and whoever started this may wait for it.
    say!("softnic: sharing {}{left}; clients say --dev shared:{}", share.description(), args.dev);
    if let Some(endpoint) = endpoint {
        let interface = args.dev.clone();
        endpoint.serve(move || page_of_share(&interface, &served(&interface).unwrap_or_default()))?;
    }
    notify::ready();
    while !stop::requested() && !share.is_over() {
        std::thread::sleep(NAP);
    }
    notify::stopping();
    drop(warden);
    if share.is_over() {
        return Err(format!("the interface {} is gone", args.dev));
    }
    // Our own may be among them still.
    let others = |served: &Served| served.clients.iter().filter(|client| client.pid != std::process::id()).count();
    let clients = served(&args.dev).as_ref().map_or(0, others);
    drop(share);
    say!("softnic: {} is not shared any more{}", args.dev, if clients > 0 { "; its clients have lost it" } else { "" });
    Ok(ExitCode::SUCCESS)
}

/// A client of our own that refuses requests for services that nobody has: who asks is told at once, and need not wait for an answer.
fn warden(interface: &str) -> Result<(Context, ConnectionManager), String> {
    let device = DeviceSpec::Shared { interface: interface.into() };
    let options = OpenOptions { progress: Some(Progress::Inline), queues: Some(1), ..OpenOptions::default() };
    let context = Context::open(&device, &options).map_err(|e| e.to_string())?;
    let manager = ConnectionManager::new(&context).map_err(|e| e.to_string())?;
    Ok((context, manager))
}

fn list(served: &Served, as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if as_json {
        for client in &served.clients {
            let mut line = json!({ "process": client.process, "pid": client.pid, "uid": client.uid });
            for (name, count) in client.counters() {
                line[name] = count.into();
            }
            writeln!(out, "{line}")?;
        }
        return writeln!(out, "{}", json!({ "nobody": served.nobody }));
    }
    write!(out, "{:>7} {:>8} {:>6}", "process", "pid", "uid")?;
    for (name, _) in ClientStatus::default().counters() {
        write!(out, " {name:>15}")?;
    }
    writeln!(out)?;
    for client in &served.clients {
        write!(out, "{:>7} {:>8} {:>6}", client.process, client.pid, client.uid)?;
        for (_, count) in client.counters() {
            write!(out, " {count:>15}")?;
        }
        writeln!(out)?;
    }
    writeln!(out, "packets for nobody: {}", served.nobody)
}
