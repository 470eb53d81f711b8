//! `softnic demo`: a lost packet and its repair, packet by packet, and three transports that race; all in the simulator.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use softnic_fault_injector::{Script, Spec};
use softnic_pcaps::Reader;
use softnic_pcaps::decode::{Dissection, decode_ethernet};
use softnic_sim::{Options, Transport};
use softnic_transports::qp::PayloadMode;
use softnic_wire::Psn;
use softnic_wire::aeth::Syndrome;

use crate::perf::stop;
use crate::{Common, colour};

/// Watch a lost packet being repaired, and three transports race under loss: 20 seconds, no root, no network
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  softnic demo
  softnic demo --fast

Everything is computed by the simulator, with the NICs that run on a wire, in virtual time.")]
pub(crate) struct Args {
    /// Do not wait between the steps [default where stdout is no terminal]
    #[arg(long)]
    fast: bool,
}

/// Between two packets of the diagram, between two pictures of the bars, and after each part.
const STEP: Duration = Duration::from_millis(550);
const PICTURE: Duration = Duration::from_millis(60);
const PAUSE: Duration = Duration::from_millis(1500);
/// Pictures of a race, and the cells of a whole bar.
const PICTURES: usize = 60;
const BAR: usize = 40;
/// The packet that is lost.
const LOST: usize = 3;

pub(crate) fn run(args: &Args, common: &Common) -> Result<ExitCode, String> {
    stop::install();
    let stage =
        Stage { live: io::stdout().is_terminal() && !args.fast, colours: colour::wanted(io::stdout().is_terminal()) };
    match stage.play(common.seed) {
        Err(Ended::Interrupted) => Ok(ExitCode::from(stop::EXIT_CODE)),
        Err(Ended::Failed(why)) => Err(why),
        Err(Ended::Unread) | Ok(()) => Ok(ExitCode::SUCCESS),
    }
}

/// Why a demo ends early.
enum Ended {
    /// Ctrl-C.
    Interrupted,
    /// Nobody reads any more.
    Unread,
    /// Something does not work.
    Failed(String),
}

struct Stage {
    live: bool,
    colours: bool,
}

impl Stage {
    fn play(&self, seed: u64) -> Result<(), Ended> {
        self.say("Two NICs, softnic's own, on a link of 10 Gbit/s. A writes 6 KiB into B's memory;")?;
        self.say("the link loses the third packet.\n")?;
        self.say("  virtual time   A                                                  B")?;
        for line in diagram(seed).map_err(Ended::Failed)? {
            self.say(&format!("  {}", if line.contains('X') { colour::red(&line, self.colours) } else { line }))?;
            self.wait(STEP)?;
        }
        self.say("\nGo-Back-N sends again all that came after the loss. On a long link that is much:")?;
        self.say("16 MiB over 40 ms of round trip, one packet of a thousand lost.\n")?;
        self.wait(PAUSE)?;
        self.say(&format!("{:>49} {:>13} {:>8} {:>5}", "", "goodput", "time", "again"))?;
        self.race(&race(seed).map_err(Ended::Failed)?)?;
        self.wait(PAUSE)?;
        self.say("\nType next:")?;
        self.say("  softnic perf                                       # how fast it is here")?;
        self.say("  softnic run -- ib_write_bw                         # your verbs program, without RDMA hardware")?;
        self.say("  softnic sim --transport sr --rtt 40ms --fault loss=1e-3 --pcap run.pcap")
    }

    /// Bars that grow to what each transport reached.
    fn race(&self, results: &[Raced]) -> Result<(), Ended> {
        let first = if self.live { 1 } else { PICTURES };
        for picture in first..=PICTURES {
            results.iter().try_for_each(|raced| self.say(&bar(raced, results, picture)))?;
            if picture < PICTURES {
                self.wait(PICTURE)?;
                // Back over the bars.
                write!(io::stdout(), "\x1b[{}A", results.len()).map_err(unread)?;
            }
        }
        Ok(())
    }

    fn say(&self, line: &str) -> Result<(), Ended> {
        writeln!(io::stdout(), "{line}").map_err(unread)
    }

    fn wait(&self, time: Duration) -> Result<(), Ended> {
        if self.live {
            std::thread::sleep(time);
        }
        if stop::requested() { Err(Ended::Interrupted) } else { Ok(()) }
    }
}

fn unread(e: io::Error) -> Ended {
    match e.kind() {
        ErrorKind::BrokenPipe => Ended::Unread,
        _ => Ended::Failed(format!("cannot write the output: {e}")),
    }
}

/// The packets of a transfer of which one is lost, each as an arrow: those that left a NIC, in their order.
fn diagram(seed: u64) -> Result<Vec<String>, String> {
    let script = format!("[[event]]\naction = \"drop\"\ndirection = \"ab\"\nnth = {LOST}\n");
    let script = Script::parse(&script).map_err(|e| e.to_string())?;
    let faults = Spec { script, ..Spec::default() };
    let rtt = Duration::from_micros(20);
    let options = Options { size: 6 << 10, count: 1, depth: 1, rtt, faults, seed, ..Options::default() };
    let mut capture = Vec::new();
    softnic_sim::run(&options, Some(&mut capture), &mut |_| ()).map_err(|e| e.to_string())?;
    let mut reader = Reader::new(&capture[..]).map_err(|e| e.to_string())?;
    let (mut lines, mut requests, mut begin) = (Vec::new(), 0, None);
    let mut highest: Option<(IpAddr, Psn)> = None;
    while let Some(frame) = reader.next_frame().map_err(|e| e.to_string())? {
        let packet = decode_ethernet(frame.data).map_err(|e| e.to_string())?;
        let (Some(psn), Some(opcode)) = (packet.psn, packet.opcode) else { continue };
        let time = (frame.time.nanos() - *begin.get_or_insert(frame.time.nanos())) as f64 / 1e3;
        // The first packet is A's.
        let (a, newest) = highest.get_or_insert((packet.src, psn));
        let line = if packet.src == *a {
            requests += 1;
            let again = requests > 1 && psn.distance(*newest) <= 0;
            *newest = if again { *newest } else { psn };
            let name = opcode.to_string();
            arrow(&format!("{name} psn {psn}{}", if again { ", again" } else { "" }), true, requests == LOST)
        } else {
            arrow(&answer(&packet, psn), false, false)
        };
        lines.push(format!("{time:>9.2} us   {line}"));
    }
    Ok(lines)
}

fn answer(packet: &Dissection<'_>, psn: Psn) -> String {
    match packet.ext.aeth.map(|aeth| aeth.syndrome) {
        Some(Syndrome::Nak(_)) => format!("NAK: psn {psn} is missing"),
        _ => format!("ACK psn {psn}"),
    }
}

/// Fifty columns between the two NICs.
fn arrow(text: &str, to_b: bool, lost: bool) -> String {
    const WIDTH: usize = 50;
    let text = format!(" {text} ");
    let dashes = (WIDTH - 1).saturating_sub(text.chars().count() + 2);
    match (to_b, lost) {
        (true, false) => format!("|--{text}{}>|", "-".repeat(dashes)),
        (true, true) => format!("|--{text}--X{}|", " ".repeat(dashes.saturating_sub(2))),
        (false, _) => format!("|<{}{text}--|", "-".repeat(dashes)),
    }
}

/// What a transport reached.
struct Raced {
    name: String,
    gbps: f64,
    milliseconds: f64,
    again: u64,
}

fn race(seed: u64) -> Result<Vec<Raced>, String> {
    let faults: Spec = "loss=1e-3".parse().map_err(|e| format!("{e}"))?;
    let one = |transport: Transport| {
        let rtt = Duration::from_millis(40);
        let options = Options {
            transport,
            size: 1 << 20,
            count: 16,
            depth: 16,
            rtt,
            faults: faults.clone(),
            payload: PayloadMode::Elided,
            seed,
            ..Options::default()
        };
        let report = softnic_sim::run(&options, None, &mut |_| ()).map_err(|e| e.to_string())?;
        let (name, gbps) = (transport.name().to_string(), report.goodput_gbps);
        Ok(Raced { name, gbps, milliseconds: report.virtual_ms, again: report.retransmitted_packets })
    };
    [Transport::Rc, Transport::SR, Transport::LOWAR].into_iter().map(one).collect()
}

/// The bar of one transport in a picture: as long as its part of the best goodput, when the race is over.
fn bar(raced: &Raced, all: &[Raced], picture: usize) -> String {
    let best = all.iter().map(|raced| raced.gbps).fold(f64::MIN_POSITIVE, f64::max);
    let cells = ((raced.gbps / best * BAR as f64).ceil() as usize * picture / PICTURES).min(BAR);
    let figures = match picture == PICTURES {
        true => format!("{:>6.3} Gbit/s {:>5.0} ms {:>5}", raced.gbps, raced.milliseconds, raced.again),
        false => String::new(),
    };
    format!("  {:<6}|{:<BAR$}|{figures}", raced.name, "#".repeat(cells))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_diagram_has_the_loss_its_nak_and_the_retransmission_in_this_order() {
        let lines = diagram(1).unwrap();
        let at =
            |words: &str| lines.iter().position(|line| line.contains(words)).unwrap_or_else(|| panic!("{lines:#?}"));
        assert!(at("--X") == LOST - 1 && at("--X") < at("NAK: psn"), "{lines:#?}");
        assert!(at("NAK: psn") < at(", again") && at(", again") < at("ACK psn"), "{lines:#?}");
        assert!(lines.iter().all(|line| line.chars().count() <= 78), "{lines:#?}");
    }

    #[test]
    fn go_back_n_loses_the_race_under_loss_and_bars_fit_a_terminal() {
        let all = race(1).unwrap();
        assert_eq!(all.iter().map(|raced| raced.name.as_str()).collect::<Vec<_>>(), ["rc", "sr", "lowar"]);
        assert!(all[0].gbps < all[1].gbps && all[0].gbps < all[2].gbps);
        assert!(all[0].again > all[1].again && all[0].again > 0);
        for picture in [1, PICTURES / 2, PICTURES] {
            assert!(all.iter().all(|raced| bar(raced, &all, picture).chars().count() <= 80));
        }
        assert!(all.iter().any(|raced| bar(raced, &all, PICTURES).contains(&"#".repeat(BAR))));
    }
}
