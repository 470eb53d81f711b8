//! Decides over each frame of one direction of a link: the link that is stalled or down, the script, and chance.

use std::time::Duration;

use softnic_wire::Instant;

use crate::random::{Random, threshold};
use crate::script::matcher::Matcher;
use crate::script::{Action, Direction};
use crate::spec::{BurstLen, Fault, Outage, Spec};

/// What happens to a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It goes on.
    Pass,
    /// It is lost.
    Drop,
    /// It goes on, and a copy right behind it.
    Duplicate,
    /// It goes on with one bit flipped: the bit's number, to be taken modulo the frame's bits.
    Corrupt(u64),
    /// It is held until so many later frames have passed.
    Hold(u32),
    /// It goes on with the mark of congestion, if it understands that.
    Mark,
    /// It goes on, and takes so much longer.
    Delay(Duration),
}

/// A fault that chance decides over, with chances as thresholds for a 64-bit random number.
#[derive(Debug, Clone)]
enum Model {
    Once { limit: u64, fault: Fault },
    Burst { enter: u64, loss: u64, len: BurstLen, left: u32 },
}

/// The faults of one direction of a link.
#[derive(Debug, Clone)]
pub struct Injector {
    models: Vec<Model>,
    random: Random,
    downs: Vec<Outage>,
    stalls: Vec<Outage>,
    /// The script, if it has anything for this direction, and where its bits are drawn from: events take nothing from the
    /// random faults' numbers, so that adding one moves no loss.
    script: Option<Box<(Matcher, Random)>>,
    /// When it began: times of the SPEC count from here.
    origin: Duration,
    enabled: bool,
}

impl Injector {
    /// The faults of `spec` for one direction, drawn from `seed`. Two directions take two seeds.
    pub fn new(spec: &Spec, direction: Direction, seed: u64) -> Injector {
        let (mut models, mut downs, mut stalls) = (Vec::new(), Vec::new(), Vec::new());
        for fault in spec.of(direction) {
            match fault {
                Fault::Loss(p) | Fault::Duplicate(p) | Fault::Corrupt(p) | Fault::Reorder { chance: p, .. } => {
                    models.push(Model::Once { limit: threshold(p), fault });
                }
                Fault::Burst { enter, loss, len } => {
                    models.push(Model::Burst { enter: threshold(enter), loss: threshold(loss), len, left: 0 });
                }
                Fault::Down(outage) => downs.push(outage),
                Fault::Stall(outage) => stalls.push(outage),
                // What the link is like: see `Line`.
                Fault::Delay(_) | Fault::Jitter(_) | Fault::Rate(_) | Fault::Queue(_) | Fault::Ecn(_) => {}
            }
        }
        // A fault that never happens draws nothing, so that naming it changes no run.
        models.retain(|m| match *m {
            Model::Once { limit, .. } => limit > 0,
            Model::Burst { enter, loss, .. } => enter > 0 && loss > 0,
        });
        let script = Matcher::new(&spec.script, direction).map(|m| Box::new((m, Random::stream(seed, 0))));
        Injector { models, random: Random::new(seed), downs, stalls, script, origin: Duration::ZERO, enabled: true }
    }

    /// Times of the SPEC count from now on, and not from the driver's origin.
    pub fn begin_at(&mut self, now: Instant) {
        self.origin = Duration::from_nanos(now.as_nanos());
    }

    /// When a frame that comes now is let go: now, unless the link is stalled. Never before a frame that came earlier.
    #[inline]
    pub(crate) fn let_go(&self, now: Instant) -> Instant {
        if self.stalls.is_empty() || !self.enabled { now } else { self.end_of_stalls(now) }
    }

    fn end_of_stalls(&self, now: Instant) -> Instant {
        let mut at = self.since_origin(now);
        // One stall may end within another. Those that repeat may do so without end, so each is waited for once.
        for _ in &self.stalls {
            at = self.stalls.iter().filter_map(|s| s.end(at)).max().unwrap_or(at);
        }
        let end = u64::try_from(self.origin.saturating_add(at).as_nanos())
            .map_or(Instant::from_nanos(u64::MAX), Instant::from_nanos);
        end.max(now)
    }

    fn since_origin(&self, now: Instant) -> Duration {
        Duration::from_nanos(now.as_nanos()).saturating_sub(self.origin)
    }

    /// Decides over a frame that begins to leave now, given from Ethernet on; the headers are enough. A link that is
    /// down loses it, and nothing else sees it. Then the script decides. Then each fault is drawn by itself, in the
    /// order of the SPEC; the first that happens decides.
    #[inline]
    pub fn offer(&mut self, now: Instant, frame: &[u8]) -> Fate {
        if !self.enabled {
            return Fate::Pass;
        }
        if !self.downs.is_empty() {
            let at = self.since_origin(now);
            if self.downs.iter().any(|d| d.end(at).is_some()) {
                return Fate::Drop;
            }
        }
        if let Some(script) = &mut self.script
            && let Some(action) = script.0.decide(frame)
        {
            return match action {
                Action::Drop => Fate::Drop,
                Action::Duplicate => Fate::Duplicate,
                Action::Corrupt { bit } => Fate::Corrupt(bit.map_or_else(|| script.1.next_u64(), u64::from)),
                Action::Reorder { behind } => Fate::Hold(behind),
                Action::Mark => Fate::Mark,
                Action::Delay(by) => Fate::Delay(by),
            };
        }
        for model in &mut self.models {
            match model {
                Model::Once { limit, fault } => {
                    if self.random.next_u64() < *limit {
                        return match *fault {
                            Fault::Duplicate(_) => Fate::Duplicate,
                            Fault::Corrupt(_) => Fate::Corrupt(self.random.next_u64()),
                            Fault::Reorder { behind, .. } => Fate::Hold(behind),
                            _ => Fate::Drop,
                        };
                    }
                }
                Model::Burst { enter, loss, len, left } => {
                    if burst_takes(*enter, *loss, *len, left, &mut self.random) {
                        return Fate::Drop;
                    }
                }
            }
        }
        Fate::Pass
    }

    /// The script's events of this direction: their places in it, from 0, and of how many frames each has decided the fate.
    pub fn applied(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.script.iter().flat_map(|s| s.0.applied())
    }

    /// Stops all faults, or lets them begin again. The script does not count what passes meanwhile.
    pub fn set_enabled(&mut self, enabled: bool) {
        self.enabled = enabled;
    }
}

/// One frame of the two-state model: whether it is lost. `left` is how many of the burst are to come, this one included;
/// for a burst of a mean length it is 1 as long as the burst lasts.
fn burst_takes(enter: u64, loss: u64, len: BurstLen, left: &mut u32, random: &mut Random) -> bool {
    if *left == 0 {
        if random.next_u64() >= enter {
            return false;
        }
        *left = match len {
            BurstLen::Exactly(n) => n,
            BurstLen::Mean(_) => 1,
        };
    }
    let lost = random.next_u64() < loss;
    match len {
        BurstLen::Exactly(_) => *left -= 1,
        BurstLen::Mean(mean) => *left = u32::from(!random.chance(1.0 / mean)),
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::Script;

    const NOW: Instant = Instant::from_nanos(0);

    #[test]
    fn losses_come_as_often_as_asked_for_and_the_same_with_the_same_seed() {
        let spec: Spec = "loss=0.01".parse().unwrap();
        let run = |seed| {
            let mut i = Injector::new(&spec, Direction::Ab, seed);
            (0..1_000_000).map(|_| i.offer(NOW, &[])).collect::<Vec<_>>()
        };
        let a = run(1);
        let lost = a.iter().filter(|f| **f == Fate::Drop).count();
        // Standard deviation 99.5: six of them.
        assert!((9_403..=10_597).contains(&lost), "{lost} of a million at 1 %");
        assert!(a == run(1) && a != run(2));
    }

    #[test]
    fn every_fault_comes_as_often_as_asked_for_and_by_itself() {
        let mut i = Injector::new(&"loss=0.01,dup=0.02,corrupt=0.03,reorder=0.04:3".parse().unwrap(), Direction::Ab, 1);
        let fates: Vec<_> = (0..1_000_000).map(|_| i.offer(NOW, &[])).collect();
        let count = |f: fn(&Fate) -> bool| fates.iter().filter(|x| f(x)).count();
        // Those before it in the SPEC take their share first; six standard deviations of the largest are 1,200.
        let near = |n: usize, expected: f64| (n as f64 - expected * 1e6).abs() < 1_200.0;
        assert!(near(count(|f| *f == Fate::Drop), 0.01));
        assert!(near(count(|f| *f == Fate::Duplicate), 0.02 * 0.99));
        assert!(near(count(|f| matches!(f, Fate::Corrupt(_))), 0.03 * 0.99 * 0.98));
        assert!(near(count(|f| *f == Fate::Hold(3)), 0.04 * 0.99 * 0.98 * 0.97));
    }

    #[test]
    fn no_loss_loses_nothing_and_certain_loss_everything() {
        let all = |spec: &str, fate| {
            let mut i = Injector::new(&spec.parse().unwrap(), Direction::Ba, 3);
            (0..10_000).all(|_| i.offer(NOW, &[]) == fate)
        };
        assert!(all("", Fate::Pass) && all("loss=0", Fate::Pass) && all("loss=1", Fate::Drop));
    }

    #[test]
    fn a_link_is_down_to_the_nanosecond_and_the_script_does_not_count_what_it_loses() {
        let mut i = Injector::new(&"down=5us+2us,down=10us+1us/4us".parse().unwrap(), Direction::Ab, 1);
        let mut at = |ns| i.offer(Instant::from_nanos(ns), &[]) == Fate::Drop;
        for (from, to) in [(5_000, 7_000), (10_000, 11_000), (14_000, 15_000), (410_000, 411_000)] {
            assert!(!at(from - 1) && at(from) && at(to - 1) && !at(to), "from {from}");
        }
        assert!(!at(0) && !at(9_000));
    }

    #[test]
    fn a_stall_ends_to_the_nanosecond_and_one_that_ends_in_another_lasts_on() {
        let injector = |spec: &str| Injector::new(&spec.parse().unwrap(), Direction::Ab, 1);
        let let_go = |i: &Injector, ns| i.let_go(Instant::from_nanos(ns)).as_nanos();
        let mut i = injector("stall=5us+2us,stall=10us+1us/4us,ba.stall=0s+100us");
        for (from, to) in [(5_000, 7_000), (10_000, 11_000), (14_000, 15_000), (410_000, 411_000)] {
            let expected = [(from - 1, from - 1), (from, to), (to - 1, to), (to, to)];
            assert!(expected.iter().all(|&(came, left)| let_go(&i, came) == left), "from {from}");
        }
        i.begin_at(Instant::from_nanos(1_000_000));
        assert_eq!(
            (let_go(&i, 1_004_999), let_go(&i, 1_005_500)),
            (1_004_999, 1_007_000),
            "times count from the beginning"
        );
        i.set_enabled(false);
        assert_eq!(let_go(&i, 1_005_500), 1_005_500);
        let i = injector("stall=3us+2us,stall=2us+2us,stall=1us+2us");
        assert_eq!((let_go(&i, 999), let_go(&i, 1_000), let_go(&i, 4_999)), (999, 5_000, 5_000));
        // Together they never end: each is waited for once, and no frame is let go before an earlier one.
        let i = injector("stall=0s+3us/4us,stall=2us+3us/4us");
        let times: Vec<u64> = (0..100_000).step_by(100).map(|ns| let_go(&i, ns)).collect();
        assert!(times.is_sorted() && (0..100_000).step_by(100).zip(&times).all(|(came, left)| came < *left));
        assert_eq!(let_go(&injector("stall=0s+1000s"), u64::MAX), u64::MAX);
    }

    #[test]
    fn the_script_goes_first_and_takes_nothing_from_the_random_faults() {
        // Any frame with a BTH: Ethernet, IPv4, UDP to the RoCE port.
        let mut frame = [0; 62];
        frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0x00]);
        frame[17] = 48;
        frame[23] = 17;
        frame[36..38].copy_from_slice(&4791u16.to_be_bytes());
        let run = |script: &str, seed| {
            let mut spec: Spec = "loss=0.3".parse().unwrap();
            spec.script = if script.is_empty() { Script::default() } else { Script::parse(script).unwrap() };
            let mut i = Injector::new(&spec, Direction::Ab, seed);
            (0..1000).map(|_| i.offer(NOW, &frame)).collect::<Vec<_>>()
        };
        let plain = run("", 5);
        let event = |action: &str| run(&format!("[[event]]\nnth = 10\naction = {action}"), 5);
        let scripted = event("\"corrupt\"");
        let Fate::Corrupt(bit) = scripted[9] else { panic!("{:?}", scripted[9]) };
        assert_eq!(
            (&scripted[..9], &scripted[10..]),
            (&plain[..9], &plain[9..999]),
            "the same losses, one packet later"
        );
        assert_eq!(scripted, event("\"corrupt\""), "the bit is drawn from the seed");
        let other = run("[[event]]\nnth = 10\naction = \"corrupt\"", 6)[9];
        assert!(matches!(other, Fate::Corrupt(b) if b != bit));
        let nth = |action: &str| event(action)[9];
        assert_eq!((nth("\"drop\""), nth("\"duplicate\"")), (Fate::Drop, Fate::Duplicate));
        assert_eq!(nth("\"corrupt\"\nbit = 77"), Fate::Corrupt(77));
        assert_eq!(nth("\"reorder\"\nbehind = 2"), Fate::Hold(2));
        assert_eq!(nth("\"ecn\""), Fate::Mark);
        assert_eq!(nth("\"delay\"\ndelay = \"5ms\""), Fate::Delay(Duration::from_millis(5)));
        let mut spec: Spec = "down=0s+1us".parse().unwrap();
        spec.script = Script::parse("[[event]]\nnth = 1\naction = \"duplicate\"").unwrap();
        let mut i = Injector::new(&spec, Direction::Ab, 1);
        assert_eq!(i.offer(NOW, &frame), Fate::Drop);
        assert_eq!(i.offer(Instant::from_nanos(1000), &frame), Fate::Duplicate, "the first that it sees");
    }
}
