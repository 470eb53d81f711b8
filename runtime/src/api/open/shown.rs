//! Who sees the frames of a NIC: its capture, its trace, and whoever is told of its packets.

use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use softnic_shift::DualNic;
use softnic_trace::Trace;

use super::{OpenError, OpenOptions, Parts};
use crate::capture_file::{self, NamedFile};
use crate::driver::{Driver, DriverError};
use crate::engine::Io;
use crate::sent::Told;

impl Parts {
    /// Backends whose packets are told, where anybody wants to know.
    pub(super) fn told(mut self, options: &OpenOptions) -> Parts {
        if let Some(sink) = &options.on_packet {
            let told = |io| Box::new(Told::new(io, sink.clone())) as Io;
            self.ios = self.ios.into_iter().map(told).collect();
        }
        self
    }
}

/// Begins the trace of a NIC.
pub(super) fn begin_trace(path: &Path, title: &str) -> Result<Trace, OpenError> {
    let begun = capture_file::create(path).and_then(|file| Trace::begin(Box::new(BufWriter::new(file)), title, false));
    begun.map_err(|error| OpenError::Trace { path: path.into(), error })
}

/// Records an engine's frames: the first one's to the file itself.
pub(super) fn record(driver: &mut Driver<DualNic, Io>, path: &Path, index: usize) -> Result<(), OpenError> {
    let path = match index {
        0 => path.to_path_buf(),
        _ => PathBuf::from(format!("{}.{index}", path.display())),
    };
    let failed = |error| OpenError::Capture { path: path.clone(), error };
    let file = NamedFile::create(&path).map_err(failed)?;
    driver.record(Box::new(file)).map_err(|e| match e {
        DriverError::Capture(error) | DriverError::Io { error, .. } => failed(NamedFile::cause(error)),
        other => failed(io::Error::other(other.to_string())),
    })
}
