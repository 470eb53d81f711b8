//! SDR-RDMA, figure 8, both halves, message by message in virtual time: what is sent, what is lost, and what is told of it.

use std::cell::RefCell;
use std::rc::Rc;

use softnic_fault_injector::Fate;
use softnic_sdr::reliable::{Outcome, ReliableAttr, Scheme};
use softnic_sim::pair::{A, B};
use softnic_wire::sdr::report::{Report, ReportKind};

use crate::reliable::{MTU, RATE, RTT, World, attr, bytes};

/// Before the BTH are Ethernet, IPv4 without options and UDP; before an immediate of a WRITE are BTH and RETH.
const BTH: usize = 14 + 20 + 8;
const IMM: usize = BTH + 12 + 16;
const UC_SEND_ONLY: u8 = 0x24;
const UC_WRITE_ONLY_WITH_IMM: u8 = 0x2b;

/// A message of so many packets, each a chunk, and how it goes on the wire.
struct Message {
    attr: ReliableAttr,
    packets: u32,
}

impl Message {
    /// What a frame says, in the figure's words; `None` for what the figure leaves out.
    fn said(&self, frame: &[u8]) -> Option<String> {
        match frame[BTH] {
            UC_WRITE_ONLY_WITH_IMM => {
                let imm = frame[IMM..IMM + 4].iter().fold(0, |imm, &byte| imm << 8 | u32::from(byte));
                let [_, packet_bits, user_bits] = self.attr.qp.split.bits().map(u32::from);
                let (message, packet) = (imm >> (packet_bits + user_bits), imm >> user_bits & ((1 << packet_bits) - 1));
                Some(match self.attr.scheme {
                    Scheme::Ec(_) if message % 2 == 1 => format!("parity {}", message / 2 + 1),
                    Scheme::Ec(p) => format!("packet {}", message / 2 * u32::from(p.k) + packet + 1),
                    _ => format!("packet {}", packet + 1),
                })
            }
            UC_SEND_ONLY => self.told(&Report::parse(&frame[BTH + 12..frame.len() - 4])?),
            _ => None,
        }
    }

    /// An ACK as the figure has it: how many packets are there without a gap, and which of the others are.
    fn told(&self, report: &Report<'_>) -> Option<String> {
        let is_there =
            |packet: &u32| report.done > 0 || *packet < report.below || report.chunks().any(|c| c == *packet);
        match report.kind {
            ReportKind::Ack => {
                let below = (0..self.packets).take_while(is_there).count();
                let rest = (below as u32..self.packets).map(|packet| if is_there(&packet) { '1' } else { '0' });
                Some(format!("ACK {below}|{}", rest.collect::<String>()))
            }
            ReportKind::Nack => {
                let asked: Vec<String> = report.chunks().map(|chunk| (chunk + 1).to_string()).collect();
                Some(format!("NACK {}", asked.join(" ")))
            }
            ReportKind::Done | ReportKind::RoundTrip | ReportKind::Rows => None,
        }
    }

    /// Sends it when its receive is known; what both ends say from then on, each with the time in round trips.
    fn transcript(self, faults: &str) -> Vec<(f64, String)> {
        let (attr, len) = (self.attr, (self.packets * MTU) as usize);
        let mut w = World::new(faults, 1, [attr; 2]);
        w.memory[A].write_at(0, &bytes(3, len));
        w.receive(B, 0, len);
        while w.with(A, |_, qp, _| qp.qp().vitals().cleared) == 0 {
            w.pair.sim.step().expect("the CTS comes");
        }
        let begin = w.now();
        let trips = move |at: softnic_wire::Instant| at.saturating_since(begin).as_secs_f64() / RTT.as_secs_f64();
        let heard = Rc::new(RefCell::new(Vec::new()));
        let hears = Rc::clone(&heard);
        w.pair.sim.set_tap(Box::new(move |sent| {
            let lost = if sent.fate == Fate::Drop { ", lost" } else { "" };
            let said = self.said(sent.frame).map(|said| (trips(sent.at.instant()), format!("{said}{lost}")));
            hears.borrow_mut().extend(said);
        }));
        w.write(A, 0, len);
        let (end, outcome) = w.until(A);
        assert_eq!(outcome, Outcome::Written { id: 0, outcome: Ok(()) });
        let mut found = vec![0; len];
        w.memory[B].read_at(0, &mut found);
        assert!(found == bytes(3, len));
        heard.borrow_mut().push((trips(end), "complete".into()));
        heard.take()
    }
}

/// What was said is what should be, at the times that it should be to a tenth of a round trip.
fn assert_said(found: &[(f64, String)], expected: &[(f64, &str)]) {
    let words = |said: &(f64, String)| said.1.clone();
    assert_eq!(found.iter().map(words).collect::<Vec<_>>(), expected.iter().map(|said| said.1).collect::<Vec<_>>());
    for ((found, what), (expected, _)) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 0.1, "{what} at {found} round trips, not at {expected}");
    }
}

/// Four packets by Selective Repeat. The second is lost; so is the acknowledgement of all, and it is sent a third time.
#[test]
fn figure_8_left_a_packet_and_the_last_acknowledgement_are_lost() {
    // A line so slow that each packet is acknowledged by itself, as in the figure. Before these are four CTS.
    let attr = ReliableAttr { acks_per_rtt: 1000, ..attr(Scheme::Sr) };
    let found = Message { attr, packets: 4 }.transcript("ab.rate=100Mbit@2%8");
    // RTO is three round trips (α = 2).
    let expected = [
        (0.0, "packet 1"),
        (0.0, "packet 2, lost"),
        (0.0, "packet 3"),
        (0.0, "packet 4"),
        (0.5, "ACK 1|000"),
        (0.5, "ACK 1|010"),
        (0.5, "ACK 1|011"),
        (3.0, "packet 2"),
        (3.5, "ACK 4|, lost"),
        (6.0, "packet 2"),
        (6.5, "ACK 4|"),
        (7.0, "complete"),
    ];
    assert_said(&found, &expected);
}

/// Eight packets by EC(2, 1), of whose four submessages the first and the last fail.
#[test]
fn figure_8_right_a_fallback_of_two_submessages() {
    let attr = attr("sdr-ec:2,1".parse().unwrap()).sized_for(RATE, RTT);
    let found = Message { attr, packets: 8 }.transcript("@1,2,10,12");
    // The figure's NACK names submessages, 1001; ours the packets of these that are missing. FTO is a round trip (β = 1).
    let expected = [
        (0.0, "packet 1, lost"),
        (0.0, "packet 2, lost"),
        (0.0, "parity 1"),
        (0.0, "packet 3"),
        (0.0, "packet 4"),
        (0.0, "parity 2"),
        (0.0, "packet 5"),
        (0.0, "packet 6"),
        (0.0, "parity 3"),
        (0.0, "packet 7, lost"),
        (0.0, "packet 8"),
        (0.0, "parity 4, lost"),
        (1.5, "NACK 1 2 7"),
        (2.0, "packet 1"),
        (2.0, "packet 2"),
        (2.0, "packet 7"),
        // The first packet and its parity are the second.
        (2.5, "ACK 6|01"),
        (2.5, "ACK 8|"),
        (3.0, "complete"),
    ];
    assert_said(&found, &expected);
}
