//! Parts of a SPEC that are about calls: `verbs.post_send=ENOMEM:1e-3`, `cm.connect=REJECTED:28`, `event.PORT_ERR=5s+2s`.

use std::time::Duration;

use super::errno::errno;
use super::verb::{Failure, Verb};
use super::{
    AsyncEvent, CallAction, CallFaults, CallRule, CmEvent, CompletionAction, CompletionRule, Happening, HappeningRule,
    LateRule, Named, WcStatus, When, Which,
};
use crate::units::{MAX_DELAY, parse_chance, parse_time};

/// Whether a part of a SPEC is about calls.
pub(crate) fn is_part(part: &str) -> bool {
    ["verbs.", "cm.", "event."].iter().any(|prefix| part.starts_with(prefix))
}

/// Reads a part of a SPEC, or says why not.
pub(crate) fn parse_part(part: &str) -> Result<CallFaults, String> {
    let (key, value) = part.split_once('=').ok_or("write NAME=WHAT, e.g. verbs.post_send=ENOMEM:1e-3")?;
    let (family, name) = key.split_once('.').unwrap_or((key, ""));
    let (name, nth) = match name.split_once('#') {
        None => (name, None),
        Some((name, nth)) => {
            let found = number(nth).filter(|&n| n > 0);
            (name, Some(found.ok_or_else(|| format!("'{nth}' behind # is no number, from 1"))?))
        }
    };
    let mut faults = CallFaults::default();
    let label = part.to_owned();
    match family {
        "event" => faults.happenings.push(Named::new(label, async_event(name, nth, value)?)),
        "cm" if name.starts_with(|c: char| c.is_ascii_uppercase()) => {
            let event =
                CmEvent::from_name(name).ok_or_else(|| format!("there is no event '{name}': {}", CmEvent::names()))?;
            match event.is_by_itself() {
                true if nth.is_some() => return Err(format!("{name} comes by itself: # is for calls")),
                true => {
                    let rule = HappeningRule { when: when(value)?, what: Happening::Cm(event) };
                    faults.happenings.push(Named::new(label, rule));
                }
                false => faults.late.push(Named::new(label, late(event, nth, value)?)),
            }
        }
        _ => {
            let whole = if family == "cm" { format!("rdma_{name}") } else { name.to_owned() };
            // In scripts all have one list; here each family has its own prefix.
            let verb = Verb::from_name(&whole).filter(|verb| verb.is_cm() == (family == "cm"));
            let verb = verb.ok_or_else(|| unknown_verb(&whole))?;
            of_call(&mut faults, label, verb, nth, value)?;
        }
    }
    Ok(faults)
}

/// Why a name is none of a call's.
pub(super) fn unknown_verb(name: &str) -> String {
    match name {
        _ if name.strip_prefix("ibv_").is_some_and(|rest| Verb::from_name(rest).is_some()) => {
            format!("verbs are named without ibv_: write {}", &name[4..])
        }
        _ => format!("there is no call '{name}' that faults can be for; docs/faults.md lists them"),
    }
}

/// A number without a sign.
fn number(s: &str) -> Option<u64> {
    s.bytes().all(|b| b.is_ascii_digit()).then(|| s.parse().ok()).flatten()
}

fn time(s: &str) -> Result<Duration, String> {
    let found = parse_time(s).ok().filter(|t| *t <= MAX_DELAY);
    found.ok_or_else(|| format!("'{s}' is no time of at most 1000s, e.g. 20ms"))
}

/// What may stand behind a value: nothing, or a probability.
fn chance(rest: &[&str]) -> Result<Option<f64>, String> {
    match rest {
        [] => Ok(None),
        [p] => parse_chance(p).map(Some).map_err(|_| format!("'{p}' is no probability from 0 to 1, e.g. 1e-4")),
        [_, more, ..] => Err(format!("there is nothing for '{more}' to say")),
    }
}

fn of_call(faults: &mut CallFaults, name: String, verb: Verb, nth: Option<u64>, value: &str) -> Result<(), String> {
    let pieces: Vec<&str> = value.split(':').collect();
    let (what, rest) = (pieces[0], &pieces[1..]);
    let argument = |example: &str| {
        rest.split_first().ok_or_else(|| format!("{what} needs more: write {example}")).map(|(a, b)| (*a, b))
    };
    let mut completion = |action, rest: &[&str]| {
        check_poll(verb, what)?;
        let which = Which { nth, chance: chance(rest)?, ..Which::default() };
        faults.completions.push(Named::new(name.clone(), CompletionRule { side: None, which, action }));
        Ok(())
    };
    if let Some(status) = WcStatus::from_name(what) {
        return completion(CompletionAction::Status(status, 0), rest);
    }
    let (action, rest) = match what {
        "late" => {
            let (t, rest) = argument("late:5ms")?;
            return completion(CompletionAction::Late(time(t)?), rest);
        }
        "polls" => {
            let (n, rest) = argument("polls:3")?;
            return completion(CompletionAction::Polls(few(n)?), rest);
        }
        "reorder" => {
            let (n, rest) = argument("reorder:3")?;
            return completion(CompletionAction::Reorder(few(n)?), rest);
        }
        "overrun" => return completion(CompletionAction::Overrun, rest),
        "kill" => (CallAction::Kill, rest),
        "restart" => (CallAction::Restart, rest),
        "stop" => {
            let (t, rest) = argument("stop:2s")?;
            (CallAction::Stop(time(t)?), rest)
        }
        _ => match (CmEvent::from_name(what), errno(what), parse_time(what)) {
            (Some(event), ..) => {
                let status = instead(event, verb)?;
                if event == CmEvent::Rejected {
                    let (reason, rest) = argument("REJECTED:28, with the reason that the peer gives")?;
                    let number = number(reason).filter(|&n| n > 0 && n <= 0xffff);
                    let number = number.ok_or_else(|| format!("'{reason}' is no reason of a REJ, from 1, e.g. 28"))?;
                    (CallAction::Event(event, number as i32), rest)
                } else {
                    (CallAction::Event(event, status), rest)
                }
            }
            (None, Some(e), _) => (CallAction::Fail(check_fails(verb, e)?), rest),
            (None, None, Ok(_)) => (CallAction::Delay(time(what)?), rest),
            (None, None, Err(_)) => return Err(unknown_what(verb, what)),
        },
    };
    let which = Which { nth, chance: chance(rest)?, ..Which::default() };
    faults.calls.push(Named::new(name, CallRule { verb, which, action }));
    Ok(())
}

/// How many polls, or completions.
fn few(s: &str) -> Result<u32, String> {
    let found = number(s).filter(|n| (1..=1000).contains(n));
    found.map(|n| n as u32).ok_or_else(|| format!("'{s}' is no number from 1 to 1000"))
}

fn unknown_what(verb: Verb, what: &str) -> String {
    let name = verb.name();
    if name == "poll_cq" {
        return format!(
            "'{what}' is nothing that happens to it: write an errno, a time, kill, restart, stop:T, a status ({}), late:T, polls:N, reorder:N \
             or overrun",
            WcStatus::names()
        );
    }
    let events: Vec<&str> =
        CmEvent::ALL.iter().filter(|e| e.instead_of().is_some_and(|(of, _)| of == verb)).map(|e| e.name()).collect();
    let events = if events.is_empty() { String::new() } else { format!(", {}", events.join(", ")) };
    format!(
        "'{what}' is nothing that happens to {name}: write an errno, e.g. ENOMEM, a time, kill, restart or stop:T{events}"
    )
}

/// Completions are what polls find.
fn check_poll(verb: Verb, what: &str) -> Result<(), String> {
    match verb {
        Verb::PollCq => Ok(()),
        verb => Err(format!("{what} happens to completions, which verbs.poll_cq finds; {} has none", verb.name())),
    }
}

/// A call that can fail.
pub(super) fn check_fails(verb: Verb, e: i32) -> Result<i32, String> {
    match verb.failure() {
        Failure::Errno => Ok(e),
        Failure::Never => Err(format!("{} returns nothing, so it cannot fail", verb.name())),
    }
}

/// The status of an event that follows a call instead of what was asked for.
pub(super) fn instead(event: CmEvent, verb: Verb) -> Result<i32, String> {
    match event.instead_of() {
        Some((of, status)) if of == verb => Ok(status),
        Some((of, _)) => Err(format!("{} follows {}, not {}", event.name(), of.name(), verb.name())),
        None => Err(format!("{} is no failure of {}", event.name(), verb.name())),
    }
}

fn late(event: CmEvent, nth: Option<u64>, value: &str) -> Result<LateRule, String> {
    let rest = value.strip_prefix("late:").ok_or_else(|| {
        format!("{} comes when the connection manager has it: write {}=late:1s", event.name(), event.name())
    })?;
    let pieces: Vec<&str> = rest.split(':').collect();
    let which = Which { nth, chance: chance(&pieces[1..])?, ..Which::default() };
    Ok(LateRule { event, which, delay: time(pieces[0])? })
}

/// A time, or the call before which.
pub(super) fn when(s: &str) -> Result<When, String> {
    match s.split_once('#') {
        None => Ok(When::At(time(s)?)),
        Some((verb, nth)) => {
            let verb = Verb::from_name(verb).ok_or_else(|| unknown_verb(verb))?;
            let nth = number(nth).filter(|&n| n > 0).ok_or_else(|| format!("'{nth}' behind # is no number, from 1"))?;
            Ok(When::Call(verb, nth))
        }
    }
}

/// What is wrong with an asynchronous event, if anything.
pub(super) fn check_async(event: AsyncEvent, lasts: Option<Duration>, object: Option<u32>) -> Result<(), String> {
    let name = event.name();
    if lasts.is_some() && event != AsyncEvent::PortErr {
        return Err(format!("{name} has no end: only PORT_ERR lasts"));
    }
    if object.is_some() && !event.has_object() {
        return Err(format!("{name} is about the device, not about an object of the program"));
    }
    Ok(())
}

fn async_event(name: &str, object: Option<u64>, value: &str) -> Result<HappeningRule, String> {
    let event =
        AsyncEvent::from_name(name).ok_or_else(|| format!("there is no event '{name}': {}", AsyncEvent::names()))?;
    let (at, lasts) = match value.split_once('+') {
        None => (value, None),
        Some((at, lasts)) => (at, Some(time(lasts)?)),
    };
    let object = object.map(|n| u32::try_from(n).map_err(|_| format!("there is no object {n}"))).transpose()?;
    check_async(event, lasts, object)?;
    Ok(HappeningRule { when: when(at)?, what: Happening::Async { event, lasts, object: object.unwrap_or(1) } })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(part: &str) -> CallRule {
        parse_part(part).unwrap().calls[0].rule
    }

    #[test]
    fn parts_are_read() {
        let rule = one("verbs.post_send=ENOMEM:1e-3");
        assert_eq!((rule.verb, rule.action, rule.which.chance), (Verb::PostSend, CallAction::Fail(12), Some(1e-3)));
        assert_eq!(one("verbs.reg_mr=100ms").action, CallAction::Delay(Duration::from_millis(100)));
        let rule = one("verbs.reg_mr#3=ENOMEM");
        assert_eq!((rule.which.nth, rule.which.chance), (Some(3), None));
        assert_eq!(one("verbs.post_send#100=kill").action, CallAction::Kill);
        assert_eq!(one("cm.accept#1=restart").action, CallAction::Restart);
        assert_eq!(one("verbs.ack_cq_events=stop:2s:50%").action, CallAction::Stop(Duration::from_secs(2)));
        assert_eq!(one("cm.connect=REJECTED:28:0.5").action, CallAction::Event(CmEvent::Rejected, 28));
        assert_eq!(one("cm.connect=UNREACHABLE").action, CallAction::Event(CmEvent::Unreachable, -110));
        assert_eq!(one("cm.resolve_addr=ENODEV").verb, Verb::CmResolveAddr);
        let completion = |part: &str| parse_part(part).unwrap().completions[0].rule.action;
        assert_eq!(completion("verbs.poll_cq=RETRY_EXC_ERR:1e-4"), CompletionAction::Status(WcStatus::RetryExcErr, 0));
        assert_eq!(completion("verbs.poll_cq=late:5ms"), CompletionAction::Late(Duration::from_millis(5)));
        assert_eq!(completion("verbs.poll_cq=polls:3:0.5"), CompletionAction::Polls(3));
        assert_eq!(completion("verbs.poll_cq=reorder:3"), CompletionAction::Reorder(3));
        assert_eq!(completion("verbs.poll_cq#7=overrun"), CompletionAction::Overrun);
        let happening = |part: &str| parse_part(part).unwrap().happenings[0].rule;
        let lasts = Some(Duration::from_secs(2));
        let what = Happening::Async { event: AsyncEvent::PortErr, lasts, object: 1 };
        assert_eq!(happening("event.PORT_ERR=5s+2s"), HappeningRule { when: When::At(Duration::from_secs(5)), what });
        let what = Happening::Async { event: AsyncEvent::QpFatal, lasts: None, object: 2 };
        assert_eq!(
            happening("event.QP_FATAL#2=post_send#9"),
            HappeningRule { when: When::Call(Verb::PostSend, 9), what }
        );
        assert_eq!(happening("cm.ADDR_CHANGE=1s").what, Happening::Cm(CmEvent::AddrChange));
        let late = parse_part("cm.TIMEWAIT_EXIT=late:2s:0.1").unwrap().late[0].rule;
        assert_eq!(
            (late.event, late.delay, late.which.chance),
            (CmEvent::TimewaitExit, Duration::from_secs(2), Some(0.1))
        );
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_a_reason() {
        for (part, said) in [
            ("verbs.post_send", "write NAME=WHAT, e.g. verbs.post_send=ENOMEM:1e-3"),
            ("verbs.post_sned=EIO", "there is no call 'post_sned'"),
            ("verbs.ibv_post_send=EIO", "verbs are named without ibv_: write post_send"),
            ("verbs.rdma_connect=EIO", "there is no call 'rdma_connect'"),
            ("cm.post_send=EIO", "there is no call 'rdma_post_send'"),
            ("verbs.post_send=EFOO", "'EFOO' is nothing that happens to post_send: write an errno"),
            ("verbs.post_send=1e-3", "'1e-3' is nothing that happens to post_send"),
            ("verbs.post_send=EIO:2", "'2' is no probability from 0 to 1"),
            ("verbs.post_send=EIO:0.1:0.1", "there is nothing for '0.1' to say"),
            ("verbs.post_send#0=EIO", "'0' behind # is no number, from 1"),
            ("verbs.post_send#x=EIO", "'x' behind # is no number"),
            (
                "verbs.reg_mr=RETRY_EXC_ERR",
                "RETRY_EXC_ERR happens to completions, which verbs.poll_cq finds; reg_mr has none",
            ),
            ("verbs.reg_mr=late:1s", "late happens to completions"),
            (
                "verbs.poll_cq=FATAL_ERR",
                "'FATAL_ERR' is nothing that happens to it: write an errno, a time, kill, restart, stop:T, a status (LOC",
            ),
            ("verbs.poll_cq=late", "late needs more: write late:5ms"),
            ("verbs.poll_cq=reorder:0", "'0' is no number from 1 to 1000"),
            ("verbs.poll_cq=late:2000s", "'2000s' is no time of at most 1000s"),
            ("verbs.ack_cq_events=EIO", "ack_cq_events returns nothing, so it cannot fail"),
            ("verbs.post_send=stop", "stop needs more: write stop:2s"),
            ("cm.connect=REJECTED", "REJECTED needs more: write REJECTED:28"),
            ("cm.connect=REJECTED:x", "'x' is no reason of a REJ"),
            ("cm.connect=ADDR_ERROR", "ADDR_ERROR follows rdma_resolve_addr, not rdma_connect"),
            ("cm.connect=ESTABLISHED", "ESTABLISHED is no failure of rdma_connect"),
            ("cm.FOO=1s", "there is no event 'FOO': ADDR_RESOLVED, "),
            ("cm.ESTABLISHED=1s", "ESTABLISHED comes when the connection manager has it: write ESTABLISHED=late:1s"),
            ("cm.ADDR_CHANGE#2=1s", "ADDR_CHANGE comes by itself: # is for calls"),
            ("event.FOO=1s", "there is no event 'FOO': CQ_ERR, QP_FATAL"),
            ("event.QP_FATAL=5s+2s", "QP_FATAL has no end: only PORT_ERR lasts"),
            ("event.PORT_ERR#2=5s", "PORT_ERR is about the device, not about an object"),
            ("event.PORT_ERR=5", "'5' is no time"),
            ("event.PORT_ERR=post_sned#3", "there is no call 'post_sned'"),
        ] {
            let e = parse_part(part).unwrap_err();
            assert!(e.starts_with(said) && e.lines().count() == 1, "{part}: {e}");
        }
    }
}
