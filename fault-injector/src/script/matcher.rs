//! Carries out a script in one direction of a link: which event is for a packet, if any.

use super::names::{Destinations, Numbers, Passes};
use super::{Action, Direction, Event, PsnMatch, QpnMatch, Script};

/// The events of one direction, and what they need to know of the packets that passed.
#[derive(Debug, Clone)]
pub(crate) struct Matcher {
    events: Vec<Entry>,
    /// Kept only if an event asks.
    qps: Option<Destinations>,
    passes: Passes,
}

/// An event of this direction.
#[derive(Debug, Clone)]
struct Entry {
    event: Event,
    /// Its place in the script, from 0.
    place: usize,
    /// Packets that it matched, `nth` left aside.
    matched: u32,
    /// Packets whose fate it decided.
    applied: u64,
}

impl Matcher {
    /// `None` when nothing in the script is for this direction.
    pub(crate) fn new(script: &Script, direction: Direction) -> Option<Matcher> {
        let all = script.events.iter().enumerate();
        let here = all.filter(|(_, e)| e.direction.is_none_or(|d| d == direction));
        let events: Vec<_> =
            here.map(|(place, event)| Entry { event: event.clone(), place, matched: 0, applied: 0 }).collect();
        let relative = |e: &Entry| {
            matches!(e.event.qpn, Some(QpnMatch::Seen(_))) || matches!(e.event.psn, Some(PsnMatch::AfterFirst(_)))
        };
        let qps = events.iter().any(relative).then(Destinations::default);
        (!events.is_empty()).then(|| Matcher { events, qps, passes: Passes::default() })
    }

    /// The places of the events, and of how many packets each has decided the fate.
    pub(crate) fn applied(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.events.iter().map(|e| (e.place, e.applied))
    }

    /// What happens to a frame, whole from Ethernet on; `None` when no event is for it. All headers must be in `frame`, the
    /// payload may be missing.
    pub(crate) fn decide(&mut self, frame: &[u8]) -> Option<Action> {
        let packet = Numbers::of(frame)?;
        let Numbers { opcode, qpn, psn } = packet;
        let seen = self.qps.as_mut().and_then(|qps| qps.see(packet));
        let mut iteration = None;
        let mut decided = None;
        for Entry { event, matched, applied, .. } in &mut self.events {
            let here = event.opcode.is_none_or(|o| o == opcode)
                && event.qpn.is_none_or(|m| match m {
                    QpnMatch::Exactly(q) => q == qpn,
                    QpnMatch::Seen(n) => seen.is_some_and(|(place, _)| place == n),
                })
                && event.psn.is_none_or(|m| match m {
                    PsnMatch::Exactly(p) => p == psn,
                    PsnMatch::AfterFirst(n) => seen.is_some_and(|(_, first)| first.add(n) == psn),
                });
            // Only packets that such an event may be for are counted, once each, so that the table is for them alone.
            if !here
                || event.iteration.is_some_and(|i| *iteration.get_or_insert_with(|| self.passes.count(packet)) != i)
            {
                continue;
            }
            // Every event counts for itself, whether or not one before it took the packet.
            *matched = matched.saturating_add(1);
            if decided.is_none() && event.nth.is_none_or(|n| n == *matched) {
                decided = Some(event.action);
                *applied += 1;
            }
        }
        decided
    }
}

#[cfg(test)]
mod tests {
    use super::super::names::{MAX_QPS, PacketNames};
    use super::*;
    use softnic_wire::{Addresses, ExtHeaders, MacAddr, Opcode, PacketFields, Path, Psn, Qpn, Template, TxFrame, bth};

    /// A packet without payload or extension headers.
    fn frame(opcode: u8, qpn: u32, psn: u32) -> Vec<u8> {
        let path = Path {
            src_mac: MacAddr([2, 0, 0, 0, 0, 1]),
            dst_mac: MacAddr([2, 0, 0, 0, 0, 2]),
            tags: [None; 2],
            addresses: Addresses::V4 { src: [10, 0, 0, 1].into(), dst: [10, 0, 0, 2].into() },
            traffic_class: 0,
            flow_label: 0,
            hop_limit: 64,
            src_port: 0xc000,
        };
        let fields = PacketFields {
            opcode: Opcode(opcode),
            psn: Psn::new(psn),
            ack_req: false,
            solicited: false,
            becn: false,
            payload_len: 0,
        };
        let mut buffer = [0; 256];
        let mut tx = TxFrame::new(&mut buffer);
        let template = Template::new(&path, Qpn::new(qpn), bth::DEFAULT_PKEY);
        template.build(&mut tx, &fields, &ExtHeaders::default(), &[]).unwrap();
        tx.segments().0.to_vec()
    }

    const MIDDLE: u8 = 0x07;
    const LAST: u8 = 0x08;

    /// Which of the packets (opcode, qpn, psn), from 0, the script drops on their way from a to b.
    fn dropped(script: &str, packets: &[(u8, u32, u32)]) -> Vec<usize> {
        let mut m = Matcher::new(&Script::parse(script).unwrap(), Direction::Ab).expect("events for this direction");
        let hits = packets.iter().map(|&(o, q, p)| m.decide(&frame(o, q, p)));
        hits.enumerate().filter(|(_, a)| a.is_some()).map(|(i, _)| i).collect()
    }

    #[test]
    fn each_key_narrows_down_by_itself_and_all_together() {
        let packets = [(MIDDLE, 5, 0xff_ffff), (LAST, 5, 0), (MIDDLE, 6, 40), (LAST, 6, 41), (LAST, 5, 0)];
        let drop = |keys: &str| dropped(&format!("[[event]]\naction = \"drop\"\n{keys}"), &packets);
        assert_eq!(drop(""), [0, 1, 2, 3, 4]);
        assert_eq!(drop("opcode = \"RC_RDMA_WRITE_LAST\""), [1, 3, 4]);
        assert_eq!(drop("opcode = 7"), [0, 2]);
        assert_eq!((drop("qpn = 6"), drop("qpn = \"#1\""), drop("qpn = \"#3\"")), (vec![2, 3], vec![0, 1, 4], vec![]));
        assert_eq!((drop("psn = 40"), drop("psn = 0xffffff")), (vec![2], vec![0]));
        assert_eq!(drop("psn = \"+1\""), [1, 3, 4], "each queue pair counts from its own first PSN, over the wrap");
        assert_eq!((drop("iteration = 2"), drop("iteration = 1")), (vec![4], vec![0, 1, 2, 3]));
        assert_eq!(drop("nth = 3"), [2]);
        assert_eq!(drop("opcode = 8\nqpn = \"#1\"\npsn = \"+1\"\nnth = 2"), [4], "nth counts what matches all of it");
        assert_eq!(drop("opcode = 8\niteration = 1\nnth = 2"), [3]);
    }

    #[test]
    fn a_count_of_packets_does_not_begin_with_a_notice_of_lowar() {
        let packets = [(Opcode::LOWAR.0, 5, 0), (MIDDLE, 5, 40), (MIDDLE, 5, 41), (Opcode::LOWAR.0, 5, 40)];
        let drop = |keys: &str| dropped(&format!("[[event]]\naction = \"drop\"\n{keys}"), &packets);
        assert_eq!(drop("qpn = \"#1\"\npsn = \"+1\""), [2]);
        assert_eq!(drop("psn = \"+0\""), [1, 3], "a repair packet has the PSN of its block");
        assert_eq!(drop("psn = \"+0\"\nopcode = 7"), [1]);
    }

    #[test]
    fn requests_and_answers_for_one_queue_pair_are_counted_apart() {
        const ACK: u8 = 0x11;
        let packets = [(ACK, 5, 900), (MIDDLE, 5, 40), (0x81, 5, 0), (LAST, 5, 41), (ACK, 5, 901), (MIDDLE, 5, 42)];
        let drop = |keys: &str| dropped(&format!("[[event]]\naction = \"drop\"\n{keys}"), &packets);
        assert_eq!(drop("psn = \"+1\"\nopcode = 0x11"), [4]);
        assert_eq!(drop("psn = \"+1\"\nopcode = 8"), [3], "whatever came first");
        assert_eq!(drop("psn = \"+1\""), [3, 4]);
        assert_eq!((drop("psn = \"+2\""), drop("psn = \"+0\"\nopcode = 0x81")), (vec![5], vec![2]));
    }

    #[test]
    fn management_is_no_counted_destination() {
        let packets = [(MIDDLE, 5, 40), (0x64, 1, 7), (MIDDLE, 6, 90), (0x64, 1, 8), (MIDDLE, 7, 3)];
        let drop = |keys: &str| dropped(&format!("[[event]]\naction = \"drop\"\n{keys}"), &packets);
        assert_eq!((drop("qpn = \"#1\""), drop("qpn = \"#2\""), drop("qpn = \"#3\"")), (vec![0], vec![2], vec![4]));
        assert_eq!((drop("qpn = \"#4\""), drop("qpn = 1")), (vec![], vec![1, 3]));
        assert_eq!(drop("qpn = 1\npsn = \"+1\""), [3], "its PSNs are counted all the same");
    }

    #[test]
    fn the_first_event_that_is_for_a_packet_decides_and_each_counts_for_itself() {
        let script = "[[event]]\naction = \"drop\"\nnth = 2\n[[event]]\naction = \"duplicate\"\nnth = 2\n
            [[event]]\naction = \"corrupt\"\nbit = 9\niteration = 2\n[[event]]\naction = \"reorder\"\nbehind = 3\npsn = 3";
        let mut m = Matcher::new(&Script::parse(script).unwrap(), Direction::Ba).unwrap();
        let fates: Vec<_> = [1, 2, 3, 2].iter().map(|&psn| m.decide(&frame(MIDDLE, 5, psn))).collect();
        let (reorder, corrupt) = (Action::Reorder { behind: 3 }, Action::Corrupt { bit: Some(9) });
        assert_eq!(fates, [None, Some(Action::Drop), Some(reorder), Some(corrupt)]);
        assert_eq!(m.applied().collect::<Vec<_>>(), [(0, 1), (1, 0), (2, 1), (3, 1)]);
    }

    #[test]
    fn an_event_of_the_other_direction_is_not_even_looked_at() {
        let script = Script::parse("[[event]]\naction = \"drop\"\ndirection = \"ba\"").unwrap();
        assert!(Matcher::new(&script, Direction::Ab).is_none());
        assert!(Matcher::new(&script, Direction::Ba).is_some());
        assert!(Matcher::new(&Script::default(), Direction::Ba).is_none());
    }

    #[test]
    fn only_roce_packets_are_matched() {
        let mut m = Matcher::new(&Script::parse("[[event]]\naction = \"drop\"").unwrap(), Direction::Ab).unwrap();
        let roce = frame(MIDDLE, 5, 1);
        let mut other_port = roce.clone();
        other_port[36..38].copy_from_slice(&4792u16.to_be_bytes());
        let mut arp = roce.clone();
        arp[12..14].copy_from_slice(&[0x08, 0x06]);
        for f in [&other_port[..], &arp, &roce[..roce.len() - 16], &roce[..20], &[]] {
            assert_eq!(m.decide(f), None);
        }
        assert_eq!(m.decide(&roce), Some(Action::Drop));
    }

    #[test]
    fn destinations_are_bounded_and_those_known_stay_so() {
        let mut m =
            Matcher::new(&Script::parse("[[event]]\naction = \"drop\"\npsn = \"+0\"").unwrap(), Direction::Ab).unwrap();
        for qpn in 0..MAX_QPS as u32 {
            assert_eq!(m.decide(&frame(MIDDLE, qpn, qpn)), Some(Action::Drop));
        }
        assert_eq!(m.decide(&frame(MIDDLE, MAX_QPS as u32, 5)), None);
        assert_eq!(m.decide(&frame(MIDDLE, 7, 7)), Some(Action::Drop), "those known stay so");
        assert_eq!(m.qps.map(|q| q.len()), Some(MAX_QPS));
    }

    #[test]
    fn the_name_of_a_packet_is_an_event_for_it_alone() {
        let mut packets =
            vec![(0x64, 1, 7), (MIDDLE, 5, 0xff_ffff), (LAST, 5, 0), (MIDDLE, 6, 40), (LAST, 5, 0), (0x64, 1, 7)];
        packets.extend([(Opcode::LOWAR.0, 6, 40), (MIDDLE, 6, 39), (LAST, 5, 0), (MIDDLE, 5, 0xff_ffff)]);
        let mut names = PacketNames::with_room();
        for (place, &(opcode, qpn, psn)) in packets.iter().enumerate() {
            let name = names.name(&frame(opcode, qpn, psn)).unwrap();
            let destination = if name.destination == 0 { "1".into() } else { format!("\"#{}\"", name.destination) };
            let event = format!(
                "[[event]]\naction = \"drop\"\nqpn = {destination}\npsn = \"+{}\"\nopcode = {}\niteration = {}",
                name.psn, name.opcode.0, name.iteration
            );
            assert_eq!(dropped(&event, &packets), [place], "{event}");
        }
        assert!(PacketNames::default().name(&frame(Opcode::LOWAR.0, 5, 0)).is_none(), "no count begins with it");
        assert!(PacketNames::default().name(&[0; 60]).is_none());
    }
}
