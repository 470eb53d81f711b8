//! The options of SDR that several commands take, and `sdr` as a word for a transport.

use std::fmt::Display;
use std::io::{self, Write};
use std::str::FromStr;

use serde_json::{Value, json};
use softnic_fault_injector::units;
use softnic_runtime::api::Transport;
use softnic_runtime::api::sdr::Split;
use softnic_sim::{Fallback, Family, Protection, Reliability, Scheme, SchemeError};

/// What messages go by: a transport of queue pairs, or software on them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Spoken {
    Transport(Transport),
    Sdr,
    /// Reliable messages on top of it.
    Reliable(Scheme),
}

impl Spoken {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Spoken::Transport(transport) => transport.name(),
            Spoken::Sdr => "sdr",
            Spoken::Reliable(Scheme::Sr) => "sdr-sr",
            Spoken::Reliable(Scheme::Nack) => "sdr-nack",
            Spoken::Reliable(Scheme::Ec(Protection { family: Family::Mds, .. })) => "sdr-ec",
            Spoken::Reliable(Scheme::Ec(Protection { family: Family::Xor, .. })) => "sdr-xor",
        }
    }

    /// As it was given, with its settings.
    pub(crate) fn text(self) -> String {
        match self {
            Spoken::Transport(transport) => transport.to_string(),
            Spoken::Sdr => self.name().into(),
            Spoken::Reliable(scheme) => scheme.to_string(),
        }
    }

    /// The help of `--transport` where messages may be reliable.
    pub(crate) fn help_with_schemes() -> String {
        format!(
            "{}\n  sdr-sr        reliable messages over sdr: chunks again when their time is over\n  sdr-nack      the same, and when the receiver asks for them\n  sdr-ec:K,M    the same, with M chunks of parity for each K: most losses are repaired without asking; K,M,I interleaves I such groups\n  sdr-xor:K,M   the same, with parity by exclusive or: one loss in each of M groups",
            Spoken::help()
        )
    }

    /// The help of `--transport`, as far as it says what there is.
    pub(crate) fn help() -> String {
        format!("{}\n  sdr           messages with a bitmap of what came, over uc", Transport::help(|_| true))
    }
}

impl FromStr for Spoken {
    type Err = String;

    fn from_str(s: &str) -> Result<Spoken, String> {
        match s {
            "sdr" => Ok(Spoken::Sdr),
            _ if s.starts_with("sdr-") => s.parse().map(Spoken::Reliable).map_err(|e: SchemeError| e.to_string()),
            _ => s
                .parse()
                .map(Spoken::Transport)
                .map_err(|e| format!("{e}; or sdr, sdr-sr, sdr-nack, sdr-ec:K,M, sdr-xor:K,M")),
        }
    }
}

/// What an SDR queue pair is made with.
#[derive(Debug, Clone, Copy, PartialEq, clap::Args)]
pub(crate) struct SdrArgs {
    /// Bytes that a bit of an sdr message's bitmap stands for, a multiple of the path MTU [default: 64K]
    #[arg(long, value_name = "BYTES", value_parser = chunk_arg, help_heading = "What is sent")]
    pub(crate) chunk: Option<u32>,
    /// Queue pairs that the packets of an sdr message go by in turn [default: 1]
    #[arg(long, value_name = "N", help_heading = "What is sent")]
    pub(crate) channels: Option<u8>,
    /// How often the numbers of sdr messages may come round before a late packet can be taken for a later message's [default: 4]
    #[arg(long, value_name = "N", help_heading = "What is sent")]
    pub(crate) generations: Option<u8>,
    /// Bits of sdr's immediates: message, packet, user [default: 10+18+4]
    #[arg(long, value_name = "M+P+U", help_heading = "What is sent")]
    pub(crate) split: Option<Split>,
}

impl SdrArgs {
    /// Refuses them where messages go by something else.
    pub(crate) fn check(&self, transport: Option<Spoken>) -> Result<(), String> {
        let any = self.chunk.is_some() || self.channels.is_some() || self.generations.is_some() || self.split.is_some();
        match any && !matches!(transport, Some(Spoken::Sdr | Spoken::Reliable(_))) {
            true => {
                Err("--chunk, --channels, --generations and --split are for --transport sdr and those whose names begin with sdr-".into())
            }
            false => Ok(()),
        }
    }
}

/// Refuses an α that cannot be, or that nobody asks for.
pub(crate) fn check_alpha(alpha: Option<f64>, transport: Spoken) -> Result<(), String> {
    match (alpha, transport) {
        (Some(_), Spoken::Transport(_) | Spoken::Sdr) => {
            Err("--alpha is for sdr-sr, sdr-nack, sdr-ec and sdr-xor".into())
        }
        (Some(alpha), _) if !(0.0..=1000.0).contains(&alpha) => Err(format!("--alpha is from 0 to 1000, not {alpha}")),
        _ => Ok(()),
    }
}

/// Refuses a fallback where there is nothing to fall back from, and rows that a code has not.
pub(crate) fn check_fallback(fallback: Option<Fallback>, transport: Spoken) -> Result<(), String> {
    match (fallback, transport) {
        (None, _) | (_, Spoken::Reliable(Scheme::Ec(Protection { family: Family::Mds, .. }))) => Ok(()),
        (Some(Fallback::Rows), Spoken::Reliable(Scheme::Ec(_))) => {
            Err("--fallback rows is for sdr-ec: exclusive or has no further rows of parity".into())
        }
        (_, Spoken::Reliable(Scheme::Ec(_))) => Ok(()),
        (Some(_), _) => Err(format!("--fallback is for sdr-ec and sdr-xor: {} has no parity", transport.name())),
    }
}

fn chunk_arg(s: &str) -> Result<u32, String> {
    u32::try_from(units::parse_size(s)?).map_err(|_| "a chunk has less than 4G".into())
}

/// Adds what came of reliable messages to the JSON of a run.
pub(crate) fn add_json(value: &mut Value, r: &Reliability) {
    r.shortfall.iter().for_each(tell_shortfall);
    value["chunk"] = json!(r.chunk);
    value["chunks_repeated"] = json!(r.chunks_repeated);
    value["acks_sent"] = json!(r.acks_sent);
    value["nacks_sent"] = json!(r.nacks_sent);
    value["chunk_timeouts"] = json!(r.timeouts);
    value["repair_packets"] = json!(r.parity_packets);
    value["rows_asked_for"] = json!(r.rows_asked_for);
    value["recovered_packets"] = json!(r.recovered_packets);
    value["fallbacks"] = json!(r.fallbacks);
    value["failed_submessages"] = json!(r.failed_submessages);
    value["unprotected"] = json!(r.unprotected);
}

/// The same, as lines of its table.
pub(crate) fn print(out: &mut dyn Write, r: &Reliability) -> io::Result<()> {
    r.shortfall.iter().for_each(tell_shortfall);
    writeln!(
        out,
        "chunks sent again {:>12} of {} bytes, {} after a timeout; {} ACKs, {} NACKs",
        r.chunks_repeated, r.chunk, r.timeouts, r.acks_sent, r.nacks_sent
    )?;
    if r.parity_packets > 0 {
        writeln!(
            out,
            "parity            {:>12} packets, {} lost ones repaired; {} messages fell back, of {} submessages",
            r.parity_packets, r.recovered_packets, r.fallbacks, r.failed_submessages
        )?;
    }
    if r.rows_asked_for > 0 {
        writeln!(out, "further parity    {:>12} rows that the receiver asked for", r.rows_asked_for)?;
    }
    if r.unprotected > 0 {
        writeln!(out, "without parity    {:>12} submessages: no memory was left for it", r.unprotected)?;
    }
    Ok(())
}

/// A line that could not be full is no matter of the results, but of the settings.
pub(crate) fn tell_shortfall(why: impl Display) {
    eprintln!("softnic: {why}");
}
