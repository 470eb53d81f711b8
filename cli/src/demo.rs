//! `softnic demo`: a lost packet and its repair, packet by packet, and three transports that race; all in the simulator.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

use softnic_fault_injector::{Script, Spec};
use softnic_pcaps::Reader;
use softnic_pcaps::decode::{Dissection, decode_ethernet};
use softnic_perf::stop;
use softnic_sim::{Options, Progress, Transport};
use softnic_transports::qp::PayloadMode;
use softnic_wire::Psn;
use softnic_wire::aeth::Syndrome;

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
/// How long a race takes, in virtual time; its pictures, and the cells of a whole bar.
const RACE: Duration = Duration::from_secs(1);
const PICTURES: u32 = 160;
const BAR: usize = 40;
/// Bytes of a message of the race.
const MESSAGE: u32 = 64 << 10;
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
        self.say("a second at 1 Gbit/s, 40 ms of round trip, one packet of a thousand lost.\n")?;
        self.wait(PAUSE)?;
        self.race(&race(seed).map_err(Ended::Failed)?)?;
        self.wait(PAUSE)?;
        self.say("\nType next:")?;
        self.say("  softnic perf                                       # how fast it is here")?;
        self.say("  softnic run -- ib_write_bw                         # your verbs program, without RDMA hardware")?;
        self.say("  softnic sim --transport sr --rtt 40ms --fault loss=1e-3 --pcap run.pcap")
    }

    /// Bars that grow as virtual time passes.
    fn race(&self, all: &[Raced]) -> Result<(), Ended> {
        let first = if self.live { 0 } else { PICTURES };
        for number in first..=PICTURES {
            let lines = picture(all, RACE * number / PICTURES);
            lines.iter().try_for_each(|line| self.say(line))?;
            if number < PICTURES {
                self.wait(PICTURE)?;
                // Back over the picture.
                write!(io::stdout(), "\x1b[{}A", lines.len()).map_err(unread)?;
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

/// How far a transport came.
struct Raced {
    name: String,
    /// When each message was done, in virtual time.
    done: Vec<Duration>,
    again: u64,
}

impl Raced {
    fn bytes(&self, at: Duration) -> u64 {
        self.done.partition_point(|done| *done <= at) as u64 * u64::from(MESSAGE)
    }
}

fn race(seed: u64) -> Result<Vec<Raced>, String> {
    let faults: Spec = "loss=1e-3".parse().map_err(|e| format!("{e}"))?;
    let one = |transport: Transport| {
        let options = Options {
            transport,
            size: MESSAGE,
            count: u64::MAX,
            // Twice what fits a round trip.
            depth: 160,
            rate: 1_000_000_000,
            rtt: Duration::from_millis(40),
            faults: faults.clone(),
            payload: PayloadMode::Elided,
            seed,
            ..Options::default()
        };
        let mut done = Vec::new();
        let mut go_on = |at: Progress| {
            done.resize((at.completed + at.failed) as usize, at.elapsed);
            at.elapsed < RACE
        };
        let report = softnic_sim::run_timed(&options, &mut go_on).map_err(|e| e.to_string())?;
        Ok(Raced { name: transport.name().to_string(), done, again: report.retransmitted_packets })
    };
    [Transport::Rc, Transport::SR, Transport::LOWAR].into_iter().map(one).collect()
}

/// The clock, and a bar for each transport: what it has carried at this virtual time, as a part of the most that any carries in the whole race.
fn picture(all: &[Raced], at: Duration) -> Vec<String> {
    let most = all.iter().map(|raced| raced.bytes(RACE)).max().unwrap_or(0).max(1);
    let clock = format!("virtual time {:>4} ms", at.as_millis());
    let mut lines = vec![format!("  {clock:<48} {:>7} {:>13} {:>6}", "carried", "goodput", "again")];
    lines.extend(all.iter().map(|raced| {
        let bytes = raced.bytes(at);
        let cells = "#".repeat((bytes * BAR as u64 / most) as usize);
        let figures = match at == RACE {
            true => format!(" {:>6.3} Gbit/s {:>6}", bytes as f64 * 8.0 / RACE.as_secs_f64() / 1e9, raced.again),
            false => " ".repeat(21),
        };
        format!("  {:<6}|{cells:<BAR$}| {:>3} MiB{figures}", raced.name, bytes >> 20)
    }));
    lines
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
    fn bars_of_the_race_grow_with_virtual_time_and_go_back_n_falls_behind() {
        let all = race(1).unwrap();
        assert_eq!(all.iter().map(|raced| raced.name.as_str()).collect::<Vec<_>>(), ["rc", "sr", "lowar"]);
        let cells = |at: u64| {
            let lines = picture(&all, Duration::from_millis(at));
            assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:#?}");
            assert!(lines[0].contains(&format!("virtual time {at:>4} ms")), "{lines:#?}");
            [1, 2, 3].map(|line| lines[line].matches('#').count())
        };
        // Nothing is done before a round trip has passed, and then all go on as time does.
        assert_eq!(cells(39), [0; 3]);
        let mut before = cells(0);
        for at in (200..=1000).step_by(200) {
            let now = cells(at);
            assert!(now[0] < now[1] && now[0] < now[2], "{at} ms: {now:?}");
            assert!(now.iter().zip(before).all(|(now, before)| *now > before), "{at} ms: {before:?}, then {now:?}");
            before = now;
        }
        assert!(before.contains(&BAR));
        // At half the time about half of what a transport that loses no time carries.
        assert!((BAR * 4 / 10..=BAR / 2).contains(&cells(500)[1]), "{:?}", cells(500));
        assert!(all[0].again > all[1].again && all[0].again > 0);
    }

    #[test]
    fn a_demo_takes_about_twenty_seconds() {
        let all = STEP * diagram(1).unwrap().len() as u32 + PAUSE * 2 + PICTURE * PICTURES;
        assert!((18..=22).contains(&all.as_secs()), "{all:?}");
    }
}
