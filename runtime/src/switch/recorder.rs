//! The capture of a switch: what came in and what left, by ports.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::PathBuf;
use std::time::SystemTime;

use softnic_pcaps::{Direction, InterfaceId, LinkType, PcapngWriter, Timestamp};
use softnic_wire::Instant;

use super::{PortOptions, SwitchError};
use crate::capture_file;

/// The capture.
pub(super) struct Recorder {
    writer: PcapngWriter<BufWriter<File>>,
    interfaces: Vec<InterfaceId>,
    path: PathBuf,
    /// The time of day at the switch's origin.
    epoch: u64,
    failure: Option<io::Error>,
}

impl Recorder {
    pub(super) fn new(path: PathBuf, ports: &[PortOptions]) -> Result<Recorder, SwitchError> {
        let epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
        let begun = || {
            let mut writer = PcapngWriter::new(BufWriter::new(capture_file::create(&path)?))?;
            let interfaces = ports.iter().map(|port| writer.add_interface(LinkType::Ethernet, &port.interface));
            let interfaces = interfaces.collect::<io::Result<Vec<_>>>()?;
            // A disk that is full is better told of before frames pass.
            writer.flush()?;
            Ok((writer, interfaces))
        };
        match begun() {
            Ok((writer, interfaces)) => Ok(Recorder { writer, interfaces, path, epoch, failure: None }),
            Err(error) => Err(SwitchError::Capture { path, error }),
        }
    }

    /// A frame at a port, which may lie in two pieces.
    pub(super) fn write(&mut self, now: Instant, port: usize, pieces: [&[u8]; 2], direction: Direction) {
        if self.failure.is_none() {
            let time = Timestamp::from_nanos((self.epoch + now.as_nanos()).into());
            let len = pieces[0].len() + pieces[1].len();
            let interface = self.interfaces[port];
            self.failure = self.writer.write_directed(interface, time, &pieces, len as u32, direction).err();
        }
    }

    pub(super) fn check(&mut self) -> Result<(), SwitchError> {
        match self.failure.take() {
            Some(error) => Err(SwitchError::Capture { path: self.path.clone(), error }),
            None => Ok(()),
        }
    }

    pub(super) fn finish(mut self) -> Result<(), SwitchError> {
        self.failure = self.failure.or(self.writer.flush().err());
        self.check()
    }
}
