//! `cargo xtask tshark`: our dissection of captures held against tshark's, packet by packet and field by field.

mod compare;
mod fields;
mod gaps;
mod simulated;
mod synthetic;

use std::fmt;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::project;

/// What was compared.
#[derive(Debug, Default, Clone, Copy)]
pub struct Report {
    files: u64,
    frames: u64,
    packets: u64,
    fields: u64,
    /// Packets of which tshark does not read the extension headers: see [`gaps`].
    gaps: u64,
}

impl Report {
    fn add(&mut self, other: &Report) {
        let Report { files, frames, packets, fields, gaps } = *other;
        self.files += files;
        self.frames += frames;
        self.packets += packets;
        self.fields += fields;
        self.gaps += gaps;
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Report { files, frames, packets, fields, gaps } = *self;
        write!(
            f,
            "{fields} fields of {packets} RoCE packets in {frames} frames, {files} captures: no difference \
             ({gaps} packets have headers unknown to tshark)"
        )
    }
}

/// Compares the given captures, or, where there are none given, all there are.
pub fn run(files: &[PathBuf]) -> Result<Report, String> {
    let scratch = Scratch::new("tshark")?;
    let files = if files.is_empty() { all_captures(&scratch.0)? } else { files.to_vec() };
    // What takes time is that tshark starts, once a file: that all cores can do.
    let jobs = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let next = AtomicUsize::new(0);
    let work = || -> Result<(Report, Vec<(usize, String)>), String> {
        let (mut report, mut differences) = (Report::default(), Vec::new());
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let Some(file) = files.get(i) else { return Ok((report, differences)) };
            let rows = fields::dissect(file, &scratch.0)?;
            differences.extend(compare::file(file, &rows, &mut report)?.into_iter().map(|d| (i, d)));
        }
    };
    let (mut report, mut differences) = (Report::default(), Vec::new());
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| {
            let (its, found) = worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            report.add(&its);
            differences.extend(found);
            Ok::<_, String>(())
        })
    })?;
    if differences.is_empty() {
        return Ok(report);
    }
    differences.sort_by_key(|&(i, _)| i);
    for (_, difference) in differences.iter().take(40) {
        println!("{difference}");
    }
    Err(format!("{} differences to tshark", differences.len()))
}

/// Compares one capture; the error is its first difference.
pub(crate) fn check(file: &Path, scratch: &Path) -> Result<(), String> {
    let rows = fields::dissect(file, scratch)?;
    let differences = compare::file(file, &rows, &mut Report::default())?;
    differences.into_iter().next().map_or(Ok(()), Err)
}

fn all_captures(scratch: &Path) -> Result<Vec<PathBuf>, String> {
    let mut files = project::captures_in(&project::corpus())?;
    match project::hardware_captures() {
        Ok(folder) => files.extend(project::captures_in(&folder)?),
        Err(why) => println!("left out: {why}"),
    }
    files.extend(synthetic::write(scratch).map_err(|e| format!("cannot write frames for tshark: {e}"))?);
    files.extend(simulated::write(scratch)?);
    Ok(files)
}

/// A folder that is gone when this is.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Result<Scratch, String> {
        let folder = std::env::temp_dir().join(format!("softnic-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        Ok(Scratch(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // A folder that stays behind in the temporary ones is no reason to fail.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
