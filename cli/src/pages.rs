//! `softnic completions` and `softnic man`: what a shell and man(1) know of the commands.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;
use serde_json::json;

use crate::{Cli, Common};

/// Print completions of all commands and options for a shell
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic completions bash > softnic.bash      # in /usr/share/bash-completion/completions it is called softnic
  softnic completions zsh > _softnic           # in a folder of zsh's fpath
  softnic completions fish > softnic.fish      # in ~/.config/fish/completions")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_enum)]
    shell: KnownShell,
}

/// Shells for which there are completions.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum KnownShell {
    Bash,
    Zsh,
    Fish,
}

/// Write man pages of softnic and of each of its commands to a folder
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic man                                  # softnic.1 to stdout
  softnic man man1                             # softnic.1, softnic-perf.1 and so on, in the folder man1")]
pub(crate) struct ManArgs {
    /// The folder, which is made if it is not there [default: none, the page softnic.1 goes to stdout]
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<ExitCode, String> {
    let shell = match args.shell {
        KnownShell::Bash => Shell::Bash,
        KnownShell::Zsh => Shell::Zsh,
        KnownShell::Fish => Shell::Fish,
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "softnic", &mut text);
    printed(io::stdout().write_all(&text))
}

pub(crate) fn man(args: &ManArgs, common: &Common) -> Result<ExitCode, String> {
    let mut command = Cli::command();
    // Names of subcommands have the name of the program in front from here on.
    command.build();
    let Some(folder) = &args.folder else {
        return printed(page(&command).and_then(|text| io::stdout().write_all(&text)));
    };
    let pages = write_pages(&command, folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    match common.json {
        true => printed(writeln!(io::stdout(), "{}", json!({ "pages": pages }))),
        false => Ok(ExitCode::SUCCESS),
    }
}

/// Writes a page for each command, and returns their names.
fn write_pages(command: &clap::Command, folder: &Path) -> io::Result<Vec<String>> {
    fs::create_dir_all(folder)?;
    let subcommands = command.get_subcommands().filter(|sub| sub.get_name() != "help");
    let mut names = Vec::new();
    for command in std::iter::once(command).chain(subcommands) {
        let name = format!("{}.1", command.get_display_name().unwrap_or(command.get_name()));
        fs::write(folder.join(&name), page(command)?)?;
        names.push(name);
    }
    Ok(names)
}

fn page(command: &clap::Command) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    clap_mangen::Man::new(command.clone()).render(&mut text)?;
    Ok(text)
}

/// Whoever reads the output may go; everything else is an error.
fn printed(result: io::Result<()>) -> Result<ExitCode, String> {
    match result {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(format!("cannot write the output: {e}")),
        _ => Ok(ExitCode::SUCCESS),
    }
}
