//! `softnic trace`: a capture as a trace in qlog, as `--trace` of `sim`, `perf` and `run` writes it.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use softnic_pcaps::decode::Decoder;
use softnic_pcaps::{Payload, Reader, payload};
use softnic_trace::{CaptureTrace, Trace};

use crate::{Common, capture_source};

/// Write the packets of a capture as a trace (qlog): what was sent again, and why
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic trace pcaps/corpus/loss_send_middle_nak.pcap
  softnic trace pcaps/corpus/loss_send_middle_nak.pcap -o lossy.sqlog

A capture shows packets, no more. `--trace FILE` of softnic sim, perf and run also writes what only the NIC knows: states, timeouts,
windows and rates, what forward error correction recovered. docs/trace.md describes the events.")]
pub(crate) struct Args {
    /// A pcap or pcapng file, plain or packed by gzip or zstd, or - for standard input
    file: String,
    /// Where the trace goes; without it, standard output
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(args: &Args, _: &Common) -> Result<ExitCode, String> {
    let source: Box<dyn io::Read> = match args.file.as_str() {
        "-" => Box::new(io::stdin()),
        file => capture_source::open(file)?,
    };
    let mut reader = Reader::new(source).map_err(|e| format!("{}: {e}", args.file))?;
    let out: Box<dyn Write + Send> = match &args.output {
        Some(file) => Box::new(BufWriter::new(File::create(file).map_err(|e| format!("{}: {e}", file.display()))?)),
        None => Box::new(BufWriter::new(io::stdout())),
    };
    let trace = match Trace::begin(out, &args.file, true).and_then(|trace| trace.flush().map(|()| trace)) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
        begun => begun.map_err(unwritten)?,
    };
    let (mut decoder, mut packets) = (Decoder::default(), CaptureTrace::new(trace.clone()));
    let read = loop {
        let frame = match reader.next_frame() {
            Ok(Some(frame)) => frame,
            Ok(None) => break Ok(()),
            Err(e) => break Err(format!("{}: {e}", args.file)),
        };
        let decoded = match payload(frame.link, frame.data) {
            Ok(Payload::Ethernet(bytes)) => decoder.decode_ethernet(bytes),
            Ok(Payload::Network { ethertype, offset }) => decoder.decode_network(frame.data, ethertype, offset),
            Ok(Payload::Unsupported(_)) | Err(_) => continue,
        };
        if let Ok(packet) = decoded {
            packets.packet(&packet, frame.time.nanos(), frame.original_len);
        }
    };
    match trace.flush() {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
        flushed => flushed.map_err(unwritten)?,
    }
    read.map(|()| ExitCode::SUCCESS)
}

fn unwritten(error: io::Error) -> String {
    format!("the trace cannot be written: {error}")
}
