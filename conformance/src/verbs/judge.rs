//! Whether what a program printed is what it prints when all is well.

use super::tools::{Case, Prints};
use super::{fio, libfabric, qperf, ucx};

/// Words that no program prints then.
const BAD: [&str; 8] = ["fail", "error", "couldn't", "unable", "mismatch", "panicked", "invalid data", "unsupported"];

/// How an end ended: its exit code, `None` when a signal or we ended it, and all that it printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) text: String,
}

impl Ended {
    /// What must hold for both ends.
    pub(super) fn check(&self, end: &str) -> Result<(), String> {
        match self.code {
            Some(0) => {}
            Some(code) => return Err(format!("the {end} exits with {code}")),
            None => return Err(format!("the {end} was ended")),
        }
        let bad = self.text.lines().find(|line| BAD.iter().any(|bad| line.to_lowercase().contains(bad)));
        bad.map_or(Ok(()), |line| Err(format!("the {end} says: {}", line.trim())))
    }
}

/// Whether both ends of a case ended well.
pub(super) fn both(case: &Case, server: &Ended, client: &Ended) -> Result<(), String> {
    // The client knows more: a server often only sees that nobody comes.
    self::client(case, client)?;
    server.check("server")?;
    match case.prints {
        Prints::PingPong => ping_pong(server, "server"),
        Prints::Pings(count) => pings(server, "server", count),
        Prints::Status | Prints::Group => status(server, "server"),
        Prints::Fabric => libfabric::judge(case.options, &server.text, "server"),
        _ => Ok(()),
    }
}

/// Whether a program on softnic that wished for another transport got it (`peer` is `None`), or was told once that this peer has it not.
pub(super) fn transport(case: &Case, text: &str, peer: Option<&str>) -> Result<(), String> {
    let Some(name) = case.transport else { return Ok(()) };
    let said: Vec<&str> = text.lines().filter(|line| line.ends_with("rc is used")).collect();
    match (peer, &said[..]) {
        (None, []) => Ok(()),
        (None, [line, ..]) => Err(format!("softnic says: {line}")),
        (Some(peer), [line]) if *line == format!("softnic: {peer} does not speak {name}: rc is used") => Ok(()),
        (Some(peer), _) => Err(format!("softnic does not say once that {peer} does not speak {name}: {said:?}")),
    }
}

/// Whether the client of a case ended well.
pub(super) fn client(case: &Case, client: &Ended) -> Result<(), String> {
    client.check("client")?;
    match case.prints {
        Prints::Device | Prints::Port | Prints::Fabrics => Ok(()),
        Prints::PingPong => ping_pong(client, "client"),
        Prints::Pings(count) | Prints::PingsTwice(count) => pings(client, "client", count),
        Prints::Status | Prints::Group => status(client, "client"),
        Prints::Ucx => ucx::judge(case.options, &client.text),
        Prints::Fabric => libfabric::judge(case.options, &client.text, "client"),
        Prints::Fio => fio::judge(case.options, &client.text),
        Prints::Qperf => qperf::judge(case.options, &client.text),
        Prints::OneRow => {
            let rows = rows(&client.text).len();
            if rows == 1 { positive(&client.text) } else { Err(format!("the client prints {rows} results, not one")) }
        }
        Prints::SizesUpTo(largest) => {
            let sizes: Vec<u64> = rows(&client.text).iter().map(|row| row[0] as u64).collect();
            let expected: Vec<u64> = (1..=largest.ilog2()).map(|bit| 1 << bit).collect();
            match sizes == expected {
                true => positive(&client.text),
                false => Err(format!("the client prints results of the sizes {sizes:?}")),
            }
        }
    }
}

fn ping_pong(ended: &Ended, end: &str) -> Result<(), String> {
    let seen = ["bytes in", "iters in"].iter().all(|words| ended.text.lines().any(|l| l.contains(words)));
    if seen { Ok(()) } else { Err(format!("the {end} does not say how long it took")) }
}

/// What rping says on stderr. That is not buffered and stdout is, so it may stand in the midst of a line.
const ON_STDERR: [&str; 3] =
    ["client DISCONNECT EVENT...\n", "server DISCONNECT EVENT...\n", "wait for RDMA_READ_ADV state 10\n"];

/// Every ping has its line.
fn pings(ended: &Ended, end: &str, count: u32) -> Result<(), String> {
    let text = ON_STDERR.iter().fold(ended.text.clone(), |text, said| text.replace(said, ""));
    let seen = text.lines().filter(|line| line.contains("ping data: rdma-ping-")).count();
    if seen == count as usize { Ok(()) } else { Err(format!("the {end} prints {seen} pings, not {count}")) }
}

fn status(ended: &Ended, end: &str) -> Result<(), String> {
    let seen = ended.text.lines().any(|line| line.trim() == "return status 0");
    if seen { Ok(()) } else { Err(format!("the {end} does not say that all went well")) }
}

/// What `ibv_devinfo -v` must say of a device with this address.
fn device(ended: &Ended, address: &str) -> Result<(), String> {
    ended.check("program")?;
    let gid = format!("::ffff:{address}, RoCE v2");
    // A veth: four lanes of 25 Gbit/s.
    let speed = ["active_width:\t\t4X (2)", "active_speed:\t\t25.0 Gbps (32)"];
    let words = ["softnic0", "PORT_ACTIVE", "Ethernet", "max_qp:", &gid];
    let missing = words.into_iter().chain(speed).find(|w| !ended.text.contains(w));
    missing.map_or(Ok(()), |word| Err(format!("it does not say `{word}`")))
}

/// What `ibstat` and `ibstatus` must say of the port of a veth.
fn port(case: &Case, ended: &Ended) -> Result<(), String> {
    ended.check("program")?;
    let words = match case.program {
        "ibstat" => ["CA 'softnic0'", "State: Active", "Rate: 100", "Link layer: Ethernet"],
        _ => ["'softnic0' port 1", "4: ACTIVE", "100 Gb/sec (4X EDR)", "Ethernet"],
    };
    let missing = words.into_iter().chain(["LinkUp"]).find(|w| !ended.text.contains(w));
    missing.map_or(Ok(()), |word| Err(format!("it does not say `{word}`")))
}

/// What a program that describes a device with this address must say.
pub(super) fn alone(case: &Case, ended: &Ended, address: &str) -> Result<(), String> {
    match case.prints {
        Prints::Fabrics => ended.check("program").and_then(|()| libfabric::fabrics(&ended.text)),
        Prints::Port => port(case, ended),
        _ => device(ended, address),
    }
}

/// The rows of perftest's table: lines of numbers alone.
pub(super) fn rows(text: &str) -> Vec<Vec<f64>> {
    let row = |line: &str| line.split_whitespace().map(|word| word.parse().ok()).collect::<Option<Vec<f64>>>();
    text.lines().filter_map(row).filter(|row| row.len() >= 4).collect()
}

/// Sizes and counts are positive, and so is something of what was measured: a peak is 0 where nobody looks for it, as with -D, the
/// bandwidth of few bytes on a slow machine, and the rate of few messages. On a machine so busy that perftest does not find out how fast
/// its own clock goes, which it says, all rates are 0: then the counts say that all came through.
fn positive(text: &str) -> Result<(), String> {
    let has_no_clock = text.contains("Correlation coefficient r^2");
    let right = |row: &Vec<f64>| row[0] > 0.0 && row[1] > 0.0 && (has_no_clock || row[3..].iter().any(|&x| x > 0.0));
    let wrong = rows(text).into_iter().find(|row| !right(row));
    wrong.map_or(Ok(()), |row| Err(format!("the client prints {row:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = " #bytes     #iterations    BW peak[MB/sec]    BW average[MB/sec]   MsgRate[Mpps]
 2          20             1.20               1.10             \t\t   0.551000
 4          20             2.40               2.10             \t\t   0.551000
---------------------------------------------------------------------------------------
";

    fn ended(text: &str) -> Ended {
        Ended { code: Some(0), text: text.into() }
    }

    fn case(prints: Prints) -> Case {
        Case { program: "ib_write_bw", options: "", transport: None, fault: None, prints, short: true }
    }

    #[test]
    fn every_size_has_its_row() {
        let judge = |prints, text: &str| both(&case(prints), &ended(""), &ended(text));
        assert_eq!(judge(Prints::SizesUpTo(4), TABLE), Ok(()));
        assert!(judge(Prints::SizesUpTo(8), TABLE).is_err(), "8 is missing");
        assert!(judge(Prints::OneRow, TABLE).is_err(), "there are two");
        assert!(judge(Prints::OneRow, "").is_err());
        assert!(judge(Prints::OneRow, "2 20 0.00 0.00 0.00").is_err(), "nothing came through");
        assert_eq!(judge(Prints::OneRow, "2 20 0.01 0.01 0.000"), Ok(()));
        assert_eq!(judge(Prints::OneRow, "64 20000 0.00 45.6 0.7"), Ok(()), "for a given time there is no peak");
        assert_eq!(judge(Prints::OneRow, "2 5 0.00 0.00 0.000997"), Ok(()), "few bytes, slowly");
        let without_clock = "Correlation coefficient r^2: 0.359589 < 0.9\n65536 20 0.00 0.00 0.000000";
        assert_eq!(judge(Prints::OneRow, without_clock), Ok(()), "how fast is not known, that it came is");
    }

    #[test]
    fn ping_pong_says_how_long_it_took_at_both_ends() {
        let good = ended("8192000 bytes in 0.01 seconds = 5 Mbit/sec\n1000 iters in 0.01 seconds = 12 usec/iter");
        assert_eq!(both(&case(Prints::PingPong), &good, &good), Ok(()));
        assert!(both(&case(Prints::PingPong), &ended(""), &good).is_err());
    }

    #[test]
    fn programs_of_librdmacm_say_what_they_did_at_both_ends() {
        let two = ended("ping data: rdma-ping-0: ABC\nping data: rdma-ping-1: BCD\n");
        assert_eq!(both(&case(Prints::Pings(2)), &two, &two), Ok(()));
        assert!(both(&case(Prints::Pings(3)), &two, &two).is_err(), "one is missing");
        assert!(both(&case(Prints::Pings(2)), &ended(""), &two).unwrap_err().contains("server"));
        let good = ended("test complete\nreturn status 0\n");
        assert_eq!(both(&case(Prints::Status), &good, &good), Ok(()));
        assert!(both(&case(Prints::Status), &ended("return status 0x1"), &good).is_err());
    }

    #[test]
    fn a_peer_without_the_transport_is_named_once() {
        let over_sr = Case { transport: Some("sr"), ..case(Prints::OneRow) };
        let line = "softnic: 10.0.0.2 does not speak sr: rc is used\n";
        assert_eq!(transport(&over_sr, "2 20 1.0 1.0\n", None), Ok(()));
        assert!(transport(&over_sr, line, None).is_err());
        assert_eq!(transport(&over_sr, line, Some("10.0.0.2")), Ok(()));
        for wrong in ["", &line.repeat(2), "softnic: 10.0.0.2 says nothing about sr: rc is used"] {
            assert!(transport(&over_sr, wrong, Some("10.0.0.2")).is_err(), "{wrong}");
        }
        assert_eq!(transport(&case(Prints::OneRow), line, None), Ok(()), "nobody wished for anything");
    }

    #[test]
    fn a_program_that_complains_or_fails_did_not_pass() {
        let good = ended("2 20 1.0 1.0 1.0");
        let judge = |server: &Ended, client: &Ended| both(&case(Prints::OneRow), server, client);
        assert_eq!(judge(&good, &good), Ok(()));
        assert!(judge(&Ended { code: Some(1), ..good.clone() }, &good).unwrap_err().contains("server exits with 1"));
        assert!(judge(&good, &Ended { code: None, ..good.clone() }).is_err());
        assert!(judge(&good, &ended("2 20 1.0 1.0 1.0\n Completion with error at client")).is_err());
    }

    #[test]
    fn a_ping_whose_line_was_interrupted_by_stderr_counts() {
        let line = |n| format!("ping data: rdma-ping-{n}: ABC\n");
        let torn = format!("{}pinclient DISCONNECT EVENT...\ng data: rdma-ping-1: ABC\n{}", line(0), line(2));
        let ended = Ended { code: Some(0), text: torn };
        assert_eq!(pings(&ended, "client", 3), Ok(()));
        assert!(pings(&ended, "client", 4).is_err());
    }
}
