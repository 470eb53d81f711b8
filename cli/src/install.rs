//! `softnic install`: lays the library down for good, under the names that programs know.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use crate::Common;
use crate::run::library::{self, IBVERBS, OTHER_NAMES, PRELOAD};

/// What is in our library and in no other: the first variable that it reads.
const MARK: &[u8] = b"SOFTNIC_DEV";

/// What softnic has beyond verbs, for programs that are compiled for it.
const HEADERS: [(&str, &str); 2] = [
    ("softnicdv.h", include_str!("../../verbs/include/softnicdv.h")),
    ("softnic_sdr.h", include_str!("../../verbs/include/softnic_sdr.h")),
];
/// Beside where rdma-core has the headers of its drivers.
const HEADER_PLACE: &str = "include/infiniband";

/// Lay down libibverbs.so.1 and librdmacm.so.1 in a folder, also without the version, for programs that are not started by `softnic run`
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic install ~/softnic-lib
  eval $(softnic install ~/softnic-lib) && SOFTNIC_DEV=afxdp:eth0 ibv_devinfo
  SOFTNIC_DEV=afxdp:eth0 LD_PRELOAD=~/softnic-lib/libsoftnic_preload.so UCX_TLS=rc_v ucx_info -d     # UCX needs this one, too
  cc -I ~/softnic-lib/include program.c -L ~/softnic-lib -l:libibverbs.so.1     # with <infiniband/softnicdv.h> or <infiniband/softnic_sdr.h>

The folder must not be where the system keeps its own: both libraries of rdma-core stay as they are unless --force is given. What
programs find is set by SOFTNIC_DEV, SOFTNIC_FAULT, SOFTNIC_PCAP and so on: see `softnic run --help`.")]
pub(crate) struct Args {
    /// The folder; it is made if it is not there
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Also in the place of libraries that are not softnic's
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &Args, common: &Common) -> Result<ExitCode, String> {
    let libraries = library::find()?;
    fs::create_dir_all(&args.folder).map_err(failed(&args.folder))?;
    let folder = args.folder.canonicalize().map_err(failed(&args.folder))?;
    for name in [IBVERBS].into_iter().chain(OTHER_NAMES) {
        let place = folder.join(name);
        if !args.force && place.exists() && !is_ours(&place) {
            return Err(format!("{} is not softnic's: choose another folder, or say --force", place.display()));
        }
    }
    let ibverbs = folder.join(IBVERBS);
    replace(&ibverbs, |new| fs::copy(&libraries.verbs, new).map(|_| ())).map_err(failed(&ibverbs))?;
    let others = OTHER_NAMES.map(|name| folder.join(name));
    for other in &others {
        replace(other, |new| symlink(IBVERBS, new)).map_err(failed(other))?;
    }
    let preload = libraries.preload.map(|from| (from, folder.join(PRELOAD)));
    if let Some((from, to)) = &preload {
        replace(to, |new| fs::copy(from, new).map(|_| ())).map_err(failed(to))?;
    }
    let preload = preload.map(|(_, to)| to);
    let place = folder.join(HEADER_PLACE);
    fs::create_dir_all(&place).map_err(failed(&place))?;
    let headers = HEADERS.map(|(name, _)| place.join(name));
    for (header, (_, text)) in headers.iter().zip(HEADERS) {
        replace(header, |new| fs::write(new, text)).map_err(failed(header))?;
    }
    let line = format!("export LD_LIBRARY_PATH={}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}", quoted(&folder));
    let printed = match common.json {
        true => writeln!(
            io::stdout(),
            "{}",
            json!({ "libibverbs": ibverbs, "librdmacm": others[0], "preload": preload, "header": headers[0],
                "sdr_header": headers[1], "export": line })
        ),
        false => writeln!(io::stdout(), "{line}"),
    };
    printed.map_err(|e| format!("cannot write the output: {e}"))?;
    Ok(ExitCode::SUCCESS)
}

/// For `map_err`.
fn failed(what: &Path) -> impl Fn(io::Error) -> String {
    move |e| format!("{}: {e}", what.display())
}

/// As a shell takes it for one word.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    match text.chars().all(|c| c.is_ascii_alphanumeric() || "/._-+".contains(c)) {
        true => text,
        false => format!("'{}'", text.replace('\'', "'\\''")),
    }
}

fn is_ours(place: &Path) -> bool {
    fs::read(place).is_ok_and(|bytes| bytes.windows(MARK.len()).any(|window| window == MARK))
}

/// Puts something new in a place at once: a program that starts meanwhile finds the old or the new, and one that runs keeps what it has.
fn replace(place: &Path, make: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    let mut new = place.as_os_str().to_owned();
    new.push(format!(".{}", std::process::id()));
    let new = PathBuf::from(new);
    let done = make(&new).and_then(|()| fs::rename(&new, place));
    if done.is_err() {
        // Whatever of it was made.
        let _ = fs::remove_file(&new);
    }
    done
}
