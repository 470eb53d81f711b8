//! `softnic inspect`: what is in a capture, packet by packet and added up.

mod connections;
mod failover;
mod files;
mod filter;
mod groups;
mod human;
mod json;
mod mad;
mod sdr;

use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use softnic_pcaps::analysis::{Analysis, Connection, PacketEvent, Verdict};
use softnic_pcaps::decode::{Decoder, Dissection};
use softnic_pcaps::groups::{Group, GroupPacket, Groups, Place};
use softnic_pcaps::sequence::Order;
use softnic_pcaps::summary::Summary;
use softnic_pcaps::{Frame, LinkType, PacketNumber, Payload, Reader, Timestamp};
use softnic_perf::say;
use softnic_wire::sdr::Split;
use softnic_wire::{Error, Qpn};

use crate::Common;
use crate::capture_source::open;
use files::{Copies, read_merged};
use filter::{Filter, OpcodeName, TimeSpan};

/// Show the RoCE packets of a capture, or of several together, check every ICRC, pair connections, and say what is wrong with each
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic inspect pcaps/corpus/loss_send_middle_nak.pcap
  softnic inspect --summary pcaps/corpus/rc_rnr_nak.pcap
  softnic inspect --problems pcaps/corpus/rc_access_err_nak.pcap
  softnic inspect --opcode nak --opcode cnp pcaps/corpus/loss_send_middle_nak.pcap
  softnic inspect --time 1ms..2ms -c 5 pcaps/corpus/loss_send_middle_nak.pcap
  softnic inspect --qp 0x7c pcaps/corpus/loss_send_middle_nak.pcap
  softnic inspect at-a.pcap at-b.pcap.gz                  # both ends of a path, as one conversation
  softnic inspect --json capture.pcapng | jq 'select(.icrc == \"bad\")'
  tcpdump --immediate-mode -U -w - udp port 4791 | softnic inspect -")]
pub(crate) struct Args {
    /// Pcap or pcapng files, plain or packed by gzip or zstd, or - alone for standard input. Several are read together, by their times as
    /// they stand; packets are numbered FILE:NUMBER, and a packet that another file has, too, counts once
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Only the connections of this queue pair, both directions (of a pipe, from the packet on that pairs them), and
    /// datagrams to it or from it; decimal or 0x…; may be given more than once
    #[arg(long, value_name = "N", value_parser = parse_qp)]
    qp: Vec<Qpn>,
    /// Only packets whose opcode begins so, with or without RC and RDMA, in any case (write, read-req, rc-send-last, ack, cnp);
    /// nak and rnr for those acknowledgements; may be given more than once
    #[arg(long, value_name = "NAME", value_parser = OpcodeName::parse)]
    opcode: Vec<OpcodeName>,
    /// Only packets of this time after the first packet, as in 10ms..1.5s, 2s.. or ..500us
    #[arg(long, value_name = "FROM..TO", value_parser = TimeSpan::parse)]
    time: Option<TimeSpan>,
    /// Read immediates and control messages of SDR-RDMA, whose immediates are divided like that: bits of message, packet and user, as in
    /// 10+18+4. Nothing in a packet tells them from others; without this, those are read of which a negotiation in the capture tells
    #[arg(long, value_name = "BITS")]
    sdr: Option<Split>,
    /// Only the packets that a verdict names; reads the capture twice, so not from standard input
    #[arg(long)]
    problems: bool,
    /// No packets: the summary, connections and verdicts alone
    #[arg(long, conflicts_with = "count")]
    summary: bool,
    /// Stop after this many packets were shown; the summary is of what was read until then
    #[arg(short, value_name = "N")]
    count: Option<u64>,
}

pub(crate) fn parse_qp(s: &str) -> Result<Qpn, String> {
    let n = match s.strip_prefix("0x").or_else(|| s.strip_prefix("0X")) {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => s.parse(),
    };
    match n {
        Ok(n) if n < 1 << 24 => Ok(Qpn::new(n)),
        _ => Err("a queue pair number is below 2^24, decimal or 0x…".into()),
    }
}

/// Where the lines go: people or programs.
enum Output {
    Human(human::Printer),
    Json(json::Printer),
}

/// How reading a capture ended, when not well.
type ReadEnd = Option<softnic_pcaps::Error>;

pub(crate) fn run(args: &Args, common: &Common) -> Result<ExitCode, String> {
    let live = args.files[..] == ["-"];
    let stdout = io::stdout();
    if args.problems && live {
        return Err("--problems reads the capture twice: it needs a file, not standard input".into());
    }
    let several = args.files.len() > 1;
    if several && args.files.iter().any(|file| file == "-") {
        return Err("standard input is a capture for itself: it cannot be read together with files".into());
    }
    if args.files.len() > MOST_FILES {
        return Err(format!("at most {MOST_FILES} captures can be read together"));
    }
    let mut view = View {
        filter: Filter { qps: &args.qp, opcodes: &args.opcode, time: args.time, named: None },
        output: if common.json {
            Output::Json(json::Printer { files: if several { args.files.clone() } else { Vec::new() }, sdr: args.sdr })
        } else {
            Output::Human(human::Printer::new(colour_wanted(stdout.is_terminal()), several, args.sdr))
        },
        followed: Followed::default(),
        survey: None,
        selected: None,
        first: None,
        quiet: args.summary,
        left: args.count.unwrap_or(u64::MAX),
        unsupported: None,
        out: BufWriter::with_capacity(1 << 16, stdout.lock()),
        flush_each: live || stdout.is_terminal(),
    };
    if args.count == Some(0) {
        return Err("-c needs at least one packet".into());
    }
    view.selected = (args.problems || !view.filter.is_open()).then(Summary::default);
    let shown = if live {
        follow(&mut view).map(|end| end.map(|e| format!("standard input: {e}")))
    } else {
        // Which connection a packet is of may be known only by a later one.
        if !args.qp.is_empty() || args.problems {
            let mut first = Followed::default();
            let _ = read_files(&args.files, |frame| {
                let _ = first.take(frame);
                Ok(true)
            })?;
            first.analysis.finish();
            if args.problems {
                let verdicts = first.analysis.verdicts();
                view.filter.named = Some(verdicts.iter().flat_map(|v| v.packets.first()).copied().collect());
            }
            view.survey = Some(first.analysis);
        }
        view.followed.groups = find_groups(&args.files)?;
        read_files(&args.files, |frame| view.show(frame))?
    };
    // Where not one frame could be read, a summary of nothing would only hide the reason.
    let summed_up = shown.and_then(|end| match &end {
        Some(_) if view.followed.summary.frames == 0 => Ok(end),
        _ => view.finish().map(|()| end),
    });
    let end = match summed_up {
        Ok(end) => end,
        // `softnic inspect … | head` is no failure.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(ExitCode::SUCCESS),
        Err(e) => return Err(format!("cannot write the output: {e}")),
    };
    if let Some(link) = view.unsupported {
        say!("softnic: some frames are of link type {}, which is not understood", link.value());
    }
    match end {
        None => Ok(ExitCode::SUCCESS),
        Some(e) => Err(e),
    }
}

/// Captures that are read together, at most.
pub(crate) const MOST_FILES: usize = 64;

/// Reads one capture, or several together; the outer error is that of opening, the next one the output's, and what it says at last is which capture
/// could not be read to its end, and why.
pub(crate) fn read_files(
    files: &[String],
    mut show: impl FnMut(&Frame<'_>) -> io::Result<bool>,
) -> Result<io::Result<Option<String>>, String> {
    let sources = files.iter().map(|file| open(file)).collect::<Result<Vec<_>, _>>()?;
    let sources: [Box<dyn Read>; 1] = match sources.try_into() {
        Ok(one) => one,
        Err(several) => {
            let errors = read_merged(several, show);
            let line = |(n, e): (usize, softnic_pcaps::Error)| format!("{}: {e}", files[n]);
            let lines = |errors: Vec<_>| errors.into_iter().map(line).collect::<Vec<_>>().join("; ");
            return Ok(errors.map(|errors| Some(lines(errors)).filter(|text| !text.is_empty())));
        }
    };
    let [source] = sources;
    Ok(read_all(source, &mut show).map(|end| end.map(|e| format!("{}: {e}", files[0]))))
}

/// Frames of a capture that tell whether it was taken at several places.
const TELLING: u64 = 256;

/// Who is in which group, so that it is known before the first packet is shown; nothing is read to its end for that which was taken at one place.
fn find_groups(files: &[String]) -> Result<Groups, String> {
    // What comes through a pipe comes once.
    if !files.iter().all(|file| std::fs::metadata(file).is_ok_and(|m| m.is_file())) {
        return Ok(Groups::default());
    }
    let (mut followed, mut several, mut frames) = (Followed::default(), false, 0);
    let _ = read_files(files, |frame| {
        several |= Place::of(frame).is_one_of_several();
        frames += 1;
        let _ = followed.take(frame);
        Ok(several || frames < TELLING)
    })?;
    followed.groups.begin_again();
    Ok(followed.groups)
}

fn colour_wanted(terminal: bool) -> bool {
    crate::colour::wanted(terminal)
}

/// Reads a capture to its end, or until `show` says that it is enough; the outer error is the output's.
fn read_all(source: impl Read, mut show: impl FnMut(&Frame<'_>) -> io::Result<bool>) -> io::Result<ReadEnd> {
    let mut reader = match Reader::new(source) {
        Ok(reader) => reader,
        Err(e) => return Ok(Some(e)),
    };
    loop {
        match reader.next_frame() {
            Ok(Some(frame)) => {
                if !show(&frame)? {
                    return Ok(None);
                }
            }
            Ok(None) => return Ok(None),
            Err(e) => return Ok(Some(e)),
        }
    }
}

/// What the reader of standard input and the signal handler tell the main thread.
enum Event {
    Frame { number: u64, time: Timestamp, interface: Option<u32>, link: LinkType, data: Vec<u8>, original_len: u32 },
    End(ReadEnd),
    Interrupted,
}

/// Follows standard input until it ends or Ctrl-C, which still gets its summary.
///
/// A read that blocks cannot be interrupted portably, so a thread of its own does the reading; it ends with the process.
fn follow(view: &mut View<'_, impl Write>) -> io::Result<ReadEnd> {
    let (tx, rx) = mpsc::sync_channel(1024);
    let (wake, interrupted) = (tx.clone(), Arc::new(AtomicBool::new(false)));
    let flag = Arc::clone(&interrupted);
    // Without a handler Ctrl-C ends the process without a summary: worth having, not worth failing for.
    let _ = ctrlc::set_handler(move || {
        flag.store(true, Ordering::Relaxed);
        // A full channel has no room for this, but then the main thread is awake and sees the flag.
        let _ = wake.try_send(Event::Interrupted);
    });
    std::thread::spawn(move || {
        let end = read_all(io::stdin().lock(), |f| {
            let frame = Event::Frame {
                number: f.number,
                time: f.time,
                interface: f.interface,
                link: f.link,
                data: f.data.to_vec(),
                original_len: f.original_len,
            };
            tx.send(frame).map(|()| true).map_err(|_| io::ErrorKind::BrokenPipe.into())
        });
        let _ = tx.send(Event::End(end.unwrap_or(None)));
    });
    for event in rx {
        if interrupted.load(Ordering::Relaxed) {
            return Ok(None);
        }
        match event {
            Event::Frame { number, time, interface, link, data, original_len } => {
                if !view.show(&Frame { number, time, interface, link, data: &data, original_len })? {
                    return Ok(None);
                }
            }
            Event::End(end) => return Ok(end),
            Event::Interrupted => return Ok(None),
        }
    }
    Ok(None)
}

/// What is followed through all packets of a capture, shown or not.
#[derive(Default)]
pub(crate) struct Followed {
    copies: Copies,
    groups: Groups,
    decoder: Decoder,
    pub(crate) summary: Summary,
    pub(crate) analysis: Analysis,
}

/// A packet of a capture.
pub(crate) struct Taken<'a> {
    pub(crate) packet: Dissection<'a>,
    /// What it was decoded from.
    pub(crate) bytes: &'a [u8],
    order: Option<Order>,
    /// What the packet meant to its connection.
    pub(crate) event: Option<PacketEvent>,
    /// The packet of another file or interface that it is, too: it counts once.
    pub(crate) copy_of: Option<PacketNumber>,
    group: Option<GroupPacket>,
}

/// Why a frame is not shown as a packet.
pub(crate) enum NotShown {
    Undecoded(Error),
    LinkType(LinkType),
}

impl Followed {
    pub(crate) fn take<'a>(&mut self, frame: &Frame<'a>) -> Result<Taken<'a>, NotShown> {
        let mut data = frame.data;
        let decoded = match softnic_pcaps::payload(frame.link, frame.data) {
            Ok(Payload::Ethernet(ethernet)) => {
                data = ethernet;
                self.decoder.decode_ethernet(ethernet)
            }
            Ok(Payload::Network { ethertype, offset }) => self.decoder.decode_network(frame.data, ethertype, offset),
            Ok(Payload::Unsupported(link)) => {
                self.summary.add_other(&UNKNOWN_LINK);
                return Err(NotShown::LinkType(link));
            }
            Err(e) => Err(e),
        };
        match decoded {
            Ok(packet) => {
                let number = PacketNumber(frame.number);
                let place = Place::of(frame);
                let copy_of = self.copies.find(number, place, &packet, data);
                let group = self.groups.add(place, copy_of.is_some(), &packet);
                let (order, event) = match copy_of {
                    Some(_) => {
                        self.summary.skip();
                        (None, None)
                    }
                    None => {
                        let order = self.summary.add(&packet, frame.time.nanos(), frame.original_len);
                        (order, self.analysis.add(frame.number, frame.time, &packet, order))
                    }
                };
                Ok(Taken { packet, bytes: data, order, event, copy_of, group })
            }
            Err(why) => {
                self.summary.add_other(&why);
                Err(NotShown::Undecoded(why))
            }
        }
    }
}

const UNKNOWN_LINK: Error = Error::Malformed { what: "frame", why: "its link type is not understood" };

/// One run over a capture.
struct View<'a, W: Write> {
    filter: Filter<'a>,
    output: Output,
    followed: Followed,
    /// What a first run over the capture found, where there was one.
    survey: Option<Analysis>,
    /// Of the packets that are shown, where not all are.
    selected: Option<Summary>,
    /// Time of the first RoCE packet.
    first: Option<Timestamp>,
    /// No packet is shown.
    quiet: bool,
    /// How many packets may still be shown.
    left: u64,
    unsupported: Option<LinkType>,
    out: W,
    flush_each: bool,
}

/// What is said behind the counts of a summary.
struct End<'a> {
    /// Packets that were seen at several places, where there are several.
    copies: Option<u64>,
    groups: &'a [Group],
    connections: &'a [Connection<'a>],
    verdicts: &'a [Verdict],
}

/// A packet with what the capture says of it.
struct Shown<'a> {
    number: PacketNumber,
    time: Timestamp,
    packet: &'a Dissection<'a>,
    order: Option<Order>,
    copy_of: Option<PacketNumber>,
    group: Option<GroupPacket>,
}

impl<W: Write> View<'_, W> {
    /// Shows a frame, if it is asked for; whether there is to be another one.
    fn show(&mut self, frame: &Frame<'_>) -> io::Result<bool> {
        let Taken { packet, order, copy_of, group, .. } = match self.followed.take(frame) {
            Ok(taken) => taken,
            Err(not_shown) => {
                let why = match not_shown {
                    NotShown::Undecoded(why) => why,
                    NotShown::LinkType(link) => {
                        self.unsupported = Some(link);
                        UNKNOWN_LINK
                    }
                };
                if let Some(selected) = &mut self.selected {
                    selected.add_other(&why);
                }
                return self.show_other(frame, &why).map(|()| true);
            }
        };
        let first = *self.first.get_or_insert(frame.time);
        let analysis = self.survey.as_ref().unwrap_or(&self.followed.analysis);
        let wanted = self.filter.takes(&packet, frame.number, filter::since(first, frame.time), analysis);
        if let Some(selected) = &mut self.selected {
            if !wanted {
                selected.skip();
                return Ok(true);
            }
            match copy_of {
                Some(_) => selected.skip(),
                None => drop(selected.add(&packet, frame.time.nanos(), frame.original_len)),
            }
        }
        if self.quiet {
            return Ok(true);
        }
        let number = PacketNumber(frame.number);
        let shown = Shown { number, time: frame.time, packet: &packet, order, copy_of, group };
        match &mut self.output {
            Output::Human(p) => p.packet(&mut self.out, &shown, first)?,
            Output::Json(p) => p.packet(&mut self.out, &shown)?,
        }
        self.left -= 1;
        self.flush_live().map(|()| self.left > 0)
    }

    /// Whoever follows a capture sees each line at once.
    fn flush_live(&mut self) -> io::Result<()> {
        if self.flush_each { self.out.flush() } else { Ok(()) }
    }

    /// Frames that are no RoCE packets are counted; those that might have been one are shown to people.
    fn show_other(&mut self, frame: &Frame<'_>, why: &Error) -> io::Result<()> {
        match &mut self.output {
            Output::Human(p) if !matches!(why, Error::NotRoce(_)) && self.selected.is_none() && !self.quiet => {
                p.other(&mut self.out, PacketNumber(frame.number), frame.time, why)?;
                self.flush_live()
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.followed.analysis.finish();
        let summary = self.selected.as_ref().unwrap_or(&self.followed.summary);
        let copies = self.followed.copies.found();
        let groups = self.followed.groups.found();
        let mut connections = self.followed.analysis.connections();
        connections.retain(|c| self.filter.is_of(&c.ends));
        let mut verdicts = self.followed.analysis.verdicts();
        verdicts.retain(|v| v.connection.is_none_or(|(_, ends)| self.filter.is_of(&ends)));
        match &mut self.output {
            Output::Human(p) => p.summary(
                &mut self.out,
                summary,
                &End { copies, groups, connections: &connections, verdicts: &verdicts },
            )?,
            Output::Json(p) => p.summary(
                &mut self.out,
                summary,
                &End { copies, groups, connections: &connections, verdicts: &verdicts },
            )?,
        }
        self.out.flush()
    }
}

fn rate(bits: f64) -> String {
    match bits {
        b if b >= 1e9 => format!("{:.3} Gbit/s", b / 1e9),
        b if b >= 1e6 => format!("{:.3} Mbit/s", b / 1e6),
        b => format!("{:.3} kbit/s", b / 1e3),
    }
}
