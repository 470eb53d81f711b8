//! `softnic wireshark-plugin`: a dissector for Wireshark of what softnic adds to RoCE.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use crate::Common;

/// The dissector.
const PLUGIN: &str = include_str!("wireshark/softnic.lua");
const NAME: &str = "softnic.lua";

/// Write a dissector for Wireshark and tshark: Selective Repeat, LoWAR, negotiation, authentication
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic wireshark-plugin                                          # where Wireshark looks for it
  softnic wireshark-plugin plugins
  tshark -X lua_script:plugins/softnic.lua -r run.pcap -Y softnic.sr.ack.missing

The fields are softnic.sr.*, softnic.lowar.*, softnic.negotiation.* and softnic.auth.*; docs/inspect.md has them all. Wireshark's own dissector
shows the BTH and everything that is standard RoCE.")]
pub(crate) struct Args {
    /// The folder to write softnic.lua into; it is made if it is not there. Without it, only says where Wireshark looks
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, common: &Common) -> Result<ExitCode, String> {
    let text = match &args.folder {
        Some(folder) => {
            let file = write(folder)?;
            match common.json {
                true => format!("{}\n", json!({ "file": file })),
                false => format!("wrote {}\nfor one run:  tshark -X lua_script:{0} -r capture.pcap\n", file.display()),
            }
        }
        None => {
            let folder = personal_folder(std::env::var_os("HOME").map(PathBuf::from));
            match common.json {
                true => format!("{}\n", json!({ "folder": folder })),
                false => format!(
                    "Wireshark and tshark look into {0} (`tshark -G folders`: Personal Lua Plugins). Type:\n  softnic wireshark-plugin {0}\n",
                    folder.display()
                ),
            }
        }
    };
    match io::stdout().write_all(text.as_bytes()) {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot write the output: {e}")),
        _ => Ok(ExitCode::SUCCESS),
    }
}

fn write(folder: &Path) -> Result<PathBuf, String> {
    let file = folder.join(NAME);
    let written = fs::create_dir_all(folder).and_then(|()| fs::write(&file, PLUGIN));
    written.map_err(|e| format!("cannot write {}: {e}", file.display()))?;
    Ok(file)
}

/// Where Wireshark looks for a user's plugins in Lua.
fn personal_folder(home: Option<PathBuf>) -> PathBuf {
    home.unwrap_or_else(|| PathBuf::from("~")).join(".local/lib/wireshark/plugins")
}
