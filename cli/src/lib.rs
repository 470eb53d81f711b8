//! The `softnic` command line.

mod backup;
mod capture_source;
mod check;
mod collective;
mod colour;
mod cores;
mod counters;
mod demo;
mod devinfo;
mod explore;
mod faults;
mod inspect;
mod install;
mod metrics;
mod pages;
mod perf;
mod plain;
mod replay;
mod report;
mod run;
mod sdr;
mod share;
mod sim;
mod switch;
mod terminal;
mod top;
mod topology;
mod trace;
mod wire;
mod wireshark;

use std::process::ExitCode;

use clap::{ColorChoice, CommandFactory, FromArgMatches, Parser, Subcommand};
use softnic_perf::say;
use softnic_runtime::api::{LogLevel, parse_log_level};

/// A software RDMA NIC: RoCEv2 from user space, without RDMA hardware.
#[derive(Debug, Parser)]
#[command(name = "softnic", version, arg_required_else_help = true, infer_subcommands = true)]
struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(subcommand)]
    command: Command,
}

/// The heading of the options below in each help.
const EVERYWHERE: &str = "Options of every command";

/// What every command takes.
#[derive(Debug, Clone, clap::Args)]
struct Common {
    /// Print JSON on stdout: one object, or one a line; everything else goes to stderr
    #[arg(long, global = true, help_heading = EVERYWHERE, display_order = 900)]
    json: bool,
    /// Seed of everything that is random
    #[arg(long, global = true, value_name = "N", default_value_t = 1, help_heading = EVERYWHERE, display_order = 901)]
    seed: u64,
    /// Colours: auto has them on terminals, unless NO_COLOR is set, and everywhere where CLICOLOR_FORCE is
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", help_heading = EVERYWHERE, display_order = 902)]
    color: ColorChoice,
}

#[derive(Debug, Subcommand)]
enum Command {
    Check(check::Args),
    Collective(Box<collective::Args>),
    Completions(pages::CompletionsArgs),
    Counters(counters::Args),
    Demo(demo::Args),
    Devinfo(devinfo::Args),
    Experiment(softnic_experiments::Args),
    Explore(explore::Args),
    Faults(faults::Args),
    Inspect(inspect::Args),
    Install(install::Args),
    Man(pages::ManArgs),
    Perf(Box<perf::Args>),
    Plot(softnic_experiments::plot::Args),
    Race(Box<softnic_experiments::grid::Args>),
    Replay(replay::Args),
    Report(report::Args),
    Run(run::Args),
    Share(share::Args),
    Sim(Box<sim::Args>),
    Switch(switch::Args),
    Top(top::Args),
    Trace(trace::Args),
    Wire(wire::Args),
    WiresharkPlugin(wireshark::Args),
}

/// How much is logged: what `SOFTNIC_LOG` says.
fn log_level() -> Result<Option<LogLevel>, String> {
    let text = std::env::var_os("SOFTNIC_LOG").unwrap_or_default();
    match text.to_str() {
        Some("") => Ok(None),
        Some(level) => parse_log_level(level).map_err(|e| format!("SOFTNIC_LOG: {e}")),
        None => Err("SOFTNIC_LOG: it is no text".into()),
    }
}

/// What the program does.
pub fn main() -> ExitCode {
    let matches = Cli::command().color(colour::among(std::env::args_os())).get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|e| e.exit());
    colour::choose(cli.common.color);
    let Common { seed, json, .. } = cli.common;
    let result = match &cli.command {
        Command::Check(args) => check::run(args, &cli.common),
        Command::Collective(args) => collective::run(args, &cli.common),
        Command::Completions(args) => pages::completions(args),
        Command::Counters(args) => counters::run(args, &cli.common),
        Command::Demo(args) => demo::run(args, &cli.common),
        Command::Devinfo(args) => devinfo::run(args, &cli.common),
        Command::Experiment(args) => softnic_experiments::run(args, seed, json),
        Command::Explore(args) => explore::run(args, &cli.common),
        Command::Faults(args) => faults::run(args, &cli.common),
        Command::Inspect(args) => inspect::run(args, &cli.common),
        Command::Install(args) => install::run(args, &cli.common),
        Command::Man(args) => pages::man(args, &cli.common),
        Command::Perf(args) => perf::run(args, &cli.common),
        Command::Plot(args) => softnic_experiments::plot::run(args, json),
        Command::Race(args) => softnic_experiments::grid::run(args, seed, json),
        Command::Replay(args) => replay::run(args, &cli.common),
        Command::Report(args) => report::run(args, &cli.common),
        Command::Run(args) => run::run(args, &cli.common),
        Command::Share(args) => share::run(args, &cli.common),
        Command::Sim(args) => sim::run(args, &cli.common),
        Command::Switch(args) => switch::run(args, &cli.common),
        Command::Top(args) => top::run(args, &cli.common),
        Command::Trace(args) => trace::run(args, &cli.common),
        Command::Wire(args) => wire::run(args, &cli.common),
        Command::WiresharkPlugin(args) => wireshark::run(args, &cli.common),
    };
    match result {
        Ok(code) => code,
        Err(e) => {
            say!("softnic: {e}");
            ExitCode::FAILURE
        }
    }
}
