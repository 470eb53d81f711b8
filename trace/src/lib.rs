//! What happens to each queue pair, as qlog: written by whoever drives a NIC, or derived from a capture.
//!
//! The NIC knows nothing of this: a NIC that nobody watches executes not one instruction for it. An [`Observer`] stands beside the driver, sees each
//! frame that comes and goes, and asks the NIC after each what has changed: states, counters, windows. So every event has the frame, or the timer, that
//! caused it before it. docs/trace.md describes the format.

mod capture;
mod event;
mod log;
mod observer;
mod packet;
mod qlog;
mod watched;

pub use capture::CaptureTrace;
pub use log::{Level, LevelError, Log, parse_level};
pub use observer::Observer;
pub use qlog::Trace;
