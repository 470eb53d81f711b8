//! `softnic plot`: charts of stored results, drawn again.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::chart;
use crate::results::{Results, write_all};

/// Draw the charts of stored results again, as SVG and PNG
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic race --loss 0,1e-3 --seeds 1 --size 64K --out race-results
  softnic plot race-results/race.json                    # race-results/race.svg
  softnic plot docs/experiments/*.json --out pictures

`softnic race` and `softnic experiment` write a file NAME.json beside their CSV: the chart, and what it was made by. PNG needs a
softnic that was built with it: `cargo build --release --features png`, or a package.")]
pub struct Args {
    /// Files of results, NAME.json
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Folder for the charts [default: where the results are]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// PNG as well, two pixels for each of the SVG
    #[arg(long)]
    png: bool,
}

/// Draws the charts.
pub fn run(args: &Args, json: bool) -> Result<ExitCode, String> {
    if args.png {
        chart::check_png()?;
    }
    if let Some(folder) = &args.out {
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    let mut drawn = Vec::new();
    for file in &args.files {
        let results = Results::read(file)?;
        let folder = args.out.clone().or_else(|| Some(file.parent()?.to_path_buf())).unwrap_or_default();
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let mut files = vec![(format!("{stem}.svg"), results.chart.svg().into_bytes())];
        if args.png {
            files.push((format!("{stem}.png"), results.chart.png()?));
        }
        drawn.extend(write_all(&folder, files)?);
    }
    let names: Vec<String> = drawn.iter().map(|path| path.display().to_string()).collect();
    let text = if json { serde_json::json!({ "files": names }).to_string() } else { names.join("\n") };
    match writeln!(io::stdout(), "{text}") {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot write the output: {e}")),
        _ => Ok(ExitCode::SUCCESS),
    }
}
