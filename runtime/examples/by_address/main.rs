//! A client and a server that find each other by ADDR:PORT, through the connection manager: nothing but RDMA between them.
//!
//! ```text
//! cargo run --release --example by_address                                                      both here, a wire in memory
//! cargo run --release --example by_address -- server 10.0.0.1:7174 --dev afxdp:eth0             on one host
//! cargo run --release --example by_address -- client 10.0.0.1:7174 --dev afxdp:eth0 hello you   on the other
//! ```
//!
//! Read `server.rs` and `client.rs`; `end.rs` has what both of them have: a queue pair, memory, and messages.

mod client;
mod end;
mod server;

use std::net::SocketAddr;
use std::sync::mpsc::channel;

use clap::{Args, Parser, Subcommand};
use end::Result;
use softnic_runtime::api::{Context, DeviceSpec, OpenOptions};

/// A client and a server that connect by address, through the connection manager
#[derive(Debug, Parser)]
#[command(
    name = "by_address",
    after_help = "Examples:
  by_address                                                   both ends here, nothing to set up
  by_address both '[fd00::1]:7174'                             the same over IPv6
  by_address server 10.0.0.1:7174 --dev afxdp:eth0             on the host with that address
  by_address server '[::]:7174' --dev afxdp:eth0 --clients 3   for every address of the interface
  by_address client 10.0.0.1:7174 --dev afxdp:eth0 hello you   on another

afxdp needs root, or CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF. Both ends must be able to ping each other."
)]
struct Cli {
    #[command(subcommand)]
    role: Role,
}

#[derive(Debug, Subcommand)]
enum Role {
    /// Both ends in this process, with a wire in memory between them; this is what happens without arguments
    Both(Both),
    /// Wait for clients
    Server(Server),
    /// Connect to a server and send it messages
    Client(Client),
}

#[derive(Debug, Args)]
struct Both {
    /// Where the server listens: it is 10.0.0.1 and fd00::1 there, and the client 10.0.0.2 and fd00::2
    #[arg(default_value = "10.0.0.1:7174")]
    address: SocketAddr,
    #[command(flatten)]
    words: Words,
}

/// What a client says.
#[derive(Debug, Args)]
struct Words {
    /// Who the client is: up to 56 bytes
    #[arg(long, default_value = "somebody")]
    name: String,
    /// What it sends
    #[arg(default_values = ["one", "two", "three"])]
    messages: Vec<String>,
}

#[derive(Debug, Args)]
struct Server {
    /// Where to listen: ADDR:PORT, with IPv6 [ADDR]:PORT; 0.0.0.0 and [::] are all addresses
    address: SocketAddr,
    /// The device, as afxdp:INTERFACE
    #[arg(long)]
    dev: DeviceSpec,
    /// End after so many
    #[arg(long, default_value_t = 1)]
    clients: u32,
}

#[derive(Debug, Args)]
struct Client {
    /// Whom to connect to: ADDR:PORT, with IPv6 [ADDR]:PORT
    address: SocketAddr,
    /// The device, as afxdp:INTERFACE
    #[arg(long)]
    dev: DeviceSpec,
    #[command(flatten)]
    words: Words,
}

/// Runs what the arguments ask for; what it has to say at the end.
pub(crate) fn run(args: &[&str]) -> Result<String> {
    let cli = Cli::try_parse_from(["by_address"].iter().chain(if args.is_empty() { &["both"] } else { args }))?;
    match cli.role {
        Role::Server(Server { address, dev, clients }) => {
            let context = open(&dev)?;
            server::run(&context, address, clients, || eprintln!("listening to {address}"))
        }
        Role::Client(Client { address, dev, words }) => {
            client::run(&open(&dev)?, address, &words.name, &words.messages)
        }
        Role::Both(Both { address, words }) => {
            let options = OpenOptions::default();
            let [ours, theirs] = Context::open_pair([&options, &options])?;
            let (listens, listening) = channel();
            let server = std::thread::spawn(move || {
                server::run(&ours, address, 1, || listens.send(()).expect("the one who waits for it is there"))
            });
            // A server that does not get that far says why at the end. One whose client fails may wait for another: nobody waits for it.
            let client = match listening.recv() {
                Ok(()) => client::run(&theirs, address, &words.name, &words.messages)?,
                Err(_) => String::new(),
            };
            let served = server.join().map_err(|_| "the server panicked")??;
            Ok(format!("{client}\n{served}"))
        }
    }
}

fn open(device: &DeviceSpec) -> Result<Context> {
    match device {
        DeviceSpec::Mem => Err("a wire in memory has both ends in one process: write `by_address both`".into()),
        device => {
            let context = Context::open(device, &OpenOptions::default())?;
            eprintln!("{}", context.description());
            Ok(context)
        }
    }
}

#[allow(clippy::print_stdout)]
fn main() -> std::process::ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(said) => println!("{said}"),
        Err(e) => match e.downcast::<clap::Error>() {
            // Wrong arguments, or `--help`.
            Ok(usage) => usage.exit(),
            Err(e) => {
                eprintln!("by_address: {e}");
                return std::process::ExitCode::FAILURE;
            }
        },
    }
    std::process::ExitCode::SUCCESS
}
