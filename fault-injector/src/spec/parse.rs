//! The SPEC as people write it; `docs/faults.md` describes each key.

use std::fs::File;
use std::io::{self, Read};
use std::mem::discriminant;
use std::str::FromStr;
use std::time::Duration;

use super::{BurstLen, Fault, Outage, Spec, SpecError};
use crate::calls::{is_part, parse_part};
use crate::red::Red;
use crate::script::Script;
use crate::units::{MAX_DELAY, parse_chance, parse_rate, parse_size, parse_time};

/// Bytes that a script may have: who names a capture or a device by mistake is told so at once.
const MAX_SCRIPT: u64 = 1 << 20;

/// From what a person wrote; files that it names are read.
impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(s: &str) -> Result<Spec, SpecError> {
        let mut spec = Spec::default();
        for part in s.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            if let Some(file) = part.strip_prefix('@') {
                let script = read_script(file)?;
                spec.script.events.extend(script.events);
                spec.calls.extend(script.calls);
                continue;
            }
            if is_part(part) {
                spec.calls.extend(parse_part(part).map_err(|why| SpecError::Call { part: part.into(), why })?);
                continue;
            }
            let (list, rest) = match part.split_once('.') {
                Some(("ab", rest)) => (&mut spec.ab, rest),
                Some(("ba", rest)) => (&mut spec.ba, rest),
                Some(("rx", rest)) => (&mut spec.rx, rest),
                _ => (&mut spec.faults, part),
            };
            if rest.starts_with('@') {
                return Err(SpecError::ScriptDirection(part.into(), rest.into()));
            }
            let fault = parse_fault(rest)?;
            if let Some(key) = only_once(&fault)
                && list.iter().any(|f| discriminant(f) == discriminant(&fault))
            {
                return Err(SpecError::Twice(key));
            }
            list.push(fault);
        }
        // In every direction that a queue can be in.
        let ways = [[&spec.faults, &spec.ab], [&spec.faults, &spec.ba], [&spec.rx, &spec.rx]];
        for faults in ways.map(|[a, b]| a.iter().chain(b)) {
            if !faults.clone().any(|f| matches!(f, Fault::Rate(_)))
                && let Some((key, example)) = faults.clone().find_map(needs_rate)
            {
                return Err(SpecError::NoRate { key, example });
            }
        }
        Ok(spec)
    }
}

/// A SPEC whose scripts have their whole names, for somebody who reads it in another folder. A name that would be cut at a comma stays as it is.
///
/// # Errors
/// When this process has no folder any more.
pub fn with_whole_names(spec: &str) -> io::Result<String> {
    let whole = |part: &str| match part.trim().strip_prefix('@').filter(|file| !file.is_empty()) {
        Some(file) => {
            let path = std::path::absolute(file)?;
            let name = path.to_str().filter(|name| !name.contains(',') && name.trim() == *name);
            Ok(name.map_or(part.to_owned(), |name| format!("@{name}")))
        }
        None => Ok(part.to_owned()),
    };
    Ok(spec.split(',').map(whole).collect::<io::Result<Vec<_>>>()?.join(","))
}

/// The key of what a link has one of.
fn only_once(fault: &Fault) -> Option<&'static str> {
    match fault {
        Fault::Delay(_) => Some("delay"),
        Fault::Jitter(_) => Some("jitter"),
        Fault::Rate(_) => Some("rate"),
        Fault::Queue(_) => Some("queue"),
        Fault::Ecn(_) => Some("ecn"),
        _ => None,
    }
}

fn needs_rate(fault: &Fault) -> Option<(&'static str, &'static str)> {
    match fault {
        Fault::Queue(_) => Some(("queue", "500K")),
        Fault::Ecn(_) => Some(("ecn", "50K:500K:0.01")),
        _ => None,
    }
}

fn read_script(file: &str) -> Result<Script, SpecError> {
    if file.is_empty() {
        return Err(SpecError::NoValue("@".into()));
    }
    let unreadable = |why: String| SpecError::Unreadable { file: file.into(), why };
    let mut text = String::new();
    let read = File::open(file).and_then(|f| f.take(MAX_SCRIPT + 1).read_to_string(&mut text));
    if read.map_err(|e| unreadable(e.to_string()))? as u64 > MAX_SCRIPT {
        return Err(unreadable("more than 1 MiB is no script".into()));
    }
    Script::parse(&text).map_err(|why| SpecError::Script { file: file.into(), why })
}

fn parse_fault(part: &str) -> Result<Fault, SpecError> {
    let (key, value) = part.split_once('=').ok_or_else(|| SpecError::NoValue(part.into()))?;
    match key {
        "loss" => Ok(Fault::Loss(chance("loss", value)?)),
        "burst" => burst(value),
        "dup" => Ok(Fault::Duplicate(chance("dup", value)?)),
        "corrupt" => Ok(Fault::Corrupt(chance("corrupt", value)?)),
        "reorder" => {
            let why = "a probability and a number of frames, from 1 to 1000, e.g. 1e-3:3";
            let bad = || SpecError::BadValue { key: "reorder", value: value.into(), why };
            let (p, behind) = value.split_once(':').ok_or_else(bad)?;
            let behind = behind.parse().ok().filter(|n| (1..=1000).contains(n)).ok_or_else(bad)?;
            Ok(Fault::Reorder { chance: chance("reorder", p)?, behind })
        }
        "delay" => Ok(Fault::Delay(time("delay", value)?)),
        "jitter" => Ok(Fault::Jitter(time("jitter", value)?)),
        "rate" => {
            let why = "bits a second, e.g. 10Gbit or 100Mbit";
            parse_rate(value).map(Fault::Rate).map_err(|_| bad("rate", value, why))
        }
        "queue" => match parse_size(value) {
            Ok(bytes) if bytes > 0 => Ok(Fault::Queue(bytes)),
            _ => Err(bad("queue", value, "bytes, at least 1, e.g. 500K")),
        },
        "ecn" => ecn(value),
        "down" => outage("down", value).map(Fault::Down),
        "stall" => outage("stall", value).map(Fault::Stall),
        other => Err(SpecError::UnknownKey(other.into())),
    }
}

fn bad(key: &'static str, value: &str, why: &'static str) -> SpecError {
    SpecError::BadValue { key, value: value.into(), why }
}

fn chance(key: &'static str, value: &str) -> Result<f64, SpecError> {
    probability(value).ok_or_else(|| bad(key, value, "a probability from 0 to 1, e.g. 1e-4"))
}

fn probability(value: &str) -> Option<f64> {
    parse_chance(value).ok()
}

fn time(key: &'static str, value: &str) -> Result<Duration, SpecError> {
    let time = parse_time(value).ok().filter(|t| *t <= MAX_DELAY);
    time.ok_or_else(|| bad(key, value, "a time of at most 1000s, e.g. 20ms"))
}

fn burst(value: &str) -> Result<Fault, SpecError> {
    let parse = || {
        let (enter, rest) = value.split_once(':')?;
        let (loss, len) = rest.split_once(':')?;
        let len = match len.strip_prefix('~') {
            None => BurstLen::Exactly(len.parse().ok().filter(|n| *n >= 1)?),
            Some(mean) => BurstLen::Mean(mean.parse().ok().filter(|m| (1.0..=1e9).contains(m))?),
        };
        Some(Fault::Burst { enter: probability(enter)?, loss: probability(loss)?, len })
    };
    let why =
        "the probability to begin, that of loss within, and the frames of a burst, 8 or ~8 on average, e.g. 1e-4:0.5:8";
    parse().ok_or_else(|| bad("burst", value, why))
}

fn ecn(value: &str) -> Result<Fault, SpecError> {
    let parse = || {
        let (min, rest) = value.split_once(':')?;
        let (max, chance) = rest.split_once(':')?;
        let (min, max) = (parse_size(min).ok()?, parse_size(max).ok()?);
        (min <= max).then_some(())?;
        Some(Fault::Ecn(Red { min, max, chance: probability(chance)? }))
    };
    let why = "two sizes of the queue, the lower first, and the probability at the upper, e.g. 50K:500K:0.01";
    parse().ok_or_else(|| bad("ecn", value, why))
}

fn outage(key: &'static str, value: &str) -> Result<Outage, SpecError> {
    let parse = || {
        let (from, rest) = value.split_once('+')?;
        let (lasts, every) = match rest.split_once('/') {
            Some((lasts, every)) => (lasts, Some(parse_time(every).ok()?)),
            None => (rest, None),
        };
        let (from, lasts) = (parse_time(from).ok()?, parse_time(lasts).ok()?);
        every.is_none_or(|e| e > lasts).then_some(Outage { from, lasts, every })
    };
    let why =
        "when and for how long, e.g. 5s+2s; 5s+2s/10s every ten seconds again, which must be longer than it lasts";
    parse().ok_or_else(|| bad(key, value, why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::ProcessName;
    use crate::script::Direction::{Ab, Ba};

    fn error(s: &str) -> String {
        s.parse::<Spec>().unwrap_err().to_string()
    }

    #[test]
    fn specs_are_read_or_refused_with_a_reason() {
        assert_eq!("loss=1e-4".parse(), Ok(Spec { faults: vec![Fault::Loss(1e-4)], ..Spec::default() }));
        assert_eq!("".parse(), Ok(Spec::default()));
        assert_eq!(error("loss"), "'loss' is no fault: write KEY=VALUE, e.g. loss=1e-4, or @FILE for a script");
        let all = "loss=1e-4,dup=0.5,corrupt=0,reorder=1e-3:3".parse::<Spec>().unwrap();
        assert_eq!(
            all.faults[1..],
            [Fault::Duplicate(0.5), Fault::Corrupt(0.0), Fault::Reorder { chance: 1e-3, behind: 3 }]
        );
        assert!(error("los=1").starts_with("there is no fault 'los'; this version knows loss=P"));
        assert!(error("reorder=0.1").contains("e.g. 1e-3:3") && error("reorder=0.1:0").contains("1e-3:3"));
        assert_eq!(error("loss=2"), "'2' is no value for loss: a probability from 0 to 1, e.g. 1e-4");
        assert!(error("loss=nan").contains("probability"));
    }

    #[test]
    fn the_keys_of_the_link_are_read() {
        let ms = Duration::from_millis;
        let spec: Spec =
            "burst=1e-3:0.5:~8,burst=0:1:3,delay=20ms,jitter=1ms,rate=10Gbit,queue=500K,ecn=50K:500K:0.01,\
            down=5s+2s,down=1ms+2ms/10ms,stall=7s+1s,stall=3ms+1ms/10ms"
                .parse()
                .unwrap();
        let red = Red { min: 50 << 10, max: 500 << 10, chance: 0.01 };
        assert_eq!(
            spec.faults,
            [
                Fault::Burst { enter: 1e-3, loss: 0.5, len: BurstLen::Mean(8.0) },
                Fault::Burst { enter: 0.0, loss: 1.0, len: BurstLen::Exactly(3) },
                Fault::Delay(ms(20)),
                Fault::Jitter(ms(1)),
                Fault::Rate(10_000_000_000),
                Fault::Queue(500 << 10),
                Fault::Ecn(red),
                Fault::Down(Outage { from: ms(5000), lasts: ms(2000), every: None }),
                Fault::Down(Outage { from: ms(1), lasts: ms(2), every: Some(ms(10)) }),
                Fault::Stall(Outage { from: ms(7000), lasts: ms(1000), every: None }),
                Fault::Stall(Outage { from: ms(3), lasts: ms(1), every: Some(ms(10)) }),
            ]
        );
        for (spec, said) in [
            ("burst=0.1", "the probability to begin, that of loss within"),
            ("burst=0.1:2:3", "'0.1:2:3' is no value for burst"),
            ("burst=0.1:1:0", "no value for burst"),
            ("burst=0.1:1:~0.5", "no value for burst"),
            ("delay=20", "'20' is no value for delay: a time of at most 1000s, e.g. 20ms"),
            ("jitter=1h", "no value for jitter"),
            ("delay=2000s", "at most 1000s"),
            ("rate=10", "'10' is no value for rate: bits a second"),
            ("rate=1Gbit,queue=0", "'0' is no value for queue: bytes, at least 1"),
            ("ecn=50K", "two sizes of the queue"),
            ("ecn=50K:40K:0.1", "the lower first"),
            ("ecn=50K:500K:1.1", "no value for ecn"),
            ("down=5s", "when and for how long, e.g. 5s+2s"),
            ("down=5s+2s/1s", "longer than it lasts"),
            ("stall=5s", "'5s' is no value for stall: when and for how long, e.g. 5s+2s"),
            ("stall=5+2", "no value for stall"),
            ("stall=5s+2s/2s", "longer than it lasts"),
            (
                "queue=500K",
                "queue needs the rate of the bottleneck that the queue is before, e.g. rate=5Gbit,queue=500K",
            ),
            ("ecn=1K:2K:1", "needs the rate"),
            ("ab.rate=1Gbit,queue=500K", "needs the rate"),
            ("delay=1ms,delay=2ms", "delay is given twice"),
            ("ab.@x.toml", "'ab.@x.toml': a script says in each event which direction it is for: write @x.toml alone"),
            ("ac.loss=1", "there is no fault 'ac.loss'"),
        ] {
            let e = error(spec);
            assert!(e.contains(said) && e.lines().count() == 1, "{spec}: {e}");
        }
    }

    #[test]
    fn whatever_is_typed_wrong_gets_one_line_and_never_a_panic() {
        let good = "loss=1e-4,burst=1e-3:0.5:~8,ab.delay=20ms,rate=10Gbit,queue=500K,ecn=50K:500K:0.01,\
            down=1ms+2ms/10ms,rx.stall=3s+2s";
        assert!(good.parse::<Spec>().is_ok());
        let mut refused = 0;
        for at in 0..good.len() {
            for put in ["", ",", ":", "=", ".", "~", "+", "/", "@", "-", "9", "é", "\0"] {
                if let Err(e) = [&good[..at], put, &good[at + 1..]].concat().parse::<Spec>() {
                    refused += 1;
                    assert_eq!(e.to_string().lines().count(), 1, "{e}");
                }
            }
        }
        assert!(refused > 500, "{refused}");
    }

    #[test]
    fn a_prefix_says_which_way() {
        let spec: Spec = "loss=0.1,ab.loss=0.2,ba.delay=5ms,delay=1ms,ab.rate=1Gbit,ab.queue=10K".parse().unwrap();
        assert_eq!(spec.of(Ab).next(), Some(Fault::Loss(0.1)));
        assert_eq!(spec.of(Ab).filter(|f| matches!(f, Fault::Loss(_))).count(), 2);
        assert_eq!(spec.of(Ba).filter(|f| matches!(f, Fault::Loss(_))).count(), 1);
        let (ab, ba) = (spec.shape(Ab), spec.shape(Ba));
        assert_eq!((ab.delay, ba.delay), (Duration::from_millis(1), Duration::from_millis(5)), "its own comes before");
        assert_eq!(ab.bottleneck.map(|(rate, p)| (rate, p.limit)), Some((1_000_000_000, 10 << 10)));
        assert!(ba.bottleneck.is_none() && spec.check_link().is_ok());
        assert_eq!(ab.longest(), Duration::from_millis(1) + Duration::from_nanos(81_920));
        assert_eq!(ba.longest(), Duration::from_millis(5));
        assert!(spec.for_device().unwrap_err().to_string().starts_with("ab. and ba. are the directions of a link"));
    }

    #[test]
    fn a_device_has_what_it_sends_and_what_it_receives() {
        let mut spec: Spec = "loss=0.1,rx.loss=0.2,rx.rate=1Gbit,rx.queue=1K".parse().unwrap();
        let drop = "[[event]]\naction = \"drop\"\n";
        spec.script = Script::parse(&format!("{drop}{drop}direction = \"ba\"\n{drop}direction = \"ab\"")).unwrap();
        assert!(spec.check_link().unwrap_err().to_string().starts_with("rx. is for what a device receives"));
        let [sent, received] = spec.for_device().unwrap();
        assert_eq!(sent.of(Ab).collect::<Vec<_>>(), [Fault::Loss(0.1)]);
        assert_eq!(received.of(Ab).count(), 3);
        assert_eq!((sent.script.events.len(), received.script.events.len()), (2, 1));
        assert!(received.script.events[0].direction.is_none());
        assert!(error("rx.queue=1K").contains("needs the rate"), "that of the other way does not help");
    }

    #[test]
    fn events_are_for_processes_and_devices_of_a_program_alone() {
        let script = |keys: &[&str]| {
            let events = keys.iter().map(|keys| format!("[[event]]\naction = \"drop\"\n{keys}\n"));
            Spec { script: Script::parse(&events.collect::<String>()).unwrap(), ..Spec::default() }
        };
        let said = |keys: &str| script(&[keys]).check_link().unwrap_err().to_string();
        assert!(
            said("process = \"a\"").starts_with("process in an [[event]] says which process or device of a program")
        );
        assert!(
            said("device = 0").starts_with("device in an [[event]] says which")
                && said("device = 0").lines().count() == 1
        );
        assert_eq!(script(&["device = 0"]).for_device().unwrap_err(), SpecError::NoPlaces("device"));
        let keys = ["process = \"a *\"", "process = \"* #2\"\ndevice = 1", "device = 0", ""];
        let spec = script(&keys);
        let left = |label: &str, ordinal, device| {
            let process = ProcessName { label: label.into(), ordinal };
            let spec = spec.clone().for_process(&process).for_place(device);
            assert!(spec.check_link().is_ok() && spec.for_device().is_ok());
            spec.script.events.len()
        };
        assert_eq!([left("a b", 1, 0), left("a b", 2, 1), left("c", 2, 0), left("c", 1, 1)], [3, 3, 2, 1]);
        assert!(spec.names_processes() && !spec.clone().for_any_process().names_processes());
        assert!(spec.check_devices(2).is_ok());
        let e = spec.check_devices(1).unwrap_err().to_string();
        assert_eq!(e, "device = 1 in an [[event]]: the program has 1, counted from 0");
    }

    #[test]
    fn on_a_wire_of_two_devices_events_go_the_way_of_what_the_device_sends_or_receives() {
        let keys = [
            "device = 2",
            "device = 3",
            "device = 3\ndirection = \"ba\"",
            "device = 2\ndirection = \"ba\"",
            "device = 4",
            "",
        ];
        let events: String = keys.iter().map(|keys| format!("[[event]]\naction = \"drop\"\n{keys}\n")).collect();
        let spec = Spec { script: Script::parse(&events).unwrap(), ..Spec::default() }.for_wire_of(2);
        let ways: Vec<_> = spec.script.events.iter().map(|event| event.direction).collect();
        assert_eq!(ways, [Some(Ab), Some(Ba), Some(Ab), Some(Ba), None]);
        assert!(spec.check_link().is_ok());
    }

    #[test]
    fn whole_names_of_scripts_are_those_of_this_folder() {
        let here = std::env::current_dir().unwrap();
        let here = here.to_str().unwrap();
        let whole = |spec| with_whole_names(spec).unwrap();
        assert_eq!(whole("loss=0.5, @a.toml,@/b/c.toml,@"), format!("loss=0.5,@{here}/a.toml,@/b/c.toml,@"));
        assert_eq!([whole("ab.rate=1Gbit"), whole("")], ["ab.rate=1Gbit", ""]);
    }

    #[test]
    fn scripts_are_read_from_files_beside_other_faults() {
        let path = |name: &str| std::env::temp_dir().join(format!("softnic-spec-{}-{name}", std::process::id()));
        let write = |name: &str, text: &str| {
            std::fs::write(path(name), text).unwrap();
            path(name).to_str().unwrap().to_owned()
        };
        let drop = write("drop.toml", "[[event]]\naction = \"drop\"\nnth = 3");
        let dup = write("dup.toml", "[[event]]\naction = \"duplicate\"");
        let wrong = write("wrong.toml", "[[event]]\naction = \"drop\"\nnth = 0");
        let large = write("large.toml", &"#\n".repeat(1 << 20));
        let spec: Spec = format!("@{drop}, loss=0.5 ,@{dup}").parse().unwrap();
        assert_eq!(spec.faults, [Fault::Loss(0.5)]);
        let events = [&drop, &dup].map(|f| Script::parse(&std::fs::read_to_string(f).unwrap()).unwrap().events);
        assert_eq!(spec.script.events, events.concat());
        assert_eq!(
            error(&format!("@{wrong}")),
            format!("{wrong}: event 1: nth: it cannot be 0: write a whole number, at least 1")
        );
        assert_eq!(error(&format!("loss=0.1,@{large}")), format!("{large}: more than 1 MiB is no script"));
        assert!(error("@/no/such.toml").starts_with("/no/such.toml: No such file"));
        assert!(error("@").starts_with("'@' is no fault"));
        for file in [drop, dup, wrong, large] {
            std::fs::remove_file(file).unwrap();
        }
    }
}
