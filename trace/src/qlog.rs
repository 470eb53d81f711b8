//! A trace: the file, qlog as JSON-SEQ (RFC 7464), one record an event, written as they happen; and the log beside it.

use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use crate::event::Event;
use crate::log::Log;
use crate::observer::Observer;

/// Begins each record (RFC 7464): who reads the end of a file that was cut off finds the last whole record by it.
const RECORD_SEPARATOR: u8 = 0x1e;
/// The events that docs/trace.md describes.
const SCHEMA: &str = "urn:softnic:qlog:events:roce-1";

/// A trace that any number of NICs of a process write to: a file, a log, or both.
#[derive(Clone)]
pub struct Trace(Arc<Mutex<Sinks>>);

struct Sinks {
    file: Option<File>,
    log: Option<Log>,
}

struct File {
    out: Box<dyn Write + Send>,
    /// The first thing that went wrong; nothing is written after it.
    failed: Option<io::Error>,
    line: Vec<u8>,
}

#[derive(Serialize)]
struct Header<'a> {
    file_schema: &'static str,
    serialization_format: &'static str,
    title: &'a str,
    trace: TraceHeader<'a>,
}

#[derive(Serialize)]
struct TraceHeader<'a> {
    title: &'a str,
    vantage_point: VantagePoint<'a>,
    common_fields: CommonFields,
    event_schemas: [&'static str; 1],
}

#[derive(Serialize)]
struct VantagePoint<'a> {
    name: &'a str,
    r#type: &'static str,
}

#[derive(Serialize)]
struct CommonFields {
    time_format: &'static str,
    reference_time: ReferenceTime,
}

#[derive(Serialize)]
struct ReferenceTime {
    clock_type: &'static str,
    epoch: &'static str,
}

#[derive(Serialize)]
struct Record<'a> {
    /// Milliseconds, with nanoseconds behind the point.
    time: &'a serde_json::value::RawValue,
    name: &'static str,
    group_id: &'a str,
    data: &'a Event,
}

impl Trace {
    /// Begins a trace. `title` is the command, or the capture, that it is of; `network` says that somebody between the ends saw it.
    ///
    /// # Errors
    /// When the beginning cannot be written.
    pub fn begin(out: Box<dyn Write + Send>, title: &str, network: bool) -> io::Result<Trace> {
        let vantage = if network { "network" } else { "unknown" };
        let header = Header {
            file_schema: "urn:ietf:params:qlog:file:sequential",
            serialization_format: "application/qlog+json-seq",
            title,
            trace: TraceHeader {
                title,
                vantage_point: VantagePoint { name: "softnic", r#type: vantage },
                common_fields: CommonFields {
                    time_format: "relative_to_epoch",
                    reference_time: ReferenceTime { clock_type: "system", epoch: "1970-01-01T00:00:00.000Z" },
                },
                event_schemas: [SCHEMA],
            },
        };
        let mut file = File { out, failed: None, line: Vec::new() };
        file.write(&header)?;
        Ok(Trace::of(Sinks { file: Some(file), log: None }))
    }

    /// What both of them, if there are any, make together.
    pub fn join(file: Option<Trace>, log: Option<Log>) -> Option<Trace> {
        match (file, log) {
            (file, None) => file,
            (None, log) => Some(Trace::of(Sinks { file: None, log })),
            (Some(file), log) => {
                file.sinks().log = log;
                Some(file)
            }
        }
    }

    fn of(sinks: Sinks) -> Trace {
        Trace(Arc::new(Mutex::new(sinks)))
    }

    /// Watches a NIC whose time began so many nanoseconds after 1970. `name` tells it from others in the same trace.
    pub fn observer(&self, name: &str, epoch: u64) -> Observer {
        Observer::new(self.clone(), name, epoch)
    }

    pub(crate) fn write(&self, nanos: u64, group: &str, event: &Event) {
        let mut sinks = self.sinks();
        if let Some(log) = &mut sinks.log {
            log.write(nanos, group, event);
        }
        let Some(file) = sinks.file.as_mut().filter(|file| file.failed.is_none()) else { return };
        let time = format!("{}.{:06}", nanos / 1_000_000, nanos % 1_000_000);
        let written = serde_json::value::RawValue::from_string(time)
            .map_err(io::Error::from)
            .and_then(|time| file.write(&Record { time: &time, name: event.name(), group_id: group, data: event }));
        file.failed = written.err();
    }

    /// Writes out what is kept back.
    ///
    /// # Errors
    /// The first thing that went wrong since the last call.
    pub fn flush(&self) -> io::Result<()> {
        let mut sinks = self.sinks();
        let Some(file) = &mut sinks.file else { return Ok(()) };
        match file.failed.take() {
            Some(error) => Err(error),
            None => file.out.flush(),
        }
    }

    fn sinks(&self) -> MutexGuard<'_, Sinks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl File {
    fn write(&mut self, record: &impl Serialize) -> io::Result<()> {
        self.line.clear();
        self.line.push(RECORD_SEPARATOR);
        serde_json::to_writer(&mut self.line, record)?;
        self.line.push(b'\n');
        self.out.write_all(&self.line)
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trace")
    }
}
