//! `fio` with its engine `rdma`: how it is called, and whether it moved all that it was told to.
//!
//! For this engine `--rw` is no direction but the end: with `read` fio listens, with `write` it connects, and asks for what its `--verb` says. So the client has
//! `--rw=write` also where it READs, and two ends with `--rw=read` wait for each other for ever.

use super::tools::{Case, PORT, Prints, case};

const PROGRAM: &str = "fio";

/// The cases. Not `--verb=send`: fio connects without RNR retries, so a SEND that comes before its receive ends the connection.
pub(super) fn cases() -> Vec<Case> {
    let options = [
        ("--verb=write --bs=65536 --size=16777216 --iodepth=16", true),
        ("--verb=read --bs=65536 --size=16777216 --iodepth=16", true),
        ("--verb=write --bs=1048576 --size=67108864 --iodepth=4", false),
        ("--verb=read --bs=4096 --size=4194304 --iodepth=32", false),
    ];
    options.map(|(options, short)| case(PROGRAM, options, Prints::Fio, short)).into()
}

/// The same on one host. A job of fio's ends by `_exit` as soon as it has its peer's last message, mostly before the acknowledgement has left, so its client sends that
/// message again for some seconds: one case is enough for every run.
pub(super) fn on_one_host() -> Vec<Case> {
    let mut all = cases();
    all.iter_mut().skip(1).for_each(|case| case.short = false);
    all
}

/// What follows an option and a `=`.
fn value<'a>(options: &'a str, name: &str) -> &'a str {
    options.split_whitespace().find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default()
}

/// The words of the command.
pub(super) fn words(options: &str, server: Option<&str>) -> Vec<String> {
    let mut words = vec![PROGRAM.to_owned(), "--name=job".into(), "--ioengine=rdma".into(), format!("--port={PORT}")];
    match server {
        Some(address) => words.extend([format!("--hostname={address}"), "--rw=write".into()]),
        None => words.push("--rw=read".into()),
    }
    words.extend(options.split_whitespace().map(str::to_owned));
    words
}

/// Whether a client did what it was told.
pub(super) fn judge(options: &str, printed: &str) -> Result<(), String> {
    let number = |name| value(options, name).parse::<u64>().unwrap_or(0);
    let expected = number("--size") / number("--bs").max(1);
    let issued = printed.lines().find_map(|line| line.trim().strip_prefix("issued rwts: total="));
    let counts = issued.ok_or("the client prints no result")?.split([',', ' ']);
    let counts: Vec<u64> = counts.take(2).filter_map(|count| count.parse().ok()).collect();
    // A client's blocks count as written, whatever its verb.
    match counts == [0, expected] && printed.contains("err= 0:") {
        true => Ok(()),
        false => Err(format!("the client moved {counts:?} blocks, not {expected}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: &str = "--verb=write --bs=65536 --size=131072 --iodepth=16";
    const GOOD: &str = "job: (groupid=0, jobs=1): err= 0: pid=9004: Mon Nov 16 11:53:02 2026
     issued rwts: total=0,2,0,0 short=0,0,0,0 dropped=0,0,0,0
";

    #[test]
    fn fewer_blocks_or_others_than_asked_for_are_a_failure() {
        assert_eq!(judge(OPTIONS, GOOD), Ok(()));
        for (from, to) in [("0,2,0", "0,1,0"), ("0,2,0", "2,0,0"), ("err= 0", "err= 5"), ("issued", "")] {
            assert!(judge(OPTIONS, &GOOD.replace(from, to)).is_err(), "{to} in the place of {from}");
        }
    }

    #[test]
    fn the_client_connects_whatever_its_verb_is() {
        for options in [OPTIONS, &OPTIONS.replace("--verb=write", "--verb=read")] {
            let client = words(options, Some("10.0.0.1")).join(" ");
            assert!(client.contains("--hostname=10.0.0.1 --rw=write") && client.ends_with(options), "{client}");
            assert!(words(options, None).contains(&"--rw=read".to_owned()));
        }
    }
}
